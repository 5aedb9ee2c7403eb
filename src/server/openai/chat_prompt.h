// A conversation, checked and made into a prompt: messages -> template variables -> text -> token ids.
//
// Text from the request never becomes a control token: the template marks what it wrote itself, and only that is looked
// through for control tokens. Nothing is dropped in silence: a message or part that cannot be shown is an error that
// names its place.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "server/openai/generation_request.h"
#include "text/chat_template.h"

namespace tidemill {

struct ChatPrompt {
  std::vector<PromptPiece> pieces;
  std::string text;
  std::vector<TokenId> tokens;
  bool starts_thinking = false;  // the text ends behind an opening thinking mark
};

// Reads messages, tools, tool_choice, documents, add_generation_prompt, continue_final_message, chat_template,
// chat_template_kwargs, reasoning_effort and add_special_tokens of the body.
std::variant<ChatPrompt, ApiError> make_chat_prompt(const Json& body, const ServedModel& model,
                                                    const ApiLimits& limits);

// The messages in the one form that templates are given: content a string, parts joined in order, a missing content of
// an assistant's tool calls "", arguments of tool calls as objects.
std::variant<Json, ApiError> normalize_messages(const Json& body);

}  // namespace tidemill
