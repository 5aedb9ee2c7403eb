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
  // An Error when the system does not give the address space. The backend, which must outlive the storage, encodes; it
  // is needed where a format does.
  static Result<std::unique_ptr<KvStorage>> make(const KvLayout& layout, int32_t block_size, const KvFormats& formats,
                                                 size_t budget_bytes, Backend* backend = nullptr);
  ~KvStorage();
  KvStorage(const KvStorage&) = delete;
  KvStorage& operator=(const KvStorage&) = delete;

  int32_t block_size() const { return block_size_; }
  // The arenas as kernels of one layer group see them, indexed by size class.
  std::span<const KvArena> arenas() const { return arenas_; }
  const KvShape& shape(size_t group) const { return shapes_[group]; }
  size_t num_groups() const { return shapes_.size(); }

  // Whether full blocks of some group are other bytes than their tails.
  bool encodes() const {
    return std::ranges::any_of(storage_classes_, [](int32_t c) { return c >= 0; });
  }
  // The class of a group's full blocks; -1 where they lie as their tails do.
  int32_t storage_class(size_t group) const { return storage_classes_[group]; }
  // Size of the Hadamard matrices of a group's keys; 0 = none.
  int32_t hadamard(size_t group) const { return hadamard_[group]; }

  // The bytes of one block, of all layers of its group.
  std::span<std::byte> bytes_of(BlockPlace place) const { return {slot(place), arenas_[place.size_class].slot_bytes}; }
  // In order; seals that follow one another are shared out over the backend's threads.
  void move(std::span<const BlockMove> moves);
  void move(const BlockMove& one) { move({&one, 1}); }

 private:
  KvStorage() = default;
  std::byte* slot(BlockPlace place) const;
  Result<void> add_arena(size_t slot_bytes, size_t budget_bytes, KvArena arena);
  void seal(std::span<const BlockMove> moves);

  int32_t block_size_ = 0;
  Backend* backend_ = nullptr;
  std::vector<KvShape> shapes_;                  // by group
  std::vector<int32_t> num_layers_;              // by group
  std::vector<int32_t> storage_classes_;         // by group
  std::vector<int32_t> hadamard_;                // by group
  std::vector<std::vector<KvLayerPart>> parts_;  // by group, of full blocks where layers differ
  std::vector<KvSeals::Pair> sealed_pairs_;      // scratch
  std::vector<KvArena> arenas_;                  // by size class
  std::vector<size_t> arena_bytes_;
};

}  // namespace tidemill
