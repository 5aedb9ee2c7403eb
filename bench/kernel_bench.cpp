// How fast the CPU backend's operations are on the shapes of a small model.
//
// Usage: kernel_bench [--kernels NAME] [--threads N] [--type Q4_1] [--rows N] [--attention] [--quick]
// With --rows: only products, of so many rows; with --attention: attention alone. One "pass" streams the weights of all
// layers once (30 different sets of matrices, as a model has), for all rows of the batch. Best of several passes,
// because other work on the machine only ever makes one slower.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "attention_timing.h"
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
  bool attention_only = false;
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
    if (options.attention_only) return;
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
    if (options_.attention_only) return attention_tables();
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
    attention_tables();
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
    const AttentionLoad load = {.num_sequences = rows, .rows_each = 1, .length = 160};
    const double attention_seconds =
        options_.rows > 0 ? 0.0 : time_attention(backend_, {}, load, options_.quick ? 0 : 0.3).seconds;
    const double macs = 30.0 * width * (qkv_width + width + 3.0 * hidden) * rows;
    std::printf("%6d %12.3f %12.1f %12.3f %14.3f %12.0f\n", rows, layers_seconds * 1e3, macs / layers_seconds * 1e-9,
                head_seconds * 1e3, attention_seconds * 1e3,
                rows / (layers_seconds + head_seconds + attention_seconds));
  }

  // The cost of a row against the length of its context, of several contexts, and of prompts.
  void attention_tables() {
    std::printf("attention; plain = the same memory read from end to end, share = how much of that is reached\n");
    std::printf("%9s %6s %8s %10s %10s %10s %8s %8s %7s\n", "sequences", "rows", "length", "ms", "GMAC/s", "MB read",
                "GB/s", "plain", "share");
    for (int32_t length = 128; length <= (options_.quick ? 512 : 32768); length *= 2) attention_row({1, 1, length});
    for (const int32_t sequences : {4, 16, 64}) attention_row({sequences, 1, 160});
    attention_row({1, 1, options_.quick ? 600 : 8000});
    for (const int32_t length : {512, options_.quick ? 1024 : 6144}) attention_row({1, 256, length});
  }

  void attention_row(const AttentionLoad& load) {
    const AttentionTime time = time_attention(backend_, {}, load, options_.quick ? 0 : 0.4);
    std::printf("%9d %6d %8d %10.3f %10.1f %10.1f %8.1f %8.1f %5.0f %%\n", load.num_sequences, load.rows_each,
                load.length, time.seconds * 1e3, time.macs / time.seconds * 1e-9, time.read_bytes * 1e-6,
                time.read_bytes / time.seconds * 1e-9, time.read_bytes / time.read_seconds * 1e-9,
                time.read_seconds / time.seconds * 100);
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

  Backend& backend_;
  const Options& options_;
  std::vector<Layer> layers_;
  std::unique_ptr<Matrix> head_;
  std::vector<float> norm_, x_, wide_, qkv_, logits_;
};

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--quick") {
      options.quick = true;
      continue;
    }
    if (flag == "--attention") {
      options.attention_only = true;
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
    std::fprintf(
        stderr,
        "usage: kernel_bench [--kernels NAME] [--threads N] [--type Q4_1] [--rows N] [--attention] [--quick]\n");
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
