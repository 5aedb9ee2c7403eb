#include "runtime/model_executor.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "runtime/tier_moves.h"

namespace tidemill {

ModelExecutor::ModelExecutor(Model& model, KvStorage& storage, ExecutorOptions options)
    : model_(model), storage_(storage), options_(options), states_(options.max_num_seqs), slice_(storage) {
  samplers_.resize(options_.backend != nullptr ? static_cast<size_t>(options_.backend->num_threads()) : 1);
  if (storage_.encodes()) options_.max_rows = std::max(options_.max_rows, storage_.block_size());
  model_.reserve(options_.max_rows, options_.max_logit_rows);
}

void ModelExecutor::update(const PlannedSequence& planned) {
  TM_CHECK(planned.slot >= 0 && static_cast<size_t>(planned.slot) < states_.size(), "a planned slot exists");
  SequenceState& state = states_[planned.slot];
  if (planned.start) {
    TM_CHECK(!state.live, "a starting sequence has a free slot");
    state.live = true;
    state.history.start(planned.start->tokens, planned.start->num_prompt_tokens);
    state.sampling = planned.start->sampling;
    state.kv_format = planned.start->kv_format;
    TM_CHECK(state.kv_format < storage_.num_formats(), "a sequence's format is one of the storage's");
    state.tables.assign(storage_.num_groups(), {});
  }
  TM_CHECK(state.live, "a planned sequence was started");
  for (TokenId token : planned.new_tokens) state.history.append(token);
  TM_CHECK(planned.tables.size() == state.tables.size(), "a plan has one table change per layer group");
  for (size_t group = 0; group < state.tables.size(); ++group) {
    const TableChange& change = planned.tables[group];
    SequenceTable& table = state.tables[group];
    if (planned.start) table.first_block = change.first_block;
    TM_CHECK(static_cast<size_t>(change.num_dropped) <= table.places.size(), "dropped blocks were in the table");
    table.places.erase(table.places.begin(), table.places.begin() + change.num_dropped);
    table.first_block += change.num_dropped;
    table.places.insert(table.places.end(), change.appended.begin(), change.appended.end());
  }
}

// Tables name the storage slot of a sealed block from now on.
void ModelExecutor::follow_seals(std::span<const BlockMove> moves) {
  for (const BlockMove& move : moves) {
    if (move.kind != MoveKind::seal) continue;
    for (SequenceState& state : states_) {
      if (state.live) std::ranges::replace(state.tables[static_cast<size_t>(move.group)].places, move.from, move.to);
    }
  }
}

StepResult ModelExecutor::execute(const StepPlan& plan) {
  const auto begin = std::chrono::steady_clock::now();
  // An engine's step is wider; who runs plans by hand has none.
  StepTrace* const trace = options_.trace;
  const bool own_step = trace != nullptr && !trace->recording() && !trace->closed();
  if (own_step) trace->begin_step();
  TraceSpan inputs(trace, {.name = "inputs"});
  for (SlotId slot : plan.ended) {
    TM_CHECK(slot >= 0 && static_cast<size_t>(slot) < states_.size() && states_[slot].live, "an ended slot was live");
    states_[slot].live = false;
  }
  StepResult result = std::exchange(spare_, {});
  result.moves = {};
  carry_out(plan.moves, storage_, options_.host, result);
  follow_seals(plan.moves);
  begin_disk_moves(plan.disk_moves, storage_, options_.disk);
  for (const PlannedSequence& planned : plan.sequences) update(planned);
  result.sequences.clear();
  result.sequences.resize(plan.sequences.size());
  start_kept_rows(plan);
  inputs.end();
  slice_.clear();
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    const PlannedSequence& planned = plan.sequences[i];
    for (int32_t done = 0; done < planned.num_rows;) {
      const int32_t room = options_.max_rows - slice_.num_rows();
      const int32_t num_rows = rows_of_slice(planned, done, room);
      if (num_rows == 0) {
        run_slice(plan, result);
        continue;
      }
      slice_.add(states_[planned.slot], {i, planned.first_position + done, num_rows});
      done += num_rows;
      if (slice_.num_rows() == options_.max_rows) run_slice(plan, result);
    }
  }
  if (slice_.num_rows() > 0) run_slice(plan, result);
  if (own_step) trace->end_step(plan.step, plan.num_rows(), static_cast<int32_t>(plan.sequences.size()));
  result.duration_ns = std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count();
  return result;
}

std::vector<Executor::StoredBlock> ModelExecutor::stored_blocks() {
  return options_.disk != nullptr ? options_.disk->take_stored_blocks() : std::vector<StoredBlock>();
}

void ModelExecutor::take_disk_ends(std::vector<DiskEnd>& ends) {
  if (options_.disk != nullptr) options_.disk->take_ends(ends);
}

void ModelExecutor::await_disk(std::chrono::milliseconds most) {
  if (options_.disk != nullptr) options_.disk->await(most);
}

// How many of the rows that are left go into a slice with so much room. Where blocks are encoded, a slice ends in the
// middle of a block only where the plan does: rows of a block that fills wait for it in scratch memory.
int32_t ModelExecutor::rows_of_slice(const PlannedSequence& planned, int32_t done, int32_t room) const {
  const int32_t rest = planned.num_rows - done;
  if (rest <= room || !storage_.encodes()) return std::min(rest, room);
  const int32_t first = planned.first_position + done, block_size = storage_.block_size();
  return std::max(0, (first + room) / block_size * block_size - first);
}

void ModelExecutor::run_slice(const StepPlan& plan, StepResult& result) {
  model_.forward(slice_.inputs());
  collect(plan, result);
  slice_.clear();
}

void ModelExecutor::start_kept_rows(const StepPlan& plan) {
  bool keeps = false;
  for (const PlannedSequence& planned : plan.sequences) {
    TM_CHECK(planned.use == RowUse::none || options_.kept_rows != nullptr, "an executor that uses rows can keep them");
    if (planned.use != RowUse::keep) continue;
    TM_CHECK(!std::exchange(keeps, true), "one sequence of a plan keeps its rows");
    const int32_t first = std::max(planned.first_position, planned.first_used_position);
    const int32_t end = planned.first_position + planned.num_rows;
    options_.kept_rows->start(first, std::max(0, end - first), model_.info().vocab_size);
  }
}

void ModelExecutor::list_used(const PlannedSequence& planned, const WantedRow& row, SequenceResult& result) {
  if (planned.use == RowUse::none || row.position < planned.first_used_position) return;
  wanted_.push_back(row);
  wanted_.back().want = planned.use == RowUse::keep ? Want::keep : Want::compare;
  wanted_.back().result = result.divergences.size();
  if (planned.use == RowUse::compare) result.divergences.emplace_back();
}

void ModelExecutor::list_wanted(const StepPlan& plan, StepResult& result) {
  wanted_.clear();
  int32_t row = 0;
  for (const RowRange& range : slice_.ranges()) {
    const PlannedSequence& planned = plan.sequences[range.sequence];
    const std::span<const TokenId> tokens = states_[planned.slot].history.tokens();
    SequenceResult& out = result.sequences[range.sequence];
    const int32_t last = planned.first_position + planned.num_rows - 1;
    for (int32_t i = 0; i < range.num_rows; ++i, ++row) {
      const int32_t position = range.first_position + i;
      WantedRow wanted{.row = row, .sequence = range.sequence, .position = position};
      if (planned.draw && position == last) wanted_.push_back(wanted);
      if (static_cast<size_t>(position) + 1 < tokens.size()) wanted.next = tokens[position + 1];
      list_used(planned, wanted, out);
      if (planned.prompt_logprobs < 0 || wanted.next == no_token) continue;
      wanted.want = Want::score;
      wanted.num_top = planned.prompt_logprobs;
      wanted.result = out.prompt_logprobs.size();
      out.prompt_logprobs.emplace_back();
      wanted_.push_back(wanted);
    }
  }
}

void ModelExecutor::collect(const StepPlan& plan, StepResult& result) {
  list_wanted(plan, result);
  for (size_t begin = 0; begin < wanted_.size(); begin += options_.max_logit_rows) {
    const size_t count = std::min<size_t>(options_.max_logit_rows, wanted_.size() - begin);
    wanted_rows_.clear();
    for (size_t i = 0; i < count; ++i) wanted_rows_.push_back(wanted_[begin + i].row);
    take_rows(plan, begin, count, model_.logits(wanted_rows_), result);
  }
}

void ModelExecutor::take_rows(const StepPlan& plan, size_t first, size_t count, const Rows& logits,
                              StepResult& result) {
  const auto take = [&](int32_t i, int32_t worker) {
    const WantedRow& want = wanted_[first + static_cast<size_t>(i)];
    take_row(want, plan.sequences[want.sequence], {logits.row(i), static_cast<size_t>(logits.width)}, worker,
             result.sequences[want.sequence]);
  };
  if (options_.backend != nullptr) return options_.backend->share("sampling", static_cast<int32_t>(count), take);
  for (size_t i = 0; i < count; ++i) take(static_cast<int32_t>(i), 0);
}

void ModelExecutor::take_row(const WantedRow& want, const PlannedSequence& planned, std::span<const float> logits,
                             int32_t worker, SequenceResult& out) {
  switch (want.want) {
    case Want::draw: {
      const SequenceState& state = states_[planned.slot];
      out.draw = samplers_[static_cast<size_t>(worker)].draw(logits, state.sampling, state.history);
      return;
    }
    case Want::score:
      out.prompt_logprobs[want.result] = Sampler::score(logits, want.next, want.num_top);
      return;
    case Want::keep:
      std::ranges::copy(logits, options_.kept_rows->row(want.position).begin());
      return;
    case Want::compare:
      out.divergences[want.result] = compare_rows(options_.kept_rows->row(want.position), logits, want.next);
      return;
  }
}

}  // namespace tidemill
