// Turns waiting and running sequences into a StepPlan, within the budgets of tokens, slots and blocks.
//
// A step serves decode rows first (one row per sequence that has only its last token to compute), then prompts, in the
// order of the policy. Prompts share what is left: the first in order gets at least half; the other half goes to
// prompts behind it with at most half as much to do, shortest first, so that a short question does not wait for a long
// document; what they leave goes to the first. When decode rows alone would fill the budget and a prompt waits, every
// fourth step keeps a quarter for it, and the rows that were left out come first in the next step.
//
// A waiting sequence is admitted only when the blocks of all that it must compute until its next token fit beside
// what was promised to others, so a prompt that was begun gets through. A decode that finds no block preempts: its
// victim (SchedulingPolicy) loses its blocks, keeps them cached, and goes to the front of the queue. The first in order
// is never preempted, nor a sequence that drew no token since its last preemption. A sequence alone in a full pool
// ends with `length`.
//
// Knows no clock of its own, no tensors, no text. Used by the engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/engine_config.h"
#include "engine/kv_allocator.h"
#include "engine/scheduling_policy.h"
#include "engine/sequence.h"
#include "engine/step_plan.h"
#include "engine/tenants.h"

namespace tidemill {

// What the scheduler counted since the start.
struct SchedulerCounters {
  uint64_t num_preemptions = 0;
  uint64_t prompt_tokens = 0;
  uint64_t prompt_tokens_cached = 0;
  uint64_t tokens_recomputed = 0;
  uint64_t prefix_cache_queries = 0;
  uint64_t prefix_cache_hits = 0;
};

class Scheduler {
 public:
  Scheduler(const EngineConfig& config, uint64_t hash_seed);

  // Enters a request with its first choice waiting. The request must stay where it is until `remove`.
  void add(LiveRequest& request, Clock::Time now);
  // Ends one choice: its slot and blocks are free from now on.
  void finish(Sequence& sequence);
  // Forgets a request all of whose choices are finished.
  void remove(LiveRequest& request);

  StepPlan schedule(Clock::Time now);
  // The sequences of the plan just made, in its order.
  const std::vector<Sequence*>& planned() const { return planned_; }
  // Sequences that the pool can't hold any longer although they have it to themselves; the caller finishes them.
  std::vector<Sequence*> take_overfull() { return std::exchange(overfull_, {}); }
  // Requests that were admitted for the first time by the last plan.
  const std::vector<LiveRequest*>& newly_admitted() const { return newly_admitted_; }
  // The rows of the plan just made are computed.
  void advance(const StepPlan& plan);
  // A token was drawn for a running sequence.
  void append_token(Sequence& sequence, TokenId token);

  int32_t num_running() const { return static_cast<int32_t>(running_.size()); }
  int32_t num_waiting() const { return static_cast<int32_t>(waiting_.size()); }
  const std::vector<Sequence*>& running() const { return running_; }
  const std::vector<Sequence*>& waiting() const { return waiting_; }
  // Slots that the next step could fill from the queue; 0 while the queue waits for blocks.
  int32_t num_open_slots() const;
  const KvAllocator& kv() const { return kv_; }
  const SchedulerCounters& counters() const { return counters_; }
  size_t promised_bytes() const { return outstanding_bytes(nullptr); }
  void check_integrity() const;

 private:
  // A sequence that may get prompt rows in this step.
  struct Candidate {
    Sequence* sequence = nullptr;
    int32_t num_remaining = 0;  // rows until it can draw, hits left out
    int32_t num_granted = 0;
  };

  Standing standing(const Sequence& sequence) const;
  bool before(const Sequence* a, const Sequence* b) const;
  bool is_decode(const Sequence& sequence) const;
  int32_t rows_wanted(const Sequence& sequence) const;
  int32_t first_row(const Sequence& sequence) const;

  std::vector<Sequence*> decodes_in_order(int32_t budget) const;
  int32_t rows_kept_for_prompts(const std::vector<Sequence*>& decodes, int32_t budget) const;
  void schedule_decodes(const std::vector<Sequence*>& decodes, int32_t budget);
  void schedule_prompts(int32_t budget);
  std::vector<Candidate> prompt_candidates();
  void gather_waiting(std::vector<Candidate>& candidates);
  std::vector<Sequence*> next_waiting(int32_t most) const;
  void share_budget(std::vector<Candidate>& candidates, int32_t budget) const;
  int32_t clip_rows(const Sequence& sequence, int32_t num_rows) const;
  void form_batch();

  bool grant(Sequence& sequence, int32_t num_rows);
  bool admit(Sequence& sequence);
  bool tenant_may_run(const LiveRequest& request) const;
  void fork_choices(Sequence& parent);
  void start_running(Sequence& sequence);

  bool make_room(Sequence& sequence, int32_t end_position);
  Sequence* pick_victim() const;
  void preempt(Sequence& sequence);
  void free_place(Sequence& sequence, bool keep);
  size_t admission_bytes(const Sequence& sequence) const;
  size_t headroom_bytes() const;
  size_t outstanding_bytes(const Sequence* except) const;

  void emit(StepPlan& plan);
  PlannedSequence describe(Sequence& sequence, int32_t num_rows) const;
  TableChange table_change(Sequence& sequence, int32_t group) const;

  EngineConfig config_;
  int32_t max_running_;
  std::unique_ptr<SchedulingPolicy> policy_;
  KvAllocator kv_;
  Tenants tenants_;
  std::vector<Sequence*> running_;  // in the order of service
  std::vector<Sequence*> waiting_;
  std::vector<SlotId> free_slots_;

  // Of the step being made.
  uint64_t step_ = 0;
  Clock::Time now_{};
  std::vector<std::pair<Sequence*, int32_t>> granted_;  // with their rows
  int64_t num_granted_rows_ = 0;
  std::vector<BlockMove> moves_;
  std::vector<SlotId> ended_;
  std::vector<Sequence*> planned_;
  std::vector<Sequence*> overfull_;
  std::vector<LiveRequest*> newly_admitted_;
  bool blocked_on_kv_ = false;  // the first in the queue found no blocks
  int32_t num_idle_plans_ = 0;  // in a row
  SchedulerCounters counters_;
};

}  // namespace tidemill
