// The CPU backend's way of keys and values into blocks: stored in tail precision, encoded when a block is full.
#include <algorithm>

#include "base/check.h"
#include "compute/cpu/cpu_backend.h"

namespace tidemill::cpu {
namespace {

constexpr size_t scratch_unit = 64;  // bytes at which a block in scratch begins

size_t rounded(size_t bytes) {
  return (bytes + scratch_unit - 1) / scratch_unit * scratch_unit;
}

TraceLabel with_rows(TraceLabel label, int32_t num_rows) {
  label.num_rows = num_rows;
  return label;
}

}  // namespace

void CpuBackend::rotate_and_store(const RotateAndStore& args) {
  const TraceOperation traced(trace_, with_rows(args.label, args.qkv.num_rows));
  const KvGroupView& kv = *args.kv;
  const KvShape& shape = kv.shape;
  TM_CHECK(args.qkv.width == args.num_heads * shape.head_dim + shape.num_kv_heads * (shape.head_dim + shape.value_dim),
           "a row holds queries, keys and values");
  TM_CHECK(static_cast<int32_t>(args.positions.size()) == args.qkv.num_rows, "every row has a position");
  list_step_blocks(kv, args.layer_in_group);
  // By blocks: two threads that write neighbouring positions would take the lines of the keys from each other.
  runs_.clear();
  for (size_t s = 0; s < kv.segments.size(); ++s) {
    const KvSegment& segment = kv.segments[s];
    TM_CHECK(segment.first_row >= 0 && segment.first_row + segment.num_rows <= args.qkv.num_rows,
             "a sequence's rows are rows of the step");
    const int32_t hadamard = segment.hadamard;
    TM_CHECK(hadamard == 0 || (shape.head_dim % hadamard == 0 && (hadamard & (hadamard - 1)) == 0),
             "a Hadamard matrix divides a key");
    for (int32_t done = 0; done < segment.num_rows;) {
      const int32_t slot = (segment.first_position + done) % shape.block_size;
      const int32_t count = std::min(shape.block_size - slot, segment.num_rows - done);
      runs_.push_back({static_cast<int32_t>(s), segment.first_row + done, count});
      done += count;
    }
  }
  const bool rotates = args.rotary.rotary_dim > 0;
  const RotaryTables::Table table = rotates ? rotary_.find(args.rotary, args.positions) : RotaryTables::Table{};
  for_each(static_cast<int32_t>(runs_.size()),
           [&](int32_t i, int32_t) { store_run(args, runs_[static_cast<size_t>(i)], table); });
  if (!to_encode_.empty()) encode_step_blocks(kv);
}

void CpuBackend::store_run(const RotateAndStore& args, const RowRun& run, const RotaryTables::Table& table) {
  const KvGroupView& kv = *args.kv;
  const KvShape& shape = kv.shape;
  const KvSegment& segment = kv.segments[static_cast<size_t>(run.segment)];
  const int32_t first_position = segment.first_position + run.first_row - segment.first_row;
  const int32_t block = first_position / shape.block_size;
  TM_CHECK(block >= segment.first_block && block - segment.first_block < static_cast<int32_t>(segment.places.size()),
           "a stored position has a block");
  const BlockPlace place = segment.places[static_cast<size_t>(block - segment.first_block)];
  const KvArena& arena = kv.arenas[place.size_class];
  std::byte* bytes = arena.at(place.slot, args.layer_in_group);
  KvBlockFormat format = arena.layer_format(args.layer_in_group);
  if (encodes(kv, segment, args.layer_in_group)) {
    const StepBlocks& blocks = step_segments_[static_cast<size_t>(run.segment)];
    bytes = step_blocks_[static_cast<size_t>(blocks.first + block - blocks.first_block)].tail;
    format = blocks.format.tail();
  }
  TM_CHECK(!format.encoded(), "rows are stored in tail precision");
  const int64_t half = args.rotary.rotary_dim / 2;
  auto* keys = reinterpret_cast<uint8_t*>(bytes);
  uint8_t* values = keys + static_cast<size_t>(shape.num_kv_heads) * shape.key_head_bytes(format);
  for (int32_t row = run.first_row; row < run.first_row + run.num_rows; ++row) {
    kernels_.rotate_and_store_row({.qkv = args.qkv.row(row),
                                   .num_heads = args.num_heads,
                                   .num_kv_heads = shape.num_kv_heads,
                                   .head_dim = shape.head_dim,
                                   .value_dim = shape.value_dim,
                                   .query_weight = args.query_norm.weight,
                                   .key_weight = args.key_norm.weight,
                                   .query_epsilon = args.query_norm.epsilon,
                                   .key_epsilon = args.key_norm.epsilon,
                                   .norm_whole_row = args.norm_whole_row,
                                   .rotary_dim = args.rotary.rotary_dim,
                                   .interleaved = args.rotary.interleaved,
                                   .cos = table.cos ? table.cos + row * half : nullptr,
                                   .sin = table.sin ? table.sin + row * half : nullptr,
                                   .hadamard = segment.hadamard,
                                   .keys = keys,
                                   .values = values,
                                   .key_format = format.keys.format,
                                   .value_format = format.values.format,
                                   .block_size = shape.block_size,
                                   .slot = (first_position + row - run.first_row) % shape.block_size});
  }
}

// Which blocks exist in two forms in this layer of this step, and where.
void CpuBackend::list_step_blocks(const KvGroupView& kv, int32_t layer) {
  stored_view_ = &kv;
  stored_layer_ = layer;
  step_segments_.clear();
  step_blocks_.clear();
  to_encode_.clear();
  const KvShape& shape = kv.shape;
  size_t scratch_bytes = 0;
  for (const KvSegment& segment : kv.segments) {
    if (!encodes(kv, segment, layer)) continue;
    const KvBlockFormat format = kv.arenas[static_cast<size_t>(segment.storage_class)].layer_format(layer);
    scratch_bytes +=
        static_cast<size_t>(segment.num_rows / shape.block_size) * rounded(shape.layer_bytes(format.tail()));
  }
  kv_scratch_.reserve(scratch_bytes);
  std::byte* scratch = kv_scratch_.data();
  for (size_t s = 0; s < kv.segments.size(); ++s) {
    step_segments_.push_back({});
    if (encodes(kv, kv.segments[s], layer)) scratch = add_step_blocks(kv, static_cast<int32_t>(s), layer, scratch);
  }
}

std::byte* CpuBackend::add_step_blocks(const KvGroupView& kv, int32_t index, int32_t layer, std::byte* scratch) {
  const KvSegment& segment = kv.segments[static_cast<size_t>(index)];
  const int32_t block_size = kv.shape.block_size;
  const KvBlockFormat format = kv.arenas[static_cast<size_t>(segment.storage_class)].layer_format(layer);
  const auto in_tail = [&](int32_t block) {
    const BlockPlace place = segment.places[static_cast<size_t>(block - segment.first_block)];
    return static_cast<int32_t>(place.size_class) != segment.storage_class;
  };
  const int32_t end_position = segment.first_position + segment.num_rows;
  const int32_t first = segment.first_position / block_size, last = (end_position - 1) / block_size;
  TM_CHECK(first >= segment.first_block && last - segment.first_block < static_cast<int32_t>(segment.places.size()),
           "a stored position has a block");
  TM_CHECK(first == segment.first_block || !in_tail(first - 1), "full blocks were sealed");
  step_segments_[static_cast<size_t>(index)] = {format, first, static_cast<int32_t>(step_blocks_.size())};
  for (int32_t block = first; block <= last; ++block) {
    const BlockPlace place = segment.places[static_cast<size_t>(block - segment.first_block)];
    const KvArena& arena = kv.arenas[place.size_class];
    if (in_tail(block)) {
      TM_CHECK(block == last, "rows do not run over the end of a tail");
      TM_CHECK(arena.layer_format(layer) == format.tail(), "a block that is not full is kept in tail precision");
      step_blocks_.push_back({arena.at(place.slot, layer), nullptr});
      continue;
    }
    TM_CHECK(block * block_size >= segment.first_position && (block + 1) * block_size <= end_position,
             "a storage slot is filled by one step");
    to_encode_.push_back({static_cast<int32_t>(step_blocks_.size()), index});
    step_blocks_.push_back({scratch, arena.at(place.slot, layer)});
    scratch += rounded(kv.shape.layer_bytes(format.tail()));
  }
  return scratch;
}

// Side i of a layer's part of a block: the keys of head i, or the values of head i - num_kv_heads.
void CpuBackend::encode_side(const KvShape& shape, KvBlockFormat format, const std::byte* from, std::byte* to,
                             int32_t side) {
  const KvBlockFormat tail = format.tail();
  const auto heads = static_cast<size_t>(shape.num_kv_heads);
  const auto head = static_cast<size_t>(side) % heads;
  if (side < shape.num_kv_heads) {
    kernels_.encode_keys({.from = from + head * shape.key_head_bytes(tail),
                          .from_format = tail.keys.format,
                          .to = to + head * shape.key_head_bytes(format),
                          .code = format.keys,
                          .dim = shape.head_dim,
                          .block_size = shape.block_size});
  } else {
    kernels_.encode_values({.from = from + heads * shape.key_head_bytes(tail) + head * shape.value_head_bytes(tail),
                            .from_format = tail.values.format,
                            .to = to + heads * shape.key_head_bytes(format) + head * shape.value_head_bytes(format),
                            .code = format.values,
                            .dim = shape.value_dim,
                            .block_size = shape.block_size});
  }
}

void CpuBackend::encode_step_blocks(const KvGroupView& kv) {
  const int32_t sides = 2 * kv.shape.num_kv_heads;
  for_each(static_cast<int32_t>(to_encode_.size()) * sides, [&](int32_t i, int32_t) {
    const Encoding& encoding = to_encode_[static_cast<size_t>(i / sides)];
    const StepBlock& block = step_blocks_[static_cast<size_t>(encoding.block)];
    const KvBlockFormat format = step_segments_[static_cast<size_t>(encoding.segment)].format;
    encode_side(kv.shape, format, block.tail, block.stored, i % sides);
  });
}

void CpuBackend::seal(const KvSeals& args) {
  const auto num_pairs = static_cast<int32_t>(args.pairs.size());
  const TraceOperation traced(trace_, {.name = "seal", .num_rows = num_pairs});
  for_each(num_pairs * args.num_layers, [&](int32_t i, int32_t) {
    const KvSeals::Pair& pair = args.pairs[static_cast<size_t>(i / args.num_layers)];
    const int32_t layer = i % args.num_layers;
    const KvArena& from = args.arenas[pair.from.size_class];
    const KvArena& to = args.arenas[pair.to.size_class];
    const KvBlockFormat format = to.layer_format(layer);
    TM_CHECK(from.layer_format(layer) == format.tail(), "a sealed block was kept in tail precision");
    for (int32_t side = 0; side < 2 * args.shape.num_kv_heads; ++side) {
      encode_side(args.shape, format, from.at(pair.from.slot, layer), to.at(pair.to.slot, layer), side);
    }
  });
}

// A KV head as a block shows it.
BlockRef CpuBackend::block_ref(const KvGroupView& kv, int32_t segment_index, int32_t block, int32_t own_block,
                               int32_t layer, int32_t kv_head) const {
  const KvSegment& segment = kv.segments[static_cast<size_t>(segment_index)];
  const BlockPlace place = segment.places[static_cast<size_t>(block - segment.first_block)];
  const KvArena& arena = kv.arenas[place.size_class];
  const std::byte* base = arena.at(place.slot, layer);
  KvBlockFormat format = arena.layer_format(layer);
  if (encodes(kv, segment, layer)) {
    const StepBlocks& blocks = step_segments_[static_cast<size_t>(segment_index)];
    if (block >= blocks.first_block) {
      const StepBlock& entry = step_blocks_[static_cast<size_t>(blocks.first + block - blocks.first_block)];
      const bool own = block == own_block || entry.stored == nullptr;
      base = own ? entry.tail : entry.stored;
      format = own ? blocks.format.tail() : blocks.format;
    }
  }
  const KvShape& shape = kv.shape;
  const auto head = static_cast<size_t>(kv_head);
  return {.keys = base + head * shape.key_head_bytes(format),
          .values = base + static_cast<size_t>(shape.num_kv_heads) * shape.key_head_bytes(format) +
                    head * shape.value_head_bytes(format),
          .key_code = format.keys,
          .value_code = format.values};
}

}  // namespace tidemill::cpu
