// What one step will do, and what came of it: plain values that cross between scheduler and executor.
//
// A plan describes a new or resumed sequence in full and a running one by what changed, so nothing of the size of a
// context is copied per step. Rows come in the order of `sequences`; within a sequence they ascend in position. Every
// movement of KV bytes is an entry of `moves`, carried out before the rows run. A plan can be written down and read
// back (engine/plan_json.h).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/block_place.h"
#include "base/token.h"
#include "engine/engine_config.h"
#include "kv/block_hash.h"
#include "sampling/divergence.h"
#include "sampling/sampler.h"
#include "sampling/sampling_params.h"

namespace tidemill {

// An executor's place for one sequence's state: 0 <= slot < max_num_seqs. Given out by the scheduler; a slot that a
// plan lists in `ended` may be used again in the same plan.
using SlotId = int32_t;

// The change of one block table, in one layer group.
struct TableChange {
  int32_t num_dropped = 0;           // leading blocks that a windowed group gave back since the last plan
  std::vector<BlockPlace> appended;  // new blocks at the end; for a starting sequence the whole table ...
  int32_t first_block = 0;           // ... and the index of its first block (starting sequences only)
};

// All that the executor must know of a sequence that it does not know yet.
struct SequenceStart {
  std::vector<TokenId> tokens;  // prompt and what was generated before a preemption
  int32_t num_prompt_tokens = 0;
  SamplingParams sampling;
  KvFormatId kv_format = 0;  // of all its blocks
};

// What becomes of the whole distributions of a sequence's rows: they are kept as the reference, or each is compared
// with the row of the same position that an earlier plan (of this executor or of one that shares its kept rows) kept.
enum class RowUse : uint8_t { none, keep, compare };

struct PlannedSequence {
  SlotId slot = 0;
  std::optional<SequenceStart> start;
  std::vector<TokenId> new_tokens;  // accepted since the last plan (not for a starting sequence)
  int32_t first_position = 0;       // rows computed now: [first_position, first_position + num_rows)
  int32_t num_rows = 0;
  std::vector<TableChange> tables;  // one per layer group
  // What is wanted back.
  bool draw = false;  // the token that follows the last row
  // For every row whose following token is known: that token's log-probability and the k best; -1 = none.
  int32_t prompt_logprobs = -1;
  // Of the rows from first_used_position on. Logits never leave the executor: what comes back is the divergence.
  RowUse use = RowUse::none;
  int32_t first_used_position = 0;
};

enum class MoveKind : uint8_t { copy, seal, drop, spill, fetch, drop_host, reencode };
inline constexpr size_t num_move_kinds = 7;

// One movement of KV bytes. copy: from -> to. seal: encode tail `from` into storage slot `to`. reencode: the same of a
// full block `from`, which is kept in tail precision. drop: give the memory of `from` back to the system. spill: from
// the pool into slot `to` of the host tier. fetch: from slot `from` of the host tier into the pool. drop_host: give the
// memory of slot `from` of the host tier back. The slots of a tier have size classes as the pool's.
struct BlockMove {
  MoveKind kind = MoveKind::copy;
  int32_t group = 0;
  BlockPlace from;
  BlockPlace to;
  bool operator==(const BlockMove&) const = default;
};

enum class DiskMoveKind : uint8_t { store, load, drop };

// A movement to or from the disk. It runs beside the steps, after everything before it; both places stay reserved until
// the executor tells its end (Executor::take_disk_ends), in the order of the plans. store: `memory`, a sealed block of
// the pool, to `disk`. load: the other way; it fails unless exactly this content lies there unharmed. drop: gives the
// space of `disk` back, and has no end.
struct DiskMove {
  DiskMoveKind kind = DiskMoveKind::store;
  int32_t group = 0;
  BlockPlace memory, disk;
  BlockHash hash;
  std::vector<TokenId> tokens;  // [block_size]
  uint32_t owner = 0;           // opaque label of whose it is, which is kept with it
  bool operator==(const DiskMove&) const = default;
};

// How a store or a load ended.
struct DiskEnd {
  bool ok = false;
  uint64_t bytes = 0;
  int64_t duration_ns = 0;
};

struct StepPlan {
  uint64_t step = 0;
  std::vector<SlotId> ended;  // sequences that the executor may forget (finished, cancelled, preempted)
  std::vector<BlockMove> moves;
  std::vector<DiskMove> disk_moves;  // handed on after `moves`
  std::vector<PlannedSequence> sequences;
  int32_t num_rows() const {
    int32_t total = 0;
    for (const PlannedSequence& sequence : sequences) total += sequence.num_rows;
    return total;
  }
};

struct SequenceResult {
  std::optional<Draw> draw;
  std::vector<Draw> prompt_logprobs;       // one per row whose following token was known, in order
  std::vector<RowDivergence> divergences;  // one per compared row, in order
};

struct MoveTotals {
  uint64_t num_blocks = 0, bytes = 0;
  int64_t duration_ns = 0;
  void add(const MoveTotals& more) {
    num_blocks += more.num_blocks;
    bytes += more.bytes;
    duration_ns += more.duration_ns;
  }
};

struct StepResult {
  std::vector<SequenceResult> sequences;           // in the plan's order
  std::array<MoveTotals, num_move_kinds> moves{};  // carried out, by MoveKind; copies to and from tiers at least
  int64_t duration_ns = 0;
};

}  // namespace tidemill
