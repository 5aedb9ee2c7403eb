// When the requests of an open loop come, whatever the server does.
//
// Gaps are gamma distributed with mean 1 / rate: burstiness 1 is a Poisson process (exponential gaps), below 1 requests
// come in bursts, far above 1 they come evenly, as in vLLM's benchmark. The first comes at once.
#pragma once

#include <cstdint>
#include <vector>

namespace tidemill {

// Ascending seconds since the start. rate and burstiness are above 0.
std::vector<double> arrival_times(int32_t num_requests, double rate_per_s, double burstiness, uint64_t seed);

}  // namespace tidemill
