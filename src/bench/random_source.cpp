#include "bench/random_source.h"

#include <cmath>
#include <numbers>

#include "base/split_mix.h"

namespace tidemill {

uint64_t RandomSource::bits() {
  return split_mix(split_mix(seed_) + ++counter_);
}

double RandomSource::unit() {
  return static_cast<double>(bits() >> 11) * 0x1p-53;
}

int64_t RandomSource::between(int64_t low, int64_t high) {
  return low + static_cast<int64_t>(unit() * static_cast<double>(high - low + 1));
}

double RandomSource::normal() {
  const double radius = std::sqrt(-2 * std::log(1 - unit()));
  return radius * std::cos(2 * std::numbers::pi * unit());
}

double RandomSource::lognormal(double mu, double sigma) {
  return std::exp(mu + sigma * normal());
}

double RandomSource::exponential(double rate) {
  return -std::log(1 - unit()) / rate;
}

double RandomSource::gamma(double shape, double scale) {
  // Below 1 the density has no peak; a power of a uniform number brings the next higher shape down.
  if (shape < 1) return gamma(shape + 1, scale) * std::pow(1 - unit(), 1 / shape);
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = normal();
    const double v = std::pow(1 + c * x, 3);
    if (v <= 0) continue;
    if (std::log(1 - unit()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v * scale;
  }
}

}  // namespace tidemill
