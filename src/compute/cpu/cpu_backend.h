// The Backend of x86-64 processors: a pool of threads, the kernels of one instruction set, and the scratch of a step.
//
// Every operation hands its work to the threads piece by piece (panels of weights, rows, spans of keys). Which thread
// does which piece, and how the work is cut, never changes a result: pieces are independent, and what must be summed
// across pieces (partial attention) is summed in an order fixed by absolute positions.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "compute/backend.h"
#include "compute/cpu/aligned_memory.h"
#include "compute/cpu/kernels.h"
#include "compute/cpu/packed_matrix.h"

namespace tidemill::cpu {

// cos and sin of one step's positions, which all layers with the same frequencies share.
class RotaryTables {
 public:
  struct Table {
    const float* cos = nullptr;  // [rows, rotary_dim / 2]
    const float* sin = nullptr;
  };
  // Valid until the next call with other arguments for more than one step; computed at most once per step and kind.
  Table find(const Rotary& rotary, std::span<const int32_t> positions);

 private:
  struct Entry {
    std::vector<float> frequencies;
    std::vector<int32_t> positions;
    float attention_factor = 0;
    std::vector<float> cos;
    std::vector<float> sin;
  };
  bool matches(const Entry& entry, const Rotary& rotary, std::span<const int32_t> positions) const;

  // Models have at most two kinds of layers (local and global); the older entry is replaced.
  Entry entries_[2];
  int newest_ = 0;
};

class CpuBackend : public Backend {
 public:
  CpuBackend(const KernelTable& kernels, ThreadPoolOptions threads);

  // Before the first matrix: takes packed weights from the store, and writes them there at the end of loading where
  // packing took longer than `worth`.
  void use_packed_store(std::unique_ptr<PackedStore> store, std::chrono::milliseconds worth, uint64_t limit_bytes);

  std::string_view name() const override { return "cpu"; }
  std::string_view kernels() const override { return kernels_.name; }
  int32_t num_threads() const override { return threads_.size(); }

  Result<std::unique_ptr<Matrix>> load_matrix(std::span<const WeightPart> parts, MatrixLayout layout) override;
  bool wants_weights() const override { return !store_ || !store_->has_next(); }
  Result<void> end_loading() override;
  std::unique_ptr<Buffer> allocate(size_t num_floats) override;
  void embed(const Matrix& table, std::span<const TokenId> tokens, float scale, Rows output) override;
  void product(const Product& args) override;
  void rotate_and_store(const RotateAndStore& args) override;
  void attention(const Attention& args) override;
  void seal(const KvSeals& args) override;
  void normalize(Rows input, Norm norm, float scale, bool accumulate, Rows output) override;
  void gather_rows(Rows input, std::span<const int32_t> row_ids, Rows output) override;

 protected:
  void share_work(const char* name, int32_t count, void (*work)(void*, int32_t, int32_t), void* argument) override;

 private:
  // A share of attention: rows of one sequence, one KV head, some spans of positions.
  struct AttentionItem {
    int32_t segment;
    int32_t first_row;  // within the segment
    int32_t num_rows;
    int32_t kv_head;
    int32_t first_span;
    int32_t num_spans;
    int32_t num_queries;
    size_t first_state = 0;  // where its partial results begin in states_, where spans are split over threads
  };
  // One span of one item, which is what a kernel computes at once.
  struct AttentionPiece {
    int32_t item;
    int32_t span;
  };
  struct RowRange {
    int32_t first, end;
  };
  struct SpanRange {
    int32_t begin, end;
  };
  // Rows of one sequence whose positions lie in one block.
  struct RowRun {
    int32_t segment;
    int32_t first_row;
    int32_t num_rows;
  };
  // A block that gets rows in this step, in the layer at hand. Its own rows read it in tail precision, later ones as it
  // is stored.
  struct StepBlock {
    std::byte* tail;
    std::byte* stored;  // null: it lies in a tail slot, and no later row reads it in this step
  };
  // Those of a sequence.
  struct StepBlocks {
    KvBlockFormat format;  // of full blocks
    int32_t first_block;   // of step_blocks_[first]
    int32_t first;
  };
  struct Encoding {
    int32_t block;  // of step_blocks_
    int32_t segment;
  };
  struct WorkerScratch {
    Scratch<float> row;
    Scratch<float> attention;
    Scratch<float> states;
    Scratch<BlockRef> blocks;
    BlockRef upcoming[softmax_tile / 16];
  };

  // Calls work(i, worker) for i = 0 .. count - 1, on all threads where there is enough to share.
  template <typename Work>
  void for_each(int32_t count, Work&& work);

  void prepare_activation_row(const Product& args, const PackedMatrix& matrix, int32_t row, int32_t worker);
  bool leaves_pairs(const Product& args, const PackedMatrix& matrix) const;
  bool by_rows(int32_t num_rows) const;
  RowRange own_rows(int32_t num_rows, int32_t worker) const;
  ProductTask product_task(const Product& args, const PackedMatrix& matrix, size_t part, RowRange rows) const;
  void product_share(WorkClaim& claim, const PackedMatrix& matrix, int32_t worker);

  void store_run(const RotateAndStore& args, const RowRun& run, const RotaryTables::Table& table);
  void list_step_blocks(const KvGroupView& kv, int32_t layer);
  std::byte* add_step_blocks(const KvGroupView& kv, int32_t segment, int32_t layer, std::byte* scratch);
  void encode_side(const KvShape& shape, KvBlockFormat format, const std::byte* from, std::byte* to, int32_t side);
  void encode_step_blocks(const KvGroupView& kv);
  // Whether some blocks of the segment are not read as they lie.
  bool encodes(const KvGroupView& kv, const KvSegment& segment, int32_t layer) const {
    return segment.storage_class >= 0 &&
           kv.arenas[static_cast<size_t>(segment.storage_class)].layer_format(layer).encoded();
  }
  // Block `block` of the segment as rows in `own_block` read it.
  BlockRef block_ref(const KvGroupView& kv, int32_t segment, int32_t block, int32_t own_block, int32_t layer,
                     int32_t kv_head) const;

  void list_attention_items(const Attention& args);
  void reserve_attention_scratch(const Attention& args);
  AttentionTask attention_task(const Attention& args, const AttentionItem& item, int32_t worker);
  SpanRange span_range(const Attention& args, const AttentionItem& item, int32_t span) const;
  int32_t own_block(const Attention& args, const AttentionItem& item) const;
  const BlockRef* first_tile(const Attention& args, AttentionPiece piece, int32_t worker);
  void attend_piece(const Attention& args, AttentionPiece piece, AttentionPiece next, AttentionTask& task,
                    int32_t worker, const AttentionState& out);
  void whole_item(const Attention& args, int32_t index, int32_t next_index, int32_t worker);
  template <typename Work>
  void claim_ahead(int32_t worker, Work&& work);
  void attention_whole(const Attention& args);
  void attention_split(const Attention& args);

  const KernelTable& kernels_;
  StepTrace* const trace_;
  ThreadPool threads_;
  WorkClaim claim_;      // of panels, by memory node
  WorkClaim row_claim_;  // of what goes by rows: each worker has its own first
  const bool several_nodes_;
  WeightArena arena_;
  std::unique_ptr<PackedStore> store_;  // while loading
  std::chrono::steady_clock::duration packing_time_{};
  std::chrono::milliseconds packing_worth_{};
  uint64_t packed_limit_bytes_ = 0;
  std::vector<WorkerScratch> scratch_;  // one per worker
  std::atomic<int32_t> next_merge_{0};  // of attention that nobody has merged yet
  Scratch<ActBlock> act_blocks_;
  Scratch<float> act_floats_;
  Scratch<uint16_t> act_pairs_;
  Scratch<uint16_t> next_pairs_;         // of the next product, where the last one left them
  const Matrix* next_reader_ = nullptr;  // whose product that is; null = nothing was left
  std::vector<ProductTask> product_tasks_;
  RotaryTables rotary_;
  std::vector<RowRun> runs_;
  // Of the last rotate_and_store.
  const KvGroupView* stored_view_ = nullptr;
  int32_t stored_layer_ = -1;
  std::vector<StepBlocks> step_segments_;  // by segment
  std::vector<StepBlock> step_blocks_;
  std::vector<Encoding> to_encode_;
  Scratch<std::byte> kv_scratch_;
  std::vector<AttentionItem> items_;
  std::vector<AttentionPiece> pieces_;  // of split attention
  Scratch<float> states_;
};

template <typename Work>
void CpuBackend::for_each(int32_t count, Work&& work) {
  if (count <= 1 || threads_.size() == 1) {
    for (int32_t i = 0; i < count; ++i) work(i, 0);
    return;
  }
  row_claim_.start(count);
  threads_.run([&](int32_t worker) {
    // Neighbours go to one thread: the keys of consecutive positions lie in the same lines.
    while (const WorkClaim::Share share = row_claim_.next(worker)) {
      for (int32_t i = share.first; i < share.end; ++i) work(i, worker);
    }
  });
}

}  // namespace tidemill::cpu
