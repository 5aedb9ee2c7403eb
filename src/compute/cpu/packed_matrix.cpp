#include "compute/cpu/packed_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/checksum.h"
#include "compute/cpu/weight_codes.h"
#include "compute/half.h"

namespace tidemill::cpu {
namespace {

constexpr int64_t max_rows = int64_t{1} << 30;
constexpr int64_t max_cols = int64_t{1} << 24;

// Offsets inside a panel of one kind.
struct PanelShape {
  size_t codes_per_block = 0;   // bytes
  size_t scales_per_block = 0;  // bytes
  size_t mins_per_block = 0;
  size_t scales_at = 0;
  size_t mins_at = 0;
  size_t factors_at = 0;
  size_t bytes = 0;
};

size_t round_up(size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

size_t pair_pieces(int64_t cols) {
  return static_cast<size_t>((cols + block_k - 1) / block_k);
}

PanelShape panel_shape(const WeightKind& kind, DType type, int64_t cols) {
  PanelShape shape;
  if (kind.kind == PackedKind::bf16_pairs) cols = static_cast<int64_t>(pair_pieces(cols)) * block_k;
  if (kind.bits == 0) {
    shape.bytes = round_up(static_cast<size_t>(cols * panel_rows * block_bytes(type)));
    return shape;
  }
  const auto num_blocks = static_cast<size_t>(cols / block_k);
  shape.codes_per_block = static_cast<size_t>(panel_rows * block_k * kind.bits / 8);
  shape.scales_per_block = static_cast<size_t>(panel_rows * kind.num_groups * (kind.half_scales ? 2 : 4));
  shape.mins_per_block = kind.has_min ? shape.scales_per_block : 0;
  shape.scales_at = num_blocks * shape.codes_per_block;
  shape.mins_at = shape.scales_at + num_blocks * shape.scales_per_block;
  shape.factors_at = shape.mins_at + num_blocks * shape.mins_per_block;
  shape.bytes = round_up(shape.factors_at + (kind.unpacks_to_pairs ? panel_rows * sizeof(float) : 0));
  return shape;
}

Result<void> check_part(const WeightPart& part, size_t index, int64_t cols) {
  if (part.rows < 1 || part.rows > max_rows) {
    return error("weight part {} has {} rows; 1 to {} are possible", index, part.rows, max_rows);
  }
  if (part.cols != cols) return error("weight part {} has {} columns and part 0 has {}", index, part.cols, cols);
  if (cols < 1 || cols > max_cols) return error("a weight matrix has {} columns; 1 to {} are possible", cols, max_cols);
  if (cols % block_values(part.type) != 0) {
    return error("{} columns are not whole blocks of {} values ({})", cols, block_values(part.type),
                 dtype_name(part.type));
  }
  if (!part.row_order.empty() && static_cast<int64_t>(part.row_order.size()) != part.rows) {
    return error("weight part {} has {} rows and an order of {}", index, part.rows, part.row_order.size());
  }
  for (const int32_t row : part.row_order) {
    if (row < 0 || row >= part.rows) return error("row {} of weight part {} with {} rows", row, index, part.rows);
  }
  return {};
}

Result<void> check_parts(std::span<const WeightPart> parts, MatrixLayout layout) {
  if (parts.empty()) return error("a weight matrix without parts");
  int64_t rows = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (auto checked = check_part(parts[i], i, parts[0].cols); !checked) return checked;
    rows += parts[i].rows;
  }
  if (rows > max_rows) return error("a weight matrix has {} rows; at most {} are possible", rows, max_rows);
  if (layout == MatrixLayout::gated && (parts.size() != 2 || parts[0].rows != parts[1].rows)) {
    return error("a gated matrix needs two parts of equal rows");
  }
  return {};
}

const std::byte* file_row(const WeightPart& part, int64_t row) {
  const int64_t source = part.row_order.empty() ? row : part.row_order[static_cast<size_t>(row)];
  return part.data + source * (part.cols / block_values(part.type) * block_bytes(part.type));
}

void put_scale(uint8_t* p, bool half, size_t index, float value) {
  if (half) {
    const uint16_t bits = float_to_half(value);
    std::memcpy(p + index * sizeof(bits), &bits, sizeof(bits));
  } else {
    std::memcpy(p + index * sizeof(value), &value, sizeof(value));
  }
}

float get_scale(const uint8_t* p, bool half, size_t index) {
  if (!half) {
    float value;
    std::memcpy(&value, p + index * sizeof(value), sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, p + index * sizeof(bits), sizeof(bits));
  return half_to_float(bits);
}

// Where input k of a lane lies among a block's codes: the byte, and the bit in it.
struct CodePlace {
  size_t byte;
  int bit;
};

CodePlace code_place(const WeightKind& kind, int lane, int k) {
  if (kind.unpacks_to_pairs) {
    const int bits = kind.bits == 8 ? 8 : 4;  // that lie together
    const int per_word = 16 / bits, in_vector = k % (2 * per_word);
    const int bit = in_vector / 2 * bits;
    return {static_cast<size_t>(k / (2 * per_word) * 64 + (2 * lane + in_vector % 2) * 2 + bit / 8), bit % 8};
  }
  const int within = kind.bits == 4 ? k % 16 : k;
  return {static_cast<size_t>(within / 4 * 64 + lane * 4 + within % 4), kind.bits == 4 && k >= 16 ? 4 : 0};
}

// Where the bits above the fourth lie, of codes of 5 and 6 bits.
CodePlace high_place(const WeightKind& kind, int lane, int k) {
  const int bits = kind.bits - 4, per_word = 16 / bits;
  const int bit = k / 2 % per_word * bits;
  return {static_cast<size_t>(256 + k / 2 / per_word * 64 + (2 * lane + k % 2) * 2 + bit / 8), bit % 8};
}

bool has_high_bits(const WeightKind& kind) {
  return kind.bits == 5 || kind.bits == 6;
}

void put_code(const WeightKind& kind, uint8_t* codes, int lane, int k, int code) {
  const CodePlace place = code_place(kind, lane, k);
  codes[place.byte] |= static_cast<uint8_t>((kind.bits == 8 ? code : code & 0xF) << place.bit);
  if (!has_high_bits(kind)) return;
  const CodePlace high = high_place(kind, lane, k);
  codes[high.byte] |= static_cast<uint8_t>(code >> 4 << high.bit);
}

int get_code(const WeightKind& kind, const uint8_t* codes, int lane, int k) {
  const CodePlace place = code_place(kind, lane, k);
  const int code = codes[place.byte] >> place.bit;
  if (kind.bits == 8) return code;
  if (!has_high_bits(kind)) return code & 0xF;
  const CodePlace high = high_place(kind, lane, k);
  return (code & 0xF) | (codes[high.byte] >> high.bit & ((1 << (kind.bits - 4)) - 1)) << 4;
}

int zero_point(const WeightKind& kind) {
  return kind.has_min ? 0 : 1 << kind.zero_shift;
}

int looked_up(const WeightKind& kind, int code) {
  return kind.table ? kind.table[code] : code;
}

float stored_scale(const WeightKind& kind, float scale) {
  return kind.unpacks_to_pairs && kind.bits < 8 && !kind.table ? scale * code_unit(kind.bits) : scale;
}

// A bound of what the halves of a row have to hold: its weights, and their parts.
float largest_half(const WeightKind& kind, const CodeBlock& block) {
  constexpr float room = 1.0f / 32768;
  const bool every_code = kind.bits == 4 && kind.num_groups == 1;
  float largest = 0;
  const auto hold = [&](float value) { largest = std::max(largest, std::fabs(value)); };
  for (int g = 0; g < kind.num_groups; ++g) {
    const float min = kind.has_min ? block.mins[g] : 0.0f;
    const auto weight = [&](int code) {
      return block.scales[g] * static_cast<float>(looked_up(kind, code) - zero_point(kind)) + min;
    };
    for (int code = 0; every_code && code < 16; ++code) hold(weight(code));
    const int group = block_k / kind.num_groups;
    for (int k = g * group; !every_code && k < (g + 1) * group; ++k) hold(weight(block.codes[k]));
    for (const float part : {block.scales[g] * 128, min, stored_scale(kind, block.scales[g]) / 2}) hold(part * room);
  }
  return largest;
}

// The power of two that brings a row's weights below 1 in magnitude: no half reaches 1, also not by rounding.
float row_factor(const WeightKind& kind, const WeightPart& part, const std::byte* source) {
  float largest = 0;
  CodeBlock block = {};
  for (int64_t b = 0; b < part.cols / block_k; ++b) {
    read_codes(part.type, source, b, block);
    largest = std::max(largest, largest_half(kind, block));
  }
  if (!(largest > 0) || !std::isfinite(largest)) return 1.0f;
  int exponent = 0;
  std::frexp(largest / 0.95f, &exponent);
  return std::ldexp(1.0f, std::clamp(exponent, -60, 60));
}

void pack_codes(uint8_t* panel, const PanelShape& shape, const WeightKind& kind, int lane, size_t block, float factor,
                const CodeBlock& from) {
  uint8_t* codes = panel + block * shape.codes_per_block;
  for (int k = 0; k < block_k; ++k) put_code(kind, codes, lane, k, from.codes[k]);
  for (int g = 0; g < kind.num_groups; ++g) {
    const auto at = static_cast<size_t>(g * panel_rows + lane);
    put_scale(panel + shape.scales_at + block * shape.scales_per_block, kind.half_scales, at,
              stored_scale(kind, from.scales[g] / factor));
    if (kind.has_min) {
      put_scale(panel + shape.mins_at + block * shape.mins_per_block, kind.half_scales, at, from.mins[g] / factor);
    }
  }
}

// Where input k of a lane lies in a panel of floats, in values.
size_t float_index(PackedKind kind, int64_t k, int lane) {
  if (kind == PackedKind::bf16_pairs) return static_cast<size_t>((k / 2 * panel_rows + lane) * 2 + k % 2);
  return static_cast<size_t>(k * panel_rows + lane);
}

void pack_float_row(uint8_t* panel, PackedKind kind, const WeightPart& part, const std::byte* source, int lane) {
  const auto value_bytes = static_cast<size_t>(block_bytes(part.type));
  for (int64_t k = 0; k < part.cols; ++k) {
    uint8_t* to = panel + float_index(kind, k, lane) * value_bytes;
    std::memcpy(to, source + static_cast<size_t>(k) * value_bytes, value_bytes);
    if (kind == PackedKind::bf16_pairs && part.type == DType::f16) {
      uint16_t bits;
      std::memcpy(&bits, to, sizeof(bits));
      bits = float_to_bfloat(half_to_float(bits));
      std::memcpy(to, &bits, sizeof(bits));
    }
  }
}

void pack_row(uint8_t* panel, const PanelShape& shape, const WeightKind& kind, const WeightPart& part, int64_t row) {
  const auto lane = static_cast<int>(row % panel_rows);
  const std::byte* source = file_row(part, row);
  if (kind.bits == 0) return pack_float_row(panel, kind.kind, part, source, lane);
  const float factor = kind.unpacks_to_pairs ? row_factor(kind, part, source) : 1.0f;
  if (kind.unpacks_to_pairs) {
    const float stored = factor * (half_unit / pair_unit);
    std::memcpy(panel + shape.factors_at + static_cast<size_t>(lane) * sizeof(stored), &stored, sizeof(stored));
  }
  CodeBlock block = {};
  for (int64_t b = 0; b < part.cols / block_k; ++b) {
    read_codes(part.type, source, b, block);
    pack_codes(panel, shape, kind, lane, static_cast<size_t>(b), factor, block);
  }
}

// memory: of the matrix's first panel.
void pack_panel(const PackedPart& packed, const WeightPart& part, int32_t index, std::byte* memory, size_t offset) {
  const WeightKind kind = weight_kind(part.type, packed.pairs);
  const PanelShape shape = panel_shape(kind, part.type, part.cols);
  uint8_t* panel = reinterpret_cast<uint8_t*>(memory) + offset + static_cast<size_t>(index) * packed.panels.stride;
  const int64_t first = int64_t{index} * panel_rows;
  for (int64_t row = first; row < std::min(first + panel_rows, part.rows); ++row) {
    pack_row(panel, shape, kind, part, row);
  }
}

// Differs for matrices that differ in anything but the values of their weights.
uint64_t shape_of(std::span<const WeightPart> parts, MatrixLayout layout) {
  std::vector<int64_t> numbers = {static_cast<int64_t>(layout)};
  for (const WeightPart& part : parts) {
    numbers.insert(numbers.end(), {static_cast<int64_t>(part.type), part.rows, part.cols,
                                   static_cast<int64_t>(checksum_of(std::as_bytes(part.row_order)))});
  }
  return checksum_of(std::as_bytes(std::span(numbers)));
}

void pack_all(std::span<const WeightPart> parts, const PackedMatrix& matrix, std::span<const size_t> offsets,
              const PackTarget& target, std::byte* memory) {
  const bool gated = matrix.layout() == MatrixLayout::gated;
  target.claim.start(matrix.num_pieces());
  target.threads.run([&](int32_t worker) {
    while (const WorkClaim::Share share = target.claim.next_own(worker)) {
      int32_t base = 0;
      for (size_t i = 0; i < parts.size(); ++i) {
        const PackedPart& packed = matrix.parts()[i];
        const int32_t begin = std::max(share.first - base, 0), end = std::min(share.end - base, packed.num_panels);
        for (int32_t panel = begin; panel < end; ++panel) pack_panel(packed, parts[i], panel, memory, offsets[i]);
        if (!gated) base += packed.num_panels;
      }
    }
  });
}

float float_at(const uint8_t* panel, PackedKind kind, int64_t k, int lane) {
  const size_t index = float_index(kind, k, lane);
  float value;
  uint16_t bits;
  if (kind == PackedKind::f32) {
    std::memcpy(&value, panel + index * sizeof(value), sizeof(value));
    return value;
  }
  std::memcpy(&bits, panel + index * sizeof(bits), sizeof(bits));
  return kind == PackedKind::f16 ? half_to_float(bits) : bfloat_to_float(bits);
}

void read_quantized_row(const WeightKind& kind, const PanelShape& shape, const uint8_t* panel, int lane, int64_t cols,
                        float* out) {
  float factor = 1.0f;
  if (kind.unpacks_to_pairs) {
    std::memcpy(&factor, panel + shape.factors_at + static_cast<size_t>(lane) * sizeof(factor), sizeof(factor));
    factor *= pair_unit / half_unit;
  }
  const float min_factor = factor;
  factor /= stored_scale(kind, 1.0f);
  for (int64_t k = 0; k < cols; ++k) {
    const auto block = static_cast<size_t>(k / block_k);
    const auto in_block = static_cast<int>(k % block_k);
    const int code = looked_up(kind, get_code(kind, panel + block * shape.codes_per_block, lane, in_block));
    const auto at = static_cast<size_t>(in_block * kind.num_groups / block_k * panel_rows + lane);
    const uint8_t* scales = panel + shape.scales_at + block * shape.scales_per_block;
    const uint8_t* mins = panel + shape.mins_at + block * shape.mins_per_block;
    const float product =
        factor * get_scale(scales, kind.half_scales, at) * static_cast<float>(code - zero_point(kind));
    out[k] = kind.has_min ? product + min_factor * get_scale(mins, kind.half_scales, at) : product;
  }
}

}  // namespace

bool PackedMatrix::any_quantized() const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [](const PackedPart& part) { return part.quantized && !part.pairs; });
}

bool PackedMatrix::any_float() const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [](const PackedPart& part) { return !part.quantized && !part.pairs; });
}

bool PackedMatrix::any_pairs() const {
  return std::any_of(parts_.begin(), parts_.end(), [](const PackedPart& part) { return part.pairs; });
}

int32_t PackedMatrix::num_pieces() const {
  int32_t total = 0;
  for (const PackedPart& part : parts_) total += part.num_panels;
  return layout_ == MatrixLayout::gated ? parts_[0].num_panels : total;
}

void PackedMatrix::read_row(int64_t row, float* out) const {
  TM_CHECK(row >= 0 && row < rows_, "a row to read lies inside the matrix");
  size_t i = 0;
  while (i + 1 < parts_.size() && row >= parts_[i + 1].first_output) ++i;
  const PackedPart& part = parts_[i];
  const int64_t in_part = row - part.first_output;
  const auto lane = static_cast<int>(in_part % panel_rows);
  const uint8_t* panel = part.panels.data + static_cast<size_t>(in_part / panel_rows) * part.panels.stride;
  if (!part.quantized) {
    for (int64_t k = 0; k < cols_; ++k) {
      out[k] = float_at(panel, part.panels.kind, k, lane);
    }
    return;
  }
  const WeightKind kind = weight_kind(part.type, part.pairs);
  read_quantized_row(kind, panel_shape(kind, part.type, cols_), panel, lane, cols_, out);
}

Result<std::unique_ptr<Matrix>> pack_matrix(std::span<const WeightPart> parts, MatrixLayout layout,
                                            const PackTarget& target) {
  if (auto checked = check_parts(parts, layout); !checked) return checked.error();
  auto matrix = std::make_unique<PackedMatrix>();
  matrix->cols_ = parts[0].cols;
  matrix->layout_ = layout;
  const bool gated = layout == MatrixLayout::gated;
  std::vector<size_t> offsets;
  size_t size_bytes = 0;
  for (const WeightPart& part : parts) {
    const WeightKind kind = weight_kind(part.type, target.bf16_pairs);
    const PanelShape shape = panel_shape(kind, part.type, part.cols);
    PackedPart& packed = matrix->parts_.emplace_back();
    packed.type = part.type;
    packed.quantized = kind.bits != 0;
    packed.pairs = target.bf16_pairs && kind.kind != PackedKind::f32;
    packed.first_output = static_cast<int32_t>(matrix->rows_);
    packed.num_panels = static_cast<int32_t>((part.rows + panel_rows - 1) / panel_rows);
    packed.panels = {.data = nullptr,
                     .stride = shape.bytes,
                     .kind = kind.kind,
                     .zero_shift = kind.zero_shift,
                     .table = kind.table,
                     .num_outputs = static_cast<int32_t>(part.rows)};
    offsets.push_back(size_bytes);
    size_bytes += gated ? shape.bytes : shape.bytes * static_cast<size_t>(packed.num_panels);
    matrix->rows_ += part.rows;
  }
  if (gated) {
    for (PackedPart& packed : matrix->parts_) packed.panels.stride = size_bytes;
    size_bytes *= static_cast<size_t>(matrix->parts_[0].num_panels);
  }
  const uint64_t shape = shape_of(parts, layout);
  std::optional<WeightMemory> kept;
  if (target.store) kept = target.store->next(shape, size_bytes, target.threads);
  if (!kept) {
    const WeightArena::Piece piece = target.arena.take(size_bytes);
    if (!piece.data) return error("no memory for a weight matrix of {} bytes", size_bytes);
    pack_all(parts, *matrix, offsets, target, piece.data);
    kept = WeightMemory{piece.owner, piece.data, size_bytes};
    if (target.store) target.store->note(shape, *kept);
  }
  matrix->memory_ = *std::move(kept);
  for (size_t i = 0; i < parts.size(); ++i) {
    matrix->parts_[i].panels.data = reinterpret_cast<const uint8_t*>(matrix->memory_.data) + offsets[i];
  }
  return std::unique_ptr<Matrix>(std::move(matrix));
}

}  // namespace tidemill::cpu
