#include "eval/eval_statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "bench/statistics.h"

namespace tidemill {
namespace {

constexpr double no_value = std::numeric_limits<double>::quiet_NaN();
constexpr double errors_of_95_percent = 1.959963984540054;

double share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : no_value;
}

}  // namespace

Interval mean_interval(double sum, double sum_of_squares, int64_t count) {
  if (count == 0) return {no_value, no_value, no_value};
  const auto n = static_cast<double>(count);
  const double mean = sum / n;
  const double variance = count > 1 ? std::max(0.0, (sum_of_squares - sum * mean) / (n - 1)) : 0;
  const double reach = errors_of_95_percent * std::sqrt(variance / n);
  return {mean, mean - reach, mean + reach};
}

void RowStatistics::add(const RowDivergence& row) {
  kl_.push_back(row.kl);
  num_same_top_ += row.same_top();
  nll_ -= row.logprob;
  reference_nll_ -= row.reference_logprob;
  const double difference = row.reference_logprob - row.logprob;
  difference_ += difference;
  squared_difference_ += difference * difference;
}

void RowStatistics::add(const RowStatistics& other) {
  kl_.insert(kl_.end(), other.kl_.begin(), other.kl_.end());
  num_same_top_ += other.num_same_top_;
  nll_ += other.nll_;
  reference_nll_ += other.reference_nll_;
  difference_ += other.difference_;
  squared_difference_ += other.squared_difference_;
}

double RowStatistics::mean_kl() const {
  return mean(kl_);
}

double RowStatistics::percentile_kl(double percent) const {
  return percentile(kl_, percent);
}

double RowStatistics::worst_kl() const {
  return kl_.empty() ? no_value : *std::ranges::max_element(kl_);
}

double RowStatistics::same_top() const {
  return share(num_same_top_, count());
}

double RowStatistics::perplexity() const {
  return count() > 0 ? std::exp(nll_ / static_cast<double>(count())) : no_value;
}

double RowStatistics::reference_perplexity() const {
  return count() > 0 ? std::exp(reference_nll_ / static_cast<double>(count())) : no_value;
}

Interval RowStatistics::perplexity_ratio() const {
  const Interval log_ratio = mean_interval(difference_, squared_difference_, count());
  return {std::exp(log_ratio.value), std::exp(log_ratio.low), std::exp(log_ratio.high)};
}

void ItemStatistics::add(bool reference_right, bool right) {
  ++num_items;
  num_reference_right += reference_right;
  num_right += right;
  num_lost += reference_right && !right;
  num_won += right && !reference_right;
}

void ItemStatistics::add(const ItemStatistics& other) {
  num_items += other.num_items;
  num_reference_right += other.num_reference_right;
  num_right += other.num_right;
  num_lost += other.num_lost;
  num_won += other.num_won;
}

double ItemStatistics::accuracy() const {
  return share(num_right, num_items);
}

double ItemStatistics::reference_accuracy() const {
  return share(num_reference_right, num_items);
}

Interval ItemStatistics::difference() const {
  return mean_interval(static_cast<double>(num_won - num_lost), static_cast<double>(num_won + num_lost), num_items);
}

double ItemStatistics::p_value() const {
  const int64_t flips = num_lost + num_won, least = std::min(num_lost, num_won);
  if (flips == 0) return 1;
  double tail = 0;
  const auto n = static_cast<double>(flips);
  for (int64_t i = 0; i <= least; ++i) {
    const auto k = static_cast<double>(i);
    tail += std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) - n * std::log(2.0));
  }
  return std::min(1.0, 2 * tail);
}

}  // namespace tidemill
