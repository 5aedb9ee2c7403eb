#include "runtime/tier_moves.h"

#include <chrono>
#include <cstring>

#include "base/check.h"

namespace tidemill {
namespace {

bool is_inside_pool(const BlockMove& move) {
  return move.kind == MoveKind::copy || move.kind == MoveKind::seal || move.kind == MoveKind::drop ||
         move.kind == MoveKind::reencode;
}

size_t bytes_of(std::span<const BlockMove> moves, const KvStorage& storage) {
  size_t bytes = 0;
  for (const BlockMove& move : moves) bytes += storage.bytes_of(move.to).size();
  return bytes;
}

size_t copy(std::span<const std::byte> from, std::span<std::byte> to) {
  TM_CHECK(from.size() == to.size(), "a copy keeps its size");
  std::memcpy(to.data(), from.data(), from.size());
  return from.size();
}

}  // namespace

void carry_out(std::span<const BlockMove> moves, KvStorage& storage, HostTier* host, StepResult& result) {
  for (size_t i = 0; i < moves.size(); ++i) {
    const BlockMove& move = moves[i];
    const bool reencodes = move.kind == MoveKind::reencode;
    size_t end = i;
    while (end < moves.size() && is_inside_pool(moves[end]) && (moves[end].kind == MoveKind::reencode) == reencodes)
      ++end;
    if (end > i) {
      const auto begin = std::chrono::steady_clock::now();
      const std::span<const BlockMove> inside = moves.subspan(i, end - i);
      storage.move(inside);
      const auto took = std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count();
      if (reencodes)
        result.moves[static_cast<size_t>(MoveKind::reencode)].add({end - i, bytes_of(inside, storage), took});
      i = end - 1;
      continue;
    }
    TM_CHECK(host != nullptr, "only what has a host tier moves there");
    if (move.kind == MoveKind::drop_host) {
      host->drop(move.from);
      continue;
    }
    const auto begin = std::chrono::steady_clock::now();
    const bool out = move.kind == MoveKind::spill;
    MoveTotals& totals = result.moves[static_cast<size_t>(move.kind)];
    totals.bytes += out ? copy(storage.bytes_of(move.from), host->slot(move.to))
                        : copy(host->slot(move.from), storage.bytes_of(move.to));
    ++totals.num_blocks;
    totals.duration_ns += std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count();
  }
}

void begin_disk_moves(std::span<const DiskMove> moves, const KvStorage& storage, DiskFile* disk) {
  TM_CHECK(moves.empty() || disk != nullptr, "only what has a disk tier moves there");
  for (const DiskMove& move : moves) {
    disk->begin(move, move.kind == DiskMoveKind::drop ? std::span<std::byte>() : storage.bytes_of(move.memory));
  }
}

}  // namespace tidemill
