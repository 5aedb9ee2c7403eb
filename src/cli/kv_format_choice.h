// In which formats a loaded model's KV cache stores, by what the user said and what was measured for its file.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/options/run_options.h"
#include "engine/kv_fidelity.h"
#include "eval/kv_eval.h"

namespace tidemill {

// Formats, and how true they were measured to be; nothing: never measured for this model file.
struct KvFormatsWithLevel {
  KvFormats formats;
  std::optional<KvFidelity> fidelity;
};

struct KvFormatDecision {
  KvFormatsWithLevel usual;
  std::vector<KvFormatsWithLevel> better;       // that requests may ask for, ascending
  std::optional<KvFormatsWithLevel> reencoded;  // that cold blocks are encoded in anew
  std::string explanation;                      // lines for people; "" where nothing was chosen
  std::vector<std::string> warnings;
};

// What was measured is kept beside the model cache, for a model file (`identity`, "" = it can't be told), version,
// kernels and block size. Where --kv-cache-dtype auto finds nothing kept, it measures now, within two minutes.
Result<KvFormatDecision> decide_kv_formats(const EvalModel& model, const std::string& identity,
                                           const RunOptions& options);

}  // namespace tidemill
