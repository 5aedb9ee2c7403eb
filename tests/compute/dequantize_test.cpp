#include "compute/dequantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "compute/half.h"
#include "test_data.h"

namespace tidemill {
namespace {

struct Vector {
  std::string name;
  std::string blocks;
  std::vector<float> values;
};

// Written by tools/make_dequant_vectors.py, which says the layout.
std::vector<Vector> golden_vectors() {
  const std::string bytes = testing::read_file(testing::golden_path("dequantize.bin"));
  std::vector<Vector> vectors;
  for (size_t at = 0; at + 24 <= bytes.size();) {
    Vector vector;
    uint32_t num_values, num_bytes;
    vector.name = bytes.substr(at, 16).c_str();
    std::memcpy(&num_values, &bytes[at + 16], 4);
    std::memcpy(&num_bytes, &bytes[at + 20], 4);
    vector.blocks = bytes.substr(at + 24, num_bytes);
    vector.values.resize(num_values);
    std::memcpy(vector.values.data(), &bytes[at + 24 + num_bytes], num_values * sizeof(float));
    at += 24 + num_bytes + num_values * sizeof(float);
    vectors.push_back(std::move(vector));
  }
  return vectors;
}

const std::byte* bytes_of(const std::string& text) {
  return reinterpret_cast<const std::byte*>(text.data());
}

TEST(Dequantize, EveryFormatEqualsTheReferenceBitForBit) {
  const std::vector<Vector> vectors = golden_vectors();
  ASSERT_EQ(vectors.size(), static_cast<size_t>(num_dtypes));
  for (int i = 0; i < num_dtypes; ++i) {
    const auto type = static_cast<DType>(i);
    const Vector& vector = vectors[static_cast<size_t>(i)];
    ASSERT_EQ(vector.name, dtype_name(type));
    const auto count = static_cast<int64_t>(vector.values.size());
    ASSERT_EQ(bytes_of_values(type, count), static_cast<int64_t>(vector.blocks.size()));
    // One byte off, as the files promise no alignment.
    const std::string shifted = "x" + vector.blocks;
    std::vector<float> found(vector.values.size());
    dequantize_row(type, bytes_of(shifted) + 1, found.data(), count);
    for (size_t j = 0; j < found.size(); ++j) {
      ASSERT_EQ(found[j], vector.values[j]) << vector.name << " value " << j;
    }
  }
}

TEST(Half, EveryBitPatternComesBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = half_to_float(half);
    if ((half & 0x7FFF) > 0x7C00) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_TRUE(std::isnan(half_to_float(float_to_half(value))));
    } else {
      ASSERT_EQ(float_to_half(value), half) << value;
    }
    const float wide = bfloat_to_float(half);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(bfloat_to_float(float_to_bfloat(wide))));
    } else {
      ASSERT_EQ(float_to_bfloat(wide), half);
    }
  }
}

// Nearest, ties to even, decided in double by looking at both neighbours.
uint16_t nearest_half(float value) {
  const double magnitude = std::fabs(static_cast<double>(value));
  uint16_t below = 0;
  for (uint16_t step = 0x4000; step > 0; step /= 2) {
    if (below + step <= 0x7BFF && half_to_float(static_cast<uint16_t>(below + step)) <= magnitude) below += step;
  }
  const double low = half_to_float(below);
  const double high = below == 0x7BFF ? 65536.0 : half_to_float(static_cast<uint16_t>(below + 1));
  const bool up = magnitude - low > high - magnitude || (magnitude - low == high - magnitude && below % 2 == 1);
  return static_cast<uint16_t>((std::signbit(value) ? 0x8000 : 0) | (up ? below + 1 : below));
}

TEST(Half, RoundsToTheNearestWithTiesToEven) {
  std::mt19937 random(1);
  for (int i = 0; i < 200000; ++i) {
    // Magnitudes from below the smallest half to above the largest, and exact ties.
    const float mantissa = 1.0f + static_cast<float>(random() % 4096) / 4096.0f;
    const float value = std::ldexp(mantissa, static_cast<int>(random() % 44) - 27) * (random() % 2 ? 1.0f : -1.0f);
    ASSERT_EQ(float_to_half(value), nearest_half(std::fabs(value) > 65536 ? std::copysign(65536.0f, value) : value))
        << value;
  }
  EXPECT_EQ(float_to_half(std::numeric_limits<float>::infinity()), 0x7C00);
  EXPECT_EQ(float_to_half(-1e30f), 0xFC00);
  EXPECT_EQ(float_to_bfloat(1.00390625f), 0x3F80) << "a tie goes to the even one below";
  EXPECT_EQ(float_to_bfloat(1.01171875f), 0x3F82) << "a tie goes to the even one above";
}

std::vector<float> round_trip(DType type, const std::vector<float>& values) {
  const auto count = static_cast<int64_t>(values.size());
  std::vector<std::byte> blocks(static_cast<size_t>(*bytes_of_values(type, count)));
  (type == DType::q8_0 ? quantize_row_q8_0 : quantize_row_q4_0)(values.data(), blocks.data(), count);
  std::vector<float> back(values.size());
  dequantize_row(type, blocks.data(), back.data(), count);
  return back;
}

TEST(Quantize, ErrorStaysWithinHalfAStep) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<float> values(32 * 64);
  for (float& value : values) value = normal(random);
  for (DType type : {DType::q8_0, DType::q4_0}) {
    const std::vector<float> back = round_trip(type, values);
    for (size_t block = 0; block < values.size(); block += 32) {
      float largest = 0;
      for (size_t j = block; j < block + 32; ++j) largest = std::max(largest, std::fabs(values[j]));
      // q4_0 has 16 steps from -8 to 7: the side opposite to the extreme is cut by up to a whole step.
      const float step = largest / (type == DType::q8_0 ? 127.0f : 8.0f);
      // The scale itself is rounded to a half: up to 2^-11 of 127 or 8 steps more.
      const float allowed = (type == DType::q8_0 ? 0.57f : 1.01f) * step;
      for (size_t j = block; j < block + 32; ++j) ASSERT_NEAR(back[j], values[j], allowed) << dtype_name(type);
    }
  }
}

TEST(Quantize, ExactAndUnusualBlocks) {
  std::vector<float> values(32, 0.0f);
  EXPECT_EQ(round_trip(DType::q8_0, values), values);
  EXPECT_EQ(round_trip(DType::q4_0, values), values);
  for (int i = 0; i < 32; ++i) values[static_cast<size_t>(i)] = static_cast<float>(i % 16 - 8);
  EXPECT_EQ(round_trip(DType::q4_0, values), values);
  values[3] = 127;
  EXPECT_EQ(round_trip(DType::q8_0, values), values);
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    values[3] = bad;
    EXPECT_EQ(round_trip(DType::q8_0, values), std::vector<float>(32, 0.0f));
    EXPECT_EQ(round_trip(DType::q4_0, values), std::vector<float>(32, 0.0f));
  }
  std::vector<float> tiny(32, 1e-45f);
  for (float value : round_trip(DType::q8_0, tiny)) EXPECT_EQ(value, 0.0f);
}

}  // namespace
}  // namespace tidemill
