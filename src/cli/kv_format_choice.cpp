#include "cli/kv_format_choice.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <span>

#include "base/checksum.h"
#include "cli/version.h"
#include "eval/kv_auto.h"
#include "eval/named_formats.h"

namespace tidemill {
namespace {

// Beside the downloaded models; "" where there is no home.
std::filesystem::path tables_folder() {
  if (const char* cache = std::getenv("TIDEMILL_CACHE"); cache && *cache)
    return std::filesystem::path(cache) / "kv-formats";
  const char* home = std::getenv("HOME");
  return home && *home ? std::filesystem::path(home) / ".cache/tidemill/kv-formats" : std::filesystem::path();
}

std::string table_key(const EvalModel& model, const std::string& identity, const RunOptions& options) {
  return fmt::format("{} quantized {} kernels {} block {} version {}", identity,
                     options.quantization ? dtype_name(*options.quantization) : "none", model.backend->kernels(),
                     options.engine.block_size_tokens, version_text());
}

std::filesystem::path table_file(const std::string& key) {
  const uint64_t name = checksum_of(std::as_bytes(std::span(key)));
  return tables_folder() / fmt::format("{:016x}.json", name);
}

void show_measuring(const std::string& what, double seconds) {
  if (isatty(STDERR_FILENO) == 1) std::fprintf(stderr, "\r\033[KKV formats: %s (%.0f s)", what.c_str(), seconds);
}

Result<KvAutoTable> measure(const EvalModel& model, const RunOptions& options) {
  KvAutoOptions measuring;
  measuring.block_size_tokens = options.engine.block_size_tokens;
  measuring.on_progress = show_measuring;
  Result<KvAutoTable> table = measure_kv_formats(model, measuring);
  if (isatty(STDERR_FILENO) == 1) std::fputs("\r\033[K", stderr);
  return table;
}

// The kept level of formats that the user named.
std::optional<KvFidelity> kept_level(const KvAutoTable& table, const KvFormats& formats, int32_t num_layers) {
  for (const MeasuredFormat& each : table.formats) {
    const Result<NamedKvFormats> named = kv_formats_named(each.name, num_layers);
    if (named && kv_format_key(named->formats, 0) == kv_format_key(formats, 0)) return each.level;
  }
  return std::nullopt;
}

}  // namespace

Result<KvFormatDecision> decide_kv_formats(const EvalModel& model, const std::string& identity,
                                           const RunOptions& options) {
  KvFormatDecision decision;
  const KvFormatChoice& choice = options.kv_choice;
  if (choice.measured && (choice.keys || choice.values || choice.key_scales || choice.rotate || choice.skip_windowed ||
                          !choice.skipped_layers.empty()))
    return error(
        "--kv-cache-dtype auto chooses keys, values, scales, rotation and layers itself: give no other option of them");
  const int32_t num_layers = model.model->info().num_layers;
  const std::span<const float> key_biases = model.model->info().largest_key_biases;
  const bool can_keep = !identity.empty() && !tables_folder().empty();
  const std::string key = table_key(model, identity, options);
  std::optional<KvAutoTable> table;
  if (can_keep) {
    Result<std::optional<KvAutoTable>> kept = read_kv_table(table_file(key), key);
    if (!kept) decision.warnings.push_back(kept.error().message);
    if (kept) table = *std::move(kept);
  }
  const auto with_level = [&](const KvFormats& formats) {
    KvFormatsWithLevel found{formats, std::nullopt};
    if (is_exact(formats)) found.fidelity = KvFidelity::exact;
    if (!found.fidelity && table) found.fidelity = kept_level(*table, formats, num_layers);
    return found;
  };
  if (choice.measured) {
    if (!table) {
      Result<KvAutoTable> measured = measure(model, options);
      if (!measured) return measured.error();
      table = *std::move(measured);
      if (can_keep) {
        if (Result<void> done = write_kv_table(table_file(key), key, *table); !done)
          decision.warnings.push_back(done.error().message);
      }
    }
    const MeasuredFormat& chosen = table->choose(options.kv_fidelity);
    Result<NamedKvFormats> named = kv_formats_named(chosen.name, num_layers);
    if (!named) return named.error();
    decision.usual = {named->formats, chosen.level};
    decision.explanation = explain_choice(*table, options.kv_fidelity);
  } else {
    BiasedFormats biased = formats_for_biases(choice.formats(), choice.key_scales.has_value(), key_biases);
    decision.usual = with_level(biased.formats);
    if (!biased.warning.empty()) decision.warnings.push_back(std::move(biased.warning));
  }
  if (options.kv_reencode) {
    const KvFormat format = *options.kv_reencode;
    if (decision.usual.formats.sealed != KvBlockFormat(KvFormat::fp16) || is_plain(format))
      return error("--kv-reencode makes encoded copies of blocks in fp16: the cache is in {} and the copies in {}",
                   kv_formats_text(decision.usual.formats), kv_format_name(format));
    BiasedFormats biased =
        formats_for_biases({.sealed = format, .rotate = decision.usual.formats.rotate}, false, key_biases);
    decision.reencoded = with_level(biased.formats);
    if (!biased.warning.empty()) decision.warnings.push_back(std::move(biased.warning));
  }
  for (const KvFormats& formats : better_formats(decision.usual.formats, options.kv_request_formats)) {
    const bool keeps_keys = formats.sealed.keys == decision.usual.formats.sealed.keys;
    BiasedFormats biased = formats_for_biases(formats, keeps_keys, key_biases);
    decision.better.push_back(with_level(biased.formats));
    if (!biased.warning.empty()) decision.warnings.push_back(std::move(biased.warning));
  }
  return decision;
}

}  // namespace tidemill
