// What a format costs, as statistics over rows and over items that two caches both answered.
//
// Everything is paired: the same tokens, one difference a token or item, so what both find hard cancels. Intervals are
// 95 %, from the normal approximation of the mean difference (1.96 standard errors). A percentile of n values is the
// one at index min(n - 1, n * p / 100) of the sorted ones (bench/statistics.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sampling/divergence.h"

namespace tidemill {

struct Interval {
  double value = 0, low = 0, high = 0;
};

// The mean of paired differences; NaN of none.
Interval mean_interval(double sum, double sum_of_squares, int64_t count);

// Rows of a candidate cache beside those of the reference.
class RowStatistics {
 public:
  void add(const RowDivergence& row);
  void add(const RowStatistics& other);

  int64_t count() const { return static_cast<int64_t>(kl_.size()); }
  double mean_kl() const;
  double percentile_kl(double percent) const;
  double worst_kl() const;
  double same_top() const;
  double perplexity() const;
  double reference_perplexity() const;
  // Of the candidate's perplexity to the reference's.
  Interval perplexity_ratio() const;

 private:
  std::vector<double> kl_;
  int64_t num_same_top_ = 0;
  double nll_ = 0, reference_nll_ = 0;
  double difference_ = 0, squared_difference_ = 0;  // of the two negative log-likelihoods
};

// Items that are right or wrong under each of two caches.
struct ItemStatistics {
  int64_t num_items = 0;
  int64_t num_reference_right = 0, num_right = 0;
  int64_t num_lost = 0, num_won = 0;  // right only under the reference; only under the candidate

  void add(bool reference_right, bool right);
  void add(const ItemStatistics& other);
  double accuracy() const;
  double reference_accuracy() const;
  Interval difference() const;  // candidate minus reference
  // Chance of a split at least as uneven if losing and winning were equally likely (McNemar's exact test, two sides).
  double p_value() const;
};

}  // namespace tidemill
