#include "bench/arrivals.h"

#include "bench/random_source.h"

namespace tidemill {

std::vector<double> arrival_times(int32_t num_requests, double rate_per_s, double burstiness, uint64_t seed) {
  RandomSource random(seed);
  std::vector<double> times;
  double now = 0;
  for (int32_t i = 0; i < num_requests; ++i) {
    times.push_back(now);
    now += burstiness == 1 ? random.exponential(rate_per_s) : random.gamma(burstiness, 1 / (rate_per_s * burstiness));
  }
  return times;
}

}  // namespace tidemill
