// Attention of the CPU backend: how the work is cut, and in which order partial results become one.
#include <algorithm>

#include "base/check.h"
#include "compute/cpu/cpu_backend.h"

namespace tidemill::cpu {
namespace {

int32_t value_stride(const KvShape& shape) {
  return (shape.value_dim + 15) / 16 * 16;
}

size_t state_floats(int32_t num_queries, const KvShape& shape) {
  return static_cast<size_t>(num_queries) * static_cast<size_t>(value_stride(shape) + 16) +
         static_cast<size_t>((num_queries + 15) / 16 * 16);
}

AttentionState state_at(float* floats, int32_t num_queries, const KvShape& shape) {
  float* sums = floats + static_cast<size_t>(num_queries) * static_cast<size_t>(value_stride(shape));
  return {.bases = sums + static_cast<size_t>(num_queries) * 16, .sums = sums, .acc = floats};
}

// Rows whose queries share one pass over the keys: many, for every pass converts the keys and values; fewer
// where threads would have too few pieces to share out evenly.
int32_t rows_together(const Attention& args, int32_t num_threads) {
  constexpr int32_t pieces_per_thread = 4;
  const int32_t num_kv_heads = args.kv->shape.num_kv_heads, group = args.num_heads / num_kv_heads;
  int64_t num_rows = 0;
  for (const KvSegment& segment : args.kv->segments) num_rows += segment.num_rows;
  const int64_t even = num_rows * num_kv_heads / (pieces_per_thread * num_threads);
  const int32_t most = std::max(1, max_queries / group), least = std::max(1, max_queries / 2 / group);
  return static_cast<int32_t>(std::clamp<int64_t>(even, least, most));
}

}  // namespace

void CpuBackend::list_attention_items(const Attention& args) {
  items_.clear();
  const int32_t rows = rows_together(args, threads_.size());
  const int32_t group = args.num_heads / args.kv->shape.num_kv_heads;
  const int32_t block_size = args.kv->shape.block_size;
  for (size_t s = 0; s < args.kv->segments.size(); ++s) {
    const KvSegment& segment = args.kv->segments[s];
    // Rows that read their own block in tail precision share a pass only with rows of that block.
    const bool by_block = encodes(*args.kv, segment, args.layer_in_group);
    // Head by head, whose keys stay in a cache for all rows. The last rows see most, and go first: so threads end
    // together.
    for (int32_t head = 0; head < args.kv->shape.num_kv_heads; ++head) {
      int32_t first_row = 0;
      for (int32_t end = segment.num_rows; end > 0; end = first_row) {
        const int32_t in_block = (segment.first_position + end - 1) % block_size + 1;
        first_row = std::max(0, end - (by_block ? std::min(rows, in_block) : rows));
        const int32_t first_position = segment.first_position + first_row;
        const int32_t first_seen = args.window > 0 ? std::max(0, first_position - args.window + 1) : 0;
        const int32_t last_seen = segment.first_position + end - 1;
        const int32_t first_span = first_seen / attention_span;
        items_.push_back({.segment = static_cast<int32_t>(s),
                          .first_row = first_row,
                          .num_rows = end - first_row,
                          .kv_head = head,
                          .first_span = first_span,
                          .num_spans = last_seen / attention_span - first_span + 1,
                          .num_queries = (end - first_row) * group});
      }
    }
  }
}

void CpuBackend::reserve_attention_scratch(const Attention& args) {
  const KvShape& shape = args.kv->shape;
  const int32_t group = args.num_heads / shape.num_kv_heads;
  const int32_t num_queries = rows_together(args, threads_.size()) * group;
  const auto head_dim = static_cast<size_t>(shape.head_dim), value_dim = static_cast<size_t>(shape.value_dim);
  size_t num_blocks = 0;
  for (const KvSegment& segment : args.kv->segments) num_blocks = std::max(num_blocks, segment.places.size());
  for (WorkerScratch& scratch : scratch_) {
    scratch.attention.reserve(attention_scratch(static_cast<size_t>(num_queries), head_dim, value_dim));
    scratch.states.reserve(2 * state_floats(num_queries, shape));
    scratch.blocks.reserve(num_blocks);
  }
}

AttentionTask CpuBackend::attention_task(const Attention& args, const AttentionItem& item, int32_t worker) {
  const KvShape& shape = args.kv->shape;
  const KvSegment& segment = args.kv->segments[static_cast<size_t>(item.segment)];
  const int32_t group = args.num_heads / shape.num_kv_heads;
  const int32_t row = segment.first_row + item.first_row;
  WorkerScratch& scratch = scratch_[static_cast<size_t>(worker)];
  return {.queries = args.qkv.row(row) + static_cast<int64_t>(item.kv_head) * group * shape.head_dim,
          .row_stride = args.qkv.width,
          .num_rows = item.num_rows,
          .group = group,
          .head_dim = shape.head_dim,
          .value_dim = shape.value_dim,
          .block_size = shape.block_size,
          .first_position = segment.first_position + item.first_row,
          .window = args.window,
          .scale = args.scale,
          .softcap = args.softcap,
          .blocks = scratch.blocks.data(),
          .first_block = 0,
          .sinks = args.sinks ? args.sinks + item.kv_head * group : nullptr,
          .upcoming = nullptr,
          .scratch = scratch.attention.data(),
          .output = args.output.row(row) + static_cast<int64_t>(item.kv_head) * group * shape.value_dim,
          .output_stride = args.output.width};
}

// First and last position of a span that some query of the item sees.
CpuBackend::SpanRange CpuBackend::span_range(const Attention& args, const AttentionItem& item, int32_t span) const {
  const KvSegment& segment = args.kv->segments[static_cast<size_t>(item.segment)];
  const int32_t first_row_position = segment.first_position + item.first_row;
  const int32_t span_begin = span * attention_span;
  return {.begin = args.window > 0 ? std::max(span_begin, first_row_position - args.window + 1) : span_begin,
          .end = std::min(span_begin + attention_span, first_row_position + item.num_rows)};
}

// The block of the item's rows, where they are all of one block.
int32_t CpuBackend::own_block(const Attention& args, const AttentionItem& item) const {
  const KvSegment& segment = args.kv->segments[static_cast<size_t>(item.segment)];
  return (segment.first_position + item.first_row) / args.kv->shape.block_size;
}

// The blocks of the first tile of a piece, for the kernel to fetch while it computes the piece before.
const BlockRef* CpuBackend::first_tile(const Attention& args, AttentionPiece piece, int32_t worker) {
  const AttentionItem& item = items_[static_cast<size_t>(piece.item)];
  const KvShape& shape = args.kv->shape;
  const KvSegment& segment = args.kv->segments[static_cast<size_t>(item.segment)];
  const int32_t tile_start = span_range(args, item, piece.span).begin / softmax_tile * softmax_tile;
  BlockRef* refs = scratch_[static_cast<size_t>(worker)].upcoming;
  for (int32_t i = 0; i * shape.block_size < softmax_tile; ++i) {
    const int32_t block = tile_start / shape.block_size + i - segment.first_block;
    const int32_t last = static_cast<int32_t>(segment.places.size()) - 1;
    refs[i] = block_ref(*args.kv, item.segment, segment.first_block + std::clamp(block, 0, last), own_block(args, item),
                        args.layer_in_group, item.kv_head);
  }
  return refs;
}

// What a piece contributes, in `out`. `next` is what the thread does afterwards; its item is -1 where that is unknown.
void CpuBackend::attend_piece(const Attention& args, AttentionPiece piece, AttentionPiece next, AttentionTask& task,
                              int32_t worker, const AttentionState& out) {
  const AttentionItem& item = items_[static_cast<size_t>(piece.item)];
  const KvShape& shape = args.kv->shape;
  const KvSegment& segment = args.kv->segments[static_cast<size_t>(item.segment)];
  const SpanRange range = span_range(args, item, piece.span);
  task.first_block = range.begin / shape.block_size;
  const int32_t last_block = (range.end - 1) / shape.block_size;
  TM_CHECK(task.first_block >= segment.first_block &&
               last_block - segment.first_block < static_cast<int32_t>(segment.places.size()),
           "every position that a query sees has a block");
  BlockRef* refs = scratch_[static_cast<size_t>(worker)].blocks.data();
  for (int32_t block = task.first_block; block <= last_block; ++block) {
    refs[block - task.first_block] =
        block_ref(*args.kv, item.segment, block, own_block(args, item), args.layer_in_group, item.kv_head);
  }
  task.upcoming = next.item >= 0 ? first_tile(args, next, worker) : nullptr;
  kernels_.attend(task, range.begin, range.end, out);
}

void CpuBackend::whole_item(const Attention& args, int32_t index, int32_t next_index, int32_t worker) {
  const AttentionItem& item = items_[static_cast<size_t>(index)];
  AttentionTask task = attention_task(args, item, worker);
  const KvShape& shape = args.kv->shape;
  float* floats = scratch_[static_cast<size_t>(worker)].states.data();
  const AttentionState state = state_at(floats, item.num_queries, shape);
  const AttentionState later = state_at(floats + state_floats(item.num_queries, shape), item.num_queries, shape);
  const int32_t end_span = item.first_span + item.num_spans;
  for (int32_t span = item.first_span; span < end_span; ++span) {
    AttentionPiece next = {index, span + 1};
    if (span + 1 == end_span) {
      next = {next_index, next_index >= 0 ? items_[static_cast<size_t>(next_index)].first_span : 0};
    }
    const bool first = span == item.first_span;
    attend_piece(args, {index, span}, next, task, worker, first ? state : later);
    if (!first) kernels_.merge(task, state, later);
  }
  kernels_.finish(task, state);
}

// Calls work(i, next) for the i that this thread gets, where it gets `next` afterwards; -1 = not known. Of several
// sequences the first pieces are of the first rows, which are the first worker's own in the products before and after.
template <typename Work>
void CpuBackend::claim_ahead(int32_t worker, Work&& work) {
  while (const WorkClaim::Share share = row_claim_.next(worker)) {
    for (int32_t i = share.first; i < share.end; ++i) work(i, i + 1 < share.end ? i + 1 : -1);
  }
}

void CpuBackend::attention_whole(const Attention& args) {
  const auto num_items = static_cast<int32_t>(items_.size());
  row_claim_.start(num_items);
  threads_.run([&](int32_t worker) {
    claim_ahead(worker, [&](int32_t index, int32_t next) { whole_item(args, index, next, worker); });
  });
}

// Few items over long contexts: their spans are shared out, then merged in the order that whole_item has.
void CpuBackend::attention_split(const Attention& args) {
  const KvShape& shape = args.kv->shape;
  pieces_.clear();
  size_t floats = 0;
  for (size_t i = 0; i < items_.size(); ++i) {
    AttentionItem& item = items_[i];
    item.first_state = floats;
    floats += state_floats(item.num_queries, shape) * static_cast<size_t>(item.num_spans);
    for (int32_t span = 0; span < item.num_spans; ++span) {
      pieces_.push_back({static_cast<int32_t>(i), item.first_span + span});
    }
  }
  states_.reserve(floats);
  const auto state_of = [&](const AttentionItem& item, int32_t span) {
    const size_t offset =
        item.first_state + state_floats(item.num_queries, shape) * static_cast<size_t>(span - item.first_span);
    return state_at(states_.data() + offset, item.num_queries, shape);
  };
  const auto num_pieces = static_cast<int32_t>(pieces_.size());
  const auto num_items = static_cast<int32_t>(items_.size());
  row_claim_.start(num_pieces);
  next_merge_.store(0, std::memory_order_relaxed);
  threads_.run([&](int32_t worker) {
    claim_ahead(worker, [&](int32_t index, int32_t next_index) {
      const AttentionPiece piece = pieces_[static_cast<size_t>(index)];
      const AttentionPiece next = next_index >= 0 ? pieces_[static_cast<size_t>(next_index)] : AttentionPiece{-1, 0};
      const AttentionItem& item = items_[static_cast<size_t>(piece.item)];
      AttentionTask task = attention_task(args, item, worker);
      attend_piece(args, piece, next, task, worker, state_of(item, piece.span));
    });
    threads_.barrier();
    for (int32_t index = next_merge_++; index < num_items; index = next_merge_++) {
      const AttentionItem& item = items_[static_cast<size_t>(index)];
      const AttentionTask task = attention_task(args, item, worker);
      const AttentionState state = state_of(item, item.first_span);
      for (int32_t i = 1; i < item.num_spans; ++i) kernels_.merge(task, state, state_of(item, item.first_span + i));
      kernels_.finish(task, state);
    }
  });
}

void CpuBackend::attention(const Attention& args) {
  const KvShape& shape = args.kv->shape;
  TM_CHECK(args.num_heads > 0 && args.num_heads % shape.num_kv_heads == 0, "query heads share KV heads evenly");
  TM_CHECK(shape.head_dim % 8 == 0 && shape.value_dim % 8 == 0 && shape.block_size % 16 == 0 &&
               softmax_tile % shape.block_size == 0,
           "heads are of whole 8 values, blocks of 16, 32 or 64 positions");
  TM_CHECK(args.output.width == args.num_heads * shape.value_dim, "attention's output has all heads");
  TM_CHECK(args.scale > 0, "scores keep their order when they are scaled");
  TraceLabel label = args.label;
  label.num_rows = args.output.num_rows;
  const TraceOperation traced(trace_, label);
  for (const KvSegment& segment : args.kv->segments) {
    TM_CHECK(!encodes(*args.kv, segment, args.layer_in_group) ||
                 (stored_view_ == args.kv && stored_layer_ == args.layer_in_group),
             "rows are stored before they are read");
  }
  list_attention_items(args);
  reserve_attention_scratch(args);
  const auto long_item = [](const AttentionItem& item) { return item.num_spans > 1; };
  const bool split = threads_.size() > 1 && items_.size() < 4 * static_cast<size_t>(threads_.size()) &&
                     std::any_of(items_.begin(), items_.end(), long_item);
  if (split) {
    attention_split(args);
  } else {
    attention_whole(args);
  }
}

}  // namespace tidemill::cpu
