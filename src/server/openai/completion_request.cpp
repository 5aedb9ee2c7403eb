#include <fmt/format.h>

#include "server/openai/generation_request.h"
#include "text/tokenizer.h"

namespace tidemill {
namespace {

std::optional<ApiError> read_ids(const Json& list, const std::string& name, const Tokenizer& tokenizer,
                                 std::vector<TokenId>& ids) {
  if (list.empty()) return bad_request(name + " must not be an empty list", "prompt");
  for (size_t i = 0; i < list.size(); ++i) {
    const std::optional<int64_t> id = list[i].is_number() ? as_integer(list[i]) : std::nullopt;
    if (!id || *id < 0 || *id >= static_cast<int64_t>(tokenizer.vocab_size()))
      return bad_request(fmt::format("{}[{}] must be a token id from 0 to {}", name, i, tokenizer.vocab_size() - 1),
                         "prompt");
    ids.push_back(static_cast<TokenId>(*id));
  }
  return std::nullopt;
}

std::optional<ApiError> read_prompt(const Json& value, const std::string& name, const ServedModel& model,
                                    bool add_special, std::vector<TokenId>& tokens) {
  if (value.is_array()) return read_ids(value, name, *model.tokenizer, tokens);
  if (!value.is_string())
    return bad_request(fmt::format("{} must be a string or a list of token ids, not {}", name, kind_of(value)),
                       "prompt");
  tokens = model.tokenizer->encode(value.get_ref<const std::string&>(), {.add_special = add_special});
  if (tokens.empty()) return bad_request(name + " is empty and the model has no token to begin with", "prompt");
  return std::nullopt;
}

std::optional<ApiError> read_prompts(const Json& body, const ServedModel& model, const ApiLimits& limits,
                                     bool add_special, GenerationRequest& request) {
  const auto field = body.find("prompt");
  if (field == body.end() || field->is_null()) return bad_request("prompt is needed", "prompt");
  // A list is one prompt of ids if it begins with a number, and a list of prompts otherwise.
  const bool many = field->is_array() && (field->empty() || !(*field)[0].is_number());
  const size_t count = many ? field->size() : 1;
  if (count == 0) return bad_request("prompt must not be an empty list", "prompt");
  if (count > static_cast<size_t>(limits.max_prompts))
    return bad_request(fmt::format("prompt lists {} prompts, at most {} are allowed", count, limits.max_prompts),
                       "prompt");
  if (count * static_cast<size_t>(request.engine.num_choices) > static_cast<size_t>(limits.max_sequences))
    return bad_request(fmt::format("{} prompts with n {} are more than {} answers", count, request.engine.num_choices,
                                   limits.max_sequences),
                       "n");
  for (size_t i = 0; i < count; ++i) {
    Prompt prompt;
    const std::string name = many ? fmt::format("prompt[{}]", i) : "prompt";
    const Json& value = many ? (*field)[i] : *field;
    if (auto error = read_prompt(value, name, model, add_special, prompt.tokens)) return error;
    const size_t whole = prompt.tokens.size();
    if (auto error = fit_prompt(body, model, request.engine, prompt.tokens)) return error;
    if (request.reply.echo) {
      const bool as_sent = value.is_string() && prompt.tokens.size() == whole;
      prompt.text = as_sent ? value.get<std::string>()
                            : model.tokenizer->decode(prompt.tokens, request.reply.skip_special_tokens);
    }
    request.prompts.push_back(std::move(prompt));
  }
  return std::nullopt;
}

void read_logprobs(Fields& fields, const ApiLimits& limits, GenerationRequest& request) {
  const std::optional<int64_t> count = fields.integer("logprobs", 0, limits.max_logprobs);
  if (!count) return;
  request.reply.logprobs = true;
  request.reply.top_logprobs = static_cast<int32_t>(*count);
  request.engine.sampling.logprobs = static_cast<int32_t>(*count);
  // echo shows the prompt's tokens with theirs.
  if (request.reply.echo)
    request.engine.prompt_logprobs = std::max(request.engine.prompt_logprobs, static_cast<int32_t>(*count));
}

}  // namespace

ReadResult read_completion_request(const Json& body, const ServedModel& model, const ApiLimits& limits) {
  if (!body.is_object()) return bad_request("the body must be a JSON object");
  if (std::optional<ApiError> error = check_model_name(body, model)) return *error;
  GenerationRequest request;
  request.api = Api::completion;
  Fields fields(body);
  read_common_fields(body, fields, model, limits, request);
  request.reply.echo = fields.boolean("echo", false);
  read_logprobs(fields, limits, request);
  const bool add_special = fields.boolean("add_special_tokens", true);
  if (fields.failed()) return *fields.error();
  if (std::optional<ApiError> error = read_prompts(body, model, limits, add_special, request)) return *error;
  if (request.engine.pin_for && request.prompts.size() != 1)
    return bad_request("one prompt can be pinned at a time", "prompt");
  return request;
}

}  // namespace tidemill
