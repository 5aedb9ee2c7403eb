#include "eval/kv_auto.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/clock.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "bench/prompt_text.h"
#include "engine/engine.h"
#include "eval/kv_eval_report.h"
#include "runtime/lockstep.h"
#include "runtime/memory_plan.h"

namespace tidemill {
namespace {

using Json = nlohmann::ordered_json;
using std::chrono::steady_clock;

// Keys need more than values; rotation and scales by channel are what makes 4-bit keys bearable.
constexpr const char* candidates =
    "fp16,fp8_e4m3,int8,int8/int4,int8/nvfp4,int4,int4+rotation,int4+rotation+ends,nvfp4+rotation";
constexpr const char* candidates_with_windows = ",int8+windows,int8/int4+windows,int4+rotation+windows";

constexpr int32_t prompt_chars = 96;
constexpr int32_t unscored_rows = 32;  // at the beginning of a text, where little has been read
constexpr double share_for_writing = 0.4;
constexpr size_t most_table_bytes = 1 << 20;

double seconds_since(steady_clock::time_point start) {
  return std::chrono::duration<double>(steady_clock::now() - start).count();
}

// What the model writes; whatever was written when the time is over.
class Writer final : public EventListener {
 public:
  Writer(const EvalModel& model, const KvAutoOptions& options) : model_(model), options_(options) {
    length_ = std::min(options.text_tokens, model.model->info().context_length - 1);
  }

  Result<std::vector<std::vector<TokenId>>> write(steady_clock::time_point start, double limit_s) {
    const KvFormats formats{KvFormat::fp16};
    const KvLayout& layout = model_.model->kv_layout();
    EngineConfig config;
    config.groups = block_groups(layout, options_.block_size_tokens, formats);
    config.block_size_tokens = options_.block_size_tokens;
    config.max_num_seqs = options_.num_texts;
    config.max_model_len_tokens = length_ + 1;
    config.prefix_caching = false;
    config.kv_budget_bytes = sequence_kv_bytes(layout, options_.block_size_tokens, formats, length_ + 1) *
                             static_cast<size_t>(options_.num_texts + 1);
    auto storage = KvStorage::make(layout, options_.block_size_tokens, formats, config.kv_budget_bytes, model_.backend);
    if (!storage) return storage.error();
    auto executor = std::make_unique<ModelExecutor>(
        *model_.model, **storage,
        ExecutorOptions{.max_num_seqs = options_.num_texts, .max_rows = 512, .backend = model_.backend});
    SystemClock clock;
    Engine engine(config, std::move(executor), clock, *this);
    for (int32_t i = 0; i < options_.num_texts; ++i) {
      const auto id = engine.submit(request_of(i));
      if (const Refusal* refusal = std::get_if<Refusal>(&id)) return Error{refusal->message};
      ids_.push_back(std::get<RequestId>(id));
    }
    while (engine.step_once() && seconds_since(start) < limit_s) {
    }
    return std::move(texts_);
  }

  void publish(std::vector<RequestEvent> events) override {
    for (const RequestEvent& event : events) {
      const auto found = std::ranges::find(ids_, event.request);
      if (event.kind == RequestEvent::Kind::token && found != ids_.end())
        texts_[static_cast<size_t>(found - ids_.begin())].push_back(event.draw.token);
    }
  }

 private:
  Request request_of(int32_t index) {
    RandomSource random(static_cast<uint64_t>(index) + 1);
    const std::string words = PromptText::invented(static_cast<uint64_t>(index) + 1).cut(random, prompt_chars);
    Request request;
    request.prompt = model_.tokenizer->encode(words, {.add_special = false});
    const Tokenizer& tokenizer = *model_.tokenizer;
    if (tokenizer.adds_bos() && tokenizer.bos()) request.prompt.insert(request.prompt.begin(), *tokenizer.bos());
    if (request.prompt.size() > static_cast<size_t>(length_ / 2))
      request.prompt.resize(static_cast<size_t>(length_ / 2));
    request.max_tokens = length_ - static_cast<int64_t>(request.prompt.size());
    request.sampling.temperature = 1;
    request.sampling.ignore_eos = true;
    request.has_seed = true;
    request.sampling.seed = static_cast<uint64_t>(index) + 1;
    texts_.push_back(request.prompt);
    return request;
  }

  const EvalModel& model_;
  const KvAutoOptions& options_;
  int32_t length_;
  std::vector<RequestId> ids_;
  std::vector<std::vector<TokenId>> texts_;
};

bool has_windows_and_others(const KvLayout& layout) {
  const auto windowed = [](const KvLayerGroup& group) { return group.window > 0; };
  return std::ranges::any_of(layout.groups, windowed) && !std::ranges::all_of(layout.groups, windowed);
}

FidelityFigures figures_of(const RowStatistics& rows) {
  return {.mean_kl = rows.mean_kl(), .changed_top = 1 - rows.same_top(), .perplexity = rows.perplexity()};
}

}  // namespace

Result<KvAutoTable> measure_kv_formats(const EvalModel& model, const KvAutoOptions& options) {
  const steady_clock::time_point start = steady_clock::now();
  const auto tell = [&](const char* what) {
    if (options.on_progress) options.on_progress(what, seconds_since(start));
  };
  const KvLayout& layout = model.model->kv_layout();
  const std::string names = std::string(candidates) + (has_windows_and_others(layout) ? candidates_with_windows : "");
  Result<std::vector<NamedKvFormats>> formats = kv_format_list(names, model.model->info().num_layers);
  if (!formats) return formats.error();
  tell("the model writes a text to measure with");
  auto texts = Writer(model, options).write(start, options.limit_s * share_for_writing);
  if (!texts) return texts.error();

  LockstepOptions caches{.reference = {KvFormat::fp32},
                         .candidates = {},
                         .block_size_tokens = options.block_size_tokens,
                         .max_tokens = options.text_tokens,
                         .backend = model.backend};
  for (const NamedKvFormats& format : *formats) caches.candidates.push_back(format.formats);
  Result<std::unique_ptr<Lockstep>> lockstep = Lockstep::make(*model.model, caches);
  if (!lockstep) return lockstep.error();
  std::vector<RowStatistics> rows(formats->size());
  KvAutoTable table;
  for (const std::vector<TokenId>& text : *texts) {
    if (text.size() < 2 * unscored_rows) continue;
    tell("the formats read it");
    (*lockstep)->start(text, unscored_rows);
    while (!(*lockstep)->done() && seconds_since(start) < options.limit_s) {
      (*lockstep)->advance(options.text_tokens, [&](size_t i, int32_t, const RowDivergence& row) { rows[i].add(row); });
    }
    table.context_tokens = std::max(table.context_tokens, static_cast<int32_t>(text.size()));
  }
  table.num_tokens = rows.front().count();
  if (table.num_tokens == 0) return error("no text could be read within {:.0f} s", options.limit_s);
  table.seconds = seconds_since(start);
  const FidelityFigures floor = figures_of(rows.front());
  for (size_t i = 0; i < formats->size(); ++i) {
    const NamedKvFormats& format = (*formats)[i];
    MeasuredFormat& entry = table.formats.emplace_back();
    entry.name = format.name;
    entry.sequence_bytes =
        sequence_kv_bytes(layout, options.block_size_tokens, format.formats, measured_sequence_tokens);
    entry.figures = figures_of(rows[i]);
    entry.level = format.exact ? std::optional(KvFidelity::exact) : measured_fidelity(entry.figures, floor);
  }
  std::ranges::stable_sort(table.formats, std::greater(), &MeasuredFormat::sequence_bytes);
  return table;
}

const MeasuredFormat& KvAutoTable::choose(KvFidelity least) const {
  const MeasuredFormat* best = find(floor_format);
  for (const MeasuredFormat& format : formats) {
    const bool smaller = format.sequence_bytes < best->sequence_bytes ||
                         (format.sequence_bytes == best->sequence_bytes && best->name != floor_format &&
                          format.figures.mean_kl < best->figures.mean_kl);
    if (format.level && *format.level <= least && smaller) best = &format;
  }
  return *best;
}

const MeasuredFormat* KvAutoTable::find(const std::string& name) const {
  const auto found = std::ranges::find(formats, name, &MeasuredFormat::name);
  return found == formats.end() ? nullptr : &*found;
}

std::string explain_choice(const KvAutoTable& table, KvFidelity least) {
  const MeasuredFormat& chosen = table.choose(least);
  const MeasuredFormat& floor = *table.find(floor_format);
  const auto share = [&](const MeasuredFormat& format) {
    return static_cast<double>(format.sequence_bytes) / static_cast<double>(floor.sequence_bytes) * 100;
  };
  std::string text;
  for (const MeasuredFormat& format : table.formats) {
    text += fmt::format(
        "KV format {}: {:.0f} % of fp16's size, mean KL {:.5f}, {:.2f} % other likeliest tokens, "
        "perplexity {:+.2f} %: {}\n",
        format.name, share(format), format.figures.mean_kl, format.figures.changed_top * 100,
        (format.figures.perplexity / floor.figures.perplexity - 1) * 100,
        format.level ? kv_fidelity_name(*format.level) : "below all levels");
  }
  return text +
         fmt::format("the KV cache is {}: the smallest that is {} or better, by {} tokens at up to {} of context\n",
                     chosen.name, kv_fidelity_name(least), table.num_tokens, table.context_tokens);
}

// --- Keeping.

Result<void> write_kv_table(const std::filesystem::path& file, const std::string& key, const KvAutoTable& table) {
  Json json = {{"schema", "tidemill-kv-table/1"}, {"key", key},
               {"tokens", table.num_tokens},      {"context_tokens", table.context_tokens},
               {"seconds", table.seconds},        {"formats", Json::array()}};
  for (const MeasuredFormat& format : table.formats) {
    json["formats"].push_back({{"name", format.name},
                               {"sequence_bytes", format.sequence_bytes},
                               {"kl_mean", format.figures.mean_kl},
                               {"changed_top", format.figures.changed_top},
                               {"perplexity", format.figures.perplexity},
                               {"level", format.level ? Json(kv_fidelity_name(*format.level)) : Json()}});
  }
  std::error_code failed;
  std::filesystem::create_directories(file.parent_path(), failed);
  if (failed) return error("{} cannot be made: {}", file.parent_path().string(), failed.message());
  // Readers see the old file or the whole new one.
  const std::filesystem::path draft = file.string() + ".new";
  if (Result<void> done = write_json(draft.string(), json); !done) return done.error();
  std::filesystem::rename(draft, file, failed);
  if (failed) return error("{} cannot be written: {}", file.string(), failed.message());
  return {};
}

Result<std::optional<KvAutoTable>> read_kv_table(const std::filesystem::path& file, const std::string& key) {
  std::error_code absent;
  if (!std::filesystem::exists(file, absent)) return std::optional<KvAutoTable>();
  const Result<MappedFile> mapped = MappedFile::open(file);
  if (!mapped) return mapped.error();
  if (mapped->size_bytes() > most_table_bytes) return error("{} is no table of KV formats", mapped->name());
  const Result<nlohmann::json> json =
      parse_json({reinterpret_cast<const char*>(mapped->bytes().data()), mapped->bytes().size()});
  const auto broken = [&] { return error("{} is no table of KV formats", mapped->name()); };
  if (!json || !json->is_object() || !json->contains("key") || !json->contains("formats")) return broken();
  if ((*json)["key"] != key) return std::optional<KvAutoTable>();
  KvAutoTable table;
  const auto number = [](const nlohmann::json& from, const char* name) {
    const auto found = from.find(name);
    return found != from.end() && found->is_number() ? found->get<double>() : -1.0;
  };
  table.num_tokens = static_cast<int64_t>(number(*json, "tokens"));
  table.context_tokens = static_cast<int32_t>(number(*json, "context_tokens"));
  table.seconds = number(*json, "seconds");
  if (!(*json)["formats"].is_array()) return broken();
  for (const nlohmann::json& each : (*json)["formats"]) {
    if (!each.is_object() || !each.contains("name") || !each["name"].is_string()) return broken();
    MeasuredFormat format;
    format.name = each["name"].get<std::string>();
    const double bytes = number(each, "sequence_bytes");
    if (!(bytes > 0 && bytes < 1e15)) return broken();
    format.sequence_bytes = static_cast<size_t>(bytes);
    format.figures = {number(each, "kl_mean"), number(each, "changed_top"), number(each, "perplexity")};
    if (each.contains("level") && each["level"].is_string())
      format.level = kv_fidelity_named(each["level"].get<std::string>());
    table.formats.push_back(std::move(format));
  }
  if (table.find(floor_format) == nullptr || table.num_tokens <= 0) return broken();
  return std::optional(std::move(table));
}

}  // namespace tidemill
