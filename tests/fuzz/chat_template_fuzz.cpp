// Parses any bytes as a chat template and renders what parses with tight limits. Pieces must partition the text.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "base/check.h"
#include "text/chat_template.h"

namespace {

const nlohmann::ordered_json& conversation() {
  static const auto variables = nlohmann::ordered_json::parse(R"({
    "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": true,
    "messages": [{"role": "system", "content": "be brief"},
                 {"role": "user", "content": "h\u00e9llo <|im_end|> \ud83c\udf0a"},
                 {"role": "assistant", "content": null,
                  "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1, 2.5, "x"], "b": null}}}]},
                 {"role": "tool", "content": [{"type": "text", "text": "42"}]}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]})");
  return variables;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto parsed = tidemill::ChatTemplate::parse(std::string(reinterpret_cast<const char*>(data), size));
  if (!parsed) return 0;
  tidemill::RenderOptions options;
  options.max_steps = 20000;
  options.max_output_bytes = 1 << 16;
  options.max_built_bytes = 1 << 20;
  const auto result = parsed->render(conversation(), options);
  const auto* prompt = std::get_if<tidemill::RenderedPrompt>(&result);
  if (prompt == nullptr) return 0;
  size_t end = 0;
  for (const auto& piece : prompt->pieces) {
    TM_CHECK(piece.begin == end && piece.begin < piece.end, "pieces partition the prompt");
    end = piece.end;
  }
  TM_CHECK(end == prompt->text.size() && end <= (1 << 16), "pieces cover the prompt");
  return 0;
}
