#include "runtime/host_tier.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace tidemill {
namespace {

constexpr size_t page_bytes = 4096;

}  // namespace

Result<std::unique_ptr<HostTier>> HostTier::make(size_t budget_bytes, std::vector<size_t> class_bytes) {
  std::unique_ptr<HostTier> tier(new HostTier);
  tier->class_bytes_ = std::move(class_bytes);
  for (size_t bytes : tier->class_bytes_) {
    tier->arenas_.emplace_back();
    if (bytes == 0 || bytes > budget_bytes) continue;
    void* base =
        mmap(nullptr, budget_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
      return error("the system refused {} bytes of address space for --kv-host-bytes: {}", budget_bytes,
                   strerror(errno));
    madvise(base, budget_bytes, MADV_HUGEPAGE);
    tier->arenas_.back() = {static_cast<std::byte*>(base), budget_bytes};
  }
  return tier;
}

HostTier::~HostTier() {
  for (std::span<std::byte> arena : arenas_) {
    if (!arena.empty()) munmap(arena.data(), arena.size());
  }
}

std::span<std::byte> HostTier::slot(BlockPlace place) const {
  TM_CHECK(place.size_class < arenas_.size(), "a tier's size class exists");
  const size_t bytes = class_bytes_[place.size_class];
  TM_CHECK((place.slot + size_t{1}) * bytes <= arenas_[place.size_class].size(), "a tier's slot lies in its arena");
  return arenas_[place.size_class].subspan(place.slot * bytes, bytes);
}

void HostTier::drop(BlockPlace place) {
  // Only whole pages inside the slot: its neighbours share the pages at both ends.
  const std::span<std::byte> bytes = slot(place);
  const auto address = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t first = (address + page_bytes - 1) / page_bytes * page_bytes;
  const uintptr_t last = (address + bytes.size()) / page_bytes * page_bytes;
  if (last > first) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace tidemill
