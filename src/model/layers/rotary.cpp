#include "model/layers/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace tidemill {
namespace {

constexpr double two_pi = 2.0 * std::numbers::pi;

std::vector<double> plain_frequencies(int32_t rotary_dim, double base) {
  std::vector<double> frequencies(static_cast<size_t>(rotary_dim / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = std::pow(base, -2.0 * static_cast<double>(i) / rotary_dim);
  }
  return frequencies;
}

double original_context_length_of(const RopeScaling& scaling, RotaryLengths lengths) {
  return static_cast<double>(scaling.original_context_length.value_or(lengths.context_length));
}

// The base grows with what the longest sequence exceeds the trained length, here always the context length.
double dynamic_base(const RopeConfig& rope, int32_t rotary_dim, RotaryLengths lengths) {
  const double factor = rope.scaling.factor;
  const double stretch = std::max(1.0, static_cast<double>(lengths.longest_sequence) / lengths.context_length);
  return rope.base * std::pow(factor * stretch - (factor - 1.0), rotary_dim / (rotary_dim - 2.0));
}

void scale_llama3(const RopeScaling& scaling, double context_length, std::vector<double>& frequencies) {
  for (double& frequency : frequencies) {
    const double turns = context_length * frequency / two_pi;
    const double ramp = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
    const double kept = std::clamp(ramp, 0.0, 1.0);
    frequency *= (1.0 - kept) / scaling.factor + kept;
  }
}

// Frequencies that turn more than beta_fast times over the original context length are kept, those that turn less than
// beta_slow times are divided by the factor, with a linear ramp over the indices between.
void scale_yarn(const RopeConfig& rope, int32_t rotary_dim, double context_length, std::vector<double>& frequencies) {
  const RopeScaling& scaling = rope.scaling;
  const auto index_that_turns = [&](double turns) {
    return rotary_dim * std::log(context_length / (turns * two_pi)) / (2.0 * std::log(rope.base));
  };
  double low = index_that_turns(scaling.beta_fast);
  double high = index_that_turns(scaling.beta_slow);
  if (scaling.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, rotary_dim - 1.0);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double interpolated = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] *= interpolated / scaling.factor + (1.0 - interpolated);
  }
}

double yarn_magnitude(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

double yarn_attention_factor(const RopeScaling& scaling) {
  if (scaling.attention_factor) return *scaling.attention_factor;
  const double mscale = scaling.mscale.value_or(0.0);
  const double mscale_all_dim = scaling.mscale_all_dim.value_or(0.0);
  if (mscale != 0.0 && mscale_all_dim != 0.0) {
    return yarn_magnitude(scaling.factor, mscale) / yarn_magnitude(scaling.factor, mscale_all_dim);
  }
  return yarn_magnitude(scaling.factor, 1.0);
}

double longrope_attention_factor(const RopeScaling& scaling, double original, RotaryLengths lengths) {
  if (scaling.attention_factor) return *scaling.attention_factor;
  const double factor = scaling.original_context_length ? lengths.context_length / original : scaling.factor;
  return factor <= 1.0 ? 1.0 : std::sqrt(1.0 + std::log(factor) / std::log(original));
}

bool is_positive(double value) {
  return std::isfinite(value) && value > 0.0;
}

Result<void> check(const RopeConfig& rope, int32_t rotary_dim, double original) {
  const RopeScaling& scaling = rope.scaling;
  const char* name = rope_scaling_name(scaling.kind);
  if (rotary_dim <= 0 || rotary_dim % 2 != 0) {
    return error("the rotary dimension {} is not a positive even number", rotary_dim);
  }
  if (!is_positive(rope.base)) return error("the rotary base {} is not a positive number", rope.base);
  if (!is_positive(scaling.factor)) return error("the rotary factor {} is not a positive number", scaling.factor);
  if (scaling.attention_factor && !is_positive(*scaling.attention_factor)) {
    return error("the rotary attention factor {} is not a positive number", *scaling.attention_factor);
  }
  if (scaling.kind != RopeScalingKind::none && original <= 1.0) {
    return error("rotary scaling {} needs an original context length above 1, {} is not", name, original);
  }
  if (scaling.kind == RopeScalingKind::dynamic && rotary_dim <= 2) {
    return error("rotary scaling dynamic needs a rotary dimension above 2, {} is not", rotary_dim);
  }
  if (scaling.kind == RopeScalingKind::llama3 && !(scaling.high_freq_factor > scaling.low_freq_factor)) {
    return error("the rotary high_freq_factor {} is not above the low_freq_factor {}", scaling.high_freq_factor,
                 scaling.low_freq_factor);
  }
  if (scaling.kind == RopeScalingKind::yarn) {
    if (rope.base <= 1.0) return error("rotary scaling yarn needs a base above 1, {} is not", rope.base);
    if (!is_positive(scaling.beta_fast) || !is_positive(scaling.beta_slow)) {
      return error("yarn's beta_fast {} and beta_slow {} are not positive numbers", scaling.beta_fast,
                   scaling.beta_slow);
    }
  }
  return {};
}

}  // namespace

Result<RotarySpec> make_rotary(const RopeConfig& rope, int32_t rotary_dim, RotaryLengths lengths) {
  const RopeScaling& scaling = rope.scaling;
  const double original = original_context_length_of(scaling, lengths);
  if (Result<void> checked = check(rope, rotary_dim, original); !checked) return checked.error();

  const bool is_dynamic = scaling.kind == RopeScalingKind::dynamic;
  std::vector<double> frequencies =
      plain_frequencies(rotary_dim, is_dynamic ? dynamic_base(rope, rotary_dim, lengths) : rope.base);
  double attention_factor = 1.0;
  if (scaling.kind == RopeScalingKind::linear) {
    for (double& frequency : frequencies) frequency /= scaling.factor;
  } else if (scaling.kind == RopeScalingKind::llama3) {
    scale_llama3(scaling, original, frequencies);
  } else if (scaling.kind == RopeScalingKind::yarn) {
    scale_yarn(rope, rotary_dim, original, frequencies);
    attention_factor = yarn_attention_factor(scaling);
  }
  RotarySpec rotary{.rotary_dim = rotary_dim,
                    .inverse_frequencies = std::vector<float>(frequencies.begin(), frequencies.end()),
                    .attention_factor = static_cast<float>(attention_factor)};
  if (scaling.kind == RopeScalingKind::longrope) {
    rotary.attention_factor = static_cast<float>(longrope_attention_factor(scaling, original, lengths));
    const bool is_long = lengths.longest_sequence > original;
    Result<void> divided = divide_frequencies(rotary, is_long ? scaling.long_factor : scaling.short_factor);
    if (!divided) return divided.error();
  }
  for (float frequency : rotary.inverse_frequencies) {
    if (!is_positive(frequency))
      return error("rotary scaling gives the frequency {}, which nothing turns by", frequency);
  }
  return rotary;
}

Result<void> divide_frequencies(RotarySpec& rotary, std::span<const double> factors) {
  if (factors.size() != rotary.inverse_frequencies.size()) {
    return error("{} rotary factors were found where the rotary dimension {} needs {}", factors.size(),
                 rotary.rotary_dim, rotary.inverse_frequencies.size());
  }
  for (size_t i = 0; i < factors.size(); ++i) {
    if (!is_positive(factors[i])) return error("rotary factor {} is {}, not a positive number", i, factors[i]);
    rotary.inverse_frequencies[i] = static_cast<float>(rotary.inverse_frequencies[i] / factors[i]);
  }
  return {};
}

}  // namespace tidemill
