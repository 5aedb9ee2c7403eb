// An executor without a model: it keeps what a real one would keep, checks every plan against it, and invents tokens.
//
// In the place of KV it remembers which token was written at which position of which block, and under which history: a
// row's entry is a digest of all tokens up to it. A row that runs reads the entries of every position it may look at
// through its own table and compares them with its sequence's tokens. So a wrong table, a stale prefix hit, a lost
// copy, a block used twice or a window cut too short stops the process at the step in which it happens.
//
// Drawn tokens are a function of the sequence's tokens and its seed (greedy: of the tokens alone), so that a doubled,
// missing or foreign token changes everything after it. A script may fix them instead.
// Time is a cost model on a virtual clock; without a clock no time passes. Used by the engine thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/block_formats.h"
#include "engine/engine_config.h"
#include "engine/executor.h"
#include "sim/cost_model.h"
#include "sim/virtual_clock.h"

namespace tidemill {

struct SimulatedOptions {
  int32_t vocab_size = 1000;
  CostModel cost = {};
  VirtualClock* clock = nullptr;
  // The token after `tokens` (prompt and output), or nothing to have one invented.
  std::function<std::optional<TokenId>(std::span<const TokenId> tokens, int32_t num_prompt_tokens,
                                       const SamplingParams& sampling)>
      script = nullptr;
  // Whether the nth movement to or from the disk fails.
  std::function<bool(uint64_t number, const DiskMove& move)> disk_fails = nullptr;
  // Sees every plan and its result, for tests that look at schedules.
  std::function<void(const StepPlan& plan, const StepResult& result)> observer = nullptr;
};

class SimulatedExecutor final : public Executor {
 public:
  SimulatedExecutor(const EngineConfig& config, SimulatedOptions options);
  StepResult execute(const StepPlan& plan) override;
  void take_disk_ends(std::vector<DiskEnd>& ends) override;

 private:
  struct Table {
    int32_t first_block = 0;
    std::vector<BlockPlace> places;
  };
  struct State {
    bool live = false;
    std::vector<TokenId> tokens;
    std::vector<uint64_t> digests;  // [tokens.size()]: of tokens[0..i]
    int32_t num_prompt_tokens = 0;
    SamplingParams sampling;
    KvFormatId kv_format = 0;
    std::vector<Table> tables;
  };
  // Contents of a block: the digest at each of its positions; 0 = nothing there.
  using Shadow = std::vector<uint64_t>;

  void move(const BlockMove& move);
  void move_to_host(const BlockMove& move);
  void move_disk(const DiskMove& move);
  void update(const PlannedSequence& planned);
  void write_rows(const PlannedSequence& planned);
  void check_reads(const PlannedSequence& planned) const;
  SequenceResult draw(const PlannedSequence& planned) const;
  Draw invent(const State& state, size_t num_tokens) const;
  void add_token(State& state, TokenId token) const;
  BlockPlace place_of(const State& state, int32_t group, int32_t position) const;
  Shadow& shadow(BlockPlace place);
  size_t bytes_of(BlockPlace place) const;

  EngineConfig config_;
  BlockFormats formats_;
  SimulatedOptions options_;
  uint64_t last_step_ = 0;
  std::vector<State> states_;                     // by slot
  std::unordered_map<uint64_t, Shadow> shadows_;  // by place
  struct Record {
    DiskMove move;
    Shadow shadow;
  };
  std::unordered_map<uint64_t, Record> disk_;  // by place on disk
  std::vector<DiskEnd> new_ends_;
  uint64_t num_disk_moves_ = 0;
  std::unordered_map<uint64_t, Shadow> host_;  // by place in the host tier
};

}  // namespace tidemill
