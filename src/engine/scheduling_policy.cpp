#include "engine/scheduling_policy.h"

#include <algorithm>
#include <tuple>

namespace tidemill {
namespace {

// One rank for all: by arrival.
class FirstCome final : public SchedulingPolicy {
 public:
  int64_t rank(const Standing&, Clock::Time) const override { return 0; }
};

// Ranks by the request's priority; each span of waiting raises a request by one, so that nobody starves.
class Priority final : public SchedulingPolicy {
 public:
  explicit Priority(std::chrono::milliseconds aging) : aging_(aging) {}
  int64_t rank(const Standing& standing, Clock::Time now) const override {
    const int64_t age = aging_.count() > 0 ? (now - standing.arrival) / aging_ : 0;
    return int64_t{standing.priority} - std::max<int64_t>(0, age);
  }

 private:
  std::chrono::milliseconds aging_;
};

}  // namespace

double SchedulingPolicy::victim_value(const VictimStanding& victim) const {
  return static_cast<double>(victim.num_freed_bytes) * static_cast<double>(victim.num_remaining_tokens) /
         std::max(1.0, std::min<double>(victim.num_computed_tokens, victim.moving_tokens));
}

std::unique_ptr<SchedulingPolicy> make_policy(const EngineConfig& config) {
  if (config.policy == PolicyKind::priority) return std::make_unique<Priority>(config.priority_aging);
  return std::make_unique<FirstCome>();
}

int32_t class_now(const Standing& standing, std::chrono::milliseconds aging, Clock::Time now) {
  const int64_t age = aging.count() > 0 ? std::max<int64_t>(0, (now - standing.arrival) / aging) : 0;
  return static_cast<int32_t>(std::max<int64_t>(0, static_cast<int64_t>(standing.latency_class) - age));
}

bool served_before(const SchedulingPolicy& policy, std::chrono::milliseconds aging, const Standing& a,
                   const Standing& b, Clock::Time now) {
  const auto key = [&](const Standing& s) {
    return std::make_tuple(class_now(s, aging, now), policy.rank(s, now), !s.admitted_before,
                           s.admitted_before ? 0.0 : s.tenant_service, s.order, s.choice);
  };
  return key(a) < key(b);
}

}  // namespace tidemill
