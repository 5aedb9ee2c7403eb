// Keys and values of a real model through every storage format and back, and what that does to its distributions.
//
// Bounds of a single value follow from the format's definition: half a step of the group that shares its scale, where
// the step comes from the group's largest magnitude or its range, and what rounding the scale itself to its own format
// adds. They hold for any values whatever, and a scale that is an eighth off breaks them. Beside them the squared error
// relative to the squares, which depends on how real keys and values are spread: for Gaussian ones the figures are
// known (8 bits -45 dB, E4M3 -31.5, E5M2 -25.5, q4_0 -21.3, int4 with a minimum -22.1, nvfp4 -20.4). Keys have
// channels that are larger than the rest, which cost scales by token up to 6 dB; a rotation gives them back.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "compute/half.h"
#include "model/loader.h"
#include "model/model_files.h"
#include "model/model_run.h"
#include "runtime/lockstep.h"
#include "test_data.h"
#include "text/tokenizer.h"

namespace tidemill {
namespace {

constexpr int32_t block_size = 32, num_tokens = 512;
constexpr float half_unit = 0x1p-11f;  // the most that rounding to fp16 is off, relatively

// One KV head's keys [dim][block_size] or values [block_size][dim], as a block holds them before it is encoded.
struct Side {
  std::vector<uint16_t> halves;
  std::vector<float> floats;
};

struct Corpus {
  int32_t dim = 0;
  std::vector<Side> keys, values;
};

void add(const std::byte* from, int32_t dim, std::vector<Side>& to) {
  Side& side = to.emplace_back();
  side.halves.resize(static_cast<size_t>(dim) * block_size);
  std::memcpy(side.halves.data(), from, side.halves.size() * 2);
  for (const uint16_t half : side.halves) side.floats.push_back(half_to_float(half));
}

// The squared error of a format's values and how near they come to the bound.
struct Errors {
  double error = 0, square = 0;
  double worst = 0;  // of error / bound
  double db() const { return 10 * std::log10(error / square); }
};

// The most that a value may be off, of a group that shares a scale.
float bound_of(KvFormat format, bool has_min, float value, float low, float high, float outer) {
  const float largest = std::max(std::abs(low), std::abs(high));
  const float magnitude = std::abs(value);
  const float tiny = 0x1p-24f;  // fp16's least step, of scales and minima
  switch (format) {
    case KvFormat::int8:
    case KvFormat::q8_0: {
      if (!has_min) return largest / 127 * (0.5f + 127 * half_unit) + 127 * tiny;
      const float middle = std::abs(low + high) / 2, reach = (high - low) / 2 + middle * half_unit;
      return reach / 127 * (0.5f + 127 * half_unit) + 127 * tiny;
    }
    case KvFormat::int4: {
      const float reach = high - low + std::abs(low) * half_unit;
      return reach / 15 * (0.5f + 15 * half_unit) + std::abs(low) * half_unit + 15 * tiny;
    }
    case KvFormat::q4_0:
      // Codes go from -8 to 7: what has the other sign than the largest is cut off an eighth earlier.
      return std::max(largest / 8 * 0.5f, magnitude - largest * 7 / 8) + largest * half_unit + 8 * tiny;
    case KvFormat::fp8_e4m3:
    case KvFormat::fp8_e5m2: {
      const bool fine = format == KvFormat::fp8_e4m3;
      const float relative = fine ? 0x1p-4f : 0x1p-3f, least = largest / 448 * (fine ? 0x1p-10f : 0x1p-17f);
      return std::max(magnitude * relative, least) * (1 + 4 * half_unit) + 448 * tiny;
    }
    case KvFormat::nvfp4: {
      // Steps of up to 2 between 4 and 6; the scale is rounded to E4M3, so that 6 may be cut off, too.
      const float scale = std::max(largest / 6 * (1 + 0x1p-4f), largest / 6 + outer * 0x1p-10f);
      const float step = magnitude < 2 * scale ? 0.25f : magnitude < 4 * scale ? 0.5f : 1.0f;
      return scale * step * 1.0001f;
    }
    default:
      return 0;
  }
}

class KvRoundTrip {
 public:
  KvRoundTrip(const cpu::KernelTable& kernels, KvCode code, bool keys, int32_t dim)
      : kernels_(kernels),
        code_(code),
        keys_(keys),
        dim_(dim),
        layout_(keys ? key_layout(code, dim, block_size) : value_layout(code, dim, block_size)) {}

  // scale_error: what all scales are multiplied with in between.
  void add(const Side& side, float scale_error, Errors& errors) const {
    std::vector<uint8_t> bytes(layout_.bytes);
    std::vector<float> back(side.floats.size(), NAN);
    const cpu::CodeSide encoding{side.halves.data(), KvFormat::fp16, bytes.data(), code_, dim_, block_size};
    keys_ ? kernels_.encode_keys(encoding) : kernels_.encode_values(encoding);
    if (scale_error != 1) spoil_scales(bytes, scale_error);
    const cpu::CodeSide decoding{bytes.data(), KvFormat::fp32, back.data(), code_, dim_, block_size};
    keys_ ? kernels_.decode_keys(decoding) : kernels_.decode_values(decoding);
    compare(side.floats, back, errors);
  }

 private:
  void spoil_scales(std::vector<uint8_t>& bytes, float factor) const {
    if (code_.format == KvFormat::nvfp4) {
      float outer;
      std::memcpy(&outer, bytes.data() + layout_.outer, sizeof(outer));
      outer *= factor;
      std::memcpy(bytes.data() + layout_.outer, &outer, sizeof(outer));
      return;
    }
    for (int i = 0; i < layout_.num_scales; ++i) {
      uint16_t half;
      std::memcpy(&half, bytes.data() + layout_.scales + static_cast<size_t>(i) * 2, 2);
      half = float_to_half(half_to_float(half) * factor);
      std::memcpy(bytes.data() + layout_.scales + static_cast<size_t>(i) * 2, &half, 2);
    }
  }

  // Values are looked at group by group of those that share a scale, [token][dim] or [dim][token] as they lie.
  void compare(const std::vector<float>& exact, const std::vector<float>& got, Errors& errors) const {
    const bool by_channel = code_.scales == KvScales::per_channel;
    const int size = by_channel ? block_size : std::min(dim_, values_per_scale(code_.format, dim_));
    const auto at = [&](int group, int i) {
      if (by_channel) return group * block_size + i;
      const int groups = dim_ / size, token = group / groups, channel = group % groups * size + i;
      return keys_ ? channel * block_size + token : token * dim_ + channel;
    };
    float outer = 0;  // nvfp4: of the whole side
    for (const float value : exact) outer = std::max(outer, std::abs(value) / (6 * 448));
    for (int group = 0; group < static_cast<int>(exact.size()) / size; ++group) {
      float low = INFINITY, high = -INFINITY;
      for (int i = 0; i < size; ++i) {
        low = std::min(low, exact[static_cast<size_t>(at(group, i))]);
        high = std::max(high, exact[static_cast<size_t>(at(group, i))]);
      }
      for (int i = 0; i < size; ++i) {
        const float value = exact[static_cast<size_t>(at(group, i))];
        const double off = std::abs(double{got[static_cast<size_t>(at(group, i))]} - value);
        const double bound = bound_of(code_.format, has_min(code_), value, low, high, outer);
        errors.worst = std::max(errors.worst, off / std::max(bound, 1e-30));
        errors.error += off * off;
        errors.square += double{value} * value;
      }
    }
  }

  const cpu::KernelTable& kernels_;
  KvCode code_;
  bool keys_;
  int32_t dim_;
  KvSideLayout layout_;
};

// Of layers at the beginning, in the middle and at the end, over a text of half a thousand tokens.
void read_corpus(Model& model, const std::vector<TokenId>& tokens, bool rotated, Corpus& corpus) {
  testing::TestKv kv(model.kv_layout(), KvFormat::fp16, 1, num_tokens, block_size);
  if (rotated) kv.rotate(64);
  const testing::RowRange rows{0, 0, num_tokens};
  model.reserve(num_tokens, 1);
  std::vector<int32_t> positions(num_tokens);
  std::iota(positions.begin(), positions.end(), 0);
  model.forward({tokens, positions, kv.views({&rows, 1})});
  const KvShape& shape = kv.shape(0);
  corpus.dim = shape.head_dim;
  const size_t side_bytes = static_cast<size_t>(shape.head_dim) * block_size * 2;
  for (const int32_t layer : {0, 1, 7, 15, 22, 28, 29}) {
    for (int32_t block = 0; block < num_tokens / block_size; ++block) {
      const std::byte* from = kv.layer_of_block(0, layer, block);
      for (int32_t head = 0; head < shape.num_kv_heads; ++head) {
        add(from + head * side_bytes, shape.head_dim, corpus.keys);
        add(from + (shape.num_kv_heads + head) * side_bytes, shape.head_dim, corpus.values);
      }
    }
  }
}

struct Case {
  std::string name;
  KvCode code;
  // Of keys as they are, of rotated keys, and of values; 0 = not a layout of values.
  double most_db_keys, most_db_rotated, most_db_values;
};

const std::vector<Case>& cases() {
  static const KvScales token = KvScales::per_token, channel = KvScales::per_channel;
  static const std::vector<Case> all = {
      {"int8", {KvFormat::int8, token}, -38.5, -45.0, -43.5},
      {"int8:channel", {KvFormat::int8, channel}, -52.0, -52.0, 0},
      {"q8_0", {KvFormat::q8_0, token}, -41.0, -45.0, -45.0},
      {"fp8_e4m3", {KvFormat::fp8_e4m3, token}, -31.5, -31.5, -31.5},
      {"fp8_e4m3:channel", {KvFormat::fp8_e4m3, channel}, -31.5, -31.5, 0},
      {"fp8_e5m2", {KvFormat::fp8_e5m2, token}, -25.5, -25.5, -25.5},
      {"fp8_e5m2:channel", {KvFormat::fp8_e5m2, channel}, -25.5, -25.5, 0},
      {"int4", {KvFormat::int4, token}, -17.2, -21.2, -20.4},
      {"int4:channel", {KvFormat::int4, channel}, -27.5, -27.5, 0},
      {"q4_0", {KvFormat::q4_0, token}, -17.0, -21.3, -20.7},
      {"nvfp4", {KvFormat::nvfp4, token}, -20.4, -20.1, -20.4},
  };
  return all;
}

class KvRoundTripTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::filesystem::path path = testing::cached_model("smollm2-135m-instruct-q4_1.gguf");
    TM_NEEDS_FILE(path);
    TM_NEEDS_DATA("corpus-wikitext2-raw/wiki.test.raw");
    auto backend = make_cpu_backend({.num_threads = 2});
    ASSERT_TRUE(backend.ok()) << backend.error().message;
    backend_ = *std::move(backend);
    auto files = open_model_files(path);
    ASSERT_TRUE(files.ok()) << files.error().message;
    auto config = read_model_config(*files);
    ASSERT_TRUE(config.ok()) << config.error().message;
    auto tokenizer = make_tokenizer(files->weights->metadata());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    auto model = load_model(*files->weights, *config, *backend_, {});
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = *std::move(model);
    const std::string text = testing::read_file(testing::data_path("corpus-wikitext2-raw/wiki.test.raw"));
    tokens_ = (*tokenizer)->encode(text.substr(0, 8 * num_tokens));
    ASSERT_GE(tokens_.size(), size_t{num_tokens});
    tokens_.resize(num_tokens);
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  std::vector<TokenId> tokens_;
};

// What the formats do to the answers of a model without outliers (H30), over the text's second half.
TEST_F(KvRoundTripTest, ARealModelsDistributionsStayWithinTheBoundsOfTheirFormat) {
  struct Bound {
    const char* formats;
    double most_kl, least_same_top;
  };
  const std::vector<Bound> bounds = {
      {"int8", 0.02, 0.97}, {"int4", 0.05, 0}, {"int4+rotation", 0.05, 0}, {"q4_0", 0.05, 0}, {"nvfp4", 0.05, 0}};
  LockstepOptions options{
      .reference = {KvFormat::fp32}, .candidates = {}, .max_tokens = num_tokens, .backend = backend_.get()};
  for (const Bound& bound : bounds) options.candidates.push_back(parse_kv_formats(bound.formats).value());
  auto lockstep = Lockstep::make(*model_, options);
  ASSERT_TRUE(lockstep.ok()) << lockstep.error().message;
  std::vector<double> kl(bounds.size()), same_top(bounds.size());
  const int32_t first = num_tokens / 2, num_rows = num_tokens - 1 - first;
  (*lockstep)->run(tokens_, first, [&](size_t i, int32_t, const RowDivergence& row) {
    ASSERT_TRUE(std::isfinite(row.kl));
    kl[i] += row.kl / num_rows;
    same_top[i] += row.same_top() / static_cast<double>(num_rows);
  });
  for (size_t i = 0; i < bounds.size(); ++i) {
    EXPECT_LE(kl[i], bounds[i].most_kl) << bounds[i].formats;
    EXPECT_GE(same_top[i], bounds[i].least_same_top) << bounds[i].formats;
    EXPECT_GT(kl[i], 1e-5) << bounds[i].formats << " is no reference";
  }
  EXPECT_LT(kl[0], kl[1]) << "8 bits are truer than 4";
}

TEST_F(KvRoundTripTest, RealKeysAndValuesComeBackWithinTheBoundsOfTheirFormat) {
  Corpus plain, rotated;
  read_corpus(*model_, tokens_, false, plain);
  read_corpus(*model_, tokens_, true, rotated);

  for (const cpu::KernelTable* kernels : cpu::available_kernels()) {
    for (const Case& each : cases()) {
      const auto expect_within = [&](const std::vector<Side>& sides, bool keys, double most_db, const char* what) {
        const KvRoundTrip trip(*kernels, each.code, keys, plain.dim);
        Errors good, spoiled;
        for (const Side& side : sides) {
          trip.add(side, 1, good);
          trip.add(side, 1.125f, spoiled);
        }
        EXPECT_LE(good.worst, 1) << kernels->name << " " << each.name << " " << what;
        EXPECT_GT(spoiled.worst, 1) << kernels->name << " " << each.name << " " << what;
        EXPECT_LT(good.db(), most_db) << kernels->name << " " << each.name << " " << what;
        EXPECT_GT(spoiled.db(), most_db) << kernels->name << " " << each.name << " " << what;
      };
      expect_within(plain.keys, true, each.most_db_keys, "keys");
      expect_within(rotated.keys, true, each.most_db_rotated, "rotated keys");
      if (each.code.scales == KvScales::per_token) expect_within(plain.values, false, each.most_db_values, "values");
    }
  }
}

}  // namespace
}  // namespace tidemill
