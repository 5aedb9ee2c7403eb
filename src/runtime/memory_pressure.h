// Whether the machine (or this process's cgroup) runs short of memory, and what size of KV cache follows from that.
//
// Two signs of need: little memory left, and time that tasks lose waiting for memory (pressure-stall information, where
// the kernel has it). The rule is a pure function; a thread of its own applies it once a second between two limits.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>

#include "engine/engine.h"

namespace tidemill {

struct MemoryPressure {
  size_t available_bytes = 0;          // that may still be taken (runtime/memory_plan.h)
  std::optional<double> stalled_perc;  // of the last ten seconds, in which some task waited for memory
};

MemoryPressure read_memory_pressure();
// The number behind "some avg10=" of the kernel's text.
std::optional<double> parse_stalled_perc(std::string_view text);

struct BreathingRules {
  size_t min_bytes = 0, max_bytes = 0;
  size_t reserve_bytes = size_t{512} << 20;  // that others shall have; under it the cache shrinks
  double stalled_perc = 10;                  // above it, too
};

// The budget that follows: down by what is missing, at least an eighth, where memory is short; up by an eighth where
// there is room for twice the reserve and the cache uses what it has; the same otherwise. Always within the limits.
size_t next_budget_bytes(const BreathingRules& rules, size_t budget_bytes, size_t occupied_bytes,
                         const MemoryPressure& pressure);

class Breathing {
 public:
  using Source = std::function<MemoryPressure()>;
  // The engine must outlive it. source: asked once a period, on a thread of its own.
  Breathing(Engine& engine, BreathingRules rules, Source source = read_memory_pressure,
            std::chrono::milliseconds period = std::chrono::seconds(1));
  ~Breathing();
  Breathing(const Breathing&) = delete;
  Breathing& operator=(const Breathing&) = delete;

 private:
  void run();

  Engine& engine_;
  const BreathingRules rules_;
  const Source source_;
  const std::chrono::milliseconds period_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace tidemill
