#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "base/printable.h"
#include "server/openai/generation_request.h"
#include "text/tokenizer.h"

namespace tidemill {
namespace {

constexpr double large_number = 1e6;
constexpr int64_t max_int32 = std::numeric_limits<int32_t>::max();

// Whether an element of a list is an id of the vocabulary; otherwise the error names its place.
bool read_token_id(const Json& value, const Tokenizer& tokenizer, const std::string& name, Fields& fields,
                   TokenId& id) {
  const std::optional<int64_t> number = value.is_number() ? as_integer(value) : std::nullopt;
  if (!number || *number < 0 || *number >= static_cast<int64_t>(tokenizer.vocab_size())) {
    fields.fail(name, fmt::format("must be a token id from 0 to {}", tokenizer.vocab_size() - 1));
    return false;
  }
  id = static_cast<TokenId>(*number);
  return true;
}

std::vector<TokenId> read_token_ids(const char* name, Fields& fields, const ServedModel& model,
                                    const ApiLimits& limits) {
  std::vector<TokenId> ids;
  const Json* list = fields.find(name);
  if (!list) return ids;
  if (!list->is_array()) return fields.fail(name, "must be a list of token ids"), ids;
  if (list->size() > static_cast<size_t>(limits.max_listed_ids) && std::string_view(name) != "allowed_token_ids")
    return fields.fail(name, fmt::format("has {} ids, at most {} are allowed", list->size(), limits.max_listed_ids)),
           ids;
  if (list->size() > model.tokenizer->vocab_size()) return fields.fail(name, "has more ids than the vocabulary"), ids;
  for (size_t i = 0; i < list->size(); ++i) {
    TokenId id = 0;
    if (!read_token_id((*list)[i], *model.tokenizer, fmt::format("{}[{}]", name, i), fields, id)) break;
    ids.push_back(id);
  }
  return ids;
}

void read_logit_bias(Fields& fields, const ServedModel& model, const ApiLimits& limits, SamplingParams& sampling) {
  const Json* bias = fields.find("logit_bias");
  if (!bias) return;
  if (!bias->is_object()) return fields.fail("logit_bias", "must be an object of token ids and numbers");
  if (bias->size() > static_cast<size_t>(limits.max_listed_ids))
    return fields.fail("logit_bias",
                       fmt::format("has {} entries, at most {} are allowed", bias->size(), limits.max_listed_ids));
  const int64_t vocab_size = static_cast<int64_t>(model.tokenizer->vocab_size());
  for (const auto& [key, value] : bias->items()) {
    const bool digits =
        !key.empty() && key.size() < 10 && std::ranges::all_of(key, [](char c) { return c >= '0' && c <= '9'; });
    if (!digits || std::stoll(key) >= vocab_size)
      return fields.fail("logit_bias", fmt::format("has the key \"{}\", keys are token ids from 0 to {}",
                                                   printable(key, 20), vocab_size - 1));
    if (!value.is_number() || value.get<double>() < -100 || value.get<double>() > 100)
      return fields.fail("logit_bias", fmt::format("of token {} must be a number from -100 to 100", key));
    sampling.logit_bias.emplace_back(static_cast<TokenId>(std::stoll(key)), value.get<float>());
  }
}

// A word may stand at the beginning of the text or behind a blank, and its tokens differ.
void read_bad_words(Fields& fields, const ServedModel& model, const ApiLimits& limits, SamplingParams& sampling) {
  const Json* words = fields.find("bad_words");
  if (!words) return;
  if (!words->is_array()) return fields.fail("bad_words", "must be a list of strings");
  if (words->size() > static_cast<size_t>(limits.max_listed_ids))
    return fields.fail("bad_words",
                       fmt::format("has {} words, at most {} are allowed", words->size(), limits.max_listed_ids));
  for (const Json& word : *words) {
    if (!word.is_string() || word.get_ref<const std::string&>().empty() ||
        word.get_ref<const std::string&>().size() > 4096)
      return fields.fail("bad_words", "must hold strings of 1 to 4096 bytes");
    const std::string& text = word.get_ref<const std::string&>();
    for (const std::string& form : {text, " " + text}) {
      std::vector<TokenId> tokens = model.tokenizer->encode(form, {.add_special = false});
      if (!tokens.empty() && std::ranges::find(sampling.bad_words, tokens) == sampling.bad_words.end())
        sampling.bad_words.push_back(std::move(tokens));
    }
  }
}

void read_stop(Fields& fields, const ApiLimits& limits, std::vector<std::string>& stop) {
  const Json* value = fields.find("stop");
  if (!value) return;
  const Json list = value->is_array() ? *value : Json::array({*value});
  if (list.size() > static_cast<size_t>(limits.max_stop_strings))
    return fields.fail("stop",
                       fmt::format("has {} strings, at most {} are allowed", list.size(), limits.max_stop_strings));
  for (const Json& text : list) {
    if (!text.is_string()) return fields.fail("stop", "must be a string or a list of strings");
    const size_t size = text.get_ref<const std::string&>().size();
    if (size == 0) return fields.fail("stop", "must not hold an empty string");
    if (size > limits.max_stop_bytes)
      return fields.fail("stop",
                         fmt::format("has a string of {} bytes, at most {} are allowed", size, limits.max_stop_bytes));
    stop.push_back(text.get<std::string>());
  }
}

void read_max_tokens(Fields& fields, const ServedModel& model, GenerationRequest& request) {
  const char* given = nullptr;
  std::optional<int64_t> most;
  for (const char* name : {"max_completion_tokens", "max_tokens", "n_predict", "max_new_tokens"}) {
    // llama-server's -1 means "no limit".
    const bool unlimited = std::string_view(name) == "n_predict";
    std::optional<int64_t> value = fields.integer(name, unlimited ? -1 : 0, std::numeric_limits<int64_t>::max());
    if (!value) continue;
    if (given && most != value) return fields.fail(name, fmt::format("and {} say different things", given));
    given = name;
    most = value;
  }
  if (most == -1) return;
  if (!given) most = model.default_max_tokens;
  if (!given && !most && request.api == Api::completion) most = 16;
  // Sums with it can no longer wrap.
  if (most) request.engine.max_tokens = std::min<int64_t>(*most, model.max_model_len_tokens);
}

void read_numbers(Fields& fields, SamplingParams& sampling) {
  const auto set = [&](float& field, const char* name, double least, double most) {
    if (const std::optional<double> value = fields.number(name, least, most)) field = static_cast<float>(*value);
  };
  set(sampling.temperature, "temperature", 0, 100);
  set(sampling.top_p, "top_p", 0, 1);
  set(sampling.min_p, "min_p", 0, 1);
  set(sampling.repetition_penalty, "repetition_penalty", 0, 100);
  set(sampling.presence_penalty, "presence_penalty", -2, 2);
  set(sampling.frequency_penalty, "frequency_penalty", -2, 2);
  if (!(sampling.top_p > 0)) fields.fail("top_p", "must be above 0 and at most 1");
  if (!(sampling.repetition_penalty > 0)) fields.fail("repetition_penalty", "must be above 0");
  if (const auto k = fields.integer("top_k", -1, max_int32))
    sampling.top_k = static_cast<int32_t>(std::max<int64_t>(*k, 0));
}

void read_seed(Fields& fields, Request& engine) {
  const std::optional<int64_t> seed = fields.integer("seed", -1, std::numeric_limits<int64_t>::max());
  if (!seed || *seed == -1) return;  // llama-server's -1 means "any"
  engine.sampling.seed = static_cast<uint64_t>(*seed);
  engine.has_seed = true;
}

void read_stream_options(Fields& fields, ReplyOptions& reply) {
  const Json* options = fields.find("stream_options");
  if (!options) return;
  if (!options->is_object()) return fields.fail("stream_options", "must be an object");
  if (!reply.stream) return fields.fail("stream_options", "needs \"stream\": true");
  Fields inner(*options, "stream_options.");
  reply.include_usage = inner.boolean("include_usage", false);
  reply.continuous_usage = inner.boolean("continuous_usage_stats", false);
  if (inner.error()) fields.fail(*inner.error());
}

void read_reply_options(Fields& fields, ReplyOptions& reply) {
  reply.stream = fields.boolean("stream", false);
  read_stream_options(fields, reply);
  reply.return_token_ids = fields.boolean("return_token_ids", false);
  reply.tokens_as_ids = fields.boolean("return_tokens_as_token_ids", false);
  reply.timings_per_token = fields.boolean("timings_per_token", false);
  reply.timings = fields.boolean("return_timings", false) || reply.timings_per_token;
  reply.progress = fields.boolean("return_progress", false) && reply.stream;
  reply.skip_special_tokens = fields.boolean("skip_special_tokens", true);
  reply.include_stop_text = fields.boolean("include_stop_str_in_output", false);
}

// Ours, and OpenAI's name for something alike.
void read_latency_class(Fields& fields, GenerationRequest& request) {
  if (const auto word = fields.string("latency_class", 64)) {
    request.latency_class = latency_class_named(*word);
    if (!request.latency_class)
      return fields.fail("latency_class", "must be \"interactive\", \"standard\" or \"bulk\"");
  }
  const auto tier = fields.string("service_tier", 64);
  if (!tier || *tier == "auto" || *tier == "default" || *tier == "scale") return;
  const bool flex = *tier == "flex";
  if (!flex && *tier != "priority")
    return fields.fail("service_tier", "must be \"auto\", \"default\", \"scale\", \"priority\" or \"flex\"");
  const LatencyClass meant = flex ? LatencyClass::bulk : LatencyClass::interactive;
  if (request.latency_class && *request.latency_class != meant)
    return fields.fail("service_tier", "and latency_class say different things");
  request.latency_class = meant;
}

void read_engine_fields(Fields& fields, const ApiLimits& limits, GenerationRequest& request) {
  Request& engine = request.engine;
  if (const auto n = fields.integer("n", 1, limits.max_choices)) engine.num_choices = static_cast<int32_t>(*n);
  if (const auto priority = fields.integer("priority", -max_int32, max_int32))
    engine.priority = static_cast<int32_t>(*priority);
  read_latency_class(fields, request);
  if (const auto salt = fields.string("cache_salt", limits.max_salt_bytes)) {
    if (salt->empty()) fields.fail("cache_salt", "must not be empty");
    engine.cache_salt = *salt;
  }
  if (const auto ttl_s = fields.integer("cache_pin_ttl", 0, max_pin_ttl_s)) {
    engine.pin_for = std::chrono::seconds(*ttl_s);
    engine.pin_or_end = true;
  }
  for (const char* name : {"request_id", "rid"}) {
    const auto id = fields.string(name, 128);
    if (!id) continue;
    if (!valid_request_id(*id)) fields.fail(name, "must be 1 to 128 visible ASCII characters");
    request.request_id = *id;
  }
  if (const auto count = fields.integer("prompt_logprobs", -1, limits.max_logprobs); count && *count >= 0) {
    if (request.reply.stream) fields.fail("prompt_logprobs", "cannot be had with \"stream\": true");
    engine.prompt_logprobs = static_cast<int32_t>(*count);
    request.reply.prompt_logprobs = true;
  }
  fields.string("user", 4096);
}

}  // namespace

bool valid_request_id(std::string_view id) {
  return !id.empty() && id.size() <= 128 && std::ranges::all_of(id, [](char c) { return c > ' ' && c < '\x7f'; });
}

std::optional<ApiError> choose_latency_class(GenerationRequest& request, std::string_view header,
                                             std::optional<LatencyClass> of_key) {
  std::optional<LatencyClass> wanted = request.latency_class;
  if (!header.empty()) {
    const std::optional<LatencyClass> named = latency_class_named(header);
    if (!named)
      return bad_request(fmt::format("{} must be interactive, standard or bulk", latency_class_header),
                         latency_class_header);
    if (!wanted) wanted = named;
  }
  LatencyClass chosen = wanted.value_or(of_key.value_or(LatencyClass::standard));
  if (of_key) chosen = std::max(chosen, *of_key);
  request.engine.latency_class = chosen;
  return std::nullopt;
}

void read_common_fields(const Json& body, Fields& fields, const ServedModel& model, const ApiLimits& limits,
                        GenerationRequest& request) {
  if (std::optional<ApiError> error = find_unsupported_field(body)) fields.fail(*error);
  SamplingParams& sampling = request.engine.sampling;
  sampling = model.default_sampling;
  read_reply_options(fields, request.reply);
  read_numbers(fields, sampling);
  read_seed(fields, request.engine);
  read_max_tokens(fields, model, request);
  read_stop(fields, limits, request.reply.stop);
  for (const TokenId id : read_token_ids("stop_token_ids", fields, model, limits))
    sampling.stop_token_ids.push_back(id);
  if (fields.has("allowed_token_ids")) {
    sampling.allowed_token_ids = read_token_ids("allowed_token_ids", fields, model, limits);
    if (sampling.allowed_token_ids.empty()) fields.fail("allowed_token_ids", "must not be empty");
  }
  read_logit_bias(fields, model, limits, sampling);
  read_bad_words(fields, model, limits, sampling);
  sampling.ignore_eos = fields.boolean("ignore_eos", false);
  if (const auto least = fields.integer("min_tokens", 0, model.max_model_len_tokens)) {
    sampling.min_tokens = static_cast<int32_t>(*least);
    if (request.engine.max_tokens && *least > *request.engine.max_tokens)
      fields.fail("min_tokens", fmt::format("is {}, above the most tokens, {}", *least, *request.engine.max_tokens));
  }
  read_engine_fields(fields, limits, request);
  const std::optional<KvGrant> grant = read_kv_contract(fields, model.kv);
  request.engine.kv_format = grant.value_or(KvGrant{}).format;
  request.engine.may_read_reencoded = grant.value_or(KvGrant{}).may_read_reencoded;
  request.reply.kv_cache = grant.has_value();
  request.engine.want_progress = request.reply.progress;
}

std::optional<ApiError> check_model_name(const Json& body, const ServedModel& model) {
  const auto name = body.find("model");
  if (name == body.end() || name->is_null()) return std::nullopt;
  if (!name->is_string()) return bad_request("model must be a string", "model");
  const std::string& asked = name->get_ref<const std::string&>();
  if (std::ranges::find(model.names, asked) != model.names.end()) return std::nullopt;
  ApiError error = not_found(fmt::format("the model \"{}\" does not exist", printable(asked)), "model_not_found");
  error.param = "model";
  return error;
}

std::optional<ApiError> fit_prompt(const Json& body, const ServedModel& model, const Request& engine,
                                   std::vector<TokenId>& tokens) {
  Fields fields(body);
  const int64_t context = model.max_model_len_tokens;
  const int64_t limit = engine.max_tokens == 0 ? context : context - 1;
  std::optional<int64_t> keep = fields.integer("truncate_prompt_tokens", -1, context);
  if (keep == 0) fields.fail("truncate_prompt_tokens", "must be -1 or above 0");
  if (fields.failed()) return fields.error();
  if (keep == -1) keep = limit;
  if (keep && static_cast<int64_t>(tokens.size()) > *keep) tokens.erase(tokens.begin(), tokens.end() - *keep);
  if (static_cast<int64_t>(tokens.size()) <= limit) return std::nullopt;
  return bad_request(
      fmt::format("the prompt has {} tokens and the context length is {}{}", tokens.size(), context,
                  limit < context ? fmt::format(": at most {} prompt tokens leave room for an answer", limit) : ""),
      body.contains("messages") ? "messages" : "prompt", "context_length_exceeded");
}

}  // namespace tidemill
