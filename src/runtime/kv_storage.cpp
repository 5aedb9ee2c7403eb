#include "runtime/kv_storage.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace tidemill {
namespace {

constexpr size_t page_bytes = 4096;

size_t round_up(size_t value, size_t unit) {
  return (value + unit - 1) / unit * unit;
}

size_t slot_bytes(const KvLayerGroup& group, int32_t block_size, KvFormat format) {
  KvShape shape = group.shape;
  shape.block_size = block_size;
  return shape.layer_bytes(format) * group.layers.size();
}

}  // namespace

std::vector<BlockGroup> block_groups(const KvLayout& layout, int32_t block_size, KvFormats formats) {
  std::vector<BlockGroup> groups;
  for (const KvLayerGroup& group : layout.groups)
    groups.push_back({.tail_bytes = slot_bytes(group, block_size, formats.tail()),
                      .sealed_bytes = slot_bytes(group, block_size, formats.sealed),
                      .same_format = formats.tail() == formats.sealed,
                      .window_tokens = group.window});
  return groups;
}

Result<std::unique_ptr<KvStorage>> KvStorage::make(const KvLayout& layout, int32_t block_size, KvFormats formats,
                                                   size_t budget_bytes) {
  std::unique_ptr<KvStorage> storage(new KvStorage);
  storage->block_size_ = block_size;
  for (const KvLayerGroup& group : layout.groups) {
    KvShape shape = group.shape;
    shape.block_size = block_size;
    storage->shapes_.push_back(shape);
    for (KvFormat format : {formats.tail(), formats.sealed}) {
      const size_t bytes_per_slot = slot_bytes(group, block_size, format);
      const size_t reserve = round_up(budget_bytes + bytes_per_slot, page_bytes);
      void* base = mmap(nullptr, reserve, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (base == MAP_FAILED)
        return error("the system refused {} bytes of address space for the KV cache: {}", reserve, strerror(errno));
      // A step walks through hundreds of megabytes in runs of a few pages; without large ones it waits for
      // translations.
      madvise(base, reserve, MADV_HUGEPAGE);
      storage->arenas_.push_back({.base = static_cast<std::byte*>(base),
                                  .slot_bytes = bytes_per_slot,
                                  .layer_bytes = shape.layer_bytes(format),
                                  .format = format});
      storage->arena_bytes_.push_back(reserve);
    }
  }
  return storage;
}

KvStorage::~KvStorage() {
  for (size_t i = 0; i < arenas_.size(); ++i) munmap(arenas_[i].base, arena_bytes_[i]);
}

std::byte* KvStorage::slot(BlockPlace place) const {
  TM_CHECK(place.size_class < arenas_.size(), "a block's size class exists");
  const KvArena& arena = arenas_[place.size_class];
  TM_CHECK((place.slot + size_t{1}) * arena.slot_bytes <= arena_bytes_[place.size_class],
           "a block's slot lies in its arena");
  return arena.base + place.slot * arena.slot_bytes;
}

void KvStorage::move(const BlockMove& move) {
  switch (move.kind) {
    case MoveKind::copy:
      TM_CHECK(move.from.size_class == move.to.size_class, "a copy keeps its format");
      std::memcpy(slot(move.to), slot(move.from), arenas_[move.from.size_class].slot_bytes);
      return;
    case MoveKind::drop: {
      // Only whole pages inside the slot can be given back; its neighbours share the pages at both ends.
      std::byte* begin = slot(move.from);
      const auto address = reinterpret_cast<uintptr_t>(begin);
      const uintptr_t first = round_up(address, page_bytes);
      const uintptr_t last = (address + arenas_[move.from.size_class].slot_bytes) / page_bytes * page_bytes;
      if (last > first) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
      return;
    }
    case MoveKind::seal:
      TM_CHECK(false, "formats of today are not re-encoded");
  }
}

}  // namespace tidemill
