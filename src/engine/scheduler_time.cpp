// The part of the scheduler that deals in time: how long a step may take, what of it prompts may have, and when waiting
// makes up for a latency class.
#include <algorithm>

#include "engine/scheduler.h"

namespace tidemill {
namespace {

constexpr int32_t turns_by_class = 7;  // steps with prompts before one in which waiting counts
// Bulk streams may make a step as long as this although nobody asked for a target: 40 tokens a second.
constexpr double unnoticed_s = 0.025;

// What waits to be read shall be read in about so many steps, as far as the streams' gaps allow it; found by simulation
// of mixed traffic and of documents beside short requests.
constexpr double steps_to_read = 64;
constexpr double patience_s = 0.065;  // the longest gap that prompts may cause, where streams alone need less

double seconds(std::chrono::microseconds span) {
  return std::chrono::duration<double>(span).count();
}

}  // namespace

void Scheduler::note_moves(const StepResult& result) {
  constexpr double kept = 0.95;  // of what is known, per step that adds to it
  const auto totals = [&result](MoveKind kind) { return result.moves[static_cast<size_t>(kind)]; };
  const auto seconds = [](const MoveTotals& moved) { return static_cast<double>(moved.duration_ns) * 1e-9; };
  MoveTotals tiers = totals(MoveKind::spill);
  tiers.add(totals(MoveKind::fetch));
  step_moving_s_ = seconds(tiers) + seconds(totals(MoveKind::reencode));
  if (shape_.num_prompt_rows >= config_.block_size_tokens) {
    computed_rows_ = kept * computed_rows_ + static_cast<double>(shape_.num_rows);
    computing_s_ = kept * computing_s_ + static_cast<double>(result.duration_ns) * 1e-9 - step_moving_s_;
    moving_beside_s_ = kept * moving_beside_s_ + step_moving_s_;
  }
  if (tiers.bytes == 0) return;
  moved_bytes_ = kept * moved_bytes_ + static_cast<double>(tiers.bytes);
  moving_s_ = kept * moving_s_ + seconds(tiers);
  if (computed_rows_ > 0) kv_.set_costs(moving_s_ / moved_bytes_, computing_s_ / computed_rows_);
}

// What moving blocks took has counters of its own, and is no cost of the rows.
void Scheduler::note_step_time(double seconds) {
  cost_.observe(shape_, seconds - step_moving_s_);
}

// Of the step whose decodes were just found. The measure is the step that decodes everybody who is here, also those
// whose prompts are still read: a bound that followed the streams of the moment would be shortest when most prompts
// wait. Where much waits to be read (long documents, not the usual mix), the bound gives way, so that nobody reads for
// ever; but contexts that nobody decodes from yet never make a step longer than patience.
double Scheduler::find_limit_s() const {
  if (!config_.kv_cache || best_streaming_ == LatencyClass::bulk) return endless_s;
  if (config_.target_itl.count() > 0) return seconds(config_.target_itl);
  if (config_.itl_multiple <= 0) return endless_s;
  StepShape all, streaming;  // the second with those contexts only that are decoded from
  double backlog_s = 0;
  int32_t num_bulk = 0;
  for (const Sequence* sequence : running_) {
    const bool bulk = sequence->request->request.latency_class == LatencyClass::bulk;
    num_bulk += bulk;
    if (bulk) continue;
    all.add(sequence->num_tokens() - 1, 1, true);
    streaming.add(is_decode(*sequence) ? sequence->num_tokens() - 1 : 0, 1, true);
    if (!is_decode(*sequence)) backlog_s += cost_.added_s(sequence->num_computed, sequence->num_remaining(), true);
  }
  int32_t num_slots = max_running_ - num_running();
  for (auto next = waiting_.begin(); next != waiting_.end() && num_slots > 0; ++next) {
    if ((*next)->request->request.latency_class == LatencyClass::bulk) continue;
    all.add((*next)->num_tokens() - 1, 1, true);
    streaming.add(0, 1, true);
    backlog_s += cost_.added_s(0, (*next)->num_tokens(), true);
    --num_slots;
  }
  const double decode_s = cost_.predict_s(all);
  const double most = std::max(patience_s, config_.itl_multiple * cost_.predict_s(streaming));
  const double usual = std::min(config_.itl_multiple * decode_s, most);
  const double limit = std::clamp(decode_s + backlog_s / steps_to_read, usual, std::min(2 * usual, most));
  return num_bulk > 0 ? std::max(limit, unnoticed_s) : limit;
}

// A bulk row beside better streams: the first always, others while the step stays short enough.
bool Scheduler::leaves_room_for_others(const Sequence& sequence, bool served_bulk) const {
  if (!served_bulk || limit_s_ == endless_s) return true;
  return cost_.predict_s(shape_) + cost_.added_s(first_row(sequence), 1, true) <= limit_s_;
}

// What the rows of prompts may add to the step's decode rows. The blocks that are moved to make room for theirs take
// time of the step, too: as much beside a second of computing as of late.
double Scheduler::seconds_for_prompts() const {
  if (limit_s_ == endless_s || prompts_.empty()) return endless_s;
  const double computing = computing_s_ > 0 ? computing_s_ / (computing_s_ + moving_beside_s_) : 1;
  const double left = limit_s_ * computing - cost_.predict_s(shape_);
  const bool worse = prompts_.front().latency_class > static_cast<int32_t>(best_streaming_);
  return std::max(0.0, worse ? left / 2 : left);
}

// --- Waiting.

void Scheduler::begin_turn() {
  aging_counts_ = config_.priority_aging.count() > 0 && num_turns_ >= turns_by_class;
}

// Counts steps in which prompts were served, and begins anew when one was that had waited long.
void Scheduler::end_turn() {
  bool served = false, served_aged = false;
  for (const auto& [sequence, rows] : granted_) {
    if (rows == 1 && sequence->num_computed >= sequence->num_prompt_tokens) continue;
    served = true;
    const Standing who = standing(*sequence);
    served_aged |= class_now(who, config_.priority_aging, now_) < static_cast<int32_t>(who.latency_class);
  }
  if (served) ++num_turns_;
  if (served_aged) num_turns_ = 0;
}

}  // namespace tidemill
