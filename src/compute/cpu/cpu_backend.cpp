#include "compute/cpu/cpu_backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "base/checksum.h"
#include "compute/cpu/kernel_select.h"

namespace tidemill {
namespace cpu {
namespace {

constexpr int32_t max_threads = 1024;
// Up to so many rows are normalized and quantized by the caller: cheaper than a barrier of all threads.
constexpr int32_t rows_prepared_alone = 4;
// Rows from which on a worker multiplies its own by all weights.
constexpr int32_t least_own_rows = 128;
static_assert(least_own_rows >= 2 * max_tile_rows, "nobody's rows are none");

class CpuBuffer : public Buffer {
 public:
  explicit CpuBuffer(size_t num_floats) : memory_(num_floats * sizeof(float)) {
    TM_CHECK(memory_.data() != nullptr, "memory for activations is there");
  }
  float* data() override { return reinterpret_cast<float*>(memory_.data()); }

 private:
  AlignedMemory memory_;
};

ActivationKind activation_kind(Activation activation) {
  switch (activation) {
    case Activation::silu:
      return ActivationKind::silu;
    case Activation::gelu_tanh:
      return ActivationKind::gelu_tanh;
    case Activation::gelu_erf:
      return ActivationKind::gelu_erf;
    case Activation::relu:
      return ActivationKind::relu;
  }
  return ActivationKind::silu;
}

// Inputs of a row in pieces of 32.
int64_t padded_cols(int64_t cols) {
  return (cols + block_k - 1) / block_k * block_k;
}

std::vector<int32_t> nodes_of(const ThreadPool& threads) {
  std::vector<int32_t> nodes;
  for (int32_t worker = 0; worker < threads.size(); ++worker) nodes.push_back(threads.node_of(worker));
  return nodes;
}

// Where each worker has a run of its own.
std::vector<int32_t> numbers_of(const ThreadPool& threads) {
  std::vector<int32_t> numbers(static_cast<size_t>(threads.size()));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

// One file for each key, layout and set of kernels.
std::unique_ptr<PackedStore> packed_store(const CpuOptions& options, std::string_view kernels) {
  if (options.packed_cache == PackedCache::off || options.packed_key.empty()) return nullptr;
  const std::string key = fmt::format("layout {} {} {}", packed_layout_version, kernels, options.packed_key);
  const uint64_t name = checksum_of(std::as_bytes(std::span(key)));
  return std::make_unique<PackedStore>(options.packed_folder / fmt::format("{:016x}.packed", name), key);
}

TraceLabel with_rows(TraceLabel label, int32_t num_rows) {
  label.num_rows = num_rows;
  return label;
}

}  // namespace

bool RotaryTables::matches(const Entry& entry, const Rotary& rotary, std::span<const int32_t> positions) const {
  const auto half = static_cast<size_t>(rotary.rotary_dim / 2);
  return entry.frequencies.size() == half && entry.attention_factor == rotary.attention_factor &&
         std::equal(entry.frequencies.begin(), entry.frequencies.end(), rotary.inverse_frequencies) &&
         std::equal(entry.positions.begin(), entry.positions.end(), positions.begin(), positions.end());
}

RotaryTables::Table RotaryTables::find(const Rotary& rotary, std::span<const int32_t> positions) {
  for (int i = 0; i < 2; ++i) {
    if (!matches(entries_[i], rotary, positions)) continue;
    newest_ = i;
    return {entries_[i].cos.data(), entries_[i].sin.data()};
  }
  newest_ = 1 - newest_;
  Entry& entry = entries_[newest_];
  const auto half = static_cast<size_t>(rotary.rotary_dim / 2);
  entry.frequencies.assign(rotary.inverse_frequencies, rotary.inverse_frequencies + half);
  entry.positions.assign(positions.begin(), positions.end());
  entry.attention_factor = rotary.attention_factor;
  entry.cos.resize(half * positions.size());
  entry.sin.resize(half * positions.size());
  for (size_t row = 0; row < positions.size(); ++row) {
    for (size_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(positions[row]) * entry.frequencies[i];
      entry.cos[row * half + i] = static_cast<float>(std::cos(angle) * rotary.attention_factor);
      entry.sin[row * half + i] = static_cast<float>(std::sin(angle) * rotary.attention_factor);
    }
  }
  return {entry.cos.data(), entry.sin.data()};
}

CpuBackend::CpuBackend(const KernelTable& kernels, ThreadPoolOptions threads)
    : kernels_(kernels),
      trace_(threads.trace),
      threads_(std::move(threads)),
      claim_(nodes_of(threads_)),
      row_claim_(numbers_of(threads_)),
      several_nodes_(std::ranges::any_of(nodes_of(threads_), [](int32_t node) { return node > 0; })),
      scratch_(static_cast<size_t>(threads_.size())) {}

void CpuBackend::use_packed_store(std::unique_ptr<PackedStore> store, std::chrono::milliseconds worth,
                                  uint64_t limit_bytes) {
  store_ = std::move(store);
  packing_worth_ = worth;
  packed_limit_bytes_ = limit_bytes;
}

Result<std::unique_ptr<Matrix>> CpuBackend::load_matrix(std::span<const WeightPart> parts, MatrixLayout layout) {
  const auto begin = std::chrono::steady_clock::now();
  auto matrix = pack_matrix(parts, layout, {threads_, claim_, arena_, store_.get(), kernels_.bf16_pairs});
  packing_time_ += std::chrono::steady_clock::now() - begin;
  threads_.release_caller();  // another thread may run the steps
  return matrix;
}

Result<void> CpuBackend::end_loading() {
  const std::unique_ptr<PackedStore> store = std::move(store_);
  arena_ = {};
  if (!store || !store->incomplete() || packing_time_ < packing_worth_) return {};
  Result<void> written = store->write(packed_limit_bytes_, threads_);
  threads_.release_caller();
  return written;
}

std::unique_ptr<Buffer> CpuBackend::allocate(size_t num_floats) {
  return std::make_unique<CpuBuffer>(num_floats);
}

void CpuBackend::embed(const Matrix& table, std::span<const TokenId> tokens, float scale, Rows output) {
  const TraceOperation traced(trace_, {.name = "embed", .num_rows = output.num_rows});
  const auto& matrix = static_cast<const PackedMatrix&>(table);
  TM_CHECK(output.width == matrix.cols() && output.num_rows == static_cast<int32_t>(tokens.size()),
           "embedded rows have the table's width");
  for_each(output.num_rows, [&](int32_t i, int32_t) {
    float* row = output.row(i);
    matrix.read_row(tokens[static_cast<size_t>(i)], row);
    for (int32_t k = 0; k < output.width && scale != 1.0f; ++k) row[k] *= scale;
  });
}

void CpuBackend::prepare_activation_row(const Product& args, const PackedMatrix& matrix, int32_t row, int32_t worker) {
  const int32_t tile_start = row / kernels_.tile_rows * kernels_.tile_rows;
  const int64_t cols = matrix.cols();
  PrepareRow task = {.x = args.input.row(row),
                     .cols = static_cast<int32_t>(cols),
                     .norm_weight = args.norm.weight,
                     .epsilon = args.norm.epsilon,
                     .scratch = scratch_[static_cast<size_t>(worker)].row.data(),
                     .blocks = nullptr,
                     .floats = nullptr,
                     .pairs = nullptr,
                     .row = row - tile_start,
                     .rows = std::min(kernels_.tile_rows, args.input.num_rows - tile_start)};
  if (matrix.any_quantized()) task.blocks = act_blocks_.data() + tile_start * (cols / block_k);
  if (matrix.any_float()) task.floats = act_floats_.data() + tile_start * cols;
  if (matrix.any_pairs()) task.pairs = act_pairs_.data() + tile_start * padded_cols(cols);
  kernels_.prepare_row(task);
}

ProductTask CpuBackend::product_task(const Product& args, const PackedMatrix& matrix, size_t part,
                                     RowRange rows) const {
  const bool gated = matrix.layout() == MatrixLayout::gated;
  const PackedPart& packed = matrix.parts()[part];
  const int64_t cols = args.input.width, first = rows.first;
  return {.input = {.blocks = act_blocks_.data() + first * (cols / block_k),
                    .floats = act_floats_.data() + first * cols,
                    .pairs = act_pairs_.data() + first * padded_cols(cols),
                    .num_rows = rows.end - rows.first,
                    .cols = args.input.width,
                    .tile_rows = kernels_.tile_rows},
          .panels = packed.panels,
          .up = gated ? matrix.parts()[1].panels : Panels{},
          .activation = gated ? activation_kind(args.activation) : ActivationKind::none,
          .bias = args.bias ? args.bias + packed.first_output : nullptr,
          .up_bias = args.bias && gated ? args.bias + matrix.parts()[1].first_output : nullptr,
          .scale = args.scale,
          .softcap = args.softcap,
          .accumulate = args.accumulate,
          .output = args.output.row(rows.first) + packed.first_output,
          .output_stride = args.output.width,
          .output_pairs =
              leaves_pairs(args, matrix) ? next_pairs_.data() + first * padded_cols(args.output.width) : nullptr};
}

// Whether outputs go straight into the layout of the product that reads them.
bool CpuBackend::leaves_pairs(const Product& args, const PackedMatrix& matrix) const {
  if (!args.reader || matrix.layout() != MatrixLayout::gated || !matrix.any_pairs() || args.accumulate) return false;
  const auto& reader = static_cast<const PackedMatrix&>(*args.reader);
  return reader.any_pairs() && !reader.any_quantized() && !reader.any_float();
}

// Whether each worker multiplies some rows by all panels, so that they stay in its cache from one product to the next,
// and not all rows by some panels: where its rows are worth unpacking weights for, and weights do not lie on the nodes
// of those who multiply with them.
bool CpuBackend::by_rows(int32_t num_rows) const {
  return threads_.size() > 1 && !several_nodes_ && num_rows / threads_.size() >= least_own_rows;
}

// Of whole tiles, by twos.
CpuBackend::RowRange CpuBackend::own_rows(int32_t num_rows, int32_t worker) const {
  const int64_t unit = 2 * kernels_.tile_rows, num_units = (num_rows + unit - 1) / unit;
  const auto begin = [&](int64_t w) { return static_cast<int32_t>(num_units * w / threads_.size() * unit); };
  return {begin(worker), std::min(begin(worker + 1), num_rows)};
}

// Claims panels until none is left, numbered through all parts, and through the rows of all workers.
void CpuBackend::product_share(WorkClaim& claim, const PackedMatrix& matrix, int32_t worker) {
  const size_t num_parts = matrix.layout() == MatrixLayout::gated ? 1 : matrix.parts().size();
  const int32_t num_panels = matrix.num_pieces();
  while (const WorkClaim::Share share = claim.next(worker)) {
    const int32_t whose = share.first / num_panels;
    const int32_t first = share.first - whose * num_panels, end = share.end - whose * num_panels;
    const ProductTask* tasks = product_tasks_.data() + static_cast<size_t>(whose) * num_parts;
    int32_t base = 0;
    for (size_t i = 0; i < num_parts; ++i) {
      const int32_t count = matrix.parts()[i].num_panels;
      const int32_t from = std::max(first - base, 0), to = std::min(end - base, count);
      if (from < to) kernels_.product_panels(tasks[i], from, to);
      base += count;
    }
  }
}

void CpuBackend::product(const Product& args) {
  const auto& matrix = static_cast<const PackedMatrix&>(*args.matrix);
  const bool gated = matrix.layout() == MatrixLayout::gated;
  const int32_t num_rows = args.input.num_rows;
  TM_CHECK(args.input.width == matrix.cols(), "a product's input has the matrix's columns");
  TM_CHECK(args.output.num_rows == num_rows && args.output.width == matrix.rows() / (gated ? 2 : 1),
           "a product's output has the matrix's rows");
  TM_CHECK(!gated || args.softcap == 0.0f, "only a stacked product has a soft cap");
  if (num_rows == 0) return;
  const TraceOperation traced(trace_, with_rows(args.label, num_rows));
  const auto cols = static_cast<size_t>(matrix.cols());
  // Kernels may read, and then not use, a tile's worth of blocks beyond the last.
  if (matrix.any_quantized()) act_blocks_.reserve(static_cast<size_t>(num_rows) * (cols / block_k) + max_tile_rows);
  if (matrix.any_float()) act_floats_.reserve(static_cast<size_t>(num_rows) * cols);
  if (matrix.any_pairs()) {
    act_pairs_.reserve(static_cast<size_t>((num_rows + max_tile_rows) * padded_cols(matrix.cols())));
  }
  for (WorkerScratch& scratch : scratch_) scratch.row.reserve(cols + panel_rows);
  const bool prepared = next_reader_ != nullptr;
  if (prepared) {
    TM_CHECK(next_reader_ == args.matrix && !args.norm.weight, "the product that was announced comes next");
    std::swap(act_pairs_, next_pairs_);
  }
  next_reader_ = leaves_pairs(args, matrix) ? args.reader : nullptr;
  if (next_reader_) {
    next_pairs_.reserve(static_cast<size_t>((num_rows + max_tile_rows) * padded_cols(args.output.width)));
  }

  const bool split = by_rows(num_rows);
  const int32_t num_ranges = split ? threads_.size() : 1;
  product_tasks_.clear();
  for (int32_t i = 0; i < num_ranges; ++i) {
    const RowRange rows = split ? own_rows(num_rows, i) : RowRange{0, num_rows};
    for (size_t part = 0; part < (gated ? 1 : matrix.parts().size()); ++part) {
      product_tasks_.push_back(product_task(args, matrix, part, rows));
    }
  }
  const bool alone = prepared || num_rows <= rows_prepared_alone || threads_.size() == 1;
  for (int32_t row = 0; alone && !prepared && row < num_rows; ++row) prepare_activation_row(args, matrix, row, 0);
  WorkClaim& claim = split ? row_claim_ : claim_;
  claim.start(num_ranges * matrix.num_pieces());
  threads_.run([&](int32_t worker) {
    if (!alone) {
      const RowRange rows = own_rows(num_rows, worker);
      for (int32_t row = rows.first; row < rows.end; ++row) prepare_activation_row(args, matrix, row, worker);
      threads_.barrier();
    }
    product_share(claim, matrix, worker);
  });
}

void CpuBackend::normalize(Rows input, Norm norm, float scale, bool accumulate, Rows output) {
  const TraceOperation traced(trace_, {.name = "normalize", .num_rows = input.num_rows});
  TM_CHECK(input.width == output.width && input.num_rows == output.num_rows, "normalized rows keep their shape");
  for_each(input.num_rows, [&](int32_t row, int32_t) {
    kernels_.norm_row({.x = input.row(row),
                       .width = input.width,
                       .weight = norm.weight,
                       .epsilon = norm.epsilon,
                       .scale = scale,
                       .accumulate = accumulate,
                       .output = output.row(row)});
  });
}

void CpuBackend::gather_rows(Rows input, std::span<const int32_t> row_ids, Rows output) {
  TM_CHECK(input.width == output.width && output.num_rows == static_cast<int32_t>(row_ids.size()),
           "gathered rows keep their width");
  for (int32_t i = 0; i < output.num_rows; ++i) {
    const int32_t from = row_ids[static_cast<size_t>(i)];
    TM_CHECK(from >= 0 && from < input.num_rows, "a gathered row exists");
    std::memcpy(output.row(i), input.row(from), static_cast<size_t>(input.width) * sizeof(float));
  }
}

void CpuBackend::share_work(const char* name, int32_t count, void (*work)(void*, int32_t, int32_t), void* argument) {
  const TraceOperation traced(trace_, {.name = name, .num_rows = count});
  for_each(count, [&](int32_t i, int32_t worker) { work(argument, i, worker); });
}

}  // namespace cpu

Result<std::unique_ptr<Backend>> make_cpu_backend(const CpuOptions& options) {
  if (options.num_threads < 0 || options.num_threads > cpu::max_threads) {
    return error("{} compute threads; 1 to {} are possible, 0 means one per core", options.num_threads,
                 cpu::max_threads);
  }
  auto kernels = cpu::select_kernels(options.kernels);
  if (!kernels) return kernels.error();
  const std::vector<int32_t> cores = usable_cores();
  ThreadPoolOptions threads;
  threads.num_threads = options.num_threads > 0 ? options.num_threads
                                                : std::clamp(static_cast<int32_t>(cores.size()), 1, cpu::max_threads);
  threads.places = place_workers(read_topology("/sys", cores), threads.num_threads, options.binding);
  threads.trace = options.trace;
  auto backend = std::make_unique<cpu::CpuBackend>(*kernels.value(), std::move(threads));
  const auto worth = std::chrono::milliseconds(options.packed_cache == PackedCache::on ? 0 : 1000);
  backend->use_packed_store(cpu::packed_store(options, kernels.value()->name), worth, options.packed_limit_bytes);
  return std::unique_ptr<Backend>(std::move(backend));
}

}  // namespace tidemill
