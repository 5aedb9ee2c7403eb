// Matrix products of every weight type on every instruction set of this machine, against sums in double precision over
// the same quantized activations.
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

class ProductTest : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Kernels, ProductTest, ::testing::ValuesIn(kernel_names()),
                         [](const auto& info) { return info.param; });

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
