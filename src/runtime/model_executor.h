// The executor that runs a real model.
//
// Engine thread only. Refers to the model, the storage, the backend and the trace, which must outlive it. Draws of one
// step are shared out over the backend's threads; a draw depends on its own row alone, so that changes no result. A
// plan of more rows than max_rows is run in slices of that many, which changes no result (a row depends on its own
// sequence and position alone), so the scratch memory is bounded whatever a plan asks for.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/executor.h"
#include "model/model.h"
#include "runtime/kv_storage.h"
#include "runtime/step_inputs.h"
#include "sampling/sampler.h"

namespace tidemill {

struct ExecutorOptions {
  int32_t max_num_seqs = 64;
  int32_t max_rows = 256;       // of one slice
  int32_t max_logit_rows = 64;  // logits held at a time
  Backend* backend = nullptr;   // whose threads share the draws; null = the caller's alone
  StepTrace* trace = nullptr;   // null = no trace
};

class ModelExecutor final : public Executor {
 public:
  ModelExecutor(Model& model, KvStorage& storage, ExecutorOptions options);
  StepResult execute(const StepPlan& plan) override;
  void recycle(StepResult result) override { spare_ = std::move(result); }

 private:
  void update(const PlannedSequence& planned);
  void run_slice(const StepPlan& plan, StepResult& result);
  void collect(const StepPlan& plan, StepResult& result);
  void list_wanted(const StepPlan& plan, StepResult& result);
  void take_rows(const StepPlan& plan, size_t first, size_t count, const Rows& logits, StepResult& result);

  // A row whose logits somebody wants: the draw that follows it, or the score of the known token that follows.
  struct WantedRow {
    int32_t row = 0;
    size_t sequence = 0;
    bool draw = false;
    TokenId next = 0;
    int32_t num_top = 0;
    size_t score = 0;  // which of the sequence's prompt_logprobs it is
  };

  Model& model_;
  KvStorage& storage_;
  ExecutorOptions options_;
  std::vector<SequenceState> states_;  // by slot
  StepSlice slice_;
  std::vector<Sampler> samplers_;  // one for each thread
  std::vector<WantedRow> wanted_;
  std::vector<int32_t> wanted_rows_;
  StepResult spare_;
};

}  // namespace tidemill
