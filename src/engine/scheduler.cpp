#include "engine/scheduler.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace tidemill {
namespace {

constexpr int32_t saturated_every = 4;  // steps between those that keep rows from decodes for a waiting prompt

}  // namespace

Scheduler::Scheduler(const EngineConfig& config, uint64_t hash_seed)
    : config_(config),
      max_running_(config.batching == BatchingMode::none ? 1 : config.max_num_seqs),
      policy_(make_policy(config)),
      kv_(config, hash_seed) {
  TM_CHECK(config.max_num_seqs > 0, "at least one sequence runs");
  for (SlotId slot = config.max_num_seqs - 1; slot >= 0; --slot) free_slots_.push_back(slot);
}

// --- The life of a request here.

void Scheduler::add(LiveRequest& request, Clock::Time now) {
  now_ = now;
  request.root = kv_.root_of(request);
  tenants_.open_request(request.request.tenant);
  waiting_.push_back(request.choices.front().get());
}

void Scheduler::finish(Sequence& sequence) {
  TM_CHECK(sequence.status != SequenceStatus::finished, "a sequence ends once");
  if (sequence.status == SequenceStatus::running) {
    free_place(sequence, config_.prefix_caching);
  } else {
    std::erase(waiting_, &sequence);
  }
  sequence.status = SequenceStatus::finished;
}

void Scheduler::remove(LiveRequest& request) {
  for (const auto& choice : request.choices) {
    TM_CHECK(choice->status == SequenceStatus::finished, "only finished sequences are forgotten");
  }
  tenants_.close_request(request.request.tenant);
}

void Scheduler::start_running(Sequence& sequence) {
  std::erase(waiting_, &sequence);
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
  waiting_.push_back(&sequence);
}

// --- Order.

Standing Scheduler::standing(const Sequence& sequence) const {
  const LiveRequest& request = *sequence.request;
  return {.priority = request.request.priority,
          .arrival = request.arrival,
          .order = request.order,
          .choice = sequence.choice,
          .admitted_before = sequence.admitted_before || sequence.status == SequenceStatus::running,
          .tenant_service = tenants_.num_active() > 1 ? tenants_.service(request.request.tenant) : 0};
}

bool Scheduler::before(const Sequence* a, const Sequence* b) const {
  return served_before(*policy_, standing(*a), standing(*b), now_);
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
  const bool encodes = std::ranges::any_of(config_.groups, [](const BlockGroup& group) { return !group.same_format; });
  const int32_t in_block = first % config_.block_size_tokens;
  if (encodes && in_block != 0) end = std::min(end, first - in_block + config_.block_size_tokens);
  return end - first;
}

int32_t Scheduler::rows_wanted(const Sequence& sequence) const {
  return clip_rows(sequence, sequence.num_tokens() - first_row(sequence));
}

// --- One step.

StepPlan Scheduler::schedule(Clock::Time now) {
  now_ = now;
  ++step_;
  granted_.clear();
  num_granted_rows_ = 0;
  newly_admitted_.clear();
  blocked_on_kv_ = false;
  const auto order = [this](const Sequence* a, const Sequence* b) { return before(a, b); };
  if (!std::ranges::is_sorted(running_, order)) std::ranges::stable_sort(running_, order);
  if (config_.batching == BatchingMode::fixed) form_batch();

  const int32_t budget = config_.kv_cache ? config_.max_num_batched_tokens : std::numeric_limits<int32_t>::max();
  const std::vector<Sequence*> decodes = decodes_in_order(budget);
  schedule_decodes(decodes, budget - rows_kept_for_prompts(decodes, budget));
  schedule_prompts(static_cast<int32_t>(budget - num_granted_rows_));
  schedule_decodes(decodes_in_order(budget), budget);  // choices just born, and what no prompt could use

  StepPlan plan;
  plan.step = step_;
  planned_.clear();
  if (!granted_.empty()) emit(plan);
  const bool idle = granted_.empty() && overfull_.empty() && num_running() + num_waiting() > 0;
  num_idle_plans_ = idle ? num_idle_plans_ + 1 : 0;
  TM_CHECK(num_idle_plans_ < 2, "work that is there is done");
  TM_CHECK(!config_.kv_cache || plan.num_rows() <= budget, "a step stays within its token budget");
  return plan;
}

// Sequences that need one row for their next token. Where the budget can't serve all, the longest unserved come first.
std::vector<Sequence*> Scheduler::decodes_in_order(int32_t budget) const {
  std::vector<Sequence*> decodes;
  for (Sequence* sequence : running_) {
    if (is_decode(*sequence)) decodes.push_back(sequence);
  }
  if (std::ssize(decodes) > budget) std::ranges::stable_sort(decodes, {}, &Sequence::last_step);
  return decodes;
}

// Decodes that fill the budget alone would keep prompts out for ever.
int32_t Scheduler::rows_kept_for_prompts(const std::vector<Sequence*>& decodes, int32_t budget) const {
  const bool prompt_runs = std::ssize(decodes) < std::ssize(running_);
  const bool prompt_waits = prompt_runs || (!waiting_.empty() && num_open_slots() > 0);
  if (std::ssize(decodes) < budget || !prompt_waits || step_ % saturated_every != 0) return 0;
  return std::max(1, budget / saturated_every);
}

void Scheduler::schedule_decodes(const std::vector<Sequence*>& decodes, int32_t budget) {
  for (Sequence* sequence : decodes) {
    if (num_granted_rows_ >= budget) return;
    // Preempted meanwhile, served already, or about to end.
    if (sequence->status != SequenceStatus::running || sequence->last_step == step_) continue;
    if (std::ranges::find(overfull_, sequence) != overfull_.end()) continue;
    // One that finds no room stays as it is and tries again in the next step.
    static_cast<void>(grant(*sequence, rows_wanted(*sequence)));
  }
}

void Scheduler::schedule_prompts(int32_t budget) {
  if (budget <= 0) return;
  std::vector<Candidate> candidates = prompt_candidates();
  share_budget(candidates, budget);
  for (const Candidate& candidate : candidates) {
    if (candidate.num_granted == 0 || candidate.sequence->status == SequenceStatus::finished) continue;
    static_cast<void>(grant(*candidate.sequence, candidate.num_granted));
  }
}

std::vector<Scheduler::Candidate> Scheduler::prompt_candidates() {
  std::vector<Candidate> candidates;
  for (Sequence* sequence : running_) {
    if (!is_decode(*sequence)) candidates.push_back({sequence, sequence->num_remaining(), 0});
  }
  gather_waiting(candidates);
  std::ranges::stable_sort(candidates, [this](const auto& a, const auto& b) { return before(a.sequence, b.sequence); });
  return candidates;
}

// The first in order gets what the short ones behind it leave; they may take half.
void Scheduler::share_budget(std::vector<Candidate>& candidates, int32_t budget) const {
  if (candidates.empty()) return;
  const Candidate& first = candidates.front();
  const auto give = [&budget](Candidate& candidate, int32_t most) {
    const int32_t rows = std::min({most, budget, candidate.num_remaining - candidate.num_granted});
    candidate.num_granted += rows;
    budget -= rows;
    return rows;
  };
  if (first.num_remaining > budget) {
    std::vector<Candidate*> overtaking;
    for (Candidate& candidate : candidates) {
      if (candidate.num_remaining <= first.num_remaining / 2) overtaking.push_back(&candidate);
    }
    std::ranges::stable_sort(overtaking, {}, [](const Candidate* each) { return each->num_remaining; });
    int32_t lane = budget / 2;
    for (Candidate* candidate : overtaking) lane -= give(*candidate, lane);
  }
  for (Candidate& candidate : candidates) give(candidate, budget);
}

bool Scheduler::grant(Sequence& sequence, int32_t num_rows) {
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

bool Scheduler::make_room(Sequence& sequence, int32_t end_position) {
  kv_.trim_windows(sequence);
  for (;;) {
    const size_t needed = kv_.bytes_to_reserve(sequence, end_position);
    if (needed == 0 || needed + outstanding_bytes(&sequence) <= kv_.pool().available_bytes()) {
      TM_CHECK(kv_.reserve(sequence, end_position, moves_), "bytes that are available can be reserved");
      return true;
    }
    if (num_running() == 1) {
      overfull_.push_back(&sequence);
      return false;
    }
    Sequence* victim = pick_victim();
    if (victim == nullptr) return false;  // the others have yet to draw what they were readmitted for
    preempt(*victim);
    if (victim == &sequence) return false;
  }
}

// The last class of the policy first, in it the highest value; never the first in order, nor one without progress.
Sequence* Scheduler::pick_victim() const {
  Sequence* victim = nullptr;
  std::pair<int64_t, double> worst;
  for (size_t i = 1; i < running_.size(); ++i) {
    Sequence* sequence = running_[i];
    if (!sequence->drew_since_admission) continue;
    const VictimStanding cost{.num_freed_blocks = kv_.num_unshared_blocks(*sequence),
                              .num_remaining_tokens = sequence->max_output_tokens - sequence->num_output_tokens(),
                              .num_computed_tokens = sequence->num_computed};
    const std::pair rating{policy_->rank(standing(*sequence), now_), policy_->victim_value(cost)};
    if (victim == nullptr || rating >= worst) {
      victim = sequence;
      worst = rating;
    }
  }
  return victim;
}

// --- The plan.

void Scheduler::emit(StepPlan& plan) {
  for (auto& [sequence, rows] : granted_) {
    if (!config_.kv_cache && sequence->started) {  // everything anew: the executor forgets and starts again
      ended_.push_back(sequence->slot);
      sequence->started = false;
    }
    plan.sequences.push_back(describe(*sequence, rows));
    planned_.push_back(sequence);
  }
  plan.ended = std::exchange(ended_, {});
  plan.moves = std::exchange(moves_, {});
}

PlannedSequence Scheduler::describe(Sequence& sequence, int32_t num_rows) const {
  PlannedSequence planned;
  planned.slot = sequence.slot;
  if (!sequence.started) {
    planned.start = SequenceStart{sequence.tokens, sequence.num_prompt_tokens, sequence.sampling};
  } else {
    planned.new_tokens.assign(sequence.tokens.begin() + sequence.num_told_tokens, sequence.tokens.end());
  }
  planned.first_position = first_row(sequence);
  planned.num_rows = num_rows;
  for (int32_t group = 0; group < static_cast<int32_t>(config_.groups.size()); ++group) {
    planned.tables.push_back(table_change(sequence, group));
  }
  planned.draw = planned.first_position + num_rows == sequence.num_tokens() && sequence.max_output_tokens > 0;
  const LiveRequest& request = *sequence.request;
  const int32_t num_scored = static_cast<int32_t>(request.prompt_logprobs.size());
  if (sequence.choice == 0 && num_scored < sequence.num_prompt_tokens - 1) {
    planned.prompt_logprobs = request.request.prompt_logprobs;
  }
  sequence.started = true;
  sequence.num_told_tokens = sequence.num_tokens();
  return planned;
}

TableChange Scheduler::table_change(Sequence& sequence, int32_t group) const {
  const BlockTable& table = sequence.tables[group];
  int32_t& told_first = sequence.told_first[group];
  int32_t& told_end = sequence.told_end[group];
  TableChange change;
  if (!sequence.started) {
    change.first_block = told_first = told_end = table.first_block();
  }
  change.num_dropped = table.first_block() - told_first;
  TM_CHECK(table.first_block() <= told_end, "only blocks that the executor knows are dropped");
  const auto places = table.places().subspan(told_end - table.first_block());
  change.appended.assign(places.begin(), places.end());
  told_first = table.first_block();
  told_end = table.end_block();
  return change;
}

void Scheduler::advance(const StepPlan& plan) {
  for (size_t i = 0; i < planned_.size(); ++i) {
    Sequence& sequence = *planned_[i];
    const PlannedSequence& rows = plan.sequences[i];
    const int32_t end = rows.first_position + rows.num_rows;
    const bool is_prompt = rows.first_position < sequence.num_prompt_tokens;
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
  }
}

void Scheduler::append_token(Sequence& sequence, TokenId token) {
  sequence.tokens.push_back(token);
  sequence.drew_since_admission = true;
  if (config_.kv_reserve == KvReserve::on_demand) sequence.promised_bytes = 0;
}

void Scheduler::check_integrity() const {
  std::vector<const Sequence*> holders(running_.begin(), running_.end());
  kv_.check_integrity(holders);
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
