// Which format a model's KV cache can have: measured once, kept, and chosen by the fidelity that is wanted.
//
// The model writes the text itself (sampled at temperature 1 from a few invented words, with fixed seeds), so nothing
// needs to be at hand. All candidates read it in lockstep with an fp32 cache; each gets the level whose gate it passes
// beyond fp16 (engine/kv_fidelity.h). The time is bounded: when it runs out, what was read until then counts.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/kv_fidelity.h"
#include "eval/kv_eval.h"

namespace tidemill {

// A candidate's place in the table.
struct MeasuredFormat {
  std::string name;           // eval/named_formats.h
  size_t sequence_bytes = 0;  // of a sequence of measured_sequence_tokens, windows counted as what they keep
  FidelityFigures figures;
  std::optional<KvFidelity> level;
};
inline constexpr int32_t measured_sequence_tokens = 8192;

struct KvAutoTable {
  int64_t num_tokens = 0;  // that were compared
  int32_t context_tokens = 0;
  double seconds = 0;
  std::vector<MeasuredFormat> formats;  // by size, the largest first

  // The smallest that is as true as wanted; fp16 where nothing smaller is.
  const MeasuredFormat& choose(KvFidelity least) const;
  const MeasuredFormat* find(const std::string& name) const;
};

struct KvAutoOptions {
  int32_t block_size_tokens = 32;
  double limit_s = 110;
  int32_t num_texts = 4;
  int32_t text_tokens = 1024;  // of each; less where the model's context is shorter
  std::function<void(const std::string& what, double seconds)> on_progress;
};

Result<KvAutoTable> measure_kv_formats(const EvalModel& model, const KvAutoOptions& options);

// "int8/int4 (13,440 bytes a token, 58 % of fp16): ...", one line for each candidate, and why the chosen one.
std::string explain_choice(const KvAutoTable& table, KvFidelity least);

// A kept table; an Error where the file is not one, nothing where there is none. `key` names what the table depends on.
Result<std::optional<KvAutoTable>> read_kv_table(const std::filesystem::path& file, const std::string& key);
Result<void> write_kv_table(const std::filesystem::path& file, const std::string& key, const KvAutoTable& table);

}  // namespace tidemill
