#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/printable.h"
#include "server/openai/chat_prompt.h"

namespace tidemill {
namespace {

constexpr std::array roles = {"system", "developer", "user", "assistant", "tool", "function"};

std::variant<std::string, ApiError> join_parts(const Json& parts, const std::string& place) {
  if (parts.empty()) return bad_request(place + " must not be an empty list", place);
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string part_place = fmt::format("{}[{}]", place, i);
    const Json& part = parts[i];
    if (part.is_string()) {
      text += part.get_ref<const std::string&>();
      continue;
    }
    if (!part.is_object() || !part.contains("type") || !part["type"].is_string())
      return bad_request(part_place + " must be an object with a type", part_place);
    const std::string& type = part["type"].get_ref<const std::string&>();
    if (type != "text" && type != "input_text" && type != "output_text")
      return bad_request(
          fmt::format("{} has the type \"{}\", the model takes text only", part_place, printable(type, 40)), part_place,
          "unsupported_content");
    if (!part.contains("text") || !part["text"].is_string())
      return bad_request(part_place + ".text must be a string", part_place);
    text += part["text"].get_ref<const std::string&>();
  }
  return text;
}

std::variant<std::string, ApiError> read_content(const Json& message, bool may_be_absent, const std::string& place) {
  const auto content = message.find("content");
  if (content == message.end() || content->is_null()) {
    if (may_be_absent) return std::string();
    return bad_request(place + " must be a string or a list of parts, not null", place);
  }
  if (content->is_string()) return content->get<std::string>();
  if (content->is_array()) return join_parts(*content, place);
  return bad_request(fmt::format("{} must be a string or a list of parts, not {}", place, kind_of(*content)), place);
}

// OpenAI sends arguments as a string of JSON; templates print them as an object.
std::optional<ApiError> read_tool_calls(Json& calls, const std::string& place) {
  if (!calls.is_array()) return bad_request(place + " must be a list", place);
  for (size_t i = 0; i < calls.size(); ++i) {
    Json& call = calls[i];
    const std::string call_place = fmt::format("{}[{}]", place, i);
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object())
      return bad_request(call_place + ".function must be an object", call_place);
    Json& function = call["function"];
    if (!function.contains("name") || !function["name"].is_string())
      return bad_request(call_place + ".function.name must be a string", call_place);
    const auto arguments = function.find("arguments");
    if (arguments == function.end() || !arguments->is_string()) continue;
    auto parsed = parse_client_json(arguments->get_ref<const std::string&>());
    if (Json* object = std::get_if<Json>(&parsed); object && object->is_object()) *arguments = std::move(*object);
  }
  return std::nullopt;
}

std::variant<Json, ApiError> normalize_message(const Json& message, const std::string& place) {
  if (!message.is_object()) return bad_request(place + " must be an object", place);
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string())
    return bad_request(place + ".role must be a string", place + ".role");
  const std::string& name = role->get_ref<const std::string&>();
  if (std::ranges::find(roles, name) == roles.end())
    return bad_request(
        fmt::format("{}.role is \"{}\", known roles are system, developer, user, assistant, tool and function", place,
                    printable(name, 40)),
        place + ".role");
  const auto calls = message.find("tool_calls");
  const bool has_calls = calls != message.end() && !calls->is_null() && !calls->empty();
  auto content = read_content(message, name == "assistant" && has_calls, place + ".content");
  if (ApiError* error = std::get_if<ApiError>(&content)) return *error;
  Json normal = {{"role", name}, {"content", std::get<std::string>(content)}};
  for (const char* key : {"name", "tool_call_id", "reasoning_content", "reasoning"}) {
    const auto value = message.find(key);
    if (value == message.end() || value->is_null()) continue;
    if (!value->is_string())
      return bad_request(fmt::format("{}.{} must be a string", place, key), fmt::format("{}.{}", place, key));
    normal[key] = *value;
  }
  if (has_calls) {
    Json copy = *calls;
    if (auto error = read_tool_calls(copy, place + ".tool_calls")) return *error;
    normal["tool_calls"] = std::move(copy);
  }
  return normal;
}

}  // namespace

std::variant<Json, ApiError> normalize_messages(const Json& body) {
  const auto messages = body.find("messages");
  if (messages == body.end() || messages->is_null()) return bad_request("messages is needed", "messages");
  if (!messages->is_array())
    return bad_request(fmt::format("messages must be a list, not {}", kind_of(*messages)), "messages");
  if (messages->empty()) return bad_request("messages must not be empty", "messages");
  Json normal = Json::array();
  for (size_t i = 0; i < messages->size(); ++i) {
    auto message = normalize_message((*messages)[i], fmt::format("messages[{}]", i));
    if (ApiError* error = std::get_if<ApiError>(&message)) return *error;
    normal.push_back(std::move(std::get<Json>(message)));
  }
  return normal;
}

}  // namespace tidemill
