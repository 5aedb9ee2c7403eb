// What the server must know of the model it serves, without knowing models: names, text, defaults. Filled in by cli.
//
// Plain value; the pointers are borrowed and live as long as the server. Immutable once served.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sampling/sampling_params.h"
#include "server/kv_contract.h"

namespace tidemill {

class ChatTemplate;
class Tokenizer;

// Text around a model's thinking, as its template writes it: "<think>", "</think>".
struct ThinkingMarks {
  std::string open;
  std::string close;
};

// The marks of a template that has both of a known pair; nothing where it does not mark thinking.
std::optional<ThinkingMarks> find_thinking_marks(const std::string& template_source);

struct ServedModel {
  std::vector<std::string> names;  // accepted in "model"; the first is the one in replies. At least one.
  const Tokenizer* tokenizer = nullptr;
  const ChatTemplate* chat_template = nullptr;  // nullptr: chat answers 501
  std::string chat_template_problem;            // why there is none, one sentence
  std::optional<ThinkingMarks> thinking;
  int32_t max_model_len_tokens = 0;
  // Of the model's generation_config; also holds end_token_ids.
  SamplingParams default_sampling;
  std::optional<int64_t> default_max_tokens;
  KvContract kv;
  int64_t created_unix_s = 0;
  std::string owned_by = "tidemill";
};

}  // namespace tidemill
