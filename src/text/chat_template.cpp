#include "text/chat_template.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "text/jinja/evaluator.h"
#include "text/jinja/parser.h"

namespace tidemill {
namespace {

using Json = nlohmann::ordered_json;
using jinja::Value;

bool is_well_known_role(const std::string& role) {
  static constexpr std::array<std::string_view, 8> roles = {"system",    "user",     "assistant", "tool",
                                                            "developer", "function", "ipython",   "model"};
  return std::find(roles.begin(), roles.end(), role) != roles.end();
}

Value from_json(jinja::Runtime& runtime, const Json& json, bool trusted);

Value dict_from_json(jinja::Runtime& runtime, const Json& json, bool trusted) {
  jinja::Dict dict;
  for (const auto& [key, value] : json.items()) {
    dict.set(Value::string(jinja::Text(key, trusted)), from_json(runtime, value, trusted));
  }
  return Value::dict(std::move(dict));
}

Value from_json(jinja::Runtime& runtime, const Json& json, bool trusted) {
  const jinja::Runtime::Level level(runtime);
  switch (json.type()) {
    case Json::value_t::boolean:
      return Value::boolean(json.get<bool>());
    case Json::value_t::number_integer:
      return Value::integer(json.get<int64_t>());
    case Json::value_t::number_unsigned:
      return Value::integer(json.get<uint64_t>());
    case Json::value_t::number_float:
      return Value::real(json.get<double>());
    case Json::value_t::string:
      return Value::string(jinja::Text(json.get_ref<const std::string&>(), trusted));
    case Json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const Json& item : json) items.push_back(from_json(runtime, item, trusted));
      return Value::sequence(std::move(items));
    }
    case Json::value_t::object:
      return dict_from_json(runtime, json, trusted);
    default:
      return Value();
  }
}

Value message_from_json(jinja::Runtime& runtime, const Json& json) {
  if (!json.is_object()) return from_json(runtime, json, false);
  jinja::Dict message;
  for (const auto& [key, value] : json.items()) {
    const bool trusted = key == "role" && value.is_string() && is_well_known_role(value.get_ref<const std::string&>());
    message.set(Value::string(jinja::Text(key, false)), from_json(runtime, value, trusted));
  }
  return Value::dict(std::move(message));
}

Value variable_from_json(jinja::Runtime& runtime, const std::string& name, const Json& json) {
  if (name != "messages" || !json.is_array()) return from_json(runtime, json, name.ends_with("_token"));
  std::vector<Value> messages;
  messages.reserve(json.size());
  for (const Json& message : json) messages.push_back(message_from_json(runtime, message));
  return Value::sequence(std::move(messages));
}

RenderedPrompt to_prompt(const jinja::Text& text) {
  RenderedPrompt prompt;
  size_t begin = 0;
  text.for_each_run([&](std::string_view run, bool trusted) {
    prompt.pieces.push_back({begin, begin + run.size(), trusted});
    begin += run.size();
  });
  prompt.text = text.bytes();
  return prompt;
}

}  // namespace

Result<ChatTemplate> ChatTemplate::parse(std::string source) {
  try {
    return ChatTemplate(jinja::parse_template(source));
  } catch (jinja::Fault& fault) {
    return Error{std::move(fault.message)};
  }
}

RenderResult ChatTemplate::render(const nlohmann::ordered_json& variables, const RenderOptions& options) const {
  jinja::Runtime runtime(options);
  try {
    jinja::Evaluator evaluator(*tree_, runtime);
    for (const char* name : {"tools", "documents"}) {
      if (const auto found = tree_->symbol_of.find(name); found != tree_->symbol_of.end()) {
        evaluator.define(found->second, Value());
      }
    }
    for (const auto& [name, value] : variables.items()) {
      const auto found = tree_->symbol_of.find(name);
      if (found == tree_->symbol_of.end()) continue;
      evaluator.define(found->second, variable_from_json(runtime, name, value));
    }
    return to_prompt(evaluator.run());
  } catch (jinja::Fault& fault) {
    return RenderError{std::move(fault.message), fault.raised_by_template};
  }
}

bool ChatTemplate::mentions(const std::string& variable) const {
  return tree_->symbol_of.contains(variable);
}

}  // namespace tidemill
