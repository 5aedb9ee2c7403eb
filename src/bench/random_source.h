// Random numbers of benchmarks: the same sequence for a seed on every machine and with every compiler.
//
// std::lognormal_distribution and its like differ between standard libraries, and a workload must not.
#pragma once

#include <cstdint>

namespace tidemill {

class RandomSource {
 public:
  explicit RandomSource(uint64_t seed) : seed_(seed) {}

  uint64_t bits();
  double unit();                               // [0, 1)
  int64_t between(int64_t low, int64_t high);  // both included
  double normal();                             // mean 0, deviation 1
  double lognormal(double mu, double sigma);   // of ln(value)
  double exponential(double rate);             // mean 1 / rate
  double gamma(double shape, double scale);    // Marsaglia and Tsang 2000

 private:
  uint64_t seed_;
  uint64_t counter_ = 0;
};

}  // namespace tidemill
