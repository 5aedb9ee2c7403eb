#include "bench/attention_timing.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <numeric>
#include <random>
#include <vector>

#include "base/check.h"
#include "base/thread_pool.h"
#include "compute/half.h"

namespace tidemill {
namespace {

double now_seconds(clockid_t clock) {
  timespec time = {};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

template <typename Work>
double seconds_of(int32_t num_threads, Work&& work) {
  const clockid_t clock = num_threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
  const double start = now_seconds(clock);
  work();
  return now_seconds(clock) - start;
}

// Halves around zero: a pattern that repeats.
void fill(std::byte* bytes, size_t size) {
  std::mt19937 random(1);
  std::vector<uint16_t> pattern(size_t{1} << 15);
  for (uint16_t& half : pattern) half = float_to_half(static_cast<float>(random() % 2001) * 1e-3f - 1.0f);
  for (size_t i = 0; i < size; i += pattern.size() * 2) {
    std::memcpy(bytes + i, pattern.data(), std::min(pattern.size() * 2, size - i));
  }
}

// All slots get the same encoded block.
void fill_encoded(Backend& backend, const KvShape& shape, const KvArena& arena, int32_t num_layers, size_t num_slots) {
  const KvBlockFormat tail = arena.format.tail();
  const size_t layer_bytes = shape.layer_bytes(tail), slot_bytes = layer_bytes * static_cast<size_t>(num_layers);
  const std::unique_ptr<Buffer> memory = backend.allocate(slot_bytes / sizeof(float));
  auto* bytes = reinterpret_cast<std::byte*>(memory->data());
  fill(bytes, slot_bytes);
  const KvArena arenas[] = {{bytes, slot_bytes, layer_bytes, tail}, arena};
  std::vector<KvSeals::Pair> pairs(num_slots);
  for (size_t i = 0; i < num_slots; ++i) pairs[i] = {{0, 0}, {static_cast<uint32_t>(i), 1}};
  backend.seal({.shape = shape, .arenas = arenas, .num_layers = num_layers, .pairs = pairs});
}

using Vector = uint64_t __attribute__((vector_size(64)));

uint64_t sum_of(const Vector* from, size_t count) {
  Vector sums[4] = {};
  size_t i = 0;
  for (; i + 4 <= count; i += 4) {
    for (size_t j = 0; j < 4; ++j) sums[j] ^= from[i + j];
  }
  return sums[0][0] ^ sums[1][0] ^ sums[2][0] ^ sums[3][0];
}

// Reads all of it once, each thread its share.
void read_all(const std::byte* bytes, size_t size, ThreadPool& threads) {
  const auto* from = reinterpret_cast<const Vector*>(bytes);
  const size_t share = size / sizeof(Vector) / static_cast<size_t>(threads.size());
  threads.run([&](int32_t worker) {
    // The sum must look needed.
    asm volatile("" ::"r"(sum_of(from + static_cast<size_t>(worker) * share, share)) : "memory");
  });
}

}  // namespace

AttentionTime time_attention(Backend& backend, const AttentionShape& shape, const AttentionLoad& load,
                             double budget_s) {
  const KvShape kv_shape = {shape.num_kv_heads, shape.head_dim, shape.head_dim, shape.block_size};
  const size_t layer_bytes = kv_shape.layer_bytes(shape.format);
  const size_t slot_bytes = layer_bytes * static_cast<size_t>(shape.num_layers);
  const auto blocks_each = static_cast<size_t>((load.length + shape.block_size - 1) / shape.block_size);
  const auto num_sequences = static_cast<size_t>(load.num_sequences);
  const size_t arena_bytes = slot_bytes * blocks_each * num_sequences;
  const std::unique_ptr<Buffer> memory = backend.allocate(arena_bytes / sizeof(float));
  auto* bytes = reinterpret_cast<std::byte*>(memory->data());
  const KvArena arena = {bytes, slot_bytes, layer_bytes, shape.format};
  if (shape.format.encoded()) {
    fill_encoded(backend, kv_shape, arena, shape.num_layers, blocks_each * num_sequences);
  } else {
    TM_CHECK(shape.format == KvFormat::fp16, "of the plain formats fp16 is measured");
    fill(bytes, arena_bytes);
  }

  std::vector<uint32_t> slots(blocks_each * num_sequences);
  std::iota(slots.begin(), slots.end(), 0);
  std::shuffle(slots.begin(), slots.end(), std::mt19937(2));
  std::vector<BlockPlace> places(slots.size());
  for (size_t i = 0; i < places.size(); ++i) places[i].slot = slots[i];
  std::vector<KvSegment> segments;
  for (size_t i = 0; i < num_sequences; ++i) {
    segments.push_back({static_cast<int32_t>(i) * load.rows_each, load.rows_each, load.length - load.rows_each, 0,
                        std::span(places).subspan(i * blocks_each, blocks_each)});
  }
  const KvGroupView view = {kv_shape, std::span(&arena, 1), segments};
  const int32_t num_rows = load.num_sequences * load.rows_each;
  const int32_t query_width = shape.num_heads * shape.head_dim;
  std::vector<float> queries(static_cast<size_t>(num_rows) * query_width), out(queries.size());
  std::mt19937 random(3);
  for (float& x : queries) x = static_cast<float>(random() % 2001) * 1e-3f - 1.0f;

  const auto all_layers = [&] {
    for (int32_t layer = 0; layer < shape.num_layers; ++layer) {
      backend.attention({.qkv = {queries.data(), num_rows, query_width},
                         .num_heads = shape.num_heads,
                         .scale = 0.125f,
                         .window = shape.window,
                         .layer_in_group = layer,
                         .kv = &view,
                         .output = {out.data(), num_rows, query_width}});
    }
  };
  AttentionTime time = {.seconds = 1e9, .read_seconds = 1e9};
  ThreadPool readers(backend.num_threads());
  double total = 0;
  for (int pass = 0; pass < 2 || total < budget_s; ++pass) {  // in turns: what memory gives changes
    const double seconds = seconds_of(backend.num_threads(), all_layers);
    const double read_seconds = seconds_of(readers.size(), [&] { read_all(bytes, arena_bytes, readers); });
    time.seconds = std::min(time.seconds, seconds);
    time.read_seconds = std::min(time.read_seconds, read_seconds);
    total += seconds + read_seconds;
  }
  double pairs = 0;  // of a row and a position that it sees
  for (int32_t row = 0; row < load.rows_each; ++row) {
    const int32_t seen = load.length - load.rows_each + row + 1;
    pairs += shape.window > 0 ? std::min(seen, shape.window) : seen;
  }
  const int32_t read_positions =
      shape.window > 0 ? std::min(load.length, shape.window + load.rows_each - 1) : load.length;
  const double layers = static_cast<double>(shape.num_layers) * load.num_sequences;
  time.macs = 2.0 * layers * shape.num_heads * shape.head_dim * pairs;
  time.read_bytes = layers * static_cast<double>(read_positions) * static_cast<double>(layer_bytes) / shape.block_size;
  time.read_seconds *= time.read_bytes / static_cast<double>(arena_bytes);
  return time;
}

}  // namespace tidemill
