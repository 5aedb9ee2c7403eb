// Turns waiting and running sequences into a StepPlan, within the budgets of tokens, slots and blocks.
//
// A step serves decode rows first (one row per sequence that has only its last token to compute), then prompts, in the
// order of service (scheduling_policy.h), which share what is left (prompt_share.h). When decode rows alone would fill
// the budget and a prompt waits, every fourth step keeps a quarter for it, and the rows that were left out come first
// in the next step.
//
// Time is a budget beside the rows, as predicted by a fitted model (step_cost.h): a step with decode rows of
// interactive or standard requests stays under the target, or under a multiple of a step that decodes all who are here;
// a class worse than the best one that streams gets half of what prompts may have. Decode rows of bulk requests fill
// what the others leave, at least one in a step, those unserved longest first. A request that waits and is not bulk may
// preempt bulk ones for its slot and blocks. Who waited longer than the aging span counts as of a better class once in
// eight steps with prompts, so a class without end does not starve the next.
//
// A waiting sequence whose next block a running one is about to compute waits for it, and is served from the prefix
// cache then; meanwhile the one that computes counts as of the best class and priority of those that wait for it. When
// it ends or is preempted, the first that waited computes what is missing.
//
// A waiting sequence is admitted only when the blocks of all that it must compute until its next token fit beside
// what was promised to others, so a prompt that was begun gets through. A decode that finds no block preempts: its
// victim (SchedulingPolicy) loses its blocks, keeps them cached, and goes to the front of the queue. The first in order
// is never preempted, nor a sequence that drew no token since its last preemption. A sequence alone in a full pool
// ends with `length`.
//
// Knows no clock of its own, no tensors, no text. Used by the engine thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/cache_map.h"
#include "engine/engine_config.h"
#include "engine/kv_allocator.h"
#include "engine/pins.h"
#include "engine/prompt_share.h"
#include "engine/scheduling_policy.h"
#include "engine/sequence.h"
#include "engine/step_cost.h"
#include "engine/step_plan.h"
#include "engine/tenants.h"

namespace tidemill {

// What the scheduler counted since the start.
struct SchedulerCounters {
  uint64_t num_preemptions = 0;
  uint64_t prompt_tokens = 0;
  uint64_t prompt_tokens_cached = 0;
  uint64_t tokens_recomputed = 0;
  uint64_t tokens_fetched = 0;  // from tiers below the pool
  uint64_t prefix_cache_queries = 0;
  uint64_t prefix_cache_hits = 0;
  uint64_t prefix_requests = 0;      // that asked the prefix cache
  uint64_t prefix_request_hits = 0;  // of them, those that found something
  uint64_t prefix_waits = 0;         // requests that waited for a prefix which another one computed
  uint64_t prompt_tokens_computed = 0;
};

class Scheduler {
 public:
  explicit Scheduler(const EngineConfig& config);

  // Enters a request with its first choice waiting. The request must stay where it is until `remove`.
  void add(LiveRequest& request, Clock::Time now);
  // Ends one choice: its slot and blocks are free from now on.
  void finish(Sequence& sequence);
  // Forgets a request all of whose choices are finished.
  void remove(LiveRequest& request);

  // Makes the next plan in `plan`, the last one, whose memory is used again.
  void schedule(Clock::Time now, StepPlan& plan);
  // The sequences of the plan just made, in its order.
  const std::vector<Sequence*>& planned() const { return planned_; }
  // Sequences that the pool can't hold any longer although they have it to themselves; the caller finishes them.
  std::vector<Sequence*> take_overfull() { return std::exchange(overfull_, {}); }
  // Requests that were admitted for the first time by the last plan.
  const std::vector<LiveRequest*>& newly_admitted() const { return newly_admitted_; }
  // The rows of the plan just made are computed.
  void advance(const StepPlan& plan);
  // What moving blocks took in the step of the plan just made.
  void note_moves(const StepResult& result);
  // How long the step of the plan just made took, after note_moves.
  void note_step_time(double seconds);
  // A token was drawn for a running sequence.
  void append_token(Sequence& sequence, TokenId token);

  int32_t num_running() const { return static_cast<int32_t>(running_.size()); }
  int32_t num_waiting() const { return static_cast<int32_t>(waiting_.size()); }
  int32_t num_running(LatencyClass latency_class) const;
  int32_t num_waiting(LatencyClass latency_class) const { return num_waiting_[static_cast<size_t>(latency_class)]; }
  const std::vector<Sequence*>& running() const { return running_; }
  const std::vector<Sequence*>& waiting() const { return waiting_; }
  // Slots that the next step could fill from the queue; 0 while the queue waits for blocks.
  int32_t num_open_slots() const;
  // The disk tier: what it holds from before, ends of what was planned, and whether anything is to do or on its way.
  void restore(std::span<const Executor::StoredBlock> blocks);
  void end_disk_moves(std::span<const DiskEnd> ends, Clock::Time now);
  bool has_disk_work() const;
  bool waits_for_disk() const { return kv_.waits_for_disk(); }
  const KvAllocator& kv() const { return kv_; }
  const SchedulerCounters& counters() const { return counters_; }
  const StepCost& cost() const { return cost_; }
  // Of the plan just made: its time as predicted, and the most that it may take; endless where nothing limits it.
  double predicted_s() const { return cost_.predict_s(shape_); }
  double step_moving_s() const { return step_moving_s_; }
  double limit_s() const { return limit_s_; }
  // Of the running sequences' blocks, see KvAllocator::unused_bytes.
  size_t unused_bytes() const;

  // The cache itself (scheduler_cache.cpp). A lower budget is reached step by step, and not before the requests that
  // are here can do without the room.
  void resize(size_t budget_bytes);
  // There is memory to give back; schedule() may be called for that alone, and its plan then has moves only.
  bool has_housework() const;
  CacheTotals cache_totals() const;
  CacheMap cache_map() const;
  // While on, the blocks that change are noted, for take_changes.
  void record_changes(bool on);
  void take_changes(CacheChanges& changes);

  size_t promised_bytes() const { return outstanding_bytes(nullptr); }
  void check_integrity() const;

 private:
  Standing standing(const Sequence& sequence) const;
  bool before(const Sequence* a, const Sequence* b) const;
  bool is_decode(const Sequence& sequence) const;
  int32_t rows_wanted(const Sequence& sequence) const;
  int32_t first_row(const Sequence& sequence) const;

  void find_decodes(int32_t budget);
  int32_t rows_kept_for_prompts(int32_t budget) const;
  bool leaves_room_for_others(const Sequence& sequence, bool served_bulk) const;
  void schedule_decodes(int32_t budget);
  void schedule_prompts(int32_t budget);
  void find_prompts();
  void gather_waiting();
  void find_leaders();
  Sequence* find_leader(const Sequence& follower, int32_t num_hit) const;
  LatencyClass served_class(const Sequence& sequence) const;
  void find_next_waiting(int32_t most);
  void make_way();
  bool fits_at_once(Sequence& sequence) const;
  void begin_turn();
  void end_turn();
  double find_limit_s() const;
  double seconds_for_prompts() const;
  int32_t clip_rows(const Sequence& sequence, int32_t num_rows) const;
  void form_batch();

  bool grant(Sequence& sequence, int32_t num_rows);
  bool admit(Sequence& sequence);
  bool tenant_may_run(const LiveRequest& request) const;
  void fork_choices(Sequence& parent);
  void start_running(Sequence& sequence);
  void enqueue(Sequence& sequence);
  void dequeue(Sequence& sequence);

  bool make_room(Sequence& sequence, int32_t end_position);
  Sequence* pick_victim(LatencyClass least) const;
  void preempt(Sequence& sequence);
  void free_place(Sequence& sequence, bool keep);
  size_t admission_bytes(const Sequence& sequence) const;
  size_t headroom_bytes() const;
  size_t spare_bytes() const;
  size_t outstanding_bytes(const Sequence* except) const;

  void keep_house();
  void follow_wanted_budget();
  size_t pin_limit_bytes() const;
  bool is_squeezed() const;
  bool free_pins_for(size_t needed_bytes);
  void promise_pin(Sequence& sequence);
  void give_up_promise(LiveRequest& request);
  void pin_prompt(Sequence& sequence, bool at_end);
  using Holders = std::unordered_map<uint64_t, std::pair<uint32_t, bool>>;  // by place: owner, pinned
  Holders holders() const;
  CacheBlock describe(CacheTier tier, BlockPlace place, const Holders& holders) const;

  void emit(StepPlan& plan);
  void describe(Sequence& sequence, int32_t num_rows, PlannedSequence& planned) const;
  void change_table(Sequence& sequence, int32_t group, TableChange& change) const;

  EngineConfig config_;
  int32_t max_running_;
  std::unique_ptr<SchedulingPolicy> policy_;
  KvAllocator kv_;
  Pins pins_;
  size_t wanted_budget_;
  uint64_t resize_epoch_ = 0;
  std::optional<Clock::Time> started_at_;
  std::array<std::vector<BlockPlace>, cache_tier_names.size()> changed_;  // by tier
  mutable std::vector<const Sequence*> unused_holders_;                   // for its memory
  Tenants tenants_;
  std::vector<Sequence*> running_;  // in the order of service
  std::vector<Sequence*> waiting_;
  std::array<int32_t, num_latency_classes> num_waiting_{};  // by class
  std::vector<SlotId> free_slots_;

  // Of the step being made.
  uint64_t step_ = 0;
  Clock::Time now_{};
  std::vector<std::pair<Sequence*, int32_t>> granted_;  // with their rows
  int64_t num_granted_rows_ = 0;
  StepShape shape_;  // of the granted rows
  double limit_s_ = endless_s;
  LatencyClass best_streaming_ = LatencyClass::bulk;  // of the decode rows
  bool aging_counts_ = false;
  std::vector<Sequence*> decodes_;
  std::vector<PromptDemand> prompts_;
  std::vector<PromptDemand*> prompts_scratch_;
  std::vector<Sequence*> next_waiting_;
  std::vector<BlockMove> moves_;
  std::vector<SlotId> ended_;
  std::vector<Sequence*> planned_;
  std::vector<PlannedSequence> spare_planned_;  // of earlier plans, for their memory
  std::vector<Sequence*> overfull_;
  std::vector<LiveRequest*> newly_admitted_;
  bool blocked_on_kv_ = false;  // the first in the queue found no blocks
  int32_t num_idle_plans_ = 0;  // in a row
  int32_t num_turns_ = 0;       // steps with prompts since somebody was served for having waited
  StepCost cost_;
  double step_moving_s_ = 0;                    // of the last step: what went into moving blocks
  double moving_beside_s_ = 0;                  // of the steps of computing_s_
  double moved_bytes_ = 0, moving_s_ = 0;       // of late
  double computed_rows_ = 0, computing_s_ = 0;  // of late, in steps that read prompts
  SchedulerCounters counters_;
};

}  // namespace tidemill
