#include "bench/batch_run.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "bench/random_source.h"
#include "bench/statistics.h"
#include "engine/block_formats.h"
#include "engine/step_plan.h"

namespace tidemill {
namespace {

using std::chrono::steady_clock;

double seconds_since(steady_clock::time_point start) {
  return std::chrono::duration<double>(steady_clock::now() - start).count();
}

int32_t blocks_of(const EngineConfig& config, BatchShape shape) {
  return (shape.prompt_tokens + shape.new_tokens + config.block_size_tokens) / config.block_size_tokens;
}

class BatchRun {
 public:
  BatchRun(const BenchModel& model, Executor& executor, BatchShape shape, uint64_t seed)
      : model_(model), executor_(executor), shape_(shape), formats_(model.config), random_(seed) {}

  BatchTimes run() {
    BatchTimes times;
    std::vector<StepPlan> prefill = prefill_plans();
    const steady_clock::time_point start = steady_clock::now();
    for (StepPlan& plan : prefill) execute(plan);
    times.prefill_s = seconds_since(start);
    for (int32_t i = 0; i < shape_.new_tokens; ++i) {
      const steady_clock::time_point before = steady_clock::now();
      decode(shape_.prompt_tokens + i);
      times.steps_s.push_back(seconds_since(before));
    }
    end();
    return times;
  }

 private:
  std::vector<TokenId> random_prompt() {
    std::vector<TokenId> tokens(static_cast<size_t>(shape_.prompt_tokens));
    for (TokenId& token : tokens) token = static_cast<TokenId>(random_.between(0, model_.vocab_size - 1));
    return tokens;
  }

  // Every sequence has all the storage slots that it will need, and of groups whose blocks are encoded two places for
  // blocks that are not full yet.
  BlockPlace stored_place(int32_t sequence, int32_t group, int32_t block) const {
    BlockPlace place;
    place.size_class = formats_.sealed_class(0, group);
    place.slot = static_cast<uint32_t>(sequence * blocks_of(model_.config, shape_) + block);
    return place;
  }
  BlockPlace tail_place(int32_t sequence, int32_t group, int32_t block) const {
    BlockPlace place;
    place.size_class = formats_.tail_class(0, group);
    place.slot = static_cast<uint32_t>(2 * sequence + block % 2);
    return place;
  }

  // The blocks that begin with the rows, and what becomes of the one that the rows before have filled.
  void plan_blocks(PlannedSequence& planned, StepPlan& plan) const {
    const int32_t block_size = model_.config.block_size_tokens, begin = planned.first_position;
    const int32_t end = begin + planned.num_rows, first = (begin + block_size - 1) / block_size;
    const int32_t filled = begin / block_size - 1;
    for (int32_t group = 0; group < formats_.num_groups(); ++group) {
      const bool encoded = !formats_.group(0, group).same_format;
      if (encoded && begin % block_size == 0 && begin > 0 && filled_in_parts(planned.slot)) {
        plan.moves.push_back({MoveKind::seal, group, tail_place(planned.slot, group, filled),
                              stored_place(planned.slot, group, filled)});
      }
      for (int32_t block = first; block * block_size < end; ++block) {
        const bool tail = encoded && (block + 1) * block_size > end;
        planned.tables[static_cast<size_t>(group)].appended.push_back(tail ? tail_place(planned.slot, group, block)
                                                                           : stored_place(planned.slot, group, block));
      }
    }
  }

  // Whether the last block of the sequence was not filled by one step, where it is full now.
  bool filled_in_parts(int32_t sequence) const { return in_parts_[static_cast<size_t>(sequence)]; }
  void note_blocks(const PlannedSequence& planned) {
    const int32_t block_size = model_.config.block_size_tokens;
    const int32_t end = planned.first_position + planned.num_rows;
    in_parts_[static_cast<size_t>(planned.slot)] =
        end % block_size != 0 || (end - 1) / block_size * block_size < planned.first_position;
  }

  // Rows of a block that is not full stay within it.
  int32_t rows_within(int32_t position, int32_t room) const {
    const int32_t block_size = model_.config.block_size_tokens, left = shape_.prompt_tokens - position;
    const int32_t rows = std::min(room, left), in_block = position % block_size;
    if (!formats_.encodes(0)) return rows;
    if (in_block > 0) return std::min(rows, block_size - in_block);
    return rows < left && rows > block_size ? rows / block_size * block_size : rows;
  }

  PlannedSequence row_of(int32_t sequence, int32_t first_position, int32_t num_rows) const {
    PlannedSequence planned;
    planned.slot = sequence;
    planned.first_position = first_position;
    planned.num_rows = num_rows;
    planned.draw = first_position + num_rows >= shape_.prompt_tokens;
    planned.tables.resize(model_.config.groups.size());
    return planned;
  }

  void add(PlannedSequence planned, StepPlan& plan) {
    plan_blocks(planned, plan);
    note_blocks(planned);
    plan.sequences.push_back(std::move(planned));
  }

  // Steps of at most max_num_batched_tokens rows, prompt after prompt.
  std::vector<StepPlan> prefill_plans() {
    std::vector<StepPlan> plans(1);
    last_tokens_.assign(static_cast<size_t>(shape_.num_sequences), 0);
    in_parts_.assign(static_cast<size_t>(shape_.num_sequences), false);
    int32_t room = model_.config.max_num_batched_tokens;
    for (int32_t sequence = 0; sequence < shape_.num_sequences; ++sequence) {
      for (int32_t position = 0; position < shape_.prompt_tokens;) {
        if (room == 0) {
          plans.emplace_back();
          room = model_.config.max_num_batched_tokens;
        }
        const int32_t rows = rows_within(position, room);
        PlannedSequence planned = row_of(sequence, position, rows);
        if (position == 0) planned.start = SequenceStart{random_prompt(), shape_.prompt_tokens, greedy()};
        add(std::move(planned), plans.back());
        position += rows;
        room = position < shape_.prompt_tokens ? 0 : room - rows;
      }
    }
    return plans;
  }

  void decode(int32_t position) {
    StepPlan plan;
    for (int32_t sequence = 0; sequence < shape_.num_sequences; ++sequence) {
      PlannedSequence planned = row_of(sequence, position, 1);
      planned.new_tokens = {last_tokens_[static_cast<size_t>(sequence)]};
      add(std::move(planned), plan);
    }
    execute(plan);
  }

  void end() {
    StepPlan plan;
    for (int32_t sequence = 0; sequence < shape_.num_sequences; ++sequence) plan.ended.push_back(sequence);
    execute(plan);
  }

  void execute(StepPlan& plan) {
    plan.step = ++num_steps_;
    const StepResult result = executor_.execute(plan);
    for (size_t i = 0; i < result.sequences.size(); ++i) {
      if (!result.sequences[i].draw) continue;
      last_tokens_[static_cast<size_t>(plan.sequences[i].slot)] = result.sequences[i].draw->token;
    }
  }

  static SamplingParams greedy() {
    SamplingParams params;
    params.temperature = 0;
    return params;
  }

  const BenchModel& model_;
  Executor& executor_;
  const BatchShape shape_;
  const BlockFormats formats_;
  RandomSource random_;
  std::vector<TokenId> last_tokens_;
  std::vector<bool> in_parts_;  // by sequence
  uint64_t num_steps_ = 0;
};

}  // namespace

double BatchTimes::decode_s() const {
  return std::accumulate(steps_s.begin(), steps_s.end(), 0.0);
}

Result<void> check_batch(const BenchModel& model, BatchShape shape) {
  const EngineConfig& config = model.config;
  if (int64_t{shape.prompt_tokens} + shape.new_tokens >= config.max_model_len_tokens) {
    return error("{} prompt and {} new tokens do not fit the model's {}", shape.prompt_tokens, shape.new_tokens,
                 config.max_model_len_tokens);
  }
  if (shape.num_sequences > config.max_num_seqs) {
    return error("{} sequences are more than --max-num-seqs {}", shape.num_sequences, config.max_num_seqs);
  }
  size_t sequence_bytes = 0;
  for (const BlockGroup& group : config.groups) {
    sequence_bytes += group.sealed_bytes * static_cast<size_t>(blocks_of(config, shape));
    if (!group.same_format) sequence_bytes += 2 * group.tail_bytes;
  }
  const size_t needed = sequence_bytes * static_cast<size_t>(shape.num_sequences);
  if (needed > config.kv_budget_bytes) {
    return error("{} sequences of {} tokens need {} MB of KV cache; there are {} (--kv-cache-memory-bytes)",
                 shape.num_sequences, shape.prompt_tokens + shape.new_tokens, needed / 1000000,
                 config.kv_budget_bytes / 1000000);
  }
  return {};
}

BatchTimes run_batch(const BenchModel& model, Executor& executor, BatchShape shape, uint64_t seed) {
  return BatchRun(model, executor, shape, seed).run();
}

double BatchRates::prefill_tokens_per_s() const {
  return static_cast<double>(shape.num_sequences) * shape.prompt_tokens / prefill_s;
}

double BatchRates::decode_tokens_per_s() const {
  return static_cast<double>(shape.num_sequences) * shape.new_tokens / decode_s;
}

BatchRates measure_batch(const BenchModel& model, Executor& executor, BatchShape shape, int32_t repeats) {
  BatchRates rates;
  rates.shape = shape;
  std::vector<double> prefill, decode;
  for (int32_t i = 0; i < repeats; ++i) {
    const BatchTimes times = run_batch(model, executor, shape, static_cast<uint64_t>(i) + 1);
    prefill.push_back(times.prefill_s);
    decode.push_back(times.decode_s());
    rates.steps_s.insert(rates.steps_s.end(), times.steps_s.begin(), times.steps_s.end());
  }
  rates.prefill_s = median(prefill);
  rates.decode_s = median(decode);
  return rates;
}

}  // namespace tidemill
