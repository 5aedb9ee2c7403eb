// When the live meter computes: between steps, a piece at a time, with a stretch of steps after each piece.
//
// A piece's rows are bounded by the auditor; what follows it is paced here by time, so that a stream is slowed by an
// eighth at most while a request is read. Engine thread.
#pragma once

#include <chrono>

#include "base/clock.h"
#include "engine/kv_auditor.h"

namespace tidemill {

class AuditTurns {
 public:
  AuditTurns(KvAuditor& auditor, const Clock& clock) : auditor_(auditor), clock_(clock) {}

  // After a step of so many rows that began then; 0 rows: nothing ran, so nobody waits. Whether the auditor computed.
  bool take(int32_t num_rows, Clock::Time step_began) {
    const Clock::Time begin = clock_.now();
    auditor_.note_step(num_rows);
    pause_s_ -= seconds(begin - step_began);
    const bool computed = (num_rows == 0 || pause_s_ <= 0) && auditor_.run();
    if (computed) pause_s_ = steps_between * seconds(clock_.now() - begin);
    return computed;
  }

 private:
  // Times what a piece took, in which steps have the thread to themselves.
  static constexpr double steps_between = 8;
  static double seconds(Clock::Time::duration span) { return std::chrono::duration<double>(span).count(); }

  KvAuditor& auditor_;
  const Clock& clock_;
  double pause_s_ = 0;  // of steps, before the auditor goes on
};

}  // namespace tidemill
