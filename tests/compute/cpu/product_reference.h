// What a matrix product should give, in double precision over the activations that the kernels see.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "random_weights.h"

namespace tidemill::testing {

inline std::unique_ptr<Matrix> load(Backend& backend, std::vector<WeightPart> parts,
                                    MatrixLayout layout = MatrixLayout::stacked) {
  auto matrix = backend.load_matrix(parts, layout);
  EXPECT_TRUE(matrix.ok()) << matrix.error().message;
  return std::move(matrix).value();
}

// The matrix unit multiplies pairs of bfloats, but for weights of 32 bits.
inline bool multiplies_bfloats(const std::string& kernels, DType type) {
  return kernels == "amx" && type != DType::f32;
}

// How much a weight may differ, in proportion, from the file's: two roundings, of the scale to half and of the weight
// to bfloat. 16-bit floats are rounded in these tests.
inline double weight_rounding(const std::string& kernels, DType type) {
  return multiplies_bfloats(kernels, type) && is_block_format(type) ? 1.0 / 240 : 0.0;
}

inline void round_to_bfloats(std::vector<double>& values) {
  for (double& value : values) value = bfloat_to_float(float_to_bfloat(static_cast<float>(value)));
}

inline void round_to_bfloats(std::vector<float>& values) {
  for (float& value : values) value = bfloat_to_float(float_to_bfloat(value));
}

// What a product sees of a row: its norm, and for quantized weights the int8 blocks, or bfloats, as values.
inline std::vector<double> seen_activations(const std::string& kernels, DType type, const float* x, int cols,
                                            const float* norm_weight, float epsilon) {
  const bool bfloats = multiplies_bfloats(kernels, type), quantized = is_block_format(type) && !bfloats;
  std::vector<double> out(x, x + cols);
  if (norm_weight) {
    double squares = 0;
    for (double value : out) squares += value * value;
    const double inverse = 1 / std::sqrt(squares / cols + epsilon);
    for (int k = 0; k < cols; ++k) out[k] *= inverse * norm_weight[k];
  }
  for (int k = 0; quantized && k < cols; k += 32) {
    float largest = 0;
    for (int j = 0; j < 32; ++j) largest = std::max(largest, std::fabs(static_cast<float>(out[k + j])));
    const float inverse = largest > 0 ? 127.0f / largest : 0;
    for (int j = 0; j < 32; ++j) {
      out[k + j] = std::nearbyint(static_cast<float>(out[k + j]) * inverse) * static_cast<double>(largest / 127.0f);
    }
  }
  if (bfloats) round_to_bfloats(out);
  return out;
}

// The dot product and the sum of its terms' magnitudes, which bounds the rounding.
inline std::pair<double, double> dot(const float* weights, const std::vector<double>& x) {
  double sum = 0, magnitude = 0;
  for (size_t k = 0; k < x.size(); ++k) {
    sum += weights[k] * x[k];
    magnitude += std::fabs(weights[k] * x[k]);
  }
  return {sum, magnitude};
}

}  // namespace tidemill::testing
