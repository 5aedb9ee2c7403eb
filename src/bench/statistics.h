// Figures of a load: what was noted of each request, and what all of them together come to.
//
// Times are seconds since the run began. A percentile of n sorted values is the one at index min(n - 1, n * p / 100),
// as load generators of other engines count; of no values it is NaN, which JSON shows as null. Jitter of a request is
// the standard deviation of the gaps between its tokens over their mean, where there are eight gaps or more; of a run,
// the median over its requests.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tidemill {

double percentile(std::vector<double> values, double percent);
// The mean of the two in the middle where their number is even.
double median(std::vector<double> values);
double mean(std::span<const double> values);
double standard_deviation(std::span<const double> values);  // of the values as a whole population

// One request as the one who asked saw it.
struct RequestRecord {
  size_t index = 0;  // in the workload
  std::string class_name;
  double start_s = 0;
  std::vector<double> token_s;  // when each token came; one event counts as one token
  double end_s = 0;
  int64_t prompt_tokens = 0;  // as the server counts them; 0 where it does not say
  int64_t cached_tokens = 0;
  int64_t output_tokens = 0;  // as the server counts them, else the number of events
  std::string error;          // "" = it was answered whole

  std::vector<double> gaps_s() const;
  double jitter() const;  // NaN below eight gaps
};

struct Distribution {
  size_t count = 0;
  double mean = 0, p50 = 0, p90 = 0, p99 = 0, max = 0;
};
Distribution distribution_of(std::vector<double> values);

struct LoadSummary {
  size_t num_requests = 0;
  size_t num_errors = 0;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t output_tokens = 0;
  double wall_s = 0;
  double output_tokens_per_s = 0;
  double total_tokens_per_s = 0;  // with prompts
  Distribution first_token_s, gap_s, request_s;
  double jitter = 0;

  double gap_ratio() const { return gap_s.p99 / gap_s.p50; }
};

// Failed requests count as errors and in nothing else.
LoadSummary summarize(std::span<const RequestRecord> records, double wall_s);
LoadSummary summarize_class(std::span<const RequestRecord> records, const std::string& class_name, double wall_s);
// In alphabetical order.
std::vector<std::string> class_names(std::span<const RequestRecord> records);

}  // namespace tidemill
