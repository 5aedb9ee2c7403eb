#include "sim/simulated_executor.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/split_mix.h"

namespace tidemill {
namespace {

uint64_t key_of(BlockPlace place) {
  return (uint64_t{place.size_class} << 32) | place.slot;
}

}  // namespace

SimulatedExecutor::SimulatedExecutor(const EngineConfig& config, SimulatedOptions options)
    : config_(config), formats_(config), options_(std::move(options)), states_(config.max_num_seqs) {}

StepResult SimulatedExecutor::execute(const StepPlan& plan) {
  TM_CHECK(plan.step > last_step_, "steps ascend");
  last_step_ = plan.step;
  for (SlotId slot : plan.ended) {
    TM_CHECK(slot >= 0 && slot < config_.max_num_seqs && states_[slot].live, "an ended slot was live");
    states_[slot] = State{};
  }
  StepResult result;
  for (const BlockMove& each : plan.moves) {
    move(each);
    if (!CostModel::is_timed(each.kind)) continue;
    MoveTotals& totals = result.moves[static_cast<size_t>(each.kind)];
    ++totals.num_blocks;
    totals.bytes += bytes_of(each.from);
    totals.duration_ns += options_.cost.per_moved_block.count();
  }
  for (const DiskMove& each : plan.disk_moves) move_disk(each);
  for (const PlannedSequence& planned : plan.sequences) update(planned);
  for (const PlannedSequence& planned : plan.sequences) write_rows(planned);
  // After all writes: a block that two sequences write in one step shows here.
  for (const PlannedSequence& planned : plan.sequences) check_reads(planned);
  for (const PlannedSequence& planned : plan.sequences) result.sequences.push_back(draw(planned));
  const auto duration = options_.cost.cost(plan);
  result.duration_ns = duration.count();
  if (options_.clock != nullptr) options_.clock->advance(duration);
  if (options_.observer) options_.observer(plan, result);
  return result;
}

void SimulatedExecutor::move(const BlockMove& move) {
  switch (move.kind) {
    case MoveKind::copy:
      TM_CHECK(move.from.size_class == move.to.size_class, "a copy keeps its format");
      shadow(move.to) = Shadow(shadow(move.from));
      return;
    case MoveKind::seal:
      TM_CHECK(formats_.is_tail_class(move.from.size_class) && move.to.size_class == move.from.size_class + 1 &&
                   formats_.is_sealed_class(move.to.size_class) && formats_.group_of(move.to.size_class) == move.group,
               "sealing goes from a tail to a storage slot of its format");
      shadow(move.to) = Shadow(shadow(move.from));
      for (State& state : states_) {
        if (!state.live) continue;
        std::ranges::replace(state.tables[move.group].places, move.from, move.to);
      }
      return;
    case MoveKind::reencode:
      TM_CHECK(formats_.is_sealed_class(move.from.size_class) && formats_.format_of(move.from.size_class) == 0 &&
                   formats_.is_sealed_class(move.to.size_class) &&
                   formats_.format_of(move.to.size_class) == config_.kv_reencode,
               "a block of the usual format is encoded anew in another");
      shadow(move.to) = Shadow(shadow(move.from));
      return;
    case MoveKind::drop:
      shadows_.erase(key_of(move.from));
      return;
    case MoveKind::spill:
      move_to_host(move);
      return;
    case MoveKind::fetch: {
      const auto found = host_.find(key_of(move.from));
      TM_CHECK(found != host_.end(), "what is fetched was moved out before");
      TM_CHECK(move.from.size_class == move.to.size_class, "a copy keeps its format");
      shadow(move.to) = found->second;
      return;
    }
    case MoveKind::drop_host:
      host_.erase(key_of(move.from));
      return;
  }
}

// Carried out at once and told of one pass later.
void SimulatedExecutor::move_disk(const DiskMove& move) {
  const bool fails = options_.disk_fails && options_.disk_fails(num_disk_moves_++, move);
  if (move.kind == DiskMoveKind::drop) {
    disk_.erase(key_of(move.disk));
    return;
  }
  bool ok = !fails;
  if (move.kind == DiskMoveKind::store) {
    const auto found = shadows_.find(key_of(move.memory));
    TM_CHECK(found != shadows_.end(), "what is stored was written");
    if (ok) disk_[key_of(move.disk)] = {move, found->second};
    if (!ok) disk_.erase(key_of(move.disk));
  } else {
    const auto found = disk_.find(key_of(move.disk));
    ok = ok && found != disk_.end() && found->second.move.hash == move.hash && found->second.move.tokens == move.tokens;
    if (ok) shadow(move.memory) = found->second.shadow;
    if (!ok) disk_.erase(key_of(move.disk));
  }
  new_ends_.push_back({.ok = ok, .bytes = ok ? bytes_of(move.memory) : 0, .duration_ns = 1});
}

void SimulatedExecutor::take_disk_ends(std::vector<DiskEnd>& ends) {
  ends.insert(ends.end(), new_ends_.begin(), new_ends_.end());
  new_ends_.clear();
}

void SimulatedExecutor::move_to_host(const BlockMove& move) {
  TM_CHECK(move.from.size_class == move.to.size_class && formats_.is_sealed_class(move.from.size_class),
           "what moves out is sealed, and keeps its format");
  TM_CHECK((move.to.slot + size_t{1}) * bytes_of(move.to) <= config_.kv_host_bytes,
           "a slot of the host tier lies within its budget");
  const auto found = shadows_.find(key_of(move.from));
  TM_CHECK(found != shadows_.end(), "what moves out was written");
  host_[key_of(move.to)] = found->second;
}

size_t SimulatedExecutor::bytes_of(BlockPlace place) const {
  TM_CHECK(place.size_class < formats_.num_classes(), "a block's size class exists");
  const BlockGroup& group = formats_.group(formats_.format_of(place.size_class), formats_.group_of(place.size_class));
  return formats_.is_tail_class(place.size_class) ? group.tail_bytes : group.sealed_bytes;
}

SimulatedExecutor::Shadow& SimulatedExecutor::shadow(BlockPlace place) {
  const size_t bytes = bytes_of(place);
  const size_t largest = std::max(config_.kv_budget_bytes, config_.kv_largest_budget_bytes);
  TM_CHECK((place.slot + size_t{1}) * bytes <= largest, "a block's slot lies within the budget");
  Shadow& found = shadows_[key_of(place)];
  if (found.empty()) found.assign(config_.block_size_tokens, 0);
  return found;
}

void SimulatedExecutor::add_token(State& state, TokenId token) const {
  TM_CHECK(token >= 0, "a token id is not negative");
  const uint64_t before = state.digests.empty() ? 1 : state.digests.back();
  state.tokens.push_back(token);
  state.digests.push_back(split_mix(before ^ split_mix(static_cast<uint64_t>(token) + 1)) | 1);
}

void SimulatedExecutor::update(const PlannedSequence& planned) {
  TM_CHECK(planned.slot >= 0 && planned.slot < config_.max_num_seqs, "a slot lies in the range");
  TM_CHECK(planned.tables.size() == config_.groups.size(), "one table per layer group");
  State& state = states_[planned.slot];
  TM_CHECK(state.live != planned.start.has_value(), "a sequence starts once in a slot");
  if (planned.start) {
    state.live = true;
    state.num_prompt_tokens = planned.start->num_prompt_tokens;
    state.sampling = planned.start->sampling;
    state.kv_format = planned.start->kv_format;
    state.tables.resize(config_.groups.size());
    for (TokenId token : planned.start->tokens) add_token(state, token);
    TM_CHECK(planned.new_tokens.empty(), "a starting sequence brings its tokens at once");
  }
  for (TokenId token : planned.new_tokens) add_token(state, token);
  for (size_t group = 0; group < planned.tables.size(); ++group) {
    const TableChange& change = planned.tables[group];
    Table& table = state.tables[group];
    if (planned.start) table.first_block = change.first_block;
    TM_CHECK(change.num_dropped >= 0 && change.num_dropped <= static_cast<int32_t>(table.places.size()),
             "only blocks of the table are dropped");
    table.places.erase(table.places.begin(), table.places.begin() + change.num_dropped);
    table.first_block += change.num_dropped;
    table.places.insert(table.places.end(), change.appended.begin(), change.appended.end());
  }
}

BlockPlace SimulatedExecutor::place_of(const State& state, int32_t group, int32_t position) const {
  const Table& table = state.tables[group];
  const int32_t index = position / config_.block_size_tokens - table.first_block;
  TM_CHECK(index >= 0 && index < static_cast<int32_t>(table.places.size()), "a position has a block in the table");
  return table.places[index];
}

void SimulatedExecutor::write_rows(const PlannedSequence& planned) {
  const State& state = states_[planned.slot];
  const int32_t end = planned.first_position + planned.num_rows;
  TM_CHECK(planned.num_rows > 0 && planned.first_position >= 0 && end <= static_cast<int32_t>(state.tokens.size()),
           "rows have known tokens");
  TM_CHECK(!planned.draw || end == static_cast<int32_t>(state.tokens.size()), "a draw follows the last known token");
  const int32_t size = config_.block_size_tokens;
  for (int32_t group = 0; group < static_cast<int32_t>(config_.groups.size()); ++group) {
    const BlockGroup& format = formats_.group(state.kv_format, group);
    for (int32_t position = planned.first_position; position < end; ++position) {
      const BlockPlace place = place_of(state, group, position);
      const int32_t block_start = position / size * size;
      const bool filled_at_once = block_start >= planned.first_position && block_start + size <= end;
      TM_CHECK(place.size_class == (filled_at_once ? formats_.sealed_class(state.kv_format, group)
                                                   : formats_.tail_class(state.kv_format, group)),
               "a block that is not filled at once is a tail");
      TM_CHECK(format.same_format || filled_at_once || end <= block_start + size,
               "a chunk does not run over the end of a tail it did not begin");
      shadow(place)[position % size] = state.digests[position];
    }
  }
}

// What attention would read for the rows: the same positions for all of them but for the windows' lower ends, so the
// widest reach is enough.
void SimulatedExecutor::check_reads(const PlannedSequence& planned) const {
  const State& state = states_[planned.slot];
  const int32_t end = planned.first_position + planned.num_rows;
  for (int32_t group = 0; group < static_cast<int32_t>(config_.groups.size()); ++group) {
    const int32_t window = config_.groups[group].window_tokens;
    const int32_t begin = window == 0 ? 0 : std::max(0, planned.first_position - window + 1);
    for (int32_t position = begin; position < end; ++position) {
      const KvFormatId format = formats_.format_of(place_of(state, group, position).size_class);
      TM_CHECK(format == state.kv_format || format == config_.kv_reencode,
               "all blocks of a sequence are in its format, or encoded anew");
      const auto found = shadows_.find(key_of(place_of(state, group, position)));
      TM_CHECK(
          found != shadows_.end() && found->second[position % config_.block_size_tokens] == state.digests[position],
          "attention reads the KV of the sequence's own tokens");
    }
  }
}

// A token from the digest of the first num_tokens tokens, and from the seed unless greedy.
Draw SimulatedExecutor::invent(const State& state, size_t num_tokens) const {
  const SamplingParams& sampling = state.sampling;
  const bool greedy = sampling.temperature == 0;
  const uint64_t noise = greedy ? 0 : split_mix(sampling.seed * 31 + num_tokens - state.num_prompt_tokens);
  const uint64_t value = split_mix(state.digests[num_tokens - 1] ^ noise);
  Draw draw;
  draw.token = static_cast<TokenId>(value % options_.vocab_size);
  return draw;
}

SequenceResult SimulatedExecutor::draw(const PlannedSequence& planned) const {
  const State& state = states_[planned.slot];
  const auto score = [&](Draw& draw, int32_t row, int32_t num_top) {
    const uint64_t value = split_mix(state.digests[row] + static_cast<uint64_t>(draw.token));
    draw.logprob = -static_cast<float>(value % 1000) / 100;
    draw.rank = static_cast<int32_t>(value % options_.vocab_size) + 1;
    for (int32_t i = 0; i < num_top; ++i) {
      draw.top.push_back({static_cast<TokenId>((value + i) % options_.vocab_size), -static_cast<float>(i), i + 1});
    }
  };
  SequenceResult result;
  const int32_t end = planned.first_position + planned.num_rows;
  if (planned.prompt_logprobs >= 0) {
    for (int32_t row = planned.first_position; row < std::min<int32_t>(end, std::ssize(state.tokens) - 1); ++row) {
      Draw known;
      known.token = state.tokens[row + 1];
      score(known, row, planned.prompt_logprobs);
      result.prompt_logprobs.push_back(std::move(known));
    }
  }
  // A simulated row says the same in every KV format.
  if (planned.use == RowUse::compare)
    result.divergences.resize(static_cast<size_t>(end - std::max(planned.first_position, planned.first_used_position)));
  if (!planned.draw) return result;
  std::optional<TokenId> scripted;
  if (options_.script) scripted = options_.script(state.tokens, state.num_prompt_tokens, state.sampling);
  Draw drawn = invent(state, state.tokens.size());
  if (scripted) drawn.token = *scripted;
  if (state.sampling.logprobs >= 0) score(drawn, end - 1, state.sampling.logprobs);
  result.draw = std::move(drawn);
  return result;
}

}  // namespace tidemill
