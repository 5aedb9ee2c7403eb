#include "runtime/kv_storage.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace tidemill {
namespace {

constexpr size_t page_bytes = 4096;

size_t round_up(size_t value, size_t unit) {
  return (value + unit - 1) / unit * unit;
}

KvShape shape_of(const KvLayerGroup& group, int32_t block_size) {
  KvShape shape = group.shape;
  shape.block_size = block_size;
  return shape;
}

size_t tail_slot_bytes(const KvLayerGroup& group, int32_t block_size, const KvFormats& formats) {
  return shape_of(group, block_size).layer_bytes(formats.tail()) * group.layers.size();
}

size_t sealed_slot_bytes(const KvLayerGroup& group, int32_t block_size, const KvFormats& formats) {
  size_t bytes = 0;
  for (int32_t layer : group.layers) {
    bytes += shape_of(group, block_size).layer_bytes(formats.of_layer(group, layer));
  }
  return bytes;
}

bool is_encoded(const KvLayerGroup& group, const KvFormats& formats) {
  return std::ranges::any_of(group.layers, [&](int32_t layer) { return formats.of_layer(group, layer).encoded(); });
}

std::vector<KvLayerPart> parts_of(const KvLayerGroup& group, const KvShape& shape, const KvFormats& formats) {
  std::vector<KvLayerPart> parts;
  size_t offset = 0;
  for (int32_t layer : group.layers) {
    const KvBlockFormat format = formats.of_layer(group, layer);
    parts.push_back({offset, format});
    offset += shape.layer_bytes(format);
  }
  return parts;
}

// The largest power of two that divides a key.
int32_t hadamard_size(int32_t head_dim) {
  return head_dim & -head_dim;
}

bool writes_to(std::span<const BlockMove> moves, BlockPlace place) {
  return std::any_of(moves.begin(), moves.end(), [&](const BlockMove& move) {
    return move.to.size_class == place.size_class && move.to.slot == place.slot;
  });
}

}  // namespace

std::vector<BlockGroup> block_groups(const KvLayout& layout, int32_t block_size, const KvFormats& formats) {
  std::vector<BlockGroup> groups;
  for (const KvLayerGroup& group : layout.groups)
    groups.push_back({.tail_bytes = tail_slot_bytes(group, block_size, formats),
                      .sealed_bytes = sealed_slot_bytes(group, block_size, formats),
                      .same_format = !is_encoded(group, formats),
                      .window_tokens = group.window});
  return groups;
}

Result<void> KvStorage::add_arena(size_t slot_bytes, size_t budget_bytes, KvArena arena) {
  const size_t reserve = round_up(budget_bytes + slot_bytes, page_bytes);
  void* base = mmap(nullptr, reserve, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED)
    return error("the system refused {} bytes of address space for the KV cache: {}", reserve, strerror(errno));
  // A step walks through hundreds of megabytes in runs of a few pages; without large ones it waits for translations.
  madvise(base, reserve, MADV_HUGEPAGE);
  arena.base = static_cast<std::byte*>(base);
  arena.slot_bytes = slot_bytes;
  arenas_.push_back(arena);
  arena_bytes_.push_back(reserve);
  return {};
}

// A class of tails, and one of full blocks, which takes no address space where those lie as their tails do.
Result<void> KvStorage::add_blocks(const KvLayerGroup& group, const KvFormats& formats, size_t budget_bytes) {
  const KvShape shape = shape_of(group, block_size_);
  const bool encoded = is_encoded(group, formats);
  TM_CHECK(!encoded || backend_ != nullptr, "who encodes blocks has a backend for it");
  blocks_.push_back({.storage_class = encoded ? static_cast<int32_t>(arenas_.size()) + 1 : -1,
                     .hadamard = formats.rotate ? hadamard_size(shape.head_dim) : 0,
                     .parts = parts_of(group, shape, formats)});
  const KvArena tail = {.layer_bytes = shape.layer_bytes(formats.tail()), .format = formats.tail()};
  Result<void> made = add_arena(tail_slot_bytes(group, block_size_, formats), budget_bytes, tail);
  if (!made) return made;
  if (encoded) {
    const KvArena sealed = {.format = formats.sealed, .parts = blocks_.back().parts};
    return add_arena(sealed_slot_bytes(group, block_size_, formats), budget_bytes, sealed);
  }
  arenas_.emplace_back();
  arena_bytes_.push_back(0);
  return {};
}

Result<std::unique_ptr<KvStorage>> KvStorage::make(const KvLayout& layout, int32_t block_size, const KvFormats& usual,
                                                   size_t budget_bytes, Backend* backend,
                                                   std::span<const KvFormats> better) {
  std::unique_ptr<KvStorage> storage(new KvStorage);
  storage->block_size_ = block_size;
  storage->backend_ = backend;
  storage->blocks_.reserve((1 + better.size()) * layout.groups.size());
  for (const KvLayerGroup& group : layout.groups) {
    storage->shapes_.push_back(shape_of(group, block_size));
    storage->num_layers_.push_back(static_cast<int32_t>(group.layers.size()));
  }
  for (size_t format = 0; format <= better.size(); ++format) {
    const KvFormats& formats = format == 0 ? usual : better[format - 1];
    for (const KvLayerGroup& group : layout.groups) {
      if (Result<void> made = storage->add_blocks(group, formats, budget_bytes); !made) return made.error();
    }
  }
  return storage;
}

KvStorage::~KvStorage() {
  for (size_t i = 0; i < arenas_.size(); ++i) {
    if (arena_bytes_[i] > 0) munmap(arenas_[i].base, arena_bytes_[i]);
  }
}

std::byte* KvStorage::slot(BlockPlace place) const {
  TM_CHECK(place.size_class < arenas_.size() && arena_bytes_[place.size_class] > 0, "a block's size class is used");
  const KvArena& arena = arenas_[place.size_class];
  TM_CHECK((place.slot + size_t{1}) * arena.slot_bytes <= arena_bytes_[place.size_class],
           "a block's slot lies in its arena");
  return arena.base + place.slot * arena.slot_bytes;
}

void KvStorage::seal(std::span<const BlockMove> moves) {
  const auto group = static_cast<size_t>(moves.front().group);
  TM_CHECK(group < shapes_.size() && backend_ != nullptr, "blocks of a group that is encoded are sealed");
  sealed_pairs_.clear();
  for (const BlockMove& move : moves) {
    slot(move.from);  // checks both
    slot(move.to);
    sealed_pairs_.push_back({move.from, move.to});
  }
  backend_->seal(
      {.shape = shapes_[group], .arenas = arenas_, .num_layers = num_layers_[group], .pairs = sealed_pairs_});
}

void KvStorage::move(std::span<const BlockMove> moves) {
  for (size_t i = 0; i < moves.size();) {
    const BlockMove& move = moves[i];
    size_t end = i + 1;
    switch (move.kind) {
      case MoveKind::copy:
        TM_CHECK(move.from.size_class == move.to.size_class, "a copy keeps its format");
        std::memcpy(slot(move.to), slot(move.from), arenas_[move.from.size_class].slot_bytes);
        break;
      case MoveKind::drop: {
        // Only whole pages inside the slot can be given back; its neighbours share the pages at both ends.
        std::byte* begin = slot(move.from);
        const auto address = reinterpret_cast<uintptr_t>(begin);
        const uintptr_t first = round_up(address, page_bytes);
        const uintptr_t last = (address + arenas_[move.from.size_class].slot_bytes) / page_bytes * page_bytes;
        if (last > first) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
        break;
      }
      case MoveKind::seal:
      case MoveKind::reencode:
        // What is read and what is written are of different classes, so seals don't wait for one another; but for those
        // into one place, which a preemption within a plan may have freed and given away again.
        while (end < moves.size() && moves[end].kind == move.kind && moves[end].group == move.group &&
               !writes_to(moves.subspan(i, end - i), moves[end].to)) {
          ++end;
        }
        seal(moves.subspan(i, end - i));
        break;
      case MoveKind::spill:
      case MoveKind::fetch:
      case MoveKind::drop_host:
        TM_CHECK(false, "what concerns a lower tier is carried out by runtime/tier_moves");
    }
    i = end;
  }
}

}  // namespace tidemill
