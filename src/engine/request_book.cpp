#include "engine/request_book.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace tidemill {
namespace {

// Tokens that stay out of generation_tokens until a consumer had the time to find a stop string in them.
constexpr int64_t uncounted_tokens = 32;

double seconds(Clock::Time from, Clock::Time to) {
  return std::chrono::duration<double>(to - from).count();
}
double ms(Clock::Time from, Clock::Time to) {
  return seconds(from, to) * 1e3;
}

bool contains(const std::vector<TokenId>& ids, TokenId id) {
  return std::ranges::find(ids, id) != ids.end();
}

bool ends_with_token(const Sequence& sequence, TokenId token) {
  const SamplingParams& sampling = sequence.sampling;
  if (sequence.num_output_tokens() <= sampling.min_tokens) return false;
  return contains(sampling.stop_token_ids, token) || (!sampling.ignore_eos && contains(sampling.end_token_ids, token));
}

// It insists on a pin that cannot be had. Once it has drawn, it goes on whatever becomes of the pin.
bool ends_without_pin(const LiveRequest& request) {
  if (!request.request.pin_or_end || request.num_pinned_tokens != 0 || request.request.pin_for->count() <= 0)
    return false;
  return std::ranges::all_of(request.choices, [](const auto& choice) { return choice->num_output_tokens() == 0; });
}

}  // namespace

void RequestBook::open(std::unique_ptr<LiveRequest> request, Clock::Time now) {
  LiveRequest& opened = *request;
  num_with_deadline_ += opened.deadline || opened.queue_deadline;
  requests_.emplace(opened.id, std::move(request));
  scheduler_.add(opened, now);
}

// --- What a step brought.

void RequestBook::apply(const StepPlan& plan, StepResult& result, Clock::Time now) {
  TM_CHECK(result.sequences.size() == plan.sequences.size(), "an executor answers for every planned sequence");
  const std::vector<Sequence*>& planned = scheduler_.planned();
  scheduler_.advance(plan);
  // Requests that end as a whole do so behind the loop: their other choices may be planned, too.
  std::vector<std::pair<LiveRequest*, FinishReason>> ending;
  const auto end_later = [&](LiveRequest& request, FinishReason reason) {
    const auto is_it = [&](const auto& entry) { return entry.first == &request; };
    if (std::none_of(ending.begin(), ending.end(), is_it)) ending.emplace_back(&request, reason);
  };
  for (size_t i = 0; i < planned.size(); ++i) {
    Sequence& sequence = *planned[i];
    LiveRequest& request = *sequence.request;
    const PlannedSequence& rows = plan.sequences[i];
    const int32_t end = rows.first_position + rows.num_rows;
    if (ends_without_pin(request)) {
      end_later(request, FinishReason::refused);
      continue;
    }
    if (sequence.choice == 0) {
      take_prompt_logprobs(request, rows, std::move(result.sequences[i].prompt_logprobs));
      if (request.request.want_progress && rows.first_position < request.num_prompt_tokens &&
          sequence.num_output_tokens() == 0) {
        report_progress(request, std::min(end, request.num_prompt_tokens));
      }
    }
    if (rows.draw) {
      TM_CHECK(result.sequences[i].draw.has_value(), "a draw that was asked for is made");
      take_draw(sequence, *std::move(result.sequences[i].draw), now);
    } else if (sequence.max_output_tokens == 0 && end == sequence.num_prompt_tokens) {
      end_later(request, FinishReason::length);
    }
  }
  for (const auto& [request, reason] : ending) end_request(*request, {.reason = reason}, now);
}

// Rows may be computed again after a preemption; only those of prompt tokens that have none yet are taken.
void RequestBook::take_prompt_logprobs(LiveRequest& request, const PlannedSequence& rows, std::vector<Draw> draws) {
  if (!request.wants_prompt_logprobs() || request.prompt_logprobs_sent) return;
  std::vector<Draw>& scored = request.prompt_logprobs;
  const int32_t num_wanted = request.num_prompt_tokens - 1;
  for (size_t i = 0; i < draws.size() && static_cast<int32_t>(scored.size()) < num_wanted; ++i) {
    const int32_t row = rows.first_position + static_cast<int32_t>(i);
    if (row == static_cast<int32_t>(scored.size())) scored.push_back(std::move(draws[i]));
  }
  if (static_cast<int32_t>(scored.size()) < num_wanted) return;
  RequestEvent event;
  event.kind = RequestEvent::Kind::prompt_logprobs;
  event.request = request.id;
  event.prompt_logprobs = scored;  // their number stays known to the scheduler
  events_.push_back(std::move(event));
  request.prompt_logprobs_sent = true;
}

void RequestBook::report_progress(const LiveRequest& request, int32_t num_computed) {
  RequestEvent event;
  event.kind = RequestEvent::Kind::progress;
  event.request = request.id;
  event.num_prompt_computed = num_computed;
  event.num_prompt_tokens = request.num_prompt_tokens;
  event.num_cached = request.num_cached_tokens;
  events_.push_back(std::move(event));
}

void RequestBook::take_draw(Sequence& sequence, Draw draw, Clock::Time now) {
  LiveRequest& request = *sequence.request;
  const TokenId token = draw.token;
  scheduler_.append_token(sequence, token);
  note_token_time(sequence, now);
  if (sequence.num_output_tokens() > sequence.num_counted_tokens + uncounted_tokens) {
    ++sequence.num_counted_tokens;
    ++stats_.generation_tokens;
  }
  RequestEvent event;
  event.kind = RequestEvent::Kind::token;
  event.request = request.id;
  event.choice = sequence.choice;
  event.draw = std::move(draw);
  events_.push_back(std::move(event));
  if (ends_with_token(sequence, token)) {
    end_choice(request, sequence.choice, {.reason = FinishReason::stop, .stop_token = token}, now);
  } else if (sequence.num_output_tokens() >= sequence.max_output_tokens) {
    end_choice(request, sequence.choice, {.reason = FinishReason::length}, now);
  }
}

ClassStats& RequestBook::class_stats(const LiveRequest& request) {
  return stats_.classes[static_cast<size_t>(request.request.latency_class)];
}

void RequestBook::note_token_time(Sequence& sequence, Clock::Time now) {
  const LiveRequest& request = *sequence.request;
  if (!sequence.first_token_time) {
    sequence.first_token_time = now;
    stats_.time_to_first_token.observe(seconds(request.arrival, now));
    class_stats(request).time_to_first_token.observe(seconds(request.arrival, now));
  } else {
    const double gap = seconds(*sequence.last_token_time, now);
    sequence.gap_sum_s += gap;
    sequence.gap_square_sum += gap * gap;
    stats_.inter_token_latency.observe(gap);
    class_stats(request).inter_token_latency.observe(gap);
  }
  sequence.last_token_time = now;
}

// --- Ends.

void RequestBook::cancel(RequestId request, Clock::Time now) {
  const auto found = requests_.find(request);
  if (found == requests_.end()) return;  // it ended before the cancel arrived
  ++stats_.num_aborted_requests;
  end_request(*found->second, {.reason = FinishReason::abort}, now);
}

void RequestBook::finish_choice(const ChoiceFinish& finish, Clock::Time now) {
  const auto found = requests_.find(finish.request);
  if (found == requests_.end()) return;
  LiveRequest& request = *found->second;
  if (finish.choice < 0 || finish.choice >= static_cast<int32_t>(request.choices.size())) return;
  const Sequence& sequence = *request.choices[finish.choice];
  if (sequence.status == SequenceStatus::finished) return;
  const int32_t num_tokens = std::clamp(finish.num_tokens, 0, sequence.num_output_tokens());
  const Ending ending{.reason = FinishReason::stop, .num_completion_tokens = num_tokens};
  end_unborn(request, ending, now);
  end_choice(request, finish.choice, ending, now);
}

void RequestBook::expire(Clock::Time now) {
  if (num_with_deadline_ == 0) return;
  for (auto next = requests_.begin(); next != requests_.end();) {
    LiveRequest& request = *next++->second;
    if (request.deadline && now >= *request.deadline) {
      end_request(request, {.reason = FinishReason::timeout, .message = "the request reached its time limit"}, now);
    } else if (request.queued && request.queue_deadline && now >= *request.queue_deadline) {
      end_request(request, {.reason = FinishReason::timeout, .message = "the request waited too long in the queue"},
                  now);
    }
  }
}

void RequestBook::end_overfull(Sequence& sequence, Clock::Time now) {
  LiveRequest& request = *sequence.request;
  const Ending ending{.reason = FinishReason::length, .message = "the KV cache is full"};
  end_unborn(request, ending, now);
  end_choice(request, sequence.choice, ending, now);
}

void RequestBook::end_queued(Clock::Time now) {
  for (auto next = requests_.begin(); next != requests_.end();) {
    LiveRequest& request = *next++->second;
    if (!request.queued) continue;
    end_request(request, {.reason = FinishReason::shutdown, .message = "the server is shutting down"}, now);
  }
}

void RequestBook::end_all(Clock::Time now) {
  while (!requests_.empty()) {
    end_request(*requests_.begin()->second,
                {.reason = FinishReason::shutdown, .message = "the server is shutting down"}, now);
  }
}

void RequestBook::end_request(LiveRequest& request, const Ending& ending, Clock::Time now) {
  end_unborn(request, ending, now);
  const int32_t num_choices = static_cast<int32_t>(request.choices.size());
  std::vector<int32_t> open;
  for (int32_t choice = 0; choice < num_choices; ++choice) {
    if (request.choices[choice]->status != SequenceStatus::finished) open.push_back(choice);
  }
  for (int32_t choice : open) end_choice(request, choice, ending, now);  // the last one closes the request
}

// Choices that were never begun end with nothing. Choice 0 is open as long as there are any.
void RequestBook::end_unborn(LiveRequest& request, const Ending& ending, Clock::Time now) {
  const int32_t num_born = static_cast<int32_t>(request.choices.size());
  for (int32_t choice = num_born; choice < request.request.num_choices; ++choice) {
    end_choice(request, choice, ending, now);
  }
}

void RequestBook::end_choice(LiveRequest& request, int32_t choice, const Ending& ending, Clock::Time now) {
  Sequence* sequence = choice < static_cast<int32_t>(request.choices.size()) ? request.choices[choice].get() : nullptr;
  if (sequence != nullptr) scheduler_.finish(*sequence);
  if (sequence != nullptr && auditor_ != nullptr) {
    auditor_->offer({.request = request.id,
                     .choice = choice,
                     .label = &request.request.label,
                     .tokens = sequence->tokens,
                     .num_prompt_tokens = sequence->num_prompt_tokens,
                     .kv_format = request.request.kv_format,
                     .read_reencoded = request.num_reencoded_tokens > 0});
  }
  RequestEvent event;
  event.kind = RequestEvent::Kind::finished;
  event.request = request.id;
  event.choice = choice;
  event.reason = ending.reason;
  event.stop_token = ending.stop_token;
  event.message = ending.message;
  const int32_t num_drawn = sequence == nullptr ? 0 : sequence->num_output_tokens();
  event.usage.prompt_tokens = request.num_prompt_tokens;
  event.usage.completion_tokens = ending.num_completion_tokens < 0 ? num_drawn : ending.num_completion_tokens;
  event.usage.discarded_tokens = num_drawn - event.usage.completion_tokens;
  event.usage.cached_tokens = request.num_cached_tokens;
  event.usage.reencoded_tokens = request.num_reencoded_tokens;
  event.usage.pinned_tokens = std::max(0, request.num_pinned_tokens);
  event.timings = timings(request, sequence, now);
  event.request_done = --request.num_open_choices == 0;
  observe_choice(request, sequence, event, now);
  const bool done = event.request_done;
  events_.push_back(std::move(event));
  if (done) close(request);
}

RequestTimings RequestBook::timings(const LiveRequest& request, const Sequence* sequence, Clock::Time now) const {
  RequestTimings times;
  times.num_cached_tokens = request.num_cached_tokens;
  times.num_recomputed_tokens = request.num_recomputed_tokens;
  times.num_fetched_tokens = request.num_fetched_tokens;
  times.queue_ms = ms(request.arrival, request.first_scheduled.value_or(now));
  if (sequence == nullptr) return times;
  times.num_preemptions = sequence->num_preemptions;
  times.num_loaded_blocks = sequence->num_loads;
  times.disk_wait_ms = sequence->disk_wait_s * 1e3;
  if (!request.first_scheduled) return times;
  times.prefill_ms = ms(*request.first_scheduled, sequence->first_token_time.value_or(now));
  if (!sequence->first_token_time) return times;
  times.time_to_first_token_ms = ms(request.arrival, *sequence->first_token_time);
  times.decode_ms = ms(*sequence->first_token_time, *sequence->last_token_time);
  const double num_gaps = sequence->num_output_tokens() - 1;
  if (num_gaps < 1 || sequence->gap_sum_s <= 0) return times;
  const double mean = sequence->gap_sum_s / num_gaps;
  times.mean_itl_ms = mean * 1e3;
  times.itl_jitter = std::sqrt(std::max(0.0, sequence->gap_square_sum / num_gaps - mean * mean)) / mean;
  return times;
}

void RequestBook::observe_choice(const LiveRequest& request, const Sequence* sequence, const RequestEvent& event,
                                 Clock::Time now) {
  ++stats_.finished[static_cast<size_t>(event.reason)];
  const int64_t num_counted = sequence == nullptr ? 0 : sequence->num_counted_tokens;
  stats_.generation_tokens += std::max<int64_t>(0, event.usage.completion_tokens - num_counted);
  stats_.discarded_tokens += event.usage.discarded_tokens;
  stats_.generation_length.observe(event.usage.completion_tokens);
  stats_.e2e_latency.observe(seconds(request.arrival, now));
  stats_.queue_time.observe(event.timings.queue_ms / 1e3);
  if (event.timings.num_loaded_blocks > 0) stats_.kv_disk_wait.observe(event.timings.disk_wait_ms / 1e3);
  if (sequence == nullptr || !sequence->first_token_time) return;
  stats_.prefill_time.observe(event.timings.prefill_ms / 1e3);
  stats_.decode_time.observe(event.timings.decode_ms / 1e3);
  stats_.inference_time.observe((event.timings.prefill_ms + event.timings.decode_ms) / 1e3);
  if (sequence->num_output_tokens() < 2) return;
  stats_.time_per_output_token.observe(event.timings.mean_itl_ms / 1e3);
  stats_.itl_jitter.observe(event.timings.itl_jitter);
  class_stats(request).itl_jitter.observe(event.timings.itl_jitter);
}

void RequestBook::close(LiveRequest& request) {
  int32_t num_preemptions = 0;
  int64_t max_tokens = 0;
  for (const auto& choice : request.choices) {
    num_preemptions += choice->num_preemptions;
    max_tokens = std::max(max_tokens, choice->max_output_tokens);
  }
  stats_.preemptions_per_request.observe(num_preemptions);
  stats_.prompt_length.observe(request.num_prompt_tokens);
  stats_.max_tokens.observe(static_cast<double>(max_tokens));
  stats_.num_choices.observe(request.request.num_choices);
  ++num_finished_requests_;
  num_with_deadline_ -= request.deadline || request.queue_deadline;
  if (request.queued) inbox_.dequeue(request);
  scheduler_.remove(request);
  requests_.erase(request.id);
}

}  // namespace tidemill
