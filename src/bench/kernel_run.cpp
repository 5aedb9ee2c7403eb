#include "bench/kernel_run.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <ctime>

#include "base/thread_pool.h"
#include "bench/random_source.h"
#include "compute/half.h"

namespace tidemill {
namespace {

constexpr int32_t num_layers = 30, vocabulary = 49152;

// Widths of a layer's matrices.
struct LayerShape {
  int32_t width, hidden, kv_width;
  int32_t qkv_width() const { return width + 2 * kv_width; }
};
constexpr LayerShape usual_shape = {576, 1536, 192};
// Types with blocks of 256 values need widths that 256 divides.
constexpr LayerShape wide_block_shape = {768, 1536, 256};

LayerShape shape_for(DType type) {
  return usual_shape.width % block_values(type) == 0 ? usual_shape : wide_block_shape;
}

constexpr int32_t prefill_rows = 256, decode_sequences = 16;
constexpr size_t most_kv_bytes = size_t{4} << 30;

// Bytes of small finite weights. Scales come out as halves around 0.01 wherever the type has them.
std::vector<std::byte> some_weights(DType type, int64_t rows, int64_t cols) {
  std::vector<std::byte> bytes(static_cast<size_t>(rows * cols / block_values(type) * block_bytes(type)));
  RandomSource random(1);
  std::array<uint16_t, 1024> halves;
  for (uint16_t& half : halves) half = float_to_half(0.001f * static_cast<float>(random.between(1, 16)));
  for (size_t at = 0; at < bytes.size(); at += sizeof(halves)) {
    std::memcpy(bytes.data() + at, halves.data(), std::min(sizeof(halves), bytes.size() - at));
  }
  return bytes;
}

struct Layer {
  std::unique_ptr<Matrix> qkv, output, gate_up, down;
  size_t size_bytes() const {
    return qkv->size_bytes() + output->size_bytes() + gate_up->size_bytes() + down->size_bytes();
  }
};

// Matrices of one type, all made of the same bytes: what is in them does not matter to their speed.
class MatrixMaker {
 public:
  MatrixMaker(Backend& backend, DType type) : backend_(backend), type_(type) {}

  std::unique_ptr<Matrix> make(const std::vector<int64_t>& rows, int64_t cols, MatrixLayout layout) {
    std::vector<WeightPart> parts;
    const std::vector<std::byte>& bytes = bytes_of(*std::ranges::max_element(rows), cols);
    for (const int64_t count : rows) {
      parts.push_back({.type = type_, .data = bytes.data(), .rows = count, .cols = cols, .row_order = {}});
    }
    Result<std::unique_ptr<Matrix>> matrix = backend_.load_matrix(parts, layout);
    if (!matrix) {
      problem_ = matrix.error().message;
      return nullptr;
    }
    return *std::move(matrix);
  }
  Layer make_layer(const LayerShape& shape) {
    Layer layer;
    layer.qkv = make({shape.width, shape.kv_width, shape.kv_width}, shape.width, MatrixLayout::stacked);
    layer.output = make({shape.width}, shape.width, MatrixLayout::stacked);
    layer.gate_up = make({shape.hidden, shape.hidden}, shape.width, MatrixLayout::gated);
    layer.down = make({shape.width}, shape.hidden, MatrixLayout::stacked);
    return layer;
  }
  const std::string& problem() const { return problem_; }

 private:
  const std::vector<std::byte>& bytes_of(int64_t rows, int64_t cols) {
    const auto needed = static_cast<size_t>(rows * cols / block_values(type_) * block_bytes(type_));
    if (bytes_.size() < needed) bytes_ = some_weights(type_, rows, cols);
    return bytes_;
  }

  Backend& backend_;
  const DType type_;
  std::vector<std::byte> bytes_;
  std::string problem_;
};

class KernelRun {
 public:
  KernelRun(Backend& backend, const KernelOptions& options)
      : backend_(backend), options_(options), pool_(backend.num_threads()), norm_(wide_block_shape.width, 1.0f) {}

  Result<KernelFigures> run() {
    say("the machine's limits");
    figures_.limits = measure_arithmetic(pool_, options_.seconds);
    for (const DType type : options_.types) {
      if (Result<void> done = measure_layers(type); !done) return done.error();
    }
    if (Result<void> done = measure_head(); !done) return done.error();
    for (const int32_t sequences : {1, decode_sequences}) {
      for (const int32_t length : options_.lengths) measure_attention(false, {sequences, 1, length});
    }
    for (const int32_t length : options_.lengths) {
      measure_attention(true, {1, std::min(prefill_rows, length), length});
    }
    return std::move(figures_);
  }

 private:
  void say(const std::string& what) const {
    if (options_.on_progress) options_.on_progress(what);
  }

  // With one thread, its own processor time: then other programs on the machine do not count.
  double now_seconds() const {
    timespec time = {};
    clock_gettime(pool_.size() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  }

  template <typename Work>
  double best_seconds(Work&& work) const {
    double best = 1e9, total = 0;
    do {
      const double start = now_seconds();
      work();
      const double seconds = now_seconds() - start;
      total += seconds;
      best = std::min(best, seconds);
    } while (total < options_.seconds);
    return best;
  }

  Result<void> measure_layers(DType type) {
    say(std::string("products of ") + dtype_name(type));
    const LayerShape shape = shape_for(type);
    MatrixMaker maker(backend_, type);
    std::vector<Layer> layers;
    ProductFigure figure = {.matrices = "layers", .type = type};
    for (int32_t i = 0; i < num_layers; ++i) {
      layers.push_back(maker.make_layer(shape));
      if (!maker.problem().empty()) return Error{maker.problem()};
      figure.weight_bytes += layers.back().size_bytes();
    }
    const double macs = double{num_layers} * shape.width * (shape.qkv_width() + shape.width + 3.0 * shape.hidden);
    figure.read_limit_gb_s = measure_memory_read(pool_, figure.weight_bytes, options_.seconds);
    for (const int32_t rows : options_.rows) {
      size_rows(shape, rows);
      figure.rows = rows;
      figure.macs = macs * rows;
      figure.seconds = best_seconds([&] { all_layers(layers, shape, rows); });
      figures_.products.push_back(figure);
    }
    return {};
  }

  Result<void> measure_head() {
    say("the output head");
    MatrixMaker maker(backend_, DType::q8_0);
    const std::unique_ptr<Matrix> head = maker.make({vocabulary}, usual_shape.width, MatrixLayout::stacked);
    if (!maker.problem().empty()) return Error{maker.problem()};
    ProductFigure figure = {.matrices = "head", .type = DType::q8_0, .weight_bytes = head->size_bytes()};
    figure.read_limit_gb_s = measure_memory_read(pool_, figure.weight_bytes, options_.seconds);
    for (const int32_t rows : options_.rows) {
      size_rows(usual_shape, rows);
      std::vector<float> logits(static_cast<size_t>(rows) * vocabulary);
      figure.rows = rows;
      figure.macs = double{vocabulary} * usual_shape.width * rows;
      figure.seconds = best_seconds([&] {
        backend_.product({.input = {x_.data(), rows, usual_shape.width},
                          .norm = {norm_.data(), 1e-5f},
                          .matrix = head.get(),
                          .output = {logits.data(), rows, vocabulary}});
      });
      figures_.products.push_back(figure);
    }
    return {};
  }

  void size_rows(const LayerShape& shape, int32_t rows) {
    const auto count = static_cast<size_t>(rows);
    x_.assign(count * static_cast<size_t>(shape.width), 0.5f);
    wide_.assign(count * static_cast<size_t>(shape.hidden), 0.5f);
    qkv_.assign(count * static_cast<size_t>(shape.qkv_width()), 0.25f);
  }

  void all_layers(const std::vector<Layer>& layers, const LayerShape& shape, int32_t rows) {
    const Rows x = {x_.data(), rows, shape.width}, hidden = {wide_.data(), rows, shape.hidden};
    const Rows qkv = {qkv_.data(), rows, shape.qkv_width()};
    const Norm norm = {norm_.data(), 1e-5f};
    for (const Layer& layer : layers) {
      backend_.product({.input = x, .norm = norm, .matrix = layer.qkv.get(), .output = qkv});
      backend_.product({.input = x, .norm = {}, .matrix = layer.output.get(), .scale = 1e-3f, .output = x});
      backend_.product({.input = x, .norm = norm, .matrix = layer.gate_up.get(), .output = hidden});
      backend_.product({.input = hidden, .norm = {}, .matrix = layer.down.get(), .scale = 1e-3f, .output = x});
    }
  }

  void measure_attention(bool is_prefill, AttentionLoad load) {
    const AttentionShape shape{.format = options_.kv_format};
    const KvShape kv = {shape.num_kv_heads, shape.head_dim, shape.head_dim, shape.block_size};
    const size_t kv_bytes = kv.layer_bytes(shape.format) / static_cast<size_t>(shape.block_size) *
                            static_cast<size_t>(shape.num_layers) * static_cast<size_t>(load.num_sequences) *
                            static_cast<size_t>(load.length);
    if (kv_bytes > most_kv_bytes) return;
    say(fmt::format("attention over {} positions", load.length));
    figures_.attention.push_back({is_prefill, load, time_attention(backend_, shape, load, options_.seconds)});
  }

  Backend& backend_;
  const KernelOptions& options_;
  ThreadPool pool_;
  std::vector<float> norm_, x_, wide_, qkv_;
  KernelFigures figures_;
};

}  // namespace

Result<KernelFigures> measure_kernels(Backend& backend, const KernelOptions& options) {
  return KernelRun(backend, options).run();
}

TypeLimits limits_for(DType type, const MachineLimits& limits) {
  if (type == DType::f32) return {limits.fp32_fma, std::nullopt};
  if (type == DType::f16 || type == DType::bf16) {
    return {limits.bf16_dot ? limits.bf16_dot : limits.fp32_fma, limits.bf16_matrix};
  }
  return {limits.int8_dot, limits.int8_matrix};
}

}  // namespace tidemill
