// The open requests: what came of a step becomes tokens, events, timings and statistics; every choice ends exactly
// once.
//
// This is the third verb, apply. Used by the engine thread, under the lock that guards the statistics.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine_stats.h"
#include "engine/inbox.h"
#include "engine/kv_auditor.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"

namespace tidemill {

class RequestBook {
 public:
  // auditor: is offered what ends; null = nobody is.
  RequestBook(Scheduler& scheduler, Inbox& inbox, EngineStats& stats, KvAuditor* auditor)
      : scheduler_(scheduler), inbox_(inbox), stats_(stats), auditor_(auditor) {}

  void open(std::unique_ptr<LiveRequest> request, Clock::Time now);
  // Takes what it needs out of `result`.
  void apply(const StepPlan& plan, StepResult& result, Clock::Time now);
  void cancel(RequestId request, Clock::Time now);
  void finish_choice(const ChoiceFinish& finish, Clock::Time now);
  // Ends what ran out of its time.
  void expire(Clock::Time now);
  // Ends with `length` what the whole pool can't hold any longer.
  void end_overfull(Sequence& sequence, Clock::Time now);
  // Ends what was never admitted (shutdown), or everything.
  void end_queued(Clock::Time now);
  void end_all(Clock::Time now);

  bool empty() const { return requests_.empty(); }
  uint64_t num_finished_requests() const { return num_finished_requests_; }
  bool has_events() const { return !events_.empty(); }
  // What happened since the last call; the next events go into `spare`, whose memory is used and contents are not.
  std::vector<RequestEvent> take_events(std::vector<RequestEvent> spare) {
    spare.clear();
    return std::exchange(events_, std::move(spare));
  }

 private:
  struct Ending {
    FinishReason reason = FinishReason::stop;
    std::string message = {};
    std::optional<TokenId> stop_token = {};
    int32_t num_completion_tokens = -1;  // -1 = all that were drawn
  };
  using Requests = std::map<RequestId, std::unique_ptr<LiveRequest>>;

  void take_prompt_logprobs(LiveRequest& request, const PlannedSequence& rows, std::vector<Draw> draws);
  void report_progress(const LiveRequest& request, int32_t num_computed);
  void take_draw(Sequence& sequence, Draw draw, Clock::Time now);
  void note_token_time(Sequence& sequence, Clock::Time now);
  ClassStats& class_stats(const LiveRequest& request);
  void end_request(LiveRequest& request, const Ending& ending, Clock::Time now);
  void end_choice(LiveRequest& request, int32_t choice, const Ending& ending, Clock::Time now);
  void end_unborn(LiveRequest& request, const Ending& ending, Clock::Time now);
  RequestTimings timings(const LiveRequest& request, const Sequence* sequence, Clock::Time now) const;
  void observe_choice(const LiveRequest& request, const Sequence* sequence, const RequestEvent& event, Clock::Time now);
  void close(LiveRequest& request);

  Scheduler& scheduler_;
  Inbox& inbox_;
  EngineStats& stats_;
  KvAuditor* auditor_;
  Requests requests_;  // in the order of arrival
  std::vector<RequestEvent> events_;
  uint64_t num_finished_requests_ = 0;
  int32_t num_with_deadline_ = 0;
};

}  // namespace tidemill
