// The bytes of the KV cache: one arena of slots per size class.
//
// The pool (kv/block_pool) decides which slot belongs to whom; this class turns ids into addresses and carries out the
// movements of a plan. Each arena reserves address space for as many slots as the whole budget could hold and takes
// memory only when a slot is first written, so the size classes share one budget without a fixed division: the pool
// keeps the sum within it and orders `drop` for slots whose memory another class needs.
//
// Engine thread only. Owns its mappings. Addresses stay valid for its lifetime.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/block_place.h"
#include "base/result.h"
#include "compute/backend.h"
#include "compute/paged_kv.h"
#include "engine/engine_config.h"
#include "engine/step_plan.h"
#include "model/model.h"
#include "runtime/kv_formats.h"

namespace tidemill {

// What the pool and the scheduler must know of a model's layer groups.
std::vector<BlockGroup> block_groups(const KvLayout& layout, int32_t block_size, const KvFormats& formats);

class KvStorage {
 public:
  // `usual` is format 0, `better` are those after it (engine/block_formats.h). An Error when the system does not give
  // the address space. The backend, which must outlive the storage, encodes; it is needed where a format does.
  static Result<std::unique_ptr<KvStorage>> make(const KvLayout& layout, int32_t block_size, const KvFormats& usual,
                                                 size_t budget_bytes, Backend* backend = nullptr,
                                                 std::span<const KvFormats> better = {});
  ~KvStorage();
  KvStorage(const KvStorage&) = delete;
  KvStorage& operator=(const KvStorage&) = delete;

  int32_t block_size() const { return block_size_; }
  // The arenas as kernels of one layer group see them, indexed by size class.
  std::span<const KvArena> arenas() const { return arenas_; }
  const KvShape& shape(size_t group) const { return shapes_[group]; }
  size_t num_groups() const { return shapes_.size(); }

  // Whether full blocks of some group are other bytes than their tails, in some format.
  bool encodes() const {
    return std::ranges::any_of(blocks_, [](const GroupBlocks& each) { return each.storage_class >= 0; });
  }
  // The class of a group's full blocks; -1 where they lie as their tails do.
  int32_t storage_class(KvFormatId format, size_t group) const { return blocks(format, group).storage_class; }
  // Size of the Hadamard matrices of a group's keys; 0 = none.
  int32_t hadamard(KvFormatId format, size_t group) const { return blocks(format, group).hadamard; }
  size_t num_formats() const { return blocks_.size() / shapes_.size(); }

  // The bytes of one block, of all layers of its group.
  std::span<std::byte> bytes_of(BlockPlace place) const { return {slot(place), arenas_[place.size_class].slot_bytes}; }
  // In order; seals that follow one another are shared out over the backend's threads.
  void move(std::span<const BlockMove> moves);
  void move(const BlockMove& one) { move({&one, 1}); }

 private:
  // The blocks of one layer group in one format.
  struct GroupBlocks {
    int32_t storage_class = -1;
    int32_t hadamard = 0;
    std::vector<KvLayerPart> parts;  // of full blocks
  };

  KvStorage() = default;
  const GroupBlocks& blocks(KvFormatId format, size_t group) const { return blocks_[format * shapes_.size() + group]; }
  Result<void> add_blocks(const KvLayerGroup& group, const KvFormats& formats, size_t budget_bytes);
  std::byte* slot(BlockPlace place) const;
  Result<void> add_arena(size_t slot_bytes, size_t budget_bytes, KvArena arena);
  void seal(std::span<const BlockMove> moves);

  int32_t block_size_ = 0;
  Backend* backend_ = nullptr;
  std::vector<KvShape> shapes_;              // by group
  std::vector<int32_t> num_layers_;          // by group
  std::vector<GroupBlocks> blocks_;          // [formats][groups]
  std::vector<KvSeals::Pair> sealed_pairs_;  // scratch
  std::vector<KvArena> arenas_;              // by size class
  std::vector<size_t> arena_bytes_;
};

}  // namespace tidemill
