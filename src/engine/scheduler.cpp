#include "engine/scheduler.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "base/check.h"

namespace tidemill {
namespace {

constexpr int64_t most_reserved_tokens = 4096;
constexpr int32_t saturated_every = 4;  // steps between those that keep rows from decodes for a waiting prompt

}  // namespace

Scheduler::Scheduler(const EngineConfig& config)
    : config_(config),
      max_running_(config.batching == BatchingMode::none ? 1 : config.max_num_seqs),
      policy_(make_policy(config)),
      kv_(config),
      wanted_budget_(config.kv_budget_bytes) {
  TM_CHECK(config.max_num_seqs > 0, "at least one sequence runs");
  for (SlotId slot = config.max_num_seqs - 1; slot >= 0; --slot) free_slots_.push_back(slot);
}

// --- The life of a request here.

void Scheduler::add(LiveRequest& request, Clock::Time now) {
  now_ = now;
  request.root = kv_.root_of(request);
  request.owner = kv_.owner_of(request);
  request.resize_epoch = resize_epoch_;
  tenants_.open_request(request.request.tenant);
  enqueue(*request.choices.front());
}

void Scheduler::finish(Sequence& sequence) {
  TM_CHECK(sequence.status != SequenceStatus::finished, "a sequence ends once");
  if (sequence.status == SequenceStatus::running) {
    pin_prompt(sequence, true);
    free_place(sequence, config_.prefix_caching);
  } else {
    dequeue(sequence);
  }
  sequence.status = SequenceStatus::finished;
}

void Scheduler::remove(LiveRequest& request) {
  for (const auto& choice : request.choices) {
    TM_CHECK(choice->status == SequenceStatus::finished, "only finished sequences are forgotten");
  }
  give_up_promise(request);
  tenants_.close_request(request.request.tenant);
}

void Scheduler::enqueue(Sequence& sequence) {
  waiting_.push_back(&sequence);
  ++num_waiting_[static_cast<size_t>(sequence.request->request.latency_class)];
}

void Scheduler::dequeue(Sequence& sequence) {
  TM_CHECK(std::erase(waiting_, &sequence) == 1, "a waiting sequence is in the queue once");
  --num_waiting_[static_cast<size_t>(sequence.request->request.latency_class)];
}

int32_t Scheduler::num_running(LatencyClass latency_class) const {
  return static_cast<int32_t>(std::ranges::count_if(running_, [latency_class](const Sequence* sequence) {
    return sequence->request->request.latency_class == latency_class;
  }));
}

void Scheduler::start_running(Sequence& sequence) {
  dequeue(sequence);
  const int64_t longest = int64_t{sequence.num_prompt_tokens} + sequence.max_output_tokens;
  sequence.tokens.reserve(std::min<int64_t>(longest, sequence.num_tokens() + most_reserved_tokens));
  sequence.status = SequenceStatus::running;
  sequence.slot = free_slots_.back();
  free_slots_.pop_back();
  sequence.promised_bytes = admission_bytes(sequence);
  running_.push_back(&sequence);
  if (sequence.request->num_running_choices++ == 0) tenants_.start_running(sequence.request->request.tenant);
}

// Gives slot and blocks back.
void Scheduler::free_place(Sequence& sequence, bool keep) {
  if (sequence.started) ended_.push_back(sequence.slot);
  free_slots_.push_back(sequence.slot);
  sequence.slot = -1;
  sequence.started = false;
  sequence.num_told_tokens = 0;
  sequence.promised_bytes = 0;
  kv_.release(sequence, keep);
  std::erase(running_, &sequence);
  if (sequence.last_step == step_) {  // it may have rows in the step being made
    std::erase_if(granted_, [&](const auto& granted) {
      if (granted.first != &sequence) return false;
      num_granted_rows_ -= granted.second;
      return true;
    });
  }
  if (--sequence.request->num_running_choices == 0) tenants_.stop_running(sequence.request->request.tenant);
}

void Scheduler::preempt(Sequence& sequence) {
  free_place(sequence, true);
  sequence.status = SequenceStatus::waiting;
  sequence.admitted_before = true;
  sequence.drew_since_admission = false;
  ++sequence.num_preemptions;
  ++counters_.num_preemptions;
  enqueue(sequence);
}

// --- Order.

Standing Scheduler::standing(const Sequence& sequence) const {
  const LiveRequest& request = *sequence.request;
  return {.latency_class = served_class(sequence),
          .priority = std::min(request.request.priority, sequence.inherited_priority),
          .arrival = request.arrival,
          .order = request.order,
          .choice = sequence.choice,
          .admitted_before = sequence.admitted_before || sequence.status == SequenceStatus::running,
          .tenant_service = tenants_.num_active() > 1 ? tenants_.service(request.request.tenant) : 0};
}

bool Scheduler::before(const Sequence* a, const Sequence* b) const {
  const std::chrono::milliseconds aging = aging_counts_ ? config_.priority_aging : std::chrono::milliseconds(0);
  return served_before(*policy_, aging, standing(*a), standing(*b), now_);
}

// Where everything is computed again in each step, every running sequence is served like a decode.
bool Scheduler::is_decode(const Sequence& sequence) const {
  return !config_.kv_cache || sequence.num_remaining() == 1;
}

int32_t Scheduler::first_row(const Sequence& sequence) const {
  return config_.kv_cache ? sequence.num_computed : 0;
}

// The most rows that may follow each other in one step.
int32_t Scheduler::clip_rows(const Sequence& sequence, int32_t num_rows) const {
  const int32_t first = first_row(sequence);
  int32_t end = std::min(first + num_rows, sequence.num_tokens());
  if (!config_.kv_cache) return end - first;
  const LiveRequest& request = *sequence.request;
  // Choices part before the last prompt token: each computes its row in a tail of its own.
  if (request.choices_unborn() && sequence.max_output_tokens > 0 && first < sequence.num_prompt_tokens - 1) {
    end = std::min(end, sequence.num_prompt_tokens - 1);
  }
  // A tail that is encoded when full is read in its stored form by the next block: its chunk ends with it.
  const bool encodes = kv_.formats().encodes(request.request.kv_format);
  const int32_t in_block = first % config_.block_size_tokens;
  if (encodes && in_block != 0) end = std::min(end, first - in_block + config_.block_size_tokens);
  return end - first;
}

int32_t Scheduler::rows_wanted(const Sequence& sequence) const {
  return clip_rows(sequence, sequence.num_tokens() - first_row(sequence));
}

// --- One step.

void Scheduler::schedule(Clock::Time now, StepPlan& plan) {
  now_ = now;
  ++step_;
  granted_.clear();
  num_granted_rows_ = 0;
  shape_ = {};
  newly_admitted_.clear();
  blocked_on_kv_ = false;
  kv_.begin_step();
  keep_house();
  begin_turn();
  find_leaders();
  const auto order = [this](const Sequence* a, const Sequence* b) { return before(a, b); };
  if (!std::ranges::is_sorted(running_, order)) std::ranges::sort(running_, order);
  if (config_.batching == BatchingMode::fixed) form_batch();
  make_way();

  const int32_t budget = config_.kv_cache ? config_.max_num_batched_tokens : std::numeric_limits<int32_t>::max();
  find_decodes(budget);
  limit_s_ = find_limit_s();
  schedule_decodes(budget - rows_kept_for_prompts(budget));
  schedule_prompts(static_cast<int32_t>(budget - num_granted_rows_));
  find_decodes(budget);
  schedule_decodes(budget);  // choices just born, and what no prompt could use
  end_turn();

  plan.step = step_;
  for (PlannedSequence& used : plan.sequences) spare_planned_.push_back(std::move(used));
  plan.sequences.clear();
  plan.ended.clear();
  plan.moves.clear();
  planned_.clear();
  plan.disk_moves.clear();
  if (kv_.disk() != nullptr) kv_.disk()->begin_stores(spare_bytes());
  const bool moves_alone = kv_.disk() != nullptr && !kv_.disk()->orders().empty();
  if (!granted_.empty() || !moves_.empty() || moves_alone) emit(plan);
  shape_ = shape_of(plan);  // without what was preempted meanwhile
  const bool idle = granted_.empty() && overfull_.empty() && num_running() + num_waiting() > 0;
  num_idle_plans_ = idle && !kv_.waits_for_disk() ? num_idle_plans_ + 1 : 0;
  TM_CHECK(num_idle_plans_ < 2, "work that is there is done");
  TM_CHECK(!config_.kv_cache || plan.num_rows() <= budget, "a step stays within its token budget");
}

// Sequences that need one row for their next token, bulk ones last. Where not all can be served, the longest unserved
// come first, among bulk ones always.
void Scheduler::find_decodes(int32_t budget) {
  decodes_.clear();
  best_streaming_ = LatencyClass::bulk;
  const auto class_of = [](const Sequence* sequence) { return sequence->request->request.latency_class; };
  for (Sequence* sequence : running_) {
    if (!is_decode(*sequence)) continue;
    best_streaming_ = std::min(best_streaming_, class_of(sequence));
    decodes_.push_back(sequence);
  }
  const bool short_of_rows = std::ssize(decodes_) > budget;
  if (!short_of_rows && best_streaming_ == LatencyClass::bulk) return;
  const auto is_bulk = [&](const Sequence* sequence) { return class_of(sequence) == LatencyClass::bulk; };
  if (!short_of_rows && std::ranges::none_of(decodes_, is_bulk)) return;
  std::ranges::sort(decodes_, [&](const Sequence* a, const Sequence* b) {
    if (is_bulk(a) != is_bulk(b)) return is_bulk(b);
    if (short_of_rows || is_bulk(a)) {
      if (a->last_step != b->last_step) return a->last_step < b->last_step;
      if (a->num_output_tokens() != b->num_output_tokens()) return a->num_output_tokens() < b->num_output_tokens();
    }
    return before(a, b);
  });
}

// Decodes that fill the budget alone would keep prompts out for ever.
int32_t Scheduler::rows_kept_for_prompts(int32_t budget) const {
  const bool prompt_runs = std::ssize(decodes_) < std::ssize(running_);
  const bool prompt_waits = prompt_runs || (!waiting_.empty() && num_open_slots() > 0);
  if (std::ssize(decodes_) < budget || !prompt_waits || step_ % saturated_every != 0) return 0;
  return std::max(1, budget / saturated_every);
}

void Scheduler::schedule_decodes(int32_t budget) {
  bool served_bulk = false;
  for (Sequence* sequence : decodes_) {
    if (num_granted_rows_ >= budget) return;
    // Preempted meanwhile, served already, or about to end.
    if (sequence->status != SequenceStatus::running || sequence->last_step == step_) continue;
    if (std::ranges::find(overfull_, sequence) != overfull_.end()) continue;
    const bool bulk = sequence->request->request.latency_class == LatencyClass::bulk;
    if (bulk && !leaves_room_for_others(*sequence, served_bulk)) continue;
    // One that finds no room stays as it is and tries again in the next step.
    served_bulk |= grant(*sequence, rows_wanted(*sequence)) && bulk;
  }
}

void Scheduler::schedule_prompts(int32_t budget) {
  if (budget <= 0) return;
  find_prompts();
  prompts_scratch_.resize(prompts_.size());
  const StepRoom room{budget, seconds_for_prompts(), config_.min_prompt_rows};
  share_room(prompts_, room, cost_, prompts_scratch_);
  for (const PromptDemand& demand : prompts_) {
    if (demand.num_granted == 0 || demand.sequence->status == SequenceStatus::finished) continue;
    static_cast<void>(grant(*demand.sequence, demand.num_granted));
  }
}

void Scheduler::find_prompts() {
  prompts_.clear();
  const auto enter = [this](Sequence* sequence) {
    prompts_.push_back(
        {.sequence = sequence, .first_position = sequence->num_computed, .num_remaining = sequence->num_remaining()});
  };
  for (Sequence* sequence : running_) {
    if (!is_decode(*sequence)) enter(sequence);
  }
  gather_waiting();
  for (PromptDemand& demand : prompts_) {
    const auto aging = aging_counts_ ? config_.priority_aging : std::chrono::milliseconds(0);
    demand.latency_class = class_now(standing(*demand.sequence), aging, now_);
  }
  std::ranges::sort(prompts_, [this](const auto& a, const auto& b) { return before(a.sequence, b.sequence); });
}

bool Scheduler::grant(Sequence& sequence, int32_t num_rows) {
  kv_.expect_rows(num_granted_rows_ + num_rows);
  if (sequence.status == SequenceStatus::waiting && !admit(sequence)) return false;
  LiveRequest& request = *sequence.request;
  const bool computed_before_last = first_row(sequence) == sequence.num_prompt_tokens - 1 || !config_.kv_cache;
  if (request.choices_unborn() && computed_before_last && sequence.max_output_tokens > 0) fork_choices(sequence);
  num_rows = std::min(num_rows, rows_wanted(sequence));
  if (!make_room(sequence, first_row(sequence) + num_rows)) return false;
  if (!request.first_scheduled) request.first_scheduled = now_;
  sequence.last_step = step_;
  granted_.emplace_back(&sequence, num_rows);
  num_granted_rows_ += num_rows;
  shape_.add(first_row(sequence), num_rows, first_row(sequence) + num_rows == sequence.num_tokens());
  return true;
}

// --- Blocks.

// What was promised to running sequences and is not in their tables yet.
size_t Scheduler::outstanding_bytes(const Sequence* except) const {
  size_t bytes = 0;
  for (const Sequence* sequence : running_) {
    if (sequence == except || sequence->promised_bytes == 0) continue;
    const size_t held = kv_.held_bytes(*sequence);
    if (held < sequence->promised_bytes) bytes += sequence->promised_bytes - held;
  }
  return bytes;
}

size_t Scheduler::unused_bytes() const {
  unused_holders_.assign(running_.begin(), running_.end());
  return kv_.unused_bytes(unused_holders_);
}

bool Scheduler::make_room(Sequence& sequence, int32_t end_position) {
  kv_.trim_windows(sequence);
  for (;;) {
    const size_t needed = kv_.bytes_to_reserve(sequence, end_position);
    if (needed == 0 || needed + outstanding_bytes(&sequence) <= kv_.pool().available_bytes()) {
      TM_CHECK(kv_.reserve(sequence, end_position, moves_), "bytes that are available can be reserved");
      return true;
    }
    if (kv_.waits_for_disk()) return false;  // bytes come back by themselves
    if (num_running() == 1) {
      if (free_pins_for(needed)) continue;
      overfull_.push_back(&sequence);
      return false;
    }
    Sequence* victim = pick_victim(LatencyClass::interactive);
    if (victim == nullptr) return false;  // the others have yet to draw what they were readmitted for
    preempt(*victim);
    if (victim == &sequence) return false;
  }
}

// The worst latency class first, in it the last rank of the policy, in it the highest value (or the newest, where that
// is the rule); never the first in order,
// nor one without progress. `least` is the best class that may be asked.
Sequence* Scheduler::pick_victim(LatencyClass least) const {
  Sequence* victim = nullptr;
  const bool squeezed = is_squeezed();
  std::tuple<LatencyClass, int64_t, double> worst;
  for (size_t i = 1; i < running_.size(); ++i) {
    Sequence* sequence = running_[i];
    const LatencyClass latency_class = served_class(*sequence);
    if ((!sequence->drew_since_admission && !squeezed) || latency_class < least) continue;
    const VictimStanding cost{.num_freed_bytes = kv_.unshared_bytes(*sequence),
                              .num_remaining_tokens = sequence->max_output_tokens - sequence->num_output_tokens(),
                              .num_computed_tokens = sequence->num_computed,
                              .moving_tokens = kv_.tokens_worth_of_moving(*sequence)};
    const double value = config_.victim == VictimRule::newest
                             ? static_cast<double>(sequence->request->order) + sequence->choice / 1024.0
                             : policy_->victim_value(cost);
    const std::tuple rating{latency_class, policy_->rank(standing(*sequence), now_), value};
    if (victim == nullptr || rating >= worst) {
      victim = sequence;
      worst = rating;
    }
  }
  return victim;
}

void Scheduler::restore(std::span<const Executor::StoredBlock> blocks) {
  if (kv_.disk() != nullptr) kv_.disk()->restore(blocks);
}

void Scheduler::end_disk_moves(std::span<const DiskEnd> ends, Clock::Time now) {
  if (ends.empty()) return;
  for (const DiskEnd& end : ends) kv_.disk()->end(end);
  // What follows, until a slot is free for it, is no wait for the disk.
  for (Sequence* sequence : waiting_) {
    std::optional<Clock::Time>& since = sequence->disk_wait_since;
    if (!since || !kv_.loads_ended(*sequence)) continue;
    sequence->disk_wait_s += std::chrono::duration<double>(now - *since).count();
    since.reset();
  }
}

// --- The plan.

void Scheduler::emit(StepPlan& plan) {
  for (auto& [sequence, rows] : granted_) {
    if (!config_.kv_cache && sequence->started) {  // everything anew: the executor forgets and starts again
      ended_.push_back(sequence->slot);
      sequence->started = false;
    }
    if (spare_planned_.empty()) spare_planned_.emplace_back();
    plan.sequences.push_back(std::move(spare_planned_.back()));
    spare_planned_.pop_back();
    describe(*sequence, rows, plan.sequences.back());
    planned_.push_back(sequence);
  }
  std::swap(plan.ended, ended_);
  std::swap(plan.moves, moves_);
  if (kv_.disk() != nullptr) std::swap(plan.disk_moves, kv_.disk()->orders());
}

void Scheduler::describe(Sequence& sequence, int32_t num_rows, PlannedSequence& planned) const {
  planned.slot = sequence.slot;
  planned.start.reset();
  planned.new_tokens.clear();
  planned.prompt_logprobs = -1;
  if (!sequence.started) {
    planned.start = SequenceStart{sequence.tokens, sequence.num_prompt_tokens, sequence.sampling,
                                  sequence.request->request.kv_format};
  } else {
    planned.new_tokens.assign(sequence.tokens.begin() + sequence.num_told_tokens, sequence.tokens.end());
  }
  planned.first_position = first_row(sequence);
  planned.num_rows = num_rows;
  planned.tables.resize(config_.groups.size());
  for (int32_t group = 0; group < static_cast<int32_t>(config_.groups.size()); ++group) {
    change_table(sequence, group, planned.tables[group]);
  }
  planned.draw = planned.first_position + num_rows == sequence.num_tokens() && sequence.max_output_tokens > 0;
  const LiveRequest& request = *sequence.request;
  const int32_t num_scored = static_cast<int32_t>(request.prompt_logprobs.size());
  if (sequence.choice == 0 && num_scored < sequence.num_prompt_tokens - 1) {
    planned.prompt_logprobs = request.request.prompt_logprobs;
  }
  sequence.started = true;
  sequence.num_told_tokens = sequence.num_tokens();
}

void Scheduler::change_table(Sequence& sequence, int32_t group, TableChange& change) const {
  const BlockTable& table = sequence.tables[group];
  int32_t& told_first = sequence.told_first[group];
  int32_t& told_end = sequence.told_end[group];
  change.first_block = 0;
  if (!sequence.started) {
    change.first_block = told_first = told_end = table.first_block();
  }
  change.num_dropped = table.first_block() - told_first;
  TM_CHECK(table.first_block() <= told_end, "only blocks that the executor knows are dropped");
  const auto places = table.places().subspan(told_end - table.first_block());
  change.appended.assign(places.begin(), places.end());
  told_first = table.first_block();
  told_end = table.end_block();
}

void Scheduler::advance(const StepPlan& plan) {
  for (size_t i = 0; i < planned_.size(); ++i) {
    Sequence& sequence = *planned_[i];
    const PlannedSequence& rows = plan.sequences[i];
    const int32_t end = rows.first_position + rows.num_rows;
    const bool is_prompt = rows.first_position < sequence.num_prompt_tokens;
    if (is_prompt) counters_.prompt_tokens_computed += std::min(end, sequence.num_prompt_tokens) - rows.first_position;
    tenants_.charge(sequence.request->request.tenant, is_prompt ? rows.num_rows : 2.0 * rows.num_rows);
    if (!config_.kv_cache) {
      sequence.num_ever_computed = end;
      continue;
    }
    const int32_t num_again = std::min(end, sequence.num_ever_computed) - rows.first_position;
    if (num_again > 0) {
      counters_.tokens_recomputed += num_again;
      sequence.request->num_recomputed_tokens += num_again;
    }
    sequence.num_computed = end;
    sequence.num_ever_computed = std::max(sequence.num_ever_computed, end);
    kv_.enter_sealed_blocks(sequence);
    pin_prompt(sequence, false);
  }
}

void Scheduler::append_token(Sequence& sequence, TokenId token) {
  sequence.tokens.push_back(token);
  sequence.drew_since_admission = true;
  if (config_.kv_reserve == KvReserve::on_demand) sequence.promised_bytes = 0;
}

void Scheduler::check_integrity() const {
  std::vector<const Sequence*> holders(running_.begin(), running_.end());
  kv_.check_integrity(holders, pins_);
  std::vector<bool> taken(config_.max_num_seqs, false);
  for (SlotId slot : free_slots_) {
    TM_CHECK(!taken[slot], "a free slot is listed once");
    taken[slot] = true;
  }
  for (const Sequence* sequence : running_) {
    TM_CHECK(sequence->slot >= 0 && !taken[sequence->slot], "a slot has one sequence");
    taken[sequence->slot] = true;
  }
  for (const Sequence* sequence : waiting_) {
    TM_CHECK(sequence->status == SequenceStatus::waiting && sequence->tables.empty(),
             "a waiting sequence holds nothing");
  }
}

}  // namespace tidemill
