// Encoded keys and values: their errors on Gaussian values, the same bytes from every instruction set, and attention
// that reads them.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "compute/float8.h"
#include "random_weights.h"

namespace tidemill {
namespace {

using testing::backend_for;
using testing::kernel_names;
using testing::random_floats;

struct Coded {
  std::string name;
  KvCode code;
  double most_error_db;  // of the squared error of Gaussian values, relative to their squares
};

std::vector<Coded> all_codes() {
  const KvScales token = KvScales::per_token, channel = KvScales::per_channel;
  return {{"int8", {KvFormat::int8, token}, -42.5},
          {"int8_by_channel", {KvFormat::int8, channel}, -43.5},
          {"q8_0", {KvFormat::q8_0, token}, -44.5},
          {"fp8_e4m3", {KvFormat::fp8_e4m3, token}, -31.0},
          {"fp8_e5m2", {KvFormat::fp8_e5m2, token}, -25.0},
          {"int4", {KvFormat::int4, token}, -20.5},
          {"int4_by_channel", {KvFormat::int4, channel}, -22.0},
          {"q4_0", {KvFormat::q4_0, token}, -21.0},
          {"nvfp4", {KvFormat::nvfp4, token}, -20.0}};
}

const cpu::KernelTable& table_named(const std::string& name) {
  return *cpu::select_kernels(name).value();
}

// The bytes of a head's keys [dim][block_size].
std::vector<uint8_t> encoded_keys(const cpu::KernelTable& kernels, KvCode code, const std::vector<float>& keys, int dim,
                                  int block_size) {
  std::vector<uint8_t> bytes(key_layout(code, dim, block_size).bytes);
  kernels.encode_keys({keys.data(), KvFormat::fp32, bytes.data(), code, dim, block_size});
  return bytes;
}
std::vector<uint8_t> encoded_values(const cpu::KernelTable& kernels, KvCode code, const std::vector<float>& values,
                                    int dim, int block_size) {
  std::vector<uint8_t> bytes(value_layout(code, dim, block_size).bytes);
  kernels.encode_values({values.data(), KvFormat::fp32, bytes.data(), code, dim, block_size});
  return bytes;
}
std::vector<float> decoded_keys(const cpu::KernelTable& kernels, KvCode code, const std::vector<uint8_t>& bytes,
                                int dim, int block_size) {
  std::vector<float> out(static_cast<size_t>(dim * block_size), NAN);
  kernels.decode_keys({bytes.data(), KvFormat::fp32, out.data(), code, dim, block_size});
  return out;
}
std::vector<float> decoded_values(const cpu::KernelTable& kernels, KvCode code, const std::vector<uint8_t>& bytes,
                                  int dim, int block_size) {
  std::vector<float> out(static_cast<size_t>(dim * block_size), NAN);
  kernels.decode_values({bytes.data(), KvFormat::fp32, out.data(), code, dim, block_size});
  return out;
}

double error_db(const std::vector<float>& exact, const std::vector<float>& got) {
  double error = 0, square = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    error += (got[i] - exact[i]) * (got[i] - exact[i]);
    square += exact[i] * exact[i];
  }
  return 10 * std::log10(error / square);
}

class KvCodeTest : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Kernels, KvCodeTest, ::testing::ValuesIn(kernel_names()),
                         [](const auto& info) { return info.param; });

TEST_P(KvCodeTest, GaussianValuesComeBackWithinEachFormatsError) {
  const cpu::KernelTable& kernels = table_named(GetParam());
  const int dim = 64, block_size = 32;
  for (const Coded& coded : all_codes()) {
    double worst_keys = -1e9, worst_values = -1e9;
    for (const float spread : {0.01f, 1.0f, 50.0f}) {
      const std::vector<float> x = random_floats(size_t{64} * 32, 3, spread);
      const auto keys = encoded_keys(kernels, coded.code, x, dim, block_size);
      worst_keys = std::max(worst_keys, error_db(x, decoded_keys(kernels, coded.code, keys, dim, block_size)));
      if (coded.code.scales == KvScales::per_channel) continue;
      const auto values = encoded_values(kernels, coded.code, x, dim, block_size);
      worst_values = std::max(worst_values, error_db(x, decoded_values(kernels, coded.code, values, dim, block_size)));
    }
    EXPECT_LT(worst_keys, coded.most_error_db) << coded.name << " keys";
    EXPECT_LT(worst_values, coded.most_error_db) << coded.name << " values";
    RecordProperty(coded.name, fmt::format("{:.2f}", worst_keys));
  }
}

TEST_P(KvCodeTest, EveryInstructionSetWritesAndReadsTheSameBytes) {
  const cpu::KernelTable& kernels = table_named(GetParam());
  const cpu::KernelTable& scalar = table_named("scalar");
  for (const Coded& coded : all_codes()) {
    for (const int dim : {8, 24, 64, 80, 256}) {
      for (const int block_size : {16, 32, 64}) {
        const std::vector<float> x = random_floats(static_cast<size_t>(dim * block_size), 7);
        const auto keys = encoded_keys(kernels, coded.code, x, dim, block_size);
        ASSERT_EQ(keys, encoded_keys(scalar, coded.code, x, dim, block_size)) << coded.name << " " << dim;
        const auto key_floats = decoded_keys(kernels, coded.code, keys, dim, block_size);
        const auto key_reference = decoded_keys(scalar, coded.code, keys, dim, block_size);
        for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(key_floats[i], key_reference[i], 2e-6f) << coded.name;
        if (coded.code.scales == KvScales::per_channel) continue;
        const auto values = encoded_values(kernels, coded.code, x, dim, block_size);
        ASSERT_EQ(values, encoded_values(scalar, coded.code, x, dim, block_size)) << coded.name << " " << dim;
        const auto value_floats = decoded_values(kernels, coded.code, values, dim, block_size);
        const auto value_reference = decoded_values(scalar, coded.code, values, dim, block_size);
        for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(value_floats[i], value_reference[i], 2e-6f) << coded.name;
      }
    }
  }
}

TEST_P(KvCodeTest, ZerosStayZerosAndALargeBiasCostsChannelScalesNothing) {
  const cpu::KernelTable& kernels = table_named(GetParam());
  const int dim = 64, block_size = 32;
  for (const Coded& coded : all_codes()) {
    const std::vector<float> zeros(size_t{64} * 32, 0.0f);
    const auto bytes = encoded_keys(kernels, coded.code, zeros, dim, block_size);
    EXPECT_EQ(decoded_keys(kernels, coded.code, bytes, dim, block_size), zeros) << coded.name;
  }
  std::vector<float> biased = random_floats(size_t{64} * 32, 3);
  for (int p = 0; p < block_size; ++p) biased[static_cast<size_t>(5 * block_size + p)] += 600;
  const auto worst_but_5 = [&](KvCode code) {
    const auto got = decoded_keys(kernels, code, encoded_keys(kernels, code, biased, dim, block_size), dim, block_size);
    float worst = 0;
    for (size_t i = 0; i < biased.size(); ++i) {
      if (i / 32 != 5) worst = std::max(worst, std::abs(got[i] - biased[i]));
    }
    return worst;
  };
  EXPECT_LT(worst_but_5({KvFormat::int8, KvScales::per_channel}), 0.02f);
  EXPECT_GT(worst_but_5({KvFormat::int8, KvScales::per_token}), 0.5f);
}

// Five full blocks of random values, sealed in one format.
class SealedBlocks {
 public:
  static constexpr int block_size = 32, num_blocks = 5, num_positions = num_blocks * block_size;

  SealedBlocks(Backend& backend, KvBlockFormat format, int num_kv_heads, int head_dim)
      : shape_{num_kv_heads, head_dim, head_dim, block_size},
        tails_(shape_.layer_bytes(format.tail()) * num_blocks),
        sealed_(shape_.layer_bytes(format) * num_blocks) {
    const std::vector<float> x = random_floats(tails_.size() / 2, 11);
    for (size_t i = 0; i < x.size(); ++i) {
      const uint16_t half = float_to_half(x[i]);
      std::memcpy(tails_.data() + 2 * i, &half, 2);
    }
    const size_t tail_bytes = tails_.size() / num_blocks, bytes = sealed_.size() / num_blocks;
    arenas_ = {{tails_.data(), tail_bytes, tail_bytes, format.tail()}, {sealed_.data(), bytes, bytes, format}};
    std::vector<KvSeals::Pair> pairs;
    for (uint32_t i = 0; i < num_blocks; ++i) {
      pairs.push_back({{i, 0}, {i, 1}});
      places_.push_back({i, 1});
    }
    backend.seal({.shape = shape_, .arenas = arenas_, .num_layers = 1, .pairs = pairs});
  }

  // What the last num_rows positions see, with queries [num_rows, num_heads * head_dim].
  std::vector<float> attend(Backend& on, std::span<float> queries, int num_rows) const {
    const int width = static_cast<int>(queries.size()) / num_rows;
    const KvSegment segment = {0, num_rows, num_positions - num_rows, 0, places_};
    const KvGroupView view = {shape_, arenas_, {&segment, 1}};
    std::vector<float> out(queries.size(), NAN);
    on.attention({.qkv = {queries.data(), num_rows, width},
                  .num_heads = width / shape_.head_dim,
                  .scale = 1 / std::sqrt(static_cast<float>(shape_.head_dim)),
                  .kv = &view,
                  .output = {out.data(), num_rows, width}});
    return out;
  }

 private:
  KvShape shape_;
  std::vector<std::byte> tails_, sealed_;
  std::vector<KvArena> arenas_;
  std::vector<BlockPlace> places_;
};

// Sealed blocks, read by one row (codes become floats in registers) and by many (which share a copy): the same bits,
// at the head sizes and with the groups that models have.
TEST_P(KvCodeTest, AttentionReadsWhatDecodingGives) {
  constexpr int num_rows = 17;
  const auto backend = backend_for(GetParam(), 2);
  const auto scalar = backend_for("scalar", 1);
  // The matrix unit takes BF16, whose roundings are of 0.4 %.
  const float tolerance = GetParam() == "amx" ? 5e-3f : 2e-5f;
  for (const Coded& coded : all_codes()) {
    for (const int head_dim : {64, 80, 96, 128, 256}) {
      for (const int group : {1, 3, 4}) {
        const int num_kv_heads = group == 1 ? 2 : 1, width = group * num_kv_heads * head_dim;
        const SealedBlocks blocks(*backend, {coded.code.format, coded.code.scales, coded.code.format}, num_kv_heads,
                                  head_dim);
        std::vector<float> queries = random_floats(static_cast<size_t>(num_rows * width), 12);
        const std::span<float> last_query = std::span(queries).last(static_cast<size_t>(width));
        const std::vector<float> many = blocks.attend(*backend, queries, num_rows);
        const std::vector<float> one = blocks.attend(*backend, last_query, 1);
        ASSERT_EQ(std::memcmp(one.data(), many.data() + many.size() - one.size(), one.size() * sizeof(float)), 0)
            << coded.name << ", " << head_dim << " by " << group;
        const std::vector<float> reference = blocks.attend(*scalar, last_query, 1);
        double squares = 0;
        for (size_t i = 0; i < one.size(); ++i) {
          ASSERT_NEAR(one[i], reference[i], tolerance) << coded.name << ", " << head_dim << " by " << group;
          squares += std::pow(one[i] - reference[i], 2);
        }
        ASSERT_LT(std::sqrt(squares / static_cast<double>(one.size())), 0.3 * tolerance) << coded.name;
      }
    }
  }
}

TEST(Float8, EveryNumberComesBackAndHalvesRoundToEven) {
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7F) != 0x7F) {
      EXPECT_EQ(float_to_e4m3(e4m3_to_float(static_cast<uint8_t>(code))), code);
    }
    if ((code & 0x7F) < 0x7C) {
      const float value = half_to_float(static_cast<uint16_t>(code << 8));
      EXPECT_EQ(float_to_e5m2(value), code);
    }
  }
  for (int code = 0; code < 16; ++code) EXPECT_EQ(float_to_e2m1(e2m1_values[code]), code);
  EXPECT_EQ(float_to_e4m3(1000.0f), 0x7E);
  EXPECT_EQ(float_to_e4m3(-1e30f), 0xFE);
  EXPECT_EQ(float_to_e5m2(1e9f), 0x7B);
  EXPECT_EQ(float_to_e2m1(-100.0f), 15);
  EXPECT_EQ(float_to_e4m3(1.0625f), float_to_e4m3(1.0f));       // between 1 and 1.125
  EXPECT_EQ(float_to_e4m3(1.1875f), float_to_e4m3(1.25f));      // between 1.125 and 1.25
  EXPECT_EQ(float_to_e4m3(0x1.8p-9f), float_to_e4m3(0x1p-8f));  // subnormals, between 1 and 2 units
  const float ties[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
  const float even[] = {0.0f, 1.0f, 1.0f, 2.0f, 2.0f, 4.0f, 4.0f};
  for (int i = 0; i < 7; ++i) EXPECT_EQ(e2m1_values[float_to_e2m1(ties[i])], even[i]);
}

// Bytes by hand: codes, scales, mins, padding.
TEST(KvFormat, BlocksHaveTheBytesOfTheirParts) {
  const KvShape shape = {3, 64, 64, 32};
  const auto bytes = [&](KvBlockFormat format) { return shape.layer_bytes(format); };
  EXPECT_EQ(bytes(KvFormat::fp32), size_t{3} * 2 * 64 * 32 * 4);
  EXPECT_EQ(bytes(KvFormat::fp16), size_t{3} * 2 * 64 * 32 * 2);
  EXPECT_EQ(bytes(KvFormat::int8), size_t{3} * 2 * (64 * 32 + 32 * 2));
  EXPECT_EQ(bytes(KvFormat::fp8_e4m3), size_t{3} * 2 * (64 * 32 + 32 * 2));
  EXPECT_EQ(bytes(KvFormat::q8_0), size_t{3} * 2 * (64 * 32 + 2 * 32 * 2));
  EXPECT_EQ(bytes(KvFormat::q4_0), size_t{3} * 2 * (64 * 16 + 2 * 32 * 2));
  EXPECT_EQ(bytes(KvFormat::int4), size_t{3} * ((64 * 16 + 64 * 2 * 2) + (64 * 16 + 32 * 2 * 2)));
  EXPECT_EQ(bytes({KvFormat::int4, KvScales::per_token, KvFormat::int4}), size_t{3} * 2 * (64 * 16 + 32 * 2 * 2));
  EXPECT_EQ(bytes({KvFormat::int8, KvScales::per_channel, KvFormat::int8}),
            size_t{3} * ((64 * 32 + 64 * 2 * 2) + (64 * 32 + 32 * 2)));
  EXPECT_EQ(bytes(KvFormat::nvfp4), size_t{3} * 2 * (64 * 16 + 4 * 32 + 16));  // one float, padded to 16 bytes
  EXPECT_EQ(bytes({KvFormat::int8, KvFormat::int4}), size_t{3} * ((64 * 32 + 32 * 2) + (64 * 16 + 32 * 2 * 2)));
}

}  // namespace
}  // namespace tidemill
