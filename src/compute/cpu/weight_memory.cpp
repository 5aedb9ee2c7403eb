#include "compute/cpu/weight_memory.h"

#include <algorithm>

namespace tidemill::cpu {
namespace {
// What is not used of a chunk is address space without memory, but for a part of one huge page.
constexpr size_t chunk_bytes = size_t{64} << 20;
constexpr size_t alignment = 64;
}  // namespace

WeightArena::Piece WeightArena::take(size_t size_bytes) {
  const size_t rounded = (size_bytes + alignment - 1) / alignment * alignment;
  if (rounded < size_bytes) return {};
  if (!chunk_ || rounded > chunk_->size_bytes() - used_bytes_) {
    auto chunk = std::make_shared<AlignedMemory>(std::max(rounded, chunk_bytes));
    if (!chunk->data()) return {};
    chunk_ = std::move(chunk);
    used_bytes_ = 0;
  }
  const Piece piece{chunk_, chunk_->data() + used_bytes_};
  used_bytes_ += rounded;
  return piece;
}

}  // namespace tidemill::cpu
