#include "runtime/memory_pressure.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "runtime/memory_plan.h"

namespace tidemill {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The folder of this process's cgroup (version 2); "" = none.
std::string cgroup_folder() {
  std::ifstream in("/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("0::", 0) == 0) return "/sys/fs/cgroup" + line.substr(3);
  }
  return {};
}

}  // namespace

std::optional<double> parse_stalled_perc(std::string_view text) {
  constexpr std::string_view mark = "some avg10=";
  const size_t at = text.find(mark);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view number = text.substr(at + mark.size());
  double perc = 0;
  const auto [end, problem] = std::from_chars(number.data(), number.data() + number.size(), perc);
  if (problem != std::errc() || !(perc >= 0 && perc <= 100)) return std::nullopt;
  return perc;
}

MemoryPressure read_memory_pressure() {
  MemoryPressure pressure{.available_bytes = available_memory_bytes(),
                          .stalled_perc = parse_stalled_perc(text_of("/proc/pressure/memory"))};
  const std::optional<double> of_group = parse_stalled_perc(text_of(cgroup_folder() + "/memory.pressure"));
  if (of_group) pressure.stalled_perc = std::max(pressure.stalled_perc.value_or(0), *of_group);
  return pressure;
}

size_t next_budget_bytes(const BreathingRules& rules, size_t budget_bytes, size_t occupied_bytes,
                         const MemoryPressure& pressure) {
  const size_t missing = rules.reserve_bytes - std::min(rules.reserve_bytes, pressure.available_bytes);
  const bool stalled = pressure.stalled_perc.value_or(0) > rules.stalled_perc;
  size_t next = budget_bytes;
  if (missing > 0 || stalled) {
    // Only what has memory can give some back.
    const size_t used = std::min(budget_bytes, occupied_bytes);
    next = used - std::min(used, std::max(missing, budget_bytes / 8));
  } else if (pressure.stalled_perc.value_or(0) < 1 && occupied_bytes > budget_bytes / 16 * 15) {
    const size_t step = budget_bytes / 8;
    if (pressure.available_bytes > 2 * rules.reserve_bytes + step) next = budget_bytes + step;
  }
  return std::clamp(next, rules.min_bytes, rules.max_bytes);
}

Breathing::Breathing(Engine& engine, BreathingRules rules, Source source, std::chrono::milliseconds period)
    : engine_(engine), rules_(rules), source_(std::move(source)), period_(period), thread_([this] { run(); }) {}

Breathing::~Breathing() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  ended_.notify_one();
  thread_.join();
}

void Breathing::run() {
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, period_, [this] { return stop_; })) {
    const EngineStats stats = engine_.stats();
    const size_t wanted = next_budget_bytes(rules_, stats.kv_budget_bytes, stats.kv_occupied_bytes, source_());
    if (wanted != stats.kv_budget_bytes) engine_.resize_cache(wanted);
  }
}

}  // namespace tidemill
