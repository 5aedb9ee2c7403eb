// Time, passed in: the system's for serving, a virtual one for the simulator and the tests.
#pragma once

#include <chrono>

namespace tidemill {

class Clock {
 public:
  using Time = std::chrono::steady_clock::time_point;
  virtual ~Clock() = default;
  virtual Time now() const = 0;
};

class SystemClock final : public Clock {
 public:
  Time now() const override { return std::chrono::steady_clock::now(); }
};

}  // namespace tidemill
