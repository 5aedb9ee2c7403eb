// How fast the CPU backend's operations are on the shapes of a small model.
//
// Usage: kernel_bench [--kernels NAME] [--threads N] [--type Q4_1] [--rows N] [--quick]
// With --rows: only products, of so many rows. One "pass" streams the weights of all layers once (30 different sets of
// matrices, as a model has), for all rows of the batch. Best of several passes, because other work on the machine only
// ever makes one slower.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "compute/backend.h"
#include "compute/half.h"

namespace tidemill {
namespace {

// SmolLM2-135M.
constexpr int num_layers = 30, width = 576, hidden = 1536, num_heads = 9, num_kv_heads = 3, head_dim = 64;
constexpr int qkv_width = (num_heads + 2 * num_kv_heads) * head_dim, vocabulary = 49152;

struct Options {
  std::string kernels;
  int32_t threads = 0;
  DType type = DType::q4_1;
  int32_t rows = 0;
  bool quick = false;
};

// With one thread, its own processor time: then other programs on the machine do not count.
double now_seconds(const Options& options) {
  timespec time = {};
  clock_gettime(options.threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

template <typename Work>
double best_seconds(const Options& options, Work&& work) {
  double best = 1e9, total = 0;
  const int least = options.quick ? 1 : 5;
  for (int i = 0; i < least || (!options.quick && total < 0.4); ++i) {
    const double start = now_seconds(options);
    work();
    const double seconds = now_seconds(options) - start;
    total += seconds;
    best = std::min(best, seconds);
  }
  return best;
}

// Bytes of small finite weights. Scales come out as halves around 0.01 wherever the type has them.
std::vector<std::byte> some_weights(DType type, int64_t rows, int64_t cols) {
  std::vector<std::byte> bytes(static_cast<size_t>(rows * cols / block_values(type) * block_bytes(type)));
  std::mt19937 random(1);
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
    const uint16_t half = float_to_half(0.001f * static_cast<float>(random() % 16 + 1));
    std::memcpy(bytes.data() + i, &half, sizeof(half));
  }
  return bytes;
}

std::unique_ptr<Matrix> some_matrix(Backend& backend, DType type, std::vector<int64_t> rows, int64_t cols,
                                    MatrixLayout layout) {
  std::vector<std::vector<std::byte>> bytes;
  std::vector<WeightPart> parts;
  for (const int64_t count : rows) bytes.push_back(some_weights(type, count, cols));
  for (size_t i = 0; i < rows.size(); ++i) {
    parts.push_back({.type = type, .data = bytes[i].data(), .rows = rows[i], .cols = cols, .row_order = {}});
  }
  auto matrix = backend.load_matrix(parts, layout);
  if (!matrix) {
    std::fprintf(stderr, "kernel_bench: %s\n", matrix.error().message.c_str());
    std::exit(1);
  }
  return std::move(matrix).value();
}

struct Layer {
  std::unique_ptr<Matrix> qkv, output, gate_up, down;
};

class Bench {
 public:
  Bench(Backend& backend, const Options& options) : backend_(backend), options_(options) {
    const DType type = options.type;
    for (int i = 0; i < num_layers; ++i) {
      layers_.push_back({some_matrix(backend, type, {width, head_dim * num_kv_heads, head_dim * num_kv_heads}, width,
                                     MatrixLayout::stacked),
                         some_matrix(backend, type, {width}, width, MatrixLayout::stacked),
                         some_matrix(backend, type, {hidden, hidden}, width, MatrixLayout::gated),
                         some_matrix(backend, type, {width}, hidden, MatrixLayout::stacked)});
    }
    head_ = some_matrix(backend, DType::q8_0, {vocabulary}, width, MatrixLayout::stacked);
    norm_.assign(width, 1.0f);
  }

  void run() {
    size_t layer_bytes = 0;
    for (const Layer& layer : layers_) {
      layer_bytes +=
          layer.qkv->size_bytes() + layer.output->size_bytes() + layer.gate_up->size_bytes() + layer.down->size_bytes();
    }
    std::printf("%s kernels, %d threads, %s: layers %.1f MB, head %.1f MB\n", std::string(backend_.kernels()).c_str(),
                backend_.num_threads(), dtype_name(options_.type), static_cast<double>(layer_bytes) * 1e-6,
                static_cast<double>(head_->size_bytes()) * 1e-6);
    std::printf("%6s %12s %12s %12s %14s %12s\n", "rows", "layers ms", "GMAC/s", "head ms", "attention ms", "rows/s");
    if (options_.rows > 0) return measure(options_.rows);
    for (const int rows : {1, 2, 4, 8, 16, 32, 64, 128, 256}) measure(rows);
    measure_prefill(options_.quick ? 1024 : 6144);
  }

 private:
  void measure(int32_t rows) {
    const auto n = static_cast<size_t>(rows);
    x_.resize(n * width);
    for (size_t i = 0; i < x_.size(); ++i) x_[i] = static_cast<float>(i * 2654435761u % 2001) * 1e-3f - 1.0f;
    wide_.assign(n * hidden, 0.5f);
    qkv_.assign(n * qkv_width, 0.25f);
    logits_.assign(n * vocabulary, 0.0f);
    const double layers_seconds = best_seconds(options_, [&] { all_layers(rows); });
    const double head_seconds = best_seconds(options_, [&] { head(rows); });
    const double attention_seconds =
        options_.rows > 0 ? 0.0 : best_seconds(options_, [&] { attention_of(rows, 1, 160); });
    const double macs = 30.0 * width * (qkv_width + width + 3.0 * hidden) * rows;
    std::printf("%6d %12.3f %12.1f %12.3f %14.3f %12.0f\n", rows, layers_seconds * 1e3, macs / layers_seconds * 1e-9,
                head_seconds * 1e3, attention_seconds * 1e3,
                rows / (layers_seconds + head_seconds + attention_seconds));
  }

  // Attention of the last rows of one long prompt.
  void measure_prefill(int32_t length) {
    constexpr int rows = 256;
    x_.assign(size_t{rows} * width, 0.0f);
    qkv_.assign(size_t{rows} * qkv_width, 0.25f);
    const double seconds = best_seconds(options_, [&] { attention_of(1, rows, length); });
    const double macs = 2.0 * num_layers * num_heads * head_dim * rows * (length - rows / 2.0);
    std::printf("attention of %d prompt rows up to position %d: %.1f ms, %.1f GMAC/s\n", rows, length, seconds * 1e3,
                macs / seconds * 1e-9);
  }

  void all_layers(int32_t rows) {
    const Rows x = {x_.data(), rows, width}, hidden_rows = {wide_.data(), rows, hidden};
    const Norm norm = {norm_.data(), 1e-5f};
    for (const Layer& layer : layers_) {
      backend_.product({.input = x, .norm = norm, .matrix = layer.qkv.get(), .output = {qkv_.data(), rows, qkv_width}});
      backend_.product(
          {.input = x, .norm = {}, .matrix = layer.output.get(), .scale = 1e-6f, .accumulate = true, .output = x});
      backend_.product({.input = x, .norm = norm, .matrix = layer.gate_up.get(), .output = hidden_rows});
      backend_.product({.input = hidden_rows,
                        .norm = {},
                        .matrix = layer.down.get(),
                        .scale = 1e-6f,
                        .accumulate = true,
                        .output = x});
    }
  }

  void head(int32_t rows) {
    backend_.product({.input = {x_.data(), rows, width},
                      .norm = {norm_.data(), 1e-5f},
                      .matrix = head_.get(),
                      .output = {logits_.data(), rows, vocabulary}});
  }

  // The last `rows_each` rows of each of `num_sequences` sequences of `length` positions, all layers.
  void attention_of(int32_t num_sequences, int32_t rows_each, int32_t length) {
    constexpr int block_size = 32;
    const int32_t rows = num_sequences * rows_each;
    const int32_t blocks_each = (length + block_size - 1) / block_size;
    const KvShape shape = {num_kv_heads, head_dim, head_dim, block_size};
    const size_t layer_bytes = shape.layer_bytes(KvFormat::fp16), slot_bytes = layer_bytes * num_layers;
    const size_t kv_bytes = slot_bytes * static_cast<size_t>(num_sequences * blocks_each);
    if (kv_bytes > kv_bytes_) kv_ = backend_.allocate(kv_bytes / sizeof(float));
    kv_bytes_ = std::max(kv_bytes_, kv_bytes);
    const KvArena arena = {reinterpret_cast<std::byte*>(kv_->data()), slot_bytes, layer_bytes, KvFormat::fp16};
    std::vector<BlockPlace> places(static_cast<size_t>(num_sequences * blocks_each));
    for (size_t i = 0; i < places.size(); ++i) places[i].slot = static_cast<uint32_t>(i);
    std::vector<KvSegment> segments;
    for (int32_t i = 0; i < num_sequences; ++i) {
      segments.push_back(
          {i * rows_each, rows_each, length - rows_each, 0,
           std::span(places).subspan(static_cast<size_t>(i * blocks_each), static_cast<size_t>(blocks_each))});
    }
    const KvGroupView view = {shape, std::span(&arena, 1), segments};
    for (int layer = 0; layer < num_layers; ++layer) {
      backend_.attention({.qkv = {qkv_.data(), rows, qkv_width},
                          .num_heads = num_heads,
                          .scale = 0.125f,
                          .layer_in_group = layer,
                          .kv = &view,
                          .output = {x_.data(), rows, width}});
    }
  }

  Backend& backend_;
  const Options& options_;
  std::vector<Layer> layers_;
  std::unique_ptr<Matrix> head_;
  std::vector<float> norm_, x_, wide_, qkv_, logits_;
  std::unique_ptr<Buffer> kv_;
  size_t kv_bytes_ = 0;
};

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--quick") {
      options.quick = true;
      continue;
    }
    if (i + 1 == argc) return false;
    const std::string value = argv[++i];
    if (flag == "--kernels") {
      options.kernels = value;
    } else if (flag == "--threads") {
      options.threads = std::atoi(value.c_str());
    } else if (flag == "--rows") {
      options.rows = std::atoi(value.c_str());
    } else if (flag == "--type") {
      int type = 0;
      while (type < num_dtypes && value != dtype_name(static_cast<DType>(type))) ++type;
      if (type == num_dtypes) return false;
      options.type = static_cast<DType>(type);
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace
}  // namespace tidemill

int main(int argc, char** argv) {
  tidemill::Options options;
  if (!tidemill::parse(argc, argv, options)) {
    std::fprintf(stderr, "usage: kernel_bench [--kernels NAME] [--threads N] [--type Q4_1] [--rows N] [--quick]\n");
    return 1;
  }
  auto backend = tidemill::make_cpu_backend({.num_threads = options.threads, .kernels = options.kernels});
  if (!backend) {
    std::fprintf(stderr, "kernel_bench: %s\n", backend.error().message.c_str());
    return 1;
  }
  tidemill::Bench(**backend, options).run();
  return 0;
}
