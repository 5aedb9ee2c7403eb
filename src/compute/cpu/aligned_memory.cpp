#include "compute/cpu/aligned_memory.h"

#include <sys/mman.h>

#include <cstring>

namespace tidemill::cpu {

namespace {
constexpr size_t vector_bytes = 64;
constexpr size_t huge_page_bytes = size_t{2} << 20;
}  // namespace

AlignedMemory::AlignedMemory(size_t size_bytes) {
  const size_t alignment = size_bytes >= huge_page_bytes ? huge_page_bytes : vector_bytes;
  const size_t rounded = (size_bytes + alignment - 1) / alignment * alignment;
  if (rounded < size_bytes) return;
  const size_t allocated = rounded > 0 ? rounded : alignment;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, allocated)));
  if (!data_) return;
  // Advice only: without huge pages everything works, with more misses of the translation buffer.
  if (alignment == huge_page_bytes) madvise(data_.get(), allocated, MADV_HUGEPAGE);
  std::memset(data_.get(), 0, allocated);
  size_bytes_ = size_bytes;
}

}  // namespace tidemill::cpu
