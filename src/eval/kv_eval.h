// What each KV format costs a model, measured against its fp32 cache (or another reference).
//
// All caches run the same tokens in lockstep, teacher-forced, over one loaded model: the reference keeps its rows,
// every candidate compares its own with them inside the executor (engine/step_plan.h, RowUse). Of a text, pieces of
// each context length are scored in their second half; of a task, the continuations. One thread, which is the model's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "compute/backend.h"
#include "eval/eval_data.h"
#include "eval/eval_statistics.h"
#include "eval/named_formats.h"
#include "model/model.h"
#include "runtime/kv_storage.h"
#include "text/tokenizer.h"

namespace tidemill {

struct EvalModel {
  Model* model = nullptr;
  Backend* backend = nullptr;
  const Tokenizer* tokenizer = nullptr;
};

struct EvalProgress {
  int64_t num_done_tokens = 0, num_tokens = 0;  // of one cache
  double seconds = 0;
  std::string what;  // the text or task at hand
};

struct KvEvalOptions {
  NamedKvFormats reference;
  std::vector<NamedKvFormats> formats;
  std::vector<int32_t> context_lengths = {512, 2048};
  int64_t text_tokens = 8192;   // of each text, at each length
  int32_t speed_tokens = 1024;  // context at which speed is taken; 0 = not
  int32_t block_size_tokens = 32;
  std::function<void(const EvalProgress&)> on_progress;
  std::function<bool()> should_stop = [] { return false; };
};

struct TextFigures {
  std::string name;
  TextKind kind = TextKind::factual;
  int32_t context_tokens = 0;
  int64_t num_pieces = 0;
  RowStatistics rows;
};

struct TaskFigures {
  std::string name;
  TextKind kind = TextKind::factual;
  ItemStatistics items;
  RowStatistics rows;  // of the scored continuations
};

// One sequence alone.
struct SpeedFigures {
  int32_t context_tokens = 0;
  double prefill_tokens_per_s = 0, decode_tokens_per_s = 0;
};

struct FormatFigures {
  NamedKvFormats format;
  double bytes_per_token = 0;
  std::vector<TextFigures> texts;
  std::vector<TaskFigures> tasks;
  SpeedFigures speed;

  // Of all texts of a kind, or of a context length, or of all.
  RowStatistics rows_of(TextKind kind) const;
  RowStatistics rows_of_length(int32_t context_tokens) const;
  RowStatistics all_rows() const;
  ItemStatistics items_of(TextKind kind) const;
  ItemStatistics all_items() const;
};

struct KvEvalResult {
  NamedKvFormats reference;
  double reference_bytes_per_token = 0;
  SpeedFigures reference_speed;
  std::vector<FormatFigures> formats;
  double seconds = 0;
  bool stopped = false;                // before everything was measured
  const FormatFigures* floor() const;  // nullptr where fp16 was not measured
};

// An Error where a text is shorter than a context length, or an item longer than the model's context.
Result<KvEvalResult> evaluate_kv(const EvalModel& model, const EvalData& data, const KvEvalOptions& options);

}  // namespace tidemill
