// A clock that stands still until it is told how much time passes. Any thread may read it.
#pragma once

#include <atomic>
#include <chrono>

#include "base/clock.h"

namespace tidemill {

class VirtualClock final : public Clock {
 public:
  Time now() const override { return Time(Time::duration(ticks_.load())); }
  void advance(Time::duration span) { ticks_ += span.count(); }

 private:
  std::atomic<Time::rep> ticks_{std::chrono::duration_cast<Time::duration>(std::chrono::hours(1)).count()};
};

}  // namespace tidemill
