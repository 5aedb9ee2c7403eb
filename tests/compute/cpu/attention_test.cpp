// Rotation, storage and attention over paged blocks on every instruction set of this machine, against a plain double
// computation; and that neither chunks, company, threads nor block sizes change a bit.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "random_weights.h"

namespace tidemill {
namespace {

using testing::backend_for;
using testing::kernel_names;
using testing::random_floats;

struct Case {
  std::string name;
  int num_heads = 6, num_kv_heads = 2, head_dim = 24, value_dim = 24;
  int window = 0;
  float scale = 0.3f;
  float softcap = 0;
  bool sinks = false;
  bool query_key_norm = false, norm_whole_row = false;
  int rotary_dim = 24;
  bool interleaved = false;
  float attention_factor = 1;
  KvFormat format = KvFormat::fp32;

  int query_width() const { return num_heads * head_dim; }
  int key_width() const { return num_kv_heads * head_dim; }
  int width() const { return query_width() + key_width() + num_kv_heads * value_dim; }
};

// Everything that a layer needs besides the rows.
struct Layer {
  std::vector<float> query_weight, key_weight, frequencies, sinks;
  explicit Layer(const Case& c)
      : query_weight(random_floats(static_cast<size_t>(c.query_width()), 1)),
        key_weight(random_floats(static_cast<size_t>(c.key_width()), 2)),
        sinks(random_floats(static_cast<size_t>(c.num_heads), 3)) {
    for (int i = 0; i < c.rotary_dim / 2; ++i) {
      frequencies.push_back(static_cast<float>(std::pow(10000.0, -2.0 * i / c.rotary_dim)));
    }
  }
};

// Slots that begin as NaN, in two arenas: odd blocks of a sequence lie in the second one.
class Storage {
 public:
  Storage(const Case& c, int block_size, int num_slots, KvFormat second_format) {
    shape_ = {c.num_kv_heads, c.head_dim, c.value_dim, block_size};
    for (int a = 0; a < 2; ++a) {
      const KvFormat format = a == 0 ? c.format : second_format;
      const size_t layer_bytes = shape_.layer_bytes(format);
      memory_[a].assign(layer_bytes * 2 * static_cast<size_t>(num_slots), std::byte{0xFF});
      arenas_.push_back({memory_[a].data(), layer_bytes * 2, layer_bytes, format});
    }
  }
  BlockPlace take() {
    const auto size_class = static_cast<uint8_t>(taken_ % 2);
    return {static_cast<uint32_t>(taken_++ / 2), size_class};
  }
  KvGroupView view(std::span<const KvSegment> segments) const { return {shape_, arenas_, segments}; }
  int block_size() const { return shape_.block_size; }

 private:
  KvShape shape_;
  std::vector<std::byte> memory_[2];
  std::vector<KvArena> arenas_;
  int taken_ = 0;
};

struct Sequence {
  std::vector<float> rows;  // [length, width], before rotation
  std::vector<BlockPlace> places;
  std::vector<float> out;  // [length, num_heads * value_dim]
  int done = 0;
};

Sequence make_sequence(const Case& c, Storage& storage, int length, uint32_t seed) {
  Sequence sequence;
  sequence.rows = random_floats(static_cast<size_t>(length * c.width()), seed);
  sequence.out.assign(static_cast<size_t>(length * c.num_heads * c.value_dim), NAN);
  for (int p = 0; p < length; p += storage.block_size()) sequence.places.push_back(storage.take());
  return sequence;
}

// One step: the next counts[i] rows of each sequence, through rotate_and_store and attention.
void step(Backend& backend, const Case& c, const Layer& layer, Storage& storage, std::vector<Sequence*> sequences,
          std::vector<int> counts) {
  std::vector<float> qkv;
  std::vector<int32_t> positions;
  std::vector<KvSegment> segments;
  const int block_size = storage.block_size();
  for (size_t i = 0; i < sequences.size(); ++i) {
    Sequence& sequence = *sequences[i];
    const int end = sequence.done + counts[i];
    // A windowed group has given its old blocks back.
    const int first_seen = c.window > 0 ? std::max(0, sequence.done - c.window + 1) : 0;
    const int first_block = first_seen / block_size, num_blocks = (end - 1) / block_size + 1 - first_block;
    segments.push_back(
        {static_cast<int32_t>(positions.size()), counts[i], sequence.done, first_block,
         std::span(sequence.places).subspan(static_cast<size_t>(first_block), static_cast<size_t>(num_blocks))});
    qkv.insert(qkv.end(), sequence.rows.begin() + sequence.done * c.width(), sequence.rows.begin() + end * c.width());
    for (int p = sequence.done; p < end; ++p) positions.push_back(p);
  }
  const auto num_rows = static_cast<int32_t>(positions.size());
  const KvGroupView view = storage.view(segments);
  const Rows rows = {qkv.data(), num_rows, c.width()};
  const Norm query_norm = {c.query_key_norm ? layer.query_weight.data() : nullptr, 1e-6f};
  const Norm key_norm = {c.query_key_norm ? layer.key_weight.data() : nullptr, 1e-6f};
  backend.rotate_and_store({.qkv = rows,
                            .num_heads = c.num_heads,
                            .query_norm = query_norm,
                            .key_norm = key_norm,
                            .norm_whole_row = c.norm_whole_row,
                            .rotary = {c.rotary_dim, c.interleaved, layer.frequencies.data(), c.attention_factor},
                            .positions = positions,
                            .layer_in_group = 1,
                            .kv = &view});
  const int out_width = c.num_heads * c.value_dim;
  std::vector<float> out(static_cast<size_t>(num_rows * out_width), NAN);
  backend.attention({.qkv = rows,
                     .num_heads = c.num_heads,
                     .scale = c.scale,
                     .softcap = c.softcap,
                     .window = c.window,
                     .sinks = c.sinks ? layer.sinks.data() : nullptr,
                     .layer_in_group = 1,
                     .kv = &view,
                     .output = {out.data(), num_rows, out_width}});
  for (size_t i = 0; i < sequences.size(); ++i) {
    std::copy_n(out.begin() + segments[i].first_row * out_width, counts[i] * out_width,
                sequences[i]->out.begin() + sequences[i]->done * out_width);
    sequences[i]->done += counts[i];
  }
}

// As attention reads it: the matrix unit takes pairs of BF16, and rounds halves to them with ties away from zero.
double stored(double value, KvFormat format, bool in_pairs) {
  const auto narrow = static_cast<float>(value);
  if (format == KvFormat::bf16) return bfloat_to_float(float_to_bfloat(narrow));
  if (format == KvFormat::fp32) return narrow;
  const uint16_t half = float_to_half(narrow);
  return half_to_float(in_pairs ? static_cast<uint16_t>((half + 4) & ~7) : half);
}

void reference_norm(double* x, int n, const float* weight) {
  double squares = 0;
  for (int i = 0; i < n; ++i) squares += x[i] * x[i];
  for (int i = 0; i < n; ++i) x[i] *= weight[i] / std::sqrt(squares / n + 1e-6);
}

void reference_heads(const Case& c, const Layer& layer, double* heads, int count, const float* weight, int position) {
  if (c.query_key_norm && c.norm_whole_row) reference_norm(heads, count * c.head_dim, weight);
  for (int h = 0; h < count; ++h) {
    double* head = heads + h * c.head_dim;
    if (c.query_key_norm && !c.norm_whole_row) reference_norm(head, c.head_dim, weight);
    const int half = c.rotary_dim / 2;
    for (int i = 0; i < half; ++i) {
      const double angle = static_cast<double>(position) * layer.frequencies[static_cast<size_t>(i)];
      const double cosine = std::cos(angle) * c.attention_factor, sine = std::sin(angle) * c.attention_factor;
      double& a = head[c.interleaved ? 2 * i : i];
      double& b = head[c.interleaved ? 2 * i + 1 : half + i];
      const double rotated = a * cosine - b * sine;
      b = b * cosine + a * sine;
      a = rotated;
    }
  }
}

std::vector<double> reference(const Case& c, const Layer& layer, const Sequence& sequence, int length,
                              const std::string& kernels) {
  const bool in_pairs = kernels == "amx" && c.format != KvFormat::fp32;
  std::vector<double> rows(sequence.rows.begin(), sequence.rows.end());
  for (int p = 0; p < length; ++p) {
    double* row = rows.data() + p * c.width();
    reference_heads(c, layer, row, c.num_heads, layer.query_weight.data(), p);
    reference_heads(c, layer, row + c.query_width(), c.num_kv_heads, layer.key_weight.data(), p);
    for (int i = 0; in_pairs && i < c.query_width(); ++i) row[i] = stored(row[i], KvFormat::bf16, true);
    for (int i = c.query_width(); i < c.width(); ++i) row[i] = stored(row[i], c.format, in_pairs);
  }
  std::vector<double> out(static_cast<size_t>(length * c.num_heads * c.value_dim));
  for (int p = 0; p < length; ++p) {
    for (int h = 0; h < c.num_heads; ++h) {
      const int kv_head = h / (c.num_heads / c.num_kv_heads);
      std::vector<double> weights(static_cast<size_t>(p + 1), 0.0);
      const double* query = rows.data() + p * c.width() + h * c.head_dim;
      double sum = c.sinks ? std::exp(layer.sinks[static_cast<size_t>(h)]) : 0;
      for (int k = c.window > 0 ? std::max(0, p - c.window + 1) : 0; k <= p; ++k) {
        const double* key = rows.data() + k * c.width() + c.query_width() + kv_head * c.head_dim;
        double score = 0;
        for (int d = 0; d < c.head_dim; ++d) score += query[d] * key[d];
        score *= c.scale;
        if (c.softcap > 0) score = c.softcap * std::tanh(score / c.softcap);
        sum += weights[static_cast<size_t>(k)] = std::exp(score);
      }
      for (int k = 0; k <= p; ++k) {
        const double* value = rows.data() + k * c.width() + c.query_width() + c.key_width() + kv_head * c.value_dim;
        for (int d = 0; d < c.value_dim; ++d) {
          out[static_cast<size_t>((p * c.num_heads + h) * c.value_dim + d)] +=
              weights[static_cast<size_t>(k)] / sum * value[d];
        }
      }
    }
  }
  return out;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  all.push_back({.name = "plain"});
  all.push_back(
      {.name = "multi_head", .num_heads = 3, .num_kv_heads = 3, .head_dim = 16, .value_dim = 16, .rotary_dim = 16});
  all.push_back(
      {.name = "many_queries", .num_heads = 11, .num_kv_heads = 1, .head_dim = 32, .value_dim = 72, .rotary_dim = 32});
  all.push_back(
      {.name = "wide", .num_heads = 4, .num_kv_heads = 1, .head_dim = 256, .value_dim = 256, .rotary_dim = 256});
  all.push_back({.name = "window", .window = 37});
  all.push_back({.name = "long_window", .window = 300});
  all.push_back({.name = "softcap", .softcap = 2.5f});
  all.push_back({.name = "sinks", .window = 90, .sinks = true});
  all.push_back({.name = "head_norm", .query_key_norm = true});
  all.push_back({.name = "row_norm", .query_key_norm = true, .norm_whole_row = true});
  all.push_back({.name = "interleaved", .interleaved = true, .attention_factor = 1.3f});
  all.push_back({.name = "partial_rotation", .rotary_dim = 8});
  all.push_back({.name = "no_rotation", .rotary_dim = 0});
  // The largest score so far is exceeded by far, again and again.
  all.push_back({.name = "steep", .scale = 6});
  all.push_back({.name = "half", .format = KvFormat::fp16});
  // Head sizes and groups of real models; 7 and more queries of a row do not fit the registers together.
  const auto model = [&](const char* name, int heads, int kv_heads, int dim, KvFormat format) {
    all.push_back({.name = name,
                   .num_heads = heads,
                   .num_kv_heads = kv_heads,
                   .head_dim = dim,
                   .value_dim = dim,
                   .rotary_dim = dim,
                   .format = format});
  };
  model("heads_of_64_by_3", 3, 1, 64, KvFormat::fp16);
  model("heads_of_64_by_7", 7, 1, 64, KvFormat::fp16);
  model("heads_of_80_by_4", 4, 1, 80, KvFormat::fp16);
  model("heads_of_96_by_2", 4, 2, 96, KvFormat::bf16);
  model("heads_of_128_by_8", 8, 1, 128, KvFormat::fp16);
  model("heads_of_128_by_5", 5, 1, 128, KvFormat::fp32);
  all.push_back({.name = "bfloat", .format = KvFormat::bf16});
  return all;
}

using Parameters = std::tuple<std::string, Case>;
class AttentionTest : public ::testing::TestWithParam<Parameters> {
 protected:
  const std::string& kernels() const { return std::get<0>(GetParam()); }
  const Case& one_case() const { return std::get<1>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Kernels, AttentionTest,
                         ::testing::Combine(::testing::ValuesIn(kernel_names()), ::testing::ValuesIn(cases())),
                         [](const auto& info) { return std::get<0>(info.param) + "_" + std::get<1>(info.param).name; });

constexpr int length = 150;

TEST_P(AttentionTest, AgreesWithDoublePrecision) {
  const Case& c = one_case();
  const Layer layer(c);
  auto backend = backend_for(kernels(), 2);
  Storage storage(c, 32, 32, c.format);
  Sequence sequence = make_sequence(c, storage, length, 5);
  step(*backend, c, layer, storage, {&sequence}, {length});
  const std::vector<double> want = reference(c, layer, sequence, length, kernels());
  // Where a stored key falls to the other side of a rounding, scores differ by a unit of the 16-bit format.
  // Steep scores are of tens, and a float has so many digits fewer behind the point.
  // The matrix unit's BF16 weights have errors of up to 0.2 %, of values of up to 4.
  const double sixteen_bits = kernels() == "amx" ? 1e-2 : 5e-3;
  const double tolerance = c.format == KvFormat::fp32 ? (c.scale > 1 ? 2e-4 : 2e-5) : sixteen_bits;
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(sequence.out[i], want[i], tolerance) << i;
}

TEST_P(AttentionTest, BitEqualInAnyChunksCompanyThreadsAndBlocks) {
  const Case& c = one_case();
  const Layer layer(c);
  Storage first_storage(c, 32, 32, c.format);
  auto first_backend = backend_for(kernels(), 1);
  Sequence whole = make_sequence(c, first_storage, length, 5);
  step(*first_backend, c, layer, first_storage, {&whole}, {length});
  struct Way {
    int num_threads, block_size, chunk;
  };
  for (const Way way : {Way{1, 16, 1}, Way{2, 32, 7}, Way{3, 64, 40}, Way{2, 16, 40}, Way{3, 32, 1}, Way{1, 64, 7}}) {
    auto backend = backend_for(kernels(), way.num_threads);
    Storage storage(c, way.block_size, 64, c.format);
    Sequence same = make_sequence(c, storage, length, 5), other = make_sequence(c, storage, 400, 6);
    step(*backend, c, layer, storage, {&other}, {41});
    while (same.done < length) {
      const int count = std::min(way.chunk, length - same.done);
      step(*backend, c, layer, storage, {&other, &same}, {1 + same.done % 2, count});
    }
    ASSERT_EQ(std::memcmp(same.out.data(), whole.out.data(), whole.out.size() * sizeof(float)), 0)
        << way.num_threads << " threads, blocks of " << way.block_size << ", chunks of " << way.chunk;
  }
}

class LongAttentionTest : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Kernels, LongAttentionTest, ::testing::ValuesIn(kernel_names()),
                         [](const auto& info) { return info.param; });

// Contexts of several spans: shared out over threads in decode, walked by one thread in a prefill of many rows.
TEST_P(LongAttentionTest, SpansAddUpTheSameHoweverTheyAreShared) {
  for (const int window : {0, 700}) {
    Case c = {.name = "long",
              .num_heads = 2,
              .num_kv_heads = 1,
              .head_dim = 16,
              .value_dim = 16,
              .window = window,
              .sinks = true,
              .rotary_dim = 16,
              .format = KvFormat::fp16};
    const Layer layer(c);
    const int total = 1700;
    Storage first_storage(c, 64, 32, c.format), storage(c, 16, 128, c.format);
    auto alone = backend_for(GetParam(), 1), together = backend_for(GetParam(), 3);
    Sequence whole = make_sequence(c, first_storage, total, 5), parts = make_sequence(c, storage, total, 5);
    step(*alone, c, layer, first_storage, {&whole}, {total});
    const std::vector<double> want = reference(c, layer, whole, total, GetParam());
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(whole.out[i], want[i], 5e-3) << i;
    step(*together, c, layer, storage, {&parts}, {500});
    while (parts.done < total) {
      step(*together, c, layer, storage, {&parts}, {std::min(parts.done % 16 == 4 ? 64 : 1, total - parts.done)});
    }
    ASSERT_EQ(std::memcmp(parts.out.data(), whole.out.data(), whole.out.size() * sizeof(float)), 0) << window;
  }
}

// Size classes of different formats meet in one sequence and in one tile of 64 positions.
TEST_P(LongAttentionTest, ReadsBlocksOfDifferentFormats) {
  const Case c = {.name = "mixed", .format = KvFormat::fp32};
  const Layer layer(c);
  auto backend = backend_for(GetParam(), 2);
  Storage storage(c, 16, 32, KvFormat::bf16), exact_storage(c, 16, 32, KvFormat::fp32);
  Sequence mixed = make_sequence(c, storage, 100, 5), exact = make_sequence(c, exact_storage, 100, 5);
  step(*backend, c, layer, storage, {&mixed}, {100});
  step(*backend, c, layer, exact_storage, {&exact}, {100});
  const size_t row = static_cast<size_t>(c.num_heads * c.value_dim);
  // Block 0 lies in the fp32 class: its rows know nothing of the others.
  EXPECT_EQ(std::memcmp(mixed.out.data(), exact.out.data(), 16 * row * sizeof(float)), 0);
  EXPECT_NE(std::memcmp(mixed.out.data() + 20 * row, exact.out.data() + 20 * row, row * sizeof(float)), 0);
  for (size_t i = 0; i < mixed.out.size(); ++i) ASSERT_NEAR(mixed.out[i], exact.out[i], 0.05) << i;
}

}  // namespace
}  // namespace tidemill
