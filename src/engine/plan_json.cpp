#include "engine/plan_json.h"

#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tidemill {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, num_move_kinds> move_names = {"copy",  "seal",      "drop",    "spill",
                                                                     "fetch", "drop_host", "reencode"};

constexpr std::array<std::string_view, 3> disk_move_names = {"store", "load", "drop"};
constexpr std::array<std::string_view, 3> row_use_names = {"none", "keep", "compare"};

// --- Writing: a field that has its default value is left out.

template <typename T>
void put(json& object, const char* name, const T& value, const T& usual = T{}) {
  if (!(value == usual)) object[name] = value;
}

template <typename T>
void put(json& object, const char* name, const std::vector<T>& list) {
  if (!list.empty()) object[name] = list;
}

json place_json(BlockPlace place) {
  return json::array({place.size_class, place.slot});
}

json places_json(const std::vector<BlockPlace>& places) {
  json list = json::array();
  for (BlockPlace place : places) list.push_back(place_json(place));
  return list;
}

json sampling_json(const SamplingParams& params) {
  const SamplingParams usual;
  json object = json::object();
  put(object, "temperature", params.temperature, usual.temperature);
  put(object, "top_k", params.top_k, usual.top_k);
  put(object, "top_p", params.top_p, usual.top_p);
  put(object, "min_p", params.min_p, usual.min_p);
  put(object, "repetition_penalty", params.repetition_penalty, usual.repetition_penalty);
  put(object, "presence_penalty", params.presence_penalty, usual.presence_penalty);
  put(object, "frequency_penalty", params.frequency_penalty, usual.frequency_penalty);
  put(object, "logit_bias", params.logit_bias);
  put(object, "allowed_token_ids", params.allowed_token_ids);
  put(object, "bad_words", params.bad_words);
  put(object, "stop_token_ids", params.stop_token_ids);
  put(object, "end_token_ids", params.end_token_ids);
  put(object, "ignore_eos", params.ignore_eos, usual.ignore_eos);
  put(object, "min_tokens", params.min_tokens, usual.min_tokens);
  put(object, "logprobs", params.logprobs, usual.logprobs);
  put(object, "seed", params.seed, usual.seed);
  return object;
}

json sequence_json(const PlannedSequence& sequence) {
  json object = {{"slot", sequence.slot}, {"first_position", sequence.first_position}, {"num_rows", sequence.num_rows}};
  if (sequence.start) {
    object["start"] = {{"tokens", sequence.start->tokens},
                       {"num_prompt_tokens", sequence.start->num_prompt_tokens},
                       {"sampling", sampling_json(sequence.start->sampling)}};
    put(object["start"], "kv_format", sequence.start->kv_format);
  }
  put(object, "new_tokens", sequence.new_tokens);
  json tables = json::array();
  for (const TableChange& change : sequence.tables) {
    json table = json::object();
    put(table, "num_dropped", change.num_dropped);
    put(table, "first_block", change.first_block);
    if (!change.appended.empty()) table["appended"] = places_json(change.appended);
    tables.push_back(std::move(table));
  }
  object["tables"] = std::move(tables);
  put(object, "draw", sequence.draw);
  put(object, "prompt_logprobs", sequence.prompt_logprobs, -1);
  if (sequence.use != RowUse::none) object["use"] = row_use_names[static_cast<size_t>(sequence.use)];
  put(object, "first_used_position", sequence.first_used_position);
  return object;
}

json draw_json(const Draw& draw) {
  json object = {{"token", draw.token}};
  put(object, "logprob", draw.logprob);
  put(object, "rank", draw.rank);
  if (!draw.top.empty()) {
    json top = json::array();
    for (const TokenLogprob& each : draw.top) top.push_back(json::array({each.token, each.logprob, each.rank}));
    object["top"] = std::move(top);
  }
  return object;
}

// --- Reading. The first fault is kept; what is read after it does not matter.

class Reader {
 public:
  bool ok() const { return message_.empty(); }
  Error fault() const { return Error{message_}; }
  void fail(std::string_view name, std::string_view wanted) {
    if (ok()) message_ = fmt::format("{} must be {}", name, wanted);
  }

  // The member, or nothing where it is absent; objects only.
  const json* member(const json& object, const char* name) {
    if (!object.is_object()) {
      fail(name, "a member of an object");
      return nullptr;
    }
    const auto found = object.find(name);
    return found == object.end() ? nullptr : &*found;
  }

  template <typename T>
  void number(const json* value, std::string_view name, T& into) {
    if (value == nullptr) return;
    if constexpr (std::is_same_v<T, bool>) {
      if (!value->is_boolean()) return fail(name, "true or false");
      into = value->get<bool>();
    } else if constexpr (std::is_floating_point_v<T>) {
      if (!value->is_number()) return fail(name, "a number");
      into = value->get<T>();
    } else if (value->is_number_unsigned()) {
      const uint64_t number = value->get<uint64_t>();
      if (number > static_cast<uint64_t>(std::numeric_limits<T>::max())) return fail(name, "a smaller number");
      into = static_cast<T>(number);
    } else if (value->is_number_integer() && std::is_signed_v<T>) {
      const int64_t number = value->get<int64_t>();
      if (number < static_cast<int64_t>(std::numeric_limits<T>::min())) return fail(name, "a larger number");
      into = static_cast<T>(number);
    } else {
      fail(name, "a whole number");
    }
  }

  template <typename T>
  void field(const json& object, const char* name, T& into) {
    number(member(object, name), name, into);
  }

  // Calls read(element) for each element of the list, if there is one.
  template <typename Read>
  void list(const json& object, const char* name, Read read) {
    const json* value = member(object, name);
    if (value == nullptr) return;
    if (!value->is_array()) return fail(name, "a list");
    for (const json& element : *value) {
      if (!ok()) return;
      read(element);
    }
  }

  bool tuple(const json& value, std::string_view name, size_t size) {
    if (value.is_array() && value.size() == size) return true;
    fail(name, fmt::format("a list of {}", size));
    return false;
  }

  void tokens(const json& object, const char* name, std::vector<TokenId>& into) {
    list(object, name, [&](const json& element) { number(&element, name, into.emplace_back()); });
  }

  void place(const json& value, std::string_view name, BlockPlace& into) {
    if (!tuple(value, name, 2)) return;
    number(&value[0], name, into.size_class);
    number(&value[1], name, into.slot);
  }

 private:
  std::string message_;
};

void read_sampling(Reader& in, const json& object, SamplingParams& params) {
  in.field(object, "temperature", params.temperature);
  in.field(object, "top_k", params.top_k);
  in.field(object, "top_p", params.top_p);
  in.field(object, "min_p", params.min_p);
  in.field(object, "repetition_penalty", params.repetition_penalty);
  in.field(object, "presence_penalty", params.presence_penalty);
  in.field(object, "frequency_penalty", params.frequency_penalty);
  in.list(object, "logit_bias", [&](const json& element) {
    if (!in.tuple(element, "logit_bias", 2)) return;
    auto& [token, bias] = params.logit_bias.emplace_back();
    in.number(&element[0], "logit_bias", token);
    in.number(&element[1], "logit_bias", bias);
  });
  in.tokens(object, "allowed_token_ids", params.allowed_token_ids);
  in.list(object, "bad_words", [&](const json& element) {
    const json word = {{"bad_words", element}};
    in.tokens(word, "bad_words", params.bad_words.emplace_back());
  });
  in.tokens(object, "stop_token_ids", params.stop_token_ids);
  in.tokens(object, "end_token_ids", params.end_token_ids);
  in.field(object, "ignore_eos", params.ignore_eos);
  in.field(object, "min_tokens", params.min_tokens);
  in.field(object, "logprobs", params.logprobs);
  in.field(object, "seed", params.seed);
}

void read_row_use(Reader& in, const json& value, RowUse& use) {
  const auto known =
      value.is_string() ? std::ranges::find(row_use_names, value.get_ref<const std::string&>()) : row_use_names.end();
  if (known == row_use_names.end()) return in.fail("use", "none, keep or compare");
  use = static_cast<RowUse>(known - row_use_names.begin());
}

void read_sequence(Reader& in, const json& object, PlannedSequence& sequence) {
  in.field(object, "slot", sequence.slot);
  if (const json* start = in.member(object, "start")) {
    SequenceStart& into = sequence.start.emplace();
    in.tokens(*start, "tokens", into.tokens);
    in.field(*start, "num_prompt_tokens", into.num_prompt_tokens);
    in.field(*start, "kv_format", into.kv_format);
    if (const json* sampling = in.member(*start, "sampling")) read_sampling(in, *sampling, into.sampling);
  }
  in.tokens(object, "new_tokens", sequence.new_tokens);
  in.field(object, "first_position", sequence.first_position);
  in.field(object, "num_rows", sequence.num_rows);
  in.list(object, "tables", [&](const json& element) {
    TableChange& change = sequence.tables.emplace_back();
    in.field(element, "num_dropped", change.num_dropped);
    in.field(element, "first_block", change.first_block);
    in.list(element, "appended",
            [&](const json& place) { in.place(place, "appended", change.appended.emplace_back()); });
  });
  in.field(object, "draw", sequence.draw);
  in.field(object, "prompt_logprobs", sequence.prompt_logprobs);
  if (const json* use = in.member(object, "use")) read_row_use(in, *use, sequence.use);
  in.field(object, "first_used_position", sequence.first_used_position);
}

void read_move(Reader& in, const json& object, BlockMove& move) {
  const json* kind = in.member(object, "kind");
  const auto known = kind != nullptr && kind->is_string()
                         ? std::ranges::find(move_names, std::string_view(kind->get_ref<const std::string&>()))
                         : move_names.end();
  if (known == move_names.end()) return in.fail("kind", "copy, seal, drop, spill, fetch, drop_host or reencode");
  move.kind = static_cast<MoveKind>(known - move_names.begin());
  in.field(object, "group", move.group);
  if (const json* from = in.member(object, "from")) in.place(*from, "from", move.from);
  if (const json* to = in.member(object, "to")) in.place(*to, "to", move.to);
}

void read_divergence(Reader& in, const json& value, RowDivergence& row) {
  if (!in.tuple(value, "divergences", 5)) return;
  in.number(&value[0], "divergences", row.kl);
  in.number(&value[1], "divergences", row.reference_top);
  in.number(&value[2], "divergences", row.top);
  in.number(&value[3], "divergences", row.reference_logprob);
  in.number(&value[4], "divergences", row.logprob);
}

void read_disk_move(Reader& in, const json& object, DiskMove& move) {
  const json* kind = in.member(object, "kind");
  const auto known = kind != nullptr && kind->is_string()
                         ? std::ranges::find(disk_move_names, std::string_view(kind->get_ref<const std::string&>()))
                         : disk_move_names.end();
  if (known == disk_move_names.end()) return in.fail("kind", "store, load or drop");
  move.kind = static_cast<DiskMoveKind>(known - disk_move_names.begin());
  in.field(object, "group", move.group);
  if (const json* memory = in.member(object, "memory")) in.place(*memory, "memory", move.memory);
  if (const json* disk = in.member(object, "disk")) in.place(*disk, "disk", move.disk);
  if (const json* hash = in.member(object, "hash"); hash != nullptr && in.tuple(*hash, "hash", 2)) {
    in.number(&(*hash)[0], "hash", move.hash.low);
    in.number(&(*hash)[1], "hash", move.hash.high);
  }
  in.tokens(object, "tokens", move.tokens);
  in.field(object, "owner", move.owner);
}

void read_draw(Reader& in, const json& object, Draw& draw) {
  in.field(object, "token", draw.token);
  in.field(object, "logprob", draw.logprob);
  in.field(object, "rank", draw.rank);
  in.list(object, "top", [&](const json& element) {
    if (!in.tuple(element, "top", 3)) return;
    TokenLogprob& each = draw.top.emplace_back();
    in.number(&element[0], "top", each.token);
    in.number(&element[1], "top", each.logprob);
    in.number(&element[2], "top", each.rank);
  });
}

}  // namespace

json plan_to_json(const StepPlan& plan) {
  json object = {{"step", plan.step}};
  put(object, "ended", plan.ended);
  json moves = json::array();
  for (const BlockMove& move : plan.moves) {
    moves.push_back({{"kind", move_names[static_cast<size_t>(move.kind)]},
                     {"group", move.group},
                     {"from", place_json(move.from)},
                     {"to", place_json(move.to)}});
  }
  if (!moves.empty()) object["moves"] = std::move(moves);
  for (const DiskMove& move : plan.disk_moves) {
    object["disk_moves"].push_back({{"kind", disk_move_names[static_cast<size_t>(move.kind)]},
                                    {"group", move.group},
                                    {"memory", place_json(move.memory)},
                                    {"disk", place_json(move.disk)},
                                    {"hash", json::array({move.hash.low, move.hash.high})},
                                    {"tokens", move.tokens},
                                    {"owner", move.owner}});
  }
  json sequences = json::array();
  for (const PlannedSequence& sequence : plan.sequences) sequences.push_back(sequence_json(sequence));
  object["sequences"] = std::move(sequences);
  return object;
}

Result<StepPlan> plan_from_json(const json& object) {
  Reader in;
  StepPlan plan;
  in.field(object, "step", plan.step);
  in.tokens(object, "ended", plan.ended);
  in.list(object, "moves", [&](const json& element) { read_move(in, element, plan.moves.emplace_back()); });
  in.list(object, "disk_moves",
          [&](const json& element) { read_disk_move(in, element, plan.disk_moves.emplace_back()); });
  in.list(object, "sequences", [&](const json& element) { read_sequence(in, element, plan.sequences.emplace_back()); });
  if (!in.ok()) return in.fault();
  return plan;
}

json result_to_json(const StepResult& result) {
  json object = {{"duration_ns", result.duration_ns}};
  for (size_t kind = 0; kind < num_move_kinds; ++kind) {
    const MoveTotals& moved = result.moves[kind];
    if (moved.num_blocks == 0) continue;
    object["moves"].push_back(json::array({kind, moved.num_blocks, moved.bytes, moved.duration_ns}));
  }
  json sequences = json::array();
  for (const SequenceResult& sequence : result.sequences) {
    json each = json::object();
    if (sequence.draw) each["draw"] = draw_json(*sequence.draw);
    for (const Draw& draw : sequence.prompt_logprobs) each["prompt_logprobs"].push_back(draw_json(draw));
    for (const RowDivergence& row : sequence.divergences)
      each["divergences"].push_back(
          json::array({row.kl, row.reference_top, row.top, row.reference_logprob, row.logprob}));
    sequences.push_back(std::move(each));
  }
  object["sequences"] = std::move(sequences);
  return object;
}

Result<StepResult> result_from_json(const json& object) {
  Reader in;
  StepResult result;
  in.field(object, "duration_ns", result.duration_ns);
  in.list(object, "moves", [&](const json& element) {
    size_t kind = 0;
    if (!in.tuple(element, "moves", 4)) return;
    in.number(&element[0], "moves", kind);
    if (kind >= num_move_kinds) return in.fail("moves", "of a known kind");
    in.number(&element[1], "moves", result.moves[kind].num_blocks);
    in.number(&element[2], "moves", result.moves[kind].bytes);
    in.number(&element[3], "moves", result.moves[kind].duration_ns);
  });
  in.list(object, "sequences", [&](const json& element) {
    SequenceResult& sequence = result.sequences.emplace_back();
    if (const json* draw = in.member(element, "draw")) read_draw(in, *draw, sequence.draw.emplace());
    in.list(element, "prompt_logprobs",
            [&](const json& draw) { read_draw(in, draw, sequence.prompt_logprobs.emplace_back()); });
    in.list(element, "divergences",
            [&](const json& row) { read_divergence(in, row, sequence.divergences.emplace_back()); });
  });
  if (!in.ok()) return in.fault();
  return result;
}

}  // namespace tidemill
