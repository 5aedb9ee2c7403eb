// Weights of any file type with sane scales, for tests of the kernels; and the values they stand for.
#pragma once

#include <cstring>
#include <random>
#include <vector>

#include "compute/backend.h"
#include "compute/cpu/kernel_select.h"
#include "compute/dequantize.h"
#include "compute/half.h"

namespace tidemill::testing {

inline constexpr DType all_types[] = {DType::f32,  DType::f16,  DType::bf16, DType::q4_0,   DType::q4_1,
                                      DType::q5_0, DType::q5_1, DType::q8_0, DType::q2_k,   DType::q3_k,
                                      DType::q4_k, DType::q5_k, DType::q6_k, DType::iq4_nl, DType::mxfp4};

// Where the half-precision scales of a block lie.
inline std::vector<int> scale_offsets(DType type) {
  switch (type) {
    case DType::q4_1:
    case DType::q5_1:
    case DType::q4_k:
    case DType::q5_k:
      return {0, 2};
    case DType::q2_k:
      return {80, 82};
    case DType::q3_k:
      return {108};
    case DType::q6_k:
      return {208};
    case DType::mxfp4:
      return {};
    default:
      return {0};
  }
}

struct RandomWeights {
  DType type;
  int64_t rows, cols;
  std::vector<std::byte> bytes;
  std::vector<float> values;  // [rows, cols]

  RandomWeights(DType type, int64_t rows, int64_t cols, uint32_t seed) : type(type), rows(rows), cols(cols) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 0.05f);
    const int64_t per_block = block_values(type), block_size = block_bytes(type);
    const int64_t num_blocks = rows * cols / per_block;
    bytes.resize(static_cast<size_t>(num_blocks * block_size));
    for (auto& byte : bytes) byte = static_cast<std::byte>(random());
    for (int64_t b = 0; b < num_blocks; ++b) {
      std::byte* block = bytes.data() + b * block_size;
      const float value = normal(random);
      const uint16_t bfloat = float_to_bfloat(value);
      if (type == DType::f32) {
        std::memcpy(block, &value, sizeof(value));
      } else if (type == DType::bf16) {
        std::memcpy(block, &bfloat, sizeof(bfloat));
      } else {
        for (const int offset : scale_offsets(type)) {
          const uint16_t half = float_to_half(normal(random));
          std::memcpy(block + offset, &half, sizeof(half));
        }
        if (type == DType::mxfp4) block[0] = static_cast<std::byte>(115 + random() % 12);
      }
    }
    values.resize(static_cast<size_t>(rows * cols));
    dequantize_row(type, bytes.data(), values.data(), rows * cols);
  }

  WeightPart part() const { return {.type = type, .data = bytes.data(), .rows = rows, .cols = cols, .row_order = {}}; }
};

inline std::vector<float> random_floats(size_t count, uint32_t seed, float spread = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> out(count);
  for (float& value : out) value = normal(random);
  return out;
}

inline std::unique_ptr<Backend> backend_for(std::string_view kernels, int32_t num_threads) {
  auto backend = make_cpu_backend({.num_threads = num_threads, .kernels = kernels});
  if (!backend) std::abort();
  return std::move(backend).value();
}

inline std::vector<std::string> kernel_names() {
  std::vector<std::string> names;
  for (const auto* table : cpu::available_kernels()) names.emplace_back(table->name);
  return names;
}

}  // namespace tidemill::testing
