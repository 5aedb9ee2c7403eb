// Where packed weights lie: in large pieces shared by many matrices, so that they are in huge pages however small a
// matrix is, or in a file that was mapped. With small pages only, a step of one row spends as long on translating
// addresses as on reading.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "compute/cpu/aligned_memory.h"

namespace tidemill::cpu {

// A matrix's bytes, aligned for the widest vectors, and what keeps them alive.
struct WeightMemory {
  std::shared_ptr<const void> owner;
  const std::byte* data = nullptr;
  size_t size_bytes = 0;
  std::span<const std::byte> bytes() const { return {data, size_bytes}; }
};

// Hands out memory piece after piece; a chunk is freed when the last of its pieces is. Contents are zero. One thread.
class WeightArena {
 public:
  struct Piece {
    std::shared_ptr<const void> owner;
    std::byte* data = nullptr;  // nullptr: there is no memory
  };
  Piece take(size_t size_bytes);

 private:
  std::shared_ptr<AlignedMemory> chunk_;
  size_t used_bytes_ = 0;
};

}  // namespace tidemill::cpu
