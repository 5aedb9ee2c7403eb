// The executor that runs a real model.
//
// Engine thread only. Refers to the model, the storage, the backend and the trace, which must outlive it. Draws of one
// step are shared out over the backend's threads; a draw depends on its own row alone, so that changes no result. A
// plan of more rows than max_rows is run in slices of that many, which changes no result (a row depends on its own
// sequence and position alone), so the scratch memory is bounded whatever a plan asks for.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/executor.h"
#include "model/model.h"
#include "runtime/disk_file.h"
#include "runtime/host_tier.h"
#include "runtime/kept_rows.h"
#include "runtime/kv_storage.h"
#include "runtime/step_inputs.h"
#include "sampling/sampler.h"

namespace tidemill {

struct ExecutorOptions {
  int32_t max_num_seqs = 64;
  int32_t max_rows = 256;         // of one slice; at least a block where blocks are encoded
  int32_t max_logit_rows = 64;    // logits held at a time
  Backend* backend = nullptr;     // whose threads share the draws; null = the caller's alone
  StepTrace* trace = nullptr;     // null = no trace
  KeptRows* kept_rows = nullptr;  // of plans that keep or compare rows; it must outlive the executor
  DiskFile* disk = nullptr;       // null = no disk tier
  HostTier* host = nullptr;       // null = no tier below the pool
};

class ModelExecutor final : public Executor {
 public:
  ModelExecutor(Model& model, KvStorage& storage, ExecutorOptions options);
  StepResult execute(const StepPlan& plan) override;
  void recycle(StepResult result) override { spare_ = std::move(result); }
  std::vector<StoredBlock> stored_blocks() override;
  void take_disk_ends(std::vector<DiskEnd>& ends) override;
  void await_disk(std::chrono::milliseconds most) override;

 private:
  // A row whose logits somebody wants, and for what.
  enum class Want : uint8_t { draw, score, keep, compare };
  struct WantedRow {
    int32_t row = 0;
    size_t sequence = 0;
    Want want = Want::draw;
    TokenId next = no_token;  // the token that follows, where it is known
    int32_t num_top = 0;      // score
    size_t result = 0;        // score, compare: which of the sequence's prompt_logprobs or divergences it is
    int32_t position = 0;     // keep, compare
  };

  void update(const PlannedSequence& planned);
  void follow_seals(std::span<const BlockMove> moves);
  int32_t rows_of_slice(const PlannedSequence& planned, int32_t done, int32_t room) const;
  void run_slice(const StepPlan& plan, StepResult& result);
  void collect(const StepPlan& plan, StepResult& result);
  void start_kept_rows(const StepPlan& plan);
  void list_wanted(const StepPlan& plan, StepResult& result);
  void list_used(const PlannedSequence& planned, const WantedRow& row, SequenceResult& result);
  void take_rows(const StepPlan& plan, size_t first, size_t count, const Rows& logits, StepResult& result);
  void take_row(const WantedRow& want, const PlannedSequence& planned, std::span<const float> logits, int32_t worker,
                SequenceResult& out);

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
