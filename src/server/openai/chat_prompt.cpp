#include "server/openai/chat_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "text/tokenizer.h"

namespace tidemill {
namespace {

ApiError no_template(const ServedModel& model) {
  ApiError error = bad_request("the model has no usable chat template: " + model.chat_template_problem);
  error.status = 501;
  error.type = "server_error";
  error.code = "no_chat_template";
  return error;
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

// Names that the template trusts or that have a field of their own.
bool is_reserved(const std::string& name) {
  static constexpr std::array reserved = {"messages",        "tools",       "documents", "add_generation_prompt",
                                          "raise_exception", "strftime_now"};
  return std::ranges::find(reserved, name) != reserved.end() || name.ends_with("_token");
}

void add_arguments(Fields& fields, Json& variables) {
  const Json* arguments = fields.find("chat_template_kwargs");
  if (!arguments) return;
  if (!arguments->is_object()) return fields.fail("chat_template_kwargs", "must be an object");
  for (const auto& [name, value] : arguments->items()) {
    if (is_reserved(name)) return fields.fail("chat_template_kwargs", "must not set a variable that the server sets");
    variables[name] = value;
  }
}

void add_tools(const Json& body, Fields& fields, Json& variables) {
  for (const char* name : {"tools", "documents"}) {
    const Json* list = fields.find(name);
    if (!list) continue;
    const bool objects =
        list->is_array() && std::ranges::all_of(*list, [](const Json& item) { return item.is_object(); });
    if (!objects) return fields.fail(name, "must be a list of objects");
    if (!list->empty()) variables[name] = *list;
  }
  const auto choice = body.find("tool_choice");
  if (choice != body.end() && *choice == "none") variables.erase("tools");
}

void add_special_texts(const Tokenizer& tokenizer, Json& variables) {
  variables["bos_token"] = tokenizer.bos() ? tokenizer.token_text(*tokenizer.bos()) : std::string();
  variables["eos_token"] = tokenizer.eos() ? tokenizer.token_text(*tokenizer.eos()) : std::string();
}

// Where `content` stands last in what the template took from the messages; its own text may spell the same ("end" in
// "<|im_end|>").
size_t find_last_given(const RenderedPrompt& prompt, std::string_view content) {
  for (size_t last = prompt.pieces.size(); last > 0; --last) {
    if (prompt.pieces[last - 1].trusted) continue;
    size_t first = last - 1;
    while (first > 0 && !prompt.pieces[first - 1].trusted) --first;
    const size_t begin = prompt.pieces[first].begin;
    const size_t found =
        std::string_view(prompt.text).substr(begin, prompt.pieces[last - 1].end - begin).rfind(content);
    if (found != std::string_view::npos) return begin + found;
    last = first + 1;
  }
  return std::string::npos;
}

// The last message is to be written on: the prompt ends with its last character.
std::optional<ApiError> cut_behind_final_message(const Json& messages, RenderedPrompt& prompt) {
  const Json& last = messages.back();
  if (last["role"] != "assistant")
    return bad_request("continue_final_message needs an assistant's message at the end", "continue_final_message");
  const std::string_view content = trimmed(last["content"].get_ref<const std::string&>());
  const size_t found = content.empty() ? std::string::npos : find_last_given(prompt, content);
  if (found == std::string::npos)
    return bad_request("continue_final_message does not find the last message's text in the prompt",
                       "continue_final_message");
  const size_t end = found + content.size();
  prompt.text.resize(end);
  while (!prompt.pieces.empty() && prompt.pieces.back().begin >= end) prompt.pieces.pop_back();
  if (!prompt.pieces.empty()) prompt.pieces.back().end = std::min(prompt.pieces.back().end, end);
  return std::nullopt;
}

std::vector<TokenId> encode(const RenderedPrompt& prompt, const Tokenizer& tokenizer, bool add_special) {
  std::vector<TextSegment> segments;
  segments.reserve(prompt.pieces.size());
  for (const PromptPiece& piece : prompt.pieces)
    segments.push_back({std::string_view(prompt.text).substr(piece.begin, piece.end - piece.begin), piece.trusted});
  std::vector<TokenId> tokens = tokenizer.encode_segments(segments, {.add_special = false});
  // A template that leaves BOS to the tokenizer gets one, a template that writes it keeps its own.
  const bool wants_bos = add_special && tokenizer.adds_bos() && tokenizer.bos();
  if (wants_bos && (tokens.empty() || tokens.front() != *tokenizer.bos()))
    tokens.insert(tokens.begin(), *tokenizer.bos());
  return tokens;
}

std::variant<RenderedPrompt, ApiError> render(const Json& body, const ServedModel& model, const ApiLimits& limits,
                                              const Json& variables) {
  const ChatTemplate* chat_template = model.chat_template;
  std::optional<ChatTemplate> sent;
  if (const auto source = body.find("chat_template"); source != body.end() && !source->is_null()) {
    if (!limits.allow_request_templates) return not_supported("chat_template", "this server uses the model's own");
    if (!source->is_string()) return bad_request("chat_template must be a string", "chat_template");
    Result<ChatTemplate> parsed = ChatTemplate::parse(source->get<std::string>());
    if (!parsed) return bad_request(parsed.error().message, "chat_template");
    sent = *std::move(parsed);
    chat_template = &*sent;
  }
  if (!chat_template) return no_template(model);
  RenderResult result = chat_template->render(variables);
  if (RenderError* error = std::get_if<RenderError>(&result))
    return bad_request("the chat template refused the messages: " + error->message, "messages");
  return std::move(std::get<RenderedPrompt>(result));
}

}  // namespace

std::variant<ChatPrompt, ApiError> make_chat_prompt(const Json& body, const ServedModel& model,
                                                    const ApiLimits& limits) {
  auto messages = normalize_messages(body);
  if (ApiError* error = std::get_if<ApiError>(&messages)) return *error;
  Fields fields(body);
  const bool continues = fields.boolean("continue_final_message", false);
  const std::optional<bool> generation_prompt = fields.boolean("add_generation_prompt");
  if (continues && generation_prompt == true)
    fields.fail("continue_final_message", "and add_generation_prompt exclude each other");
  const bool add_special = fields.boolean("add_special_tokens", true);
  Json variables = Json::object();
  add_arguments(fields, variables);
  add_special_texts(*model.tokenizer, variables);
  add_tools(body, fields, variables);
  if (const auto effort = fields.string("reasoning_effort", 32)) {
    if (model.chat_template && !model.chat_template->mentions("reasoning_effort"))
      fields.fail(not_supported("reasoning_effort", "the model's chat template does not know it"));
    variables["reasoning_effort"] = *effort;
  }
  if (fields.failed()) return *fields.error();
  variables["messages"] = std::get<Json>(messages);
  variables["add_generation_prompt"] = generation_prompt.value_or(!continues);
  auto rendered = render(body, model, limits, variables);
  if (ApiError* error = std::get_if<ApiError>(&rendered)) return *error;
  RenderedPrompt& prompt = std::get<RenderedPrompt>(rendered);
  if (continues)
    if (auto error = cut_behind_final_message(std::get<Json>(messages), prompt)) return *error;
  ChatPrompt result;
  result.tokens = encode(prompt, *model.tokenizer, add_special);
  if (result.tokens.empty()) return bad_request("the messages give an empty prompt", "messages");
  result.starts_thinking = model.thinking && trimmed(prompt.text).ends_with(model.thinking->open);
  result.pieces = std::move(prompt.pieces);
  result.text = std::move(prompt.text);
  return result;
}

ReadResult read_chat_request(const Json& body, const ServedModel& model, const ApiLimits& limits) {
  if (!body.is_object()) return bad_request("the body must be a JSON object");
  if (std::optional<ApiError> error = check_model_name(body, model)) return *error;
  GenerationRequest request;
  request.api = Api::chat;
  Fields fields(body);
  read_common_fields(body, fields, model, limits, request);
  ReplyOptions& reply = request.reply;
  reply.logprobs = fields.boolean("logprobs", false);
  if (const auto count = fields.integer("top_logprobs", 0, limits.max_logprobs)) {
    if (!reply.logprobs && *count > 0) fields.fail("top_logprobs", "needs \"logprobs\": true");
    reply.top_logprobs = static_cast<int32_t>(*count);
  }
  if (reply.logprobs) request.engine.sampling.logprobs = reply.top_logprobs;
  if (fields.boolean("echo", false)) fields.fail(not_supported("echo", "it is for /v1/completions"));
  reply.show_thinking = fields.boolean("include_reasoning", true);
  const std::string format = fields.string("reasoning_format", 32).value_or("auto");
  if (format != "auto" && format != "none" && format != "deepseek")
    fields.fail("reasoning_format", "must be \"auto\", \"none\" or \"deepseek\"");
  reply.split_thinking = model.thinking.has_value() && format != "none";
  if (fields.failed()) return *fields.error();
  auto prompt = make_chat_prompt(body, model, limits);
  if (ApiError* error = std::get_if<ApiError>(&prompt)) return *error;
  ChatPrompt& chat = std::get<ChatPrompt>(prompt);
  if (std::optional<ApiError> error = fit_prompt(body, model, request.engine, chat.tokens)) return *error;
  reply.starts_thinking = chat.starts_thinking;
  request.prompts.push_back({.tokens = std::move(chat.tokens), .text = {}});
  return request;
}

}  // namespace tidemill
