// What products do with their sums on every instruction set of this machine: norms before, biases, scales, residuals,
// soft caps, gates, and the hand-over to the product that reads them.
#include "product_reference.h"

namespace tidemill {
namespace {

using testing::all_types;
using testing::backend_for;
using testing::dot;
using testing::kernel_names;
using testing::load;
using testing::multiplies_bfloats;
using testing::random_floats;
using testing::RandomWeights;
using testing::round_to_bfloats;
using testing::seen_activations;
using testing::weight_rounding;

class ProductEpilogueTest : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Kernels, ProductEpilogueTest, ::testing::ValuesIn(kernel_names()),
                         [](const auto& info) { return info.param; });

TEST_P(ProductEpilogueTest, StackedPartsNormBiasScaleAndResidual) {
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

TEST_P(ProductEpilogueTest, SoftCapsScaledOutputs) {
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
TEST_P(ProductEpilogueTest, ASoftCapMakesTheLeastOfNan) {
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

TEST_P(ProductEpilogueTest, GatedProducts) {
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
TEST_P(ProductEpilogueTest, TheNextProductReadsTheSameWhereverOutputsLie) {
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

}  // namespace
}  // namespace tidemill
