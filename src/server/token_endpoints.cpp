#include "server/token_endpoints.h"

#include <fmt/format.h>

#include "base/utf8.h"
#include "server/openai/chat_prompt.h"
#include "text/tokenizer.h"

namespace tidemill {
namespace {

// Pieces of characters have no text: llama-server lists their bytes.
Json piece_json(const std::string& bytes) {
  if (is_valid_utf8(bytes)) return bytes;
  Json list = Json::array();
  for (const char c : bytes) list.push_back(static_cast<unsigned char>(c));
  return list;
}

JsonResult tokenize_content(const Json& body, const ServedModel& model) {
  Fields fields(body);
  const bool add_special = fields.boolean("add_special", false);
  const bool parse_special = fields.boolean("parse_special", true);
  const bool with_pieces = fields.boolean("with_pieces", false);
  const std::string content = fields.string("content", SIZE_MAX).value_or("");
  if (fields.failed()) return *fields.error();
  const std::vector<TokenId> tokens =
      model.tokenizer->encode(content, {.add_special = add_special, .parse_special = parse_special});
  if (!with_pieces) return Json{{"tokens", tokens}};
  Json list = Json::array();
  for (const TokenId token : tokens)
    list.push_back({{"id", token}, {"piece", piece_json(model.tokenizer->token_bytes(token))}});
  return Json{{"tokens", std::move(list)}};
}

JsonResult tokenize_prompt(const Json& body, const ServedModel& model, const ApiLimits& limits) {
  Fields fields(body);
  const bool add_special = fields.boolean("add_special_tokens", true);
  const bool parse_special = fields.boolean("parse_special", false);
  const bool with_texts = fields.boolean("return_token_strs", false);
  std::vector<TokenId> tokens;
  if (body.contains("messages")) {
    auto prompt = make_chat_prompt(body, model, limits);
    if (ApiError* error = std::get_if<ApiError>(&prompt)) return *error;
    tokens = std::move(std::get<ChatPrompt>(prompt).tokens);
  } else {
    const std::optional<std::string> prompt = fields.string("prompt", SIZE_MAX);
    if (fields.failed()) return *fields.error();
    if (!prompt) return bad_request("prompt, messages or content is needed", "prompt");
    tokens = model.tokenizer->encode(*prompt, {.add_special = add_special, .parse_special = parse_special});
  }
  if (fields.failed()) return *fields.error();
  Json texts;
  if (with_texts) {
    texts = Json::array();
    for (const TokenId token : tokens) texts.push_back(sanitize_utf8(model.tokenizer->token_text(token)));
  }
  return Json{{"count", tokens.size()},
              {"max_model_len", model.max_model_len_tokens},
              {"tokens", tokens},
              {"token_strs", std::move(texts)}};
}

std::optional<ApiError> check_body(const Json& body, const ServedModel& model) {
  if (!body.is_object()) return bad_request("the body must be a JSON object");
  return check_model_name(body, model);
}

}  // namespace

JsonResult tokenize(const Json& body, const ServedModel& model, const ApiLimits& limits) {
  if (std::optional<ApiError> error = check_body(body, model)) return *error;
  return body.contains("content") ? tokenize_content(body, model) : tokenize_prompt(body, model, limits);
}

JsonResult detokenize(const Json& body, const ServedModel& model) {
  if (std::optional<ApiError> error = check_body(body, model)) return *error;
  const auto list = body.find("tokens");
  if (list == body.end() || !list->is_array()) return bad_request("tokens must be a list of token ids", "tokens");
  std::vector<TokenId> tokens;
  tokens.reserve(list->size());
  for (size_t i = 0; i < list->size(); ++i) {
    const std::optional<int64_t> id = (*list)[i].is_number() ? as_integer((*list)[i]) : std::nullopt;
    if (!id || *id < 0 || *id >= static_cast<int64_t>(model.tokenizer->vocab_size()))
      return bad_request(
          fmt::format("tokens[{}] must be a token id from 0 to {}", i, model.tokenizer->vocab_size() - 1), "tokens");
    tokens.push_back(static_cast<TokenId>(*id));
  }
  Fields fields(body);
  const bool skip_special = fields.boolean("skip_special_tokens", false);
  if (fields.failed()) return *fields.error();
  const std::string text = model.tokenizer->decode(tokens, skip_special);
  return Json{{"prompt", text}, {"content", text}};
}

JsonResult apply_template(const Json& body, const ServedModel& model, const ApiLimits& limits) {
  if (std::optional<ApiError> error = check_body(body, model)) return *error;
  auto prompt = make_chat_prompt(body, model, limits);
  if (ApiError* error = std::get_if<ApiError>(&prompt)) return *error;
  return Json{{"prompt", std::get<ChatPrompt>(prompt).text}};
}

}  // namespace tidemill
