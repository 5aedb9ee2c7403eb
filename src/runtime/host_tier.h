// The bytes of the host tier: copies of sealed blocks in plain memory, in slots by size class like the pool's.
//
// Which slot holds what is the engine's knowledge (kv/lower_tier.h); this class only has addresses. Address space for
// the whole budget is reserved per class, memory is taken when a slot is first written and given back by `drop`.
// The copies are plain, not compressed.
//
// Engine thread only. Owns its mappings.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/block_place.h"
#include "base/result.h"

namespace tidemill {

class HostTier {
 public:
  // class_bytes [num_classes]; 0 = the class is not used. An Error when the system does not give the address space.
  static Result<std::unique_ptr<HostTier>> make(size_t budget_bytes, std::vector<size_t> class_bytes);
  ~HostTier();
  HostTier(const HostTier&) = delete;
  HostTier& operator=(const HostTier&) = delete;

  std::span<std::byte> slot(BlockPlace place) const;
  void drop(BlockPlace place);

 private:
  HostTier() = default;
  std::vector<size_t> class_bytes_;
  std::vector<std::span<std::byte>> arenas_;  // by size class
};

}  // namespace tidemill
