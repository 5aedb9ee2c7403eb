#include "compute/cpu/aligned_memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstring>

namespace tidemill::cpu {

namespace {

constexpr size_t vector_bytes = 64;
constexpr size_t huge_page_bytes = size_t{2} << 20;

// At a huge page's boundary. nullptr where the system refuses.
std::byte* map_huge(size_t size_bytes) {
  const size_t reserved = size_bytes + huge_page_bytes;
  if (reserved < size_bytes) return nullptr;
  void* base = mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  auto* begin = static_cast<std::byte*>(base);
  const size_t before = (huge_page_bytes - reinterpret_cast<uintptr_t>(base) % huge_page_bytes) % huge_page_bytes;
  if (before > 0) munmap(begin, before);
  munmap(begin + before + size_bytes, huge_page_bytes - before);
  // Advice only: without huge pages everything works, with more misses of the translation buffer.
  madvise(begin + before, size_bytes, MADV_HUGEPAGE);
  return begin + before;
}

}  // namespace

AlignedMemory::AlignedMemory(size_t size_bytes) {
  const bool large = size_bytes >= huge_page_bytes;
  const size_t alignment = large ? huge_page_bytes : vector_bytes;
  const size_t rounded = (size_bytes + alignment - 1) / alignment * alignment;
  if (rounded < size_bytes) return;
  if (large) {
    data_ = std::unique_ptr<std::byte, Free>(map_huge(rounded), Free{size_bytes, rounded});
  } else {
    const size_t allocated = rounded > 0 ? rounded : alignment;
    auto* data = static_cast<std::byte*>(std::aligned_alloc(alignment, allocated));
    if (data) std::memset(data, 0, allocated);
    data_ = std::unique_ptr<std::byte, Free>(data, Free{size_bytes, 0});
  }
  if (!data_) data_.get_deleter().size_bytes = 0;
}

void AlignedMemory::Free::operator()(std::byte* data) const {
  if (mapped_bytes > 0) {
    munmap(data, mapped_bytes);
  } else {
    std::free(data);
  }
}

}  // namespace tidemill::cpu
