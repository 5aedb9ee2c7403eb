// One generation, and the request it belongs to, while they live in the engine.
//
// A sequence is ready to draw when everything it knows is computed but the last token: prefill, chunks, prefix hits,
// decoding and resumption are the one idea "num_computed runs after tokens.size()". Owned by the engine thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/token.h"
#include "engine/request.h"
#include "engine/step_plan.h"
#include "kv/block_hash.h"
#include "kv/block_table.h"

namespace tidemill {

struct LiveRequest;

enum class SequenceStatus : uint8_t {
  waiting,  // holds nothing
  running,  // holds a slot and blocks
  finished,
};

struct Sequence {
  LiveRequest* request = nullptr;
  int32_t choice = 0;
  SequenceStatus status = SequenceStatus::waiting;
  std::vector<TokenId> tokens;  // prompt, then output
  SamplingParams sampling;      // with this choice's own seed
  int32_t num_prompt_tokens = 0;
  int64_t max_output_tokens = 0;  // after clamping to the context length

  // Computed positions are [0, num_computed); their KV is in the tables.
  int32_t num_computed = 0;
  int32_t num_ever_computed = 0;     // the most that was ever computed; below it lies recomputation
  std::vector<BlockTable> tables;    // [num_groups]
  std::vector<BlockHash> hashes;     // of the full blocks of tokens, as far as they were needed
  int32_t num_reencoded_blocks = 0;  // of its hit: what is computed after them is its own
  int32_t num_entered_blocks = 0;    // leading blocks that were offered to the prefix cache

  // What the executor knows. Its tables hold blocks [told_first, told_end) per group.
  SlotId slot = -1;
  bool started = false;
  int32_t num_told_tokens = 0;
  std::vector<int32_t> told_first, told_end;

  // Scheduling.
  bool admitted_before = false;      // preempted, or a choice of a running request: to the front of the queue
  bool drew_since_admission = true;  // false from a preemption until the next token
  int32_t num_preemptions = 0;
  uint64_t last_step = 0;  // in which it had rows
  // Of the step at hand: who computes a block that this waiting one needs next, and what a running one is served as
  // because better ones wait for its blocks.
  Sequence* leader = nullptr;
  LatencyClass inherited_class = LatencyClass::bulk;
  int32_t inherited_priority = std::numeric_limits<int32_t>::max();
  // Of the disk tier: whether it was asked for this sequence's prefix, and how many loads must have ended before the
  // sequence goes on.
  bool asked_disk = false;
  uint64_t loads_end = 0;
  int32_t num_loads = 0;
  std::optional<Clock::Time> disk_wait_since;  // some of its loads have not ended yet
  double disk_wait_s = 0;                      // waited for those that have
  size_t promised_bytes = 0;                   // of blocks it may still claim until it has drawn a token

  // Time.
  std::optional<Clock::Time> first_token_time, last_token_time;
  double gap_sum_s = 0, gap_square_sum = 0;
  int64_t num_counted_tokens = 0;  // in generation_tokens

  int32_t num_tokens() const { return static_cast<int32_t>(tokens.size()); }
  int32_t num_output_tokens() const { return num_tokens() - num_prompt_tokens; }
  int32_t num_remaining() const { return num_tokens() - num_computed; }
};

struct LiveRequest {
  RequestId id = 0;
  Request request;     // its prompt moves into the sequences
  uint64_t order = 0;  // of arrival
  Clock::Time arrival{};
  std::optional<Clock::Time> deadline, queue_deadline;
  int32_t num_prompt_tokens = 0;
  BlockHash root;                                  // of its prefix blocks
  uint32_t owner = 0;                              // opaque label of whose they are
  uint64_t resize_epoch = 0;                       // changes of the budget before it came
  int32_t num_pinned_tokens = -1;                  // -1 = not asked for, or not yet
  std::optional<BlockHash> promised_pin;           // that has room, as long as it is not yet there
  std::vector<std::unique_ptr<Sequence>> choices;  // [0] at once; the others when the prompt is computed
  int32_t num_running_choices = 0;
  int32_t num_open_choices = 0;  // without a terminal event yet
  bool in_batch = false;         // BatchingMode::fixed: member of the running batch

  std::optional<Clock::Time> first_scheduled;
  bool queued = true;  // counted in the queue limits
  bool waited_for_prefix = false;
  int32_t num_cached_tokens = 0;
  int32_t num_recomputed_tokens = 0;
  int32_t num_fetched_tokens = 0;     // found in a tier below the pool
  int32_t num_reencoded_tokens = 0;   // found in blocks that were encoded anew, smaller
  std::vector<Draw> prompt_logprobs;  // for prompt tokens 1 .. size
  bool prompt_logprobs_sent = false;

  bool wants_prompt_logprobs() const { return request.prompt_logprobs >= 0; }
  bool choices_unborn() const { return static_cast<int32_t>(choices.size()) < request.num_choices; }
};

}  // namespace tidemill
