#include "bench/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

namespace tidemill {
namespace {

constexpr double no_value = std::numeric_limits<double>::quiet_NaN();
constexpr size_t fewest_gaps_for_jitter = 8;

double percentile_of_sorted(const std::vector<double>& sorted, double percent) {
  if (sorted.empty()) return no_value;
  const auto index = static_cast<size_t>(std::max(0.0, percent / 100 * static_cast<double>(sorted.size())));
  return sorted[std::min(sorted.size() - 1, index)];
}

LoadSummary summarize_selected(const std::vector<const RequestRecord*>& records, double wall_s) {
  LoadSummary summary;
  summary.num_requests = records.size();
  summary.wall_s = wall_s;
  std::vector<double> first_tokens, gaps, whole, jitters;
  for (const RequestRecord* record : records) {
    if (!record->error.empty()) {
      ++summary.num_errors;
      continue;
    }
    summary.prompt_tokens += record->prompt_tokens;
    summary.cached_tokens += record->cached_tokens;
    summary.output_tokens += record->output_tokens;
    whole.push_back(record->end_s - record->start_s);
    if (!record->token_s.empty()) first_tokens.push_back(record->token_s.front() - record->start_s);
    const std::vector<double> own = record->gaps_s();
    gaps.insert(gaps.end(), own.begin(), own.end());
    if (const double jitter = record->jitter(); !std::isnan(jitter)) jitters.push_back(jitter);
  }
  summary.output_tokens_per_s = static_cast<double>(summary.output_tokens) / wall_s;
  summary.total_tokens_per_s = static_cast<double>(summary.output_tokens + summary.prompt_tokens) / wall_s;
  summary.first_token_s = distribution_of(std::move(first_tokens));
  summary.gap_s = distribution_of(std::move(gaps));
  summary.request_s = distribution_of(std::move(whole));
  summary.jitter = median(std::move(jitters));
  return summary;
}

}  // namespace

double percentile(std::vector<double> values, double percent) {
  std::sort(values.begin(), values.end());
  return percentile_of_sorted(values, percent);
}

double median(std::vector<double> values) {
  if (values.empty()) return no_value;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double mean(std::span<const double> values) {
  if (values.empty()) return no_value;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double standard_deviation(std::span<const double> values) {
  if (values.empty()) return no_value;
  const double center = mean(values);
  double sum = 0;
  for (const double value : values) sum += (value - center) * (value - center);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

std::vector<double> RequestRecord::gaps_s() const {
  std::vector<double> gaps;
  for (size_t i = 1; i < token_s.size(); ++i) gaps.push_back(token_s[i] - token_s[i - 1]);
  return gaps;
}

double RequestRecord::jitter() const {
  const std::vector<double> gaps = gaps_s();
  if (gaps.size() < fewest_gaps_for_jitter) return no_value;
  const double center = mean(gaps);
  return center > 0 ? standard_deviation(gaps) / center : no_value;
}

Distribution distribution_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values.size(),
          mean(values),
          percentile_of_sorted(values, 50),
          percentile_of_sorted(values, 90),
          percentile_of_sorted(values, 99),
          values.empty() ? no_value : values.back()};
}

LoadSummary summarize(std::span<const RequestRecord> records, double wall_s) {
  std::vector<const RequestRecord*> all;
  for (const RequestRecord& record : records) all.push_back(&record);
  return summarize_selected(all, wall_s);
}

LoadSummary summarize_class(std::span<const RequestRecord> records, const std::string& class_name, double wall_s) {
  std::vector<const RequestRecord*> selected;
  for (const RequestRecord& record : records) {
    if (record.class_name == class_name) selected.push_back(&record);
  }
  return summarize_selected(selected, wall_s);
}

std::vector<std::string> class_names(std::span<const RequestRecord> records) {
  std::set<std::string> names;
  for (const RequestRecord& record : records) names.insert(record.class_name);
  return {names.begin(), names.end()};
}

}  // namespace tidemill
