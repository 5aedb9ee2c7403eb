// The bytes of the KV cache: one arena of slots per size class.
//
// The pool (kv/block_pool) decides which slot belongs to whom; this class turns ids into addresses and carries out the
// movements of a plan. Each arena reserves address space for as many slots as the whole budget could hold and takes
// memory only when a slot is first written, so the size classes share one budget without a fixed division: the pool
// keeps the sum within it and orders `drop` for slots whose memory another class needs.
//
// Engine thread only. Owns its mappings. Addresses stay valid for its lifetime.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/block_place.h"
#include "base/result.h"
#include "compute/paged_kv.h"
#include "engine/engine_config.h"
#include "engine/step_plan.h"
#include "model/model.h"

namespace tidemill {

// The formats of a cache: what a full block is stored in, and what the partly filled tail is kept in.
struct KvFormats {
  KvFormat sealed = KvFormat::fp16;
  KvFormat tail() const { return sealed; }  // every format of today is at least as wide as fp16
};

// What the pool and the scheduler must know of a model's layer groups.
std::vector<BlockGroup> block_groups(const KvLayout& layout, int32_t block_size, KvFormats formats);

class KvStorage {
 public:
  // An Error when the system does not give the address space.
  static Result<std::unique_ptr<KvStorage>> make(const KvLayout& layout, int32_t block_size, KvFormats formats,
                                                 size_t budget_bytes);
  ~KvStorage();
  KvStorage(const KvStorage&) = delete;
  KvStorage& operator=(const KvStorage&) = delete;

  int32_t block_size() const { return block_size_; }
  // The arenas as kernels of one layer group see them, indexed by size class.
  std::span<const KvArena> arenas() const { return arenas_; }
  const KvShape& shape(size_t group) const { return shapes_[group]; }
  size_t num_groups() const { return shapes_.size(); }

  void move(const BlockMove& move);

 private:
  KvStorage() = default;
  std::byte* slot(BlockPlace place) const;

  int32_t block_size_ = 0;
  std::vector<KvShape> shapes_;  // by group
  std::vector<KvArena> arenas_;  // by size class
  std::vector<size_t> arena_bytes_;
};

}  // namespace tidemill
