// Matrix products of every weight type on every instruction set of this machine, against sums in double precision over
// the same quantized activations.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "random_weights.h"

namespace tidemill {
namespace {

using testing::all_types;
using testing::backend_for;
using testing::kernel_names;
using testing::random_floats;
using testing::RandomWeights;

class ProductTest : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Kernels, ProductTest, ::testing::ValuesIn(kernel_names()),
                         [](const auto& info) { return info.param; });

std::unique_ptr<Matrix> load(Backend& backend, std::vector<WeightPart> parts,
                             MatrixLayout layout = MatrixLayout::stacked) {
  auto matrix = backend.load_matrix(parts, layout);
  EXPECT_TRUE(matrix.ok()) << matrix.error().message;
  return std::move(matrix).value();
}

// The matrix unit multiplies pairs of bfloats, but for weights of 32 bits.
bool multiplies_bfloats(const std::string& kernels, DType type) {
  return kernels == "amx" && type != DType::f32;
}

// How much a weight may differ, in proportion, from the file's: two roundings, of the scale to half and of the weight
// to bfloat. 16-bit floats are rounded in these tests.
double weight_rounding(const std::string& kernels, DType type) {
  return multiplies_bfloats(kernels, type) && is_block_format(type) ? 1.0 / 240 : 0.0;
}

void round_to_bfloats(std::vector<double>& values) {
  for (double& value : values) value = bfloat_to_float(float_to_bfloat(static_cast<float>(value)));
}

void round_to_bfloats(std::vector<float>& values) {
  for (float& value : values) value = bfloat_to_float(float_to_bfloat(value));
}

// What a product sees of a row: its norm, and for quantized weights the int8 blocks, or bfloats, as values.
std::vector<double> seen_activations(const std::string& kernels, DType type, const float* x, int cols,
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
std::pair<double, double> dot(const float* weights, const std::vector<double>& x) {
  double sum = 0, magnitude = 0;
  for (size_t k = 0; k < x.size(); ++k) {
    sum += weights[k] * x[k];
    magnitude += std::fabs(weights[k] * x[k]);
  }
  return {sum, magnitude};
}

TEST_P(ProductTest, EveryTypeAgreesWithDoublePrecision) {
  auto backend = backend_for(GetParam(), 2);
  for (const DType type : all_types) {
    const bool quantized = is_block_format(type);
    const int cols = quantized ? 512 : 100, num_outputs = 40, num_rows = 11;
    RandomWeights weights(type, num_outputs, cols, 7);
    auto x = random_floats(static_cast<size_t>(num_rows * cols), 8);
    std::vector<float> out(static_cast<size_t>(num_rows * num_outputs), NAN);
    const auto matrix = load(*backend, {weights.part()});
    backend->product({.input = {x.data(), num_rows, cols},
                      .norm = {},
                      .matrix = matrix.get(),
                      .output = {out.data(), num_rows, num_outputs}});
    const double rounding = weight_rounding(GetParam(), type);
    if (multiplies_bfloats(GetParam(), type) && !quantized) round_to_bfloats(weights.values);
    double squares = 0;  // of the errors, in proportion to the terms
    for (int row = 0; row < num_rows; ++row) {
      const auto seen = seen_activations(GetParam(), type, x.data() + row * cols, cols, nullptr, 0);
      for (int i = 0; i < num_outputs; ++i) {
        const auto [want, magnitude] = dot(weights.values.data() + static_cast<size_t>(i * cols), seen);
        const double got = out[static_cast<size_t>(row * num_outputs + i)];
        // Min terms and code terms may cancel, so K-quants round at a larger magnitude than their values have.
        ASSERT_NEAR(got, want, magnitude * (rounding + 4e-6) + 1e-5)
            << dtype_name(type) << " row " << row << " output " << i;
        squares += (got - want) * (got - want) / (magnitude * magnitude);
      }
    }
    // Roundings are independent, so that they mostly cancel over 512 inputs; a mistake in a block would not.
    EXPECT_LT(std::sqrt(squares / (num_rows * num_outputs)), 1e-5 + rounding / 16) << dtype_name(type);
  }
}

// Extreme codes and activations: what 16-bit intermediate sums of a kernel could not hold.
TEST_P(ProductTest, LargestCodesDoNotOverflow) {
  auto backend = backend_for(GetParam(), 1);
  for (const DType type : {DType::q8_0, DType::q5_1, DType::q6_k, DType::iq4_nl, DType::q4_1}) {
    RandomWeights weights(type, 16, 256, 3);
    const int scale_at = type == DType::q6_k ? 208 : 0;
    const uint8_t fill = type == DType::q8_0 ? 0x7F : 0xFF;
    for (const uint8_t code : {fill, static_cast<uint8_t>(0x80), static_cast<uint8_t>(0)}) {
      const int64_t block_size = block_bytes(type);
      for (size_t i = 0; i < weights.bytes.size(); i += static_cast<size_t>(block_size)) {
        std::memset(weights.bytes.data() + i, code, static_cast<size_t>(block_size));
        const uint16_t one = float_to_half(1.0f / 64);
        std::memcpy(weights.bytes.data() + i + scale_at, &one, sizeof(one));
        if (type == DType::q4_1 || type == DType::q5_1) std::memcpy(weights.bytes.data() + i + 2, &one, sizeof(one));
      }
      dequantize_row(type, weights.bytes.data(), weights.values.data(), 16 * 256);
      for (const float sign : {1.0f, -1.0f}) {
        std::vector<float> x(256, sign), out(16);
        const auto matrix = load(*backend, {weights.part()});
        backend->product(
            {.input = {x.data(), 1, 256}, .norm = {}, .matrix = matrix.get(), .output = {out.data(), 1, 16}});
        const auto [want, magnitude] =
            dot(weights.values.data(), seen_activations(GetParam(), type, x.data(), 256, nullptr, 0));
        ASSERT_NEAR(out[0], want, magnitude * (weight_rounding(GetParam(), type) + 1e-5))
            << dtype_name(type) << " code " << int{code} << " sign " << sign;
      }
    }
  }
}

TEST_P(ProductTest, RowsAreBitEqualInAnyCompany) {
  for (const DType type : all_types) {
    const int cols = is_block_format(type) ? 256 : 72, num_outputs = 176, most_rows = 70;
    const RandomWeights weights(type, num_outputs, cols, 17);
    auto x = random_floats(static_cast<size_t>(most_rows * cols), 18);
    std::vector<float> norm_weight(static_cast<size_t>(cols), 1.25f),
        alone(static_cast<size_t>(most_rows * num_outputs));
    auto one_thread = backend_for(GetParam(), 1);
    const auto matrix_alone = load(*one_thread, {weights.part()});
    const Norm norm = {norm_weight.data(), 1e-5f};
    for (int row = 0; row < most_rows; ++row) {
      one_thread->product({.input = {x.data() + row * cols, 1, cols},
                           .norm = norm,
                           .matrix = matrix_alone.get(),
                           .output = {alone.data() + row * num_outputs, 1, num_outputs}});
    }
    for (const int num_threads : {1, 2, 3}) {
      auto backend = backend_for(GetParam(), num_threads);
      const auto matrix = load(*backend, {weights.part()});
      for (const int num_rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 33, 70}) {
        std::vector<float> out(static_cast<size_t>(num_rows * num_outputs));
        const int first = most_rows - num_rows;
        backend->product({.input = {x.data() + first * cols, num_rows, cols},
                          .norm = norm,
                          .matrix = matrix.get(),
                          .output = {out.data(), num_rows, num_outputs}});
        ASSERT_EQ(std::memcmp(out.data(), alone.data() + first * num_outputs, out.size() * sizeof(float)), 0)
            << dtype_name(type) << ", " << num_rows << " rows, " << num_threads << " threads";
      }
    }
  }
}

// Chains of sums are the same for every number of rows: through both kinds of layout, and, where weights are unpacked,
// over more than one piece of them and more than one group of rows.
TEST_P(ProductTest, LongRowsAreBitEqualForAnyNumberOfRows) {
  auto backend = backend_for(GetParam(), 2);
  for (const DType type : all_types) {
    const int cols = 2048, num_outputs = 40, most_rows = 530;
    const RandomWeights weights(type, num_outputs, cols, 71), others(type, num_outputs, cols, 72);
    auto x = random_floats(static_cast<size_t>(most_rows * cols), 73);
    for (const auto layout : {MatrixLayout::stacked, MatrixLayout::gated}) {
      const auto matrix = load(*backend, {weights.part(), others.part()}, layout);
      const int width = layout == MatrixLayout::gated ? num_outputs : 2 * num_outputs;
      const auto multiply = [&](int num_rows) {
        std::vector<float> out(static_cast<size_t>(num_rows * width), NAN);
        backend->product({.input = {x.data(), num_rows, cols},
                          .norm = {},
                          .matrix = matrix.get(),
                          .output = {out.data(), num_rows, width}});
        return out;
      };
      const auto all = multiply(most_rows);
      for (const int num_rows : {1, 2, 15, 16, 17, 31, 32, 33, 48, 64, 65, 512, 513}) {
        const auto some = multiply(num_rows);
        ASSERT_EQ(std::memcmp(some.data(), all.data(), some.size() * sizeof(float)), 0)
            << dtype_name(type) << ", " << num_rows << " rows";
      }
    }
  }
}

// Rows whose scales differ by many powers of two keep their precision, each for itself.
TEST_P(ProductTest, EveryRowOfWeightsHasItsOwnRange) {
  auto backend = backend_for(GetParam(), 1);
  for (const DType type : {DType::q4_0, DType::q4_1, DType::q8_0, DType::iq4_nl}) {
    const int cols = 256, num_outputs = 16;
    RandomWeights weights(type, num_outputs, cols, 5);
    const auto row_bytes = static_cast<size_t>(cols / 32 * block_bytes(type));
    for (int row = 0; row < num_outputs; ++row) {
      const uint16_t scale = float_to_half(std::ldexp(1.3f, row < 8 ? -14 + row : row - 2));
      for (size_t at = 0; at < row_bytes; at += static_cast<size_t>(block_bytes(type))) {
        std::memcpy(weights.bytes.data() + static_cast<size_t>(row) * row_bytes + at, &scale, sizeof(scale));
        if (type == DType::q4_1)
          std::memset(weights.bytes.data() + static_cast<size_t>(row) * row_bytes + at + 2, 0, 2);
      }
    }
    dequantize_row(type, weights.bytes.data(), weights.values.data(), int64_t{num_outputs} * cols);
    auto x = random_floats(cols, 6);
    std::vector<float> out(num_outputs);
    const auto matrix = load(*backend, {weights.part()});
    backend->product(
        {.input = {x.data(), 1, cols}, .norm = {}, .matrix = matrix.get(), .output = {out.data(), 1, num_outputs}});
    for (int i = 0; i < num_outputs; ++i) {
      const auto [want, magnitude] =
          dot(weights.values.data() + i * cols, seen_activations(GetParam(), type, x.data(), cols, nullptr, 0));
      ASSERT_NEAR(out[static_cast<size_t>(i)], want, magnitude * (weight_rounding(GetParam(), type) + 1e-5))
          << dtype_name(type) << " output " << i;
    }
  }
}

// A block's quantization does not depend on how many blocks its row has, which decides how many are taken at once.
TEST(PrepareRow, QuantizesABlockAlikeInLongAndShortRows) {
  constexpr int num_blocks = 7;
  auto x = random_floats(num_blocks * cpu::block_k, 74, 10.0f);
  std::fill_n(x.begin() + 32, 32, 0.0f);
  std::fill_n(x.begin() + 64, 16, -3.0f);
  for (const auto* table : cpu::available_kernels()) {
    std::vector<cpu::ActBlock> together(num_blocks), alone(num_blocks);
    cpu::PrepareRow row = {.x = x.data(),
                           .cols = num_blocks * cpu::block_k,
                           .norm_weight = nullptr,
                           .epsilon = 0,
                           .scratch = nullptr,
                           .blocks = together.data(),
                           .floats = nullptr,
                           .pairs = nullptr,
                           .row = 0,
                           .rows = 1};
    table->prepare_row(row);
    row.cols = cpu::block_k;
    for (size_t b = 0; b < num_blocks; ++b) {
      row.x = x.data() + b * cpu::block_k;
      row.blocks = alone.data() + b;
      table->prepare_row(row);
      const size_t used = offsetof(cpu::ActBlock, padding);
      ASSERT_EQ(std::memcmp(&together[b], &alone[b], used), 0) << table->name << " block " << b;
    }
  }
}

TEST_P(ProductTest, StackedPartsNormBiasScaleAndResidual) {
  auto backend = backend_for(GetParam(), 2);
  const int cols = 256, num_rows = 9, heights[] = {24, 40, 16};
  const DType types[] = {DType::q4_k, DType::f16, DType::q6_k};
  std::vector<RandomWeights> weights;
  for (int i = 0; i < 3; ++i) weights.emplace_back(types[i], heights[i], cols, 30 + static_cast<uint32_t>(i));
  std::vector<int32_t> order(24);
  for (int i = 0; i < 24; ++i) order[static_cast<size_t>(i)] = (i * 7) % 24;
  if (multiplies_bfloats(GetParam(), types[1])) round_to_bfloats(weights[1].values);
  WeightPart first = weights[0].part();
  first.row_order = order;
  const auto matrix = load(*backend, {first, weights[1].part(), weights[2].part()});
  ASSERT_EQ(matrix->rows(), 80);
  auto x = random_floats(static_cast<size_t>(num_rows * cols), 31), norm_weight = random_floats(cols, 32);
  auto bias = random_floats(80, 33), before = random_floats(static_cast<size_t>(num_rows) * 80, 34), out = before;
  backend->product({.input = {x.data(), num_rows, cols},
                    .norm = {norm_weight.data(), 1e-6f},
                    .matrix = matrix.get(),
                    .bias = bias.data(),
                    .scale = 0.5f,
                    .accumulate = true,
                    .output = {out.data(), num_rows, 80}});
  for (int row = 0; row < num_rows; ++row) {
    for (int i = 0; i < 80; ++i) {
      const int part = i < 24 ? 0 : i < 64 ? 1 : 2;
      const int in_part = part == 0 ? order[static_cast<size_t>(i)] : part == 1 ? i - 24 : i - 64;
      const auto seen =
          seen_activations(GetParam(), types[part], x.data() + row * cols, cols, norm_weight.data(), 1e-6f);
      const auto [sum, magnitude] = dot(weights[static_cast<size_t>(part)].values.data() + in_part * cols, seen);
      const auto at = static_cast<size_t>(row * 80 + i);
      // A value at the edge of two int8 codes may fall to either side, by the norm's last bit.
      const double bound = magnitude * (weight_rounding(GetParam(), types[part]) + 2e-4) + 1e-5;
      ASSERT_NEAR(out[at], before[at] + 0.5 * (sum + bias[static_cast<size_t>(i)]), bound) << row << " " << i;
    }
  }
}

TEST_P(ProductTest, SoftCapsScaledOutputs) {
  auto backend = backend_for(GetParam(), 2);
  const int cols = 96, num_outputs = 40;
  const float cap = 2.5f, scale = 3.0f;
  for (const DType type : {DType::q8_0, DType::f32}) {
    const RandomWeights weights(type, num_outputs, cols, 91);
    const auto matrix = load(*backend, {weights.part()});
    for (const int num_rows : {1, 7}) {
      auto x = random_floats(static_cast<size_t>(num_rows * cols), 92);
      auto before = random_floats(static_cast<size_t>(num_rows * num_outputs), 93), capped = before;
      std::vector<float> plain(before.size());
      Product product = {.input = {x.data(), num_rows, cols},
                         .norm = {},
                         .matrix = matrix.get(),
                         .scale = scale,
                         .output = {plain.data(), num_rows, num_outputs}};
      backend->product(product);
      product.softcap = cap;
      product.accumulate = true;
      product.output.data = capped.data();
      backend->product(product);
      for (size_t i = 0; i < plain.size(); ++i) {
        ASSERT_NEAR(capped[i], before[i] + cap * std::tanh(static_cast<double>(plain[i]) / cap), 2e-6) << i;
      }
    }
  }
  // Far beyond the cap there is nothing but the cap.
  const RandomWeights weights(DType::f32, 16, 32, 94);
  const auto matrix = load(*backend, {weights.part()});
  auto x = random_floats(32, 95, 1e6f);
  std::vector<float> out(16);
  backend->product(
      {.input = {x.data(), 1, 32}, .norm = {}, .matrix = matrix.get(), .softcap = cap, .output = {out.data(), 1, 16}});
  for (float value : out) EXPECT_EQ(std::fabs(value), cap);
}

double activated(Activation activation, double x) {
  switch (activation) {
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::gelu_erf:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::relu:
      return std::max(x, 0.0);
  }
  return NAN;
}

// A logit that is NaN never wins.
TEST_P(ProductTest, ASoftCapMakesTheLeastOfNan) {
  const auto backend = backend_for(GetParam(), 1);
  std::vector<float> weights(2 * 32, 0.5f), x(32, 1.0f), out(2);
  weights[7] = std::numeric_limits<float>::quiet_NaN();
  const WeightPart part = {
      .type = DType::f32, .data = reinterpret_cast<const std::byte*>(weights.data()), .rows = 2, .cols = 32};
  const auto matrix = load(*backend, {part});
  backend->product({.input = {x.data(), 1, 32}, .matrix = matrix.get(), .softcap = 30, .output = {out.data(), 1, 2}});
  EXPECT_EQ(out[0], -30);
  EXPECT_NEAR(out[1], 30 * std::tanh(16.0 / 30), 1e-4);
}

TEST_P(ProductTest, GatedProducts) {
  auto backend = backend_for(GetParam(), 2);
  const int cols = 96, half = 40, num_rows = 5;
  const RandomWeights gate(DType::q8_0, half, cols, 41), up(DType::f32, half, cols, 42);
  const auto matrix = load(*backend, {gate.part(), up.part()}, MatrixLayout::gated);
  auto x = random_floats(static_cast<size_t>(num_rows * cols), 43, 3.0f), bias = random_floats(2 * half, 44);
  for (const auto activation : {Activation::silu, Activation::gelu_tanh, Activation::gelu_erf, Activation::relu}) {
    std::vector<float> out(static_cast<size_t>(num_rows * half), NAN);
    backend->product({.input = {x.data(), num_rows, cols},
                      .norm = {},
                      .matrix = matrix.get(),
                      .bias = bias.data(),
                      .activation = activation,
                      .output = {out.data(), num_rows, half}});
    for (int row = 0; row < num_rows; ++row) {
      const auto rounded = seen_activations(GetParam(), DType::q8_0, x.data() + row * cols, cols, nullptr, 0);
      const auto exact = seen_activations(GetParam(), DType::f32, x.data() + row * cols, cols, nullptr, 0);
      for (int i = 0; i < half; ++i) {
        const auto [gate_sum, magnitude] = dot(gate.values.data() + i * cols, rounded);
        const double g = gate_sum + bias[static_cast<size_t>(i)];
        const double u = dot(up.values.data() + i * cols, exact).first + bias[static_cast<size_t>(half + i)];
        const double want = activated(activation, g) * u;
        const double gate_bound = magnitude * weight_rounding(GetParam(), DType::q8_0) + 1e-4;
        ASSERT_NEAR(out[static_cast<size_t>(row * half + i)], want,
                    std::fabs(want) * 1e-5 + std::fabs(u) * 1.2 * gate_bound + 1e-5);
      }
    }
  }
}

// Outputs that only the next product reads may be left in its layout: the same bits come out in the end.
TEST_P(ProductTest, TheNextProductReadsTheSameWhereverOutputsLie) {
  const auto backend = backend_for(GetParam(), 2);
  for (const DType type : all_types) {
    const auto unit = block_values(type);
    const int cols = unit > 96 ? 256 : 96, width = 40;
    const std::vector<int> widths = unit > 96  ? std::vector{256}
                                    : unit > 1 ? std::vector{64, 96}
                                               : std::vector{24, 40, 64, 80, 96};
    for (const int inner : widths) {
      const RandomWeights gate(type, inner, cols, 3), up(type, inner, cols, 4), down(type, width, inner, 5);
      const auto both = load(*backend, {gate.part(), up.part()}, MatrixLayout::gated);
      const auto reader = load(*backend, {down.part()}, MatrixLayout::stacked);
      for (const int num_rows : {1, 5, 16, 17, 40, 70}) {
        std::vector<float> x = random_floats(static_cast<size_t>(num_rows * cols), 6);
        std::vector<float> hidden(static_cast<size_t>(num_rows * inner)), out[2];
        for (const bool announced : {false, true}) {
          std::vector<float>& y = out[announced ? 1 : 0];
          y.assign(static_cast<size_t>(num_rows * width), 0);
          backend->product({.input = {x.data(), num_rows, cols},
                            .matrix = both.get(),
                            .output = {hidden.data(), num_rows, inner},
                            .reader = announced ? reader.get() : nullptr});
          backend->product({.input = {hidden.data(), num_rows, inner},
                            .matrix = reader.get(),
                            .output = {y.data(), num_rows, width}});
        }
        ASSERT_EQ(std::memcmp(out[0].data(), out[1].data(), out[0].size() * sizeof(float)), 0)
            << dtype_name(type) << ", " << inner << " wide, " << num_rows << " rows";
      }
    }
  }
}

// With many rows each thread takes its own through all weights; with few, each takes some of the weights.
TEST_P(ProductTest, AnyNumberOfThreadsGivesTheSame) {
  constexpr int cols = 64, width = 40, inner = 72;
  const RandomWeights first(DType::q4_1, 24, cols, 1), second(DType::f32, 16, cols, 2);
  const RandomWeights gate(DType::q8_0, inner, cols, 3), up(DType::q8_0, inner, cols, 4),
      down(DType::f16, 24, inner, 5);
  const std::vector<float> norm = random_floats(cols, 6);
  for (const int num_rows : {127, 256, 300, 517}) {
    std::vector<float> x = random_floats(static_cast<size_t>(num_rows * cols), 7), alone;
    for (const int num_threads : {1, 2, 3}) {
      const auto backend = backend_for(GetParam(), num_threads);
      const auto stacked = load(*backend, {first.part(), second.part()});
      const auto both = load(*backend, {gate.part(), up.part()}, MatrixLayout::gated);
      const auto reader = load(*backend, {down.part()});
      std::vector<float> out(static_cast<size_t>(num_rows * (width + 24)), 1);
      std::vector<float> hidden(static_cast<size_t>(num_rows * inner));
      const Rows parts = {out.data(), num_rows, width}, last = {out.data() + num_rows * width, num_rows, 24};
      const Rows input = {x.data(), num_rows, cols}, between = {hidden.data(), num_rows, inner};
      backend->product(
          {.input = input, .norm = {norm.data(), 1e-5f}, .matrix = stacked.get(), .accumulate = true, .output = parts});
      backend->product({.input = input, .matrix = both.get(), .output = between, .reader = reader.get()});
      backend->product({.input = between, .matrix = reader.get(), .output = last});
      if (num_threads == 1) alone = out;
      ASSERT_EQ(std::memcmp(out.data(), alone.data(), out.size() * sizeof(float)), 0)
          << num_rows << " rows, " << num_threads << " threads";
    }
  }
}

TEST_P(ProductTest, EmbeddingReadsRowsBack) {
  auto backend = backend_for(GetParam(), 2);
  for (const DType type : all_types) {
    RandomWeights weights(type, 35, 256, 51);
    const auto matrix = load(*backend, {weights.part()});
    if (multiplies_bfloats(GetParam(), type) && !is_block_format(type)) round_to_bfloats(weights.values);
    const double rounding = multiplies_bfloats(GetParam(), type) ? 1.0 / 1024 : 1e-6;  // of scales to halves
    const TokenId tokens[] = {34, 0, 17, 17};
    std::vector<float> out(4 * 256);
    backend->embed(*matrix, tokens, 2.0f, {out.data(), 4, 256});
    // A value may be a small difference of a scaled code and a min.
    float largest = 0;
    for (const float value : weights.values) largest = std::max(largest, std::fabs(value));
    for (size_t i = 0; i < 4; ++i) {
      for (size_t k = 0; k < 256; ++k) {
        const float want = 2 * weights.values[static_cast<size_t>(tokens[i]) * 256 + k];
        ASSERT_NEAR(out[i * 256 + k], want, (rounding > 1e-6 ? 2 * largest : std::fabs(want)) * rounding)
            << dtype_name(type);
      }
    }
  }
}

TEST_P(ProductTest, NormalizeAndGather) {
  auto backend = backend_for(GetParam(), 3);
  const int width = 44, num_rows = 6;
  auto x = random_floats(static_cast<size_t>(width * num_rows), 61), weight = random_floats(width, 62);
  auto before = random_floats(static_cast<size_t>(width * num_rows), 63), out = before;
  backend->normalize({x.data(), num_rows, width}, {weight.data(), 1e-5f}, 3.0f, true, {out.data(), num_rows, width});
  for (int row = 0; row < num_rows; ++row) {
    const auto want = seen_activations("scalar", DType::f32, x.data() + row * width, width, weight.data(), 1e-5f);
    for (int k = 0; k < width; ++k) {
      const auto at = static_cast<size_t>(row * width + k);
      ASSERT_NEAR(out[at], before[at] + 3 * want[static_cast<size_t>(k)], 2e-5);
    }
  }
  auto in_place = x;
  backend->normalize({in_place.data(), num_rows, width}, {}, 0.5f, false, {in_place.data(), num_rows, width});
  EXPECT_EQ(in_place[100], 0.5f * x[100]);
  const int32_t ids[] = {5, 0, 5};
  std::vector<float> gathered(static_cast<size_t>(3 * width));
  backend->gather_rows({x.data(), num_rows, width}, ids, {gathered.data(), 3, width});
  EXPECT_EQ(gathered[static_cast<size_t>(2 * width + 3)], x[static_cast<size_t>(5 * width + 3)]);
  EXPECT_EQ(gathered[static_cast<size_t>(width)], x[0]);
}

TEST(CpuBackend, RefusesImpossibleShapesAndKernels) {
  auto backend = backend_for("", 1);
  const RandomWeights a(DType::f32, 8, 48, 1), b(DType::f32, 9, 48, 2), c(DType::f32, 8, 64, 3);
  const auto refused = [&](std::vector<WeightPart> parts, MatrixLayout layout) {
    auto matrix = backend->load_matrix(parts, layout);
    return matrix.ok() ? "" : matrix.error().message;
  };
  EXPECT_NE(refused({}, MatrixLayout::stacked), "");
  EXPECT_NE(refused({a.part(), c.part()}, MatrixLayout::stacked).find("64 columns"), std::string::npos);
  EXPECT_NE(refused({a.part(), b.part()}, MatrixLayout::gated), "");
  WeightPart part = a.part();
  part.type = DType::q4_0;
  EXPECT_NE(refused({part}, MatrixLayout::stacked).find("48 columns"), std::string::npos);
  const std::vector<int32_t> order = {0, 1, 2, 3, 4, 5, 6, 8};
  part = a.part();
  part.row_order = order;
  EXPECT_NE(refused({part}, MatrixLayout::stacked).find("row 8"), std::string::npos);
  auto unknown = make_cpu_backend({.num_threads = 1, .kernels = "sse9"});
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.error().message.find("scalar"), std::string::npos);
  EXPECT_FALSE(make_cpu_backend({.num_threads = -1, .kernels = ""}).ok());
}

}  // namespace
}  // namespace tidemill
