// A completion or chat request, read and checked: what goes to the engine, and how its reply shall look.
//
// Plain values. Everything that can be refused with 400 or 404 is refused while one of these is made, before anything
// reaches the engine; the error names the parameter.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/request.h"
#include "server/errors.h"
#include "server/json_fields.h"
#include "server/served_model.h"

namespace tidemill {

enum class Api : uint8_t { completion, chat };

struct ApiLimits {
  int32_t max_logprobs = 20;
  int32_t max_choices = 128;     // n
  int32_t max_prompts = 1024;    // of one /v1/completions request
  int32_t max_sequences = 2048;  // prompts times n
  int32_t max_stop_strings = 16;
  size_t max_stop_bytes = 64 << 10;  // of one stop string
  int32_t max_listed_ids = 1024;     // stop_token_ids, allowed_token_ids, logit_bias, bad_words
  size_t max_salt_bytes = 1024;
  bool allow_request_templates = false;  // the field chat_template
};

inline constexpr int64_t max_pin_ttl_s = 31 * 24 * 3600;

// What the reply shows.
struct ReplyOptions {
  bool stream = false;
  bool include_usage = false;     // streams: a usage chunk before the end
  bool continuous_usage = false;  // streams: usage in every chunk
  bool echo = false;              // completions: the prompt's text first
  bool logprobs = false;
  int32_t top_logprobs = 0;  // alternatives shown for each token
  bool prompt_logprobs = false;
  bool return_token_ids = false;
  bool tokens_as_ids = false;  // "token_id:7" instead of a token's text in logprobs
  bool timings = false;
  bool timings_per_token = false;
  bool progress = false;
  bool kv_cache = false;  // what the KV cache stores
  bool skip_special_tokens = true;
  bool include_stop_text = false;
  std::vector<std::string> stop;
  bool split_thinking = false;  // chat: reasoning_content apart from content
  bool show_thinking = true;
  std::optional<int64_t> pin_ttl_s;  // a request to pin its prompt: the reply says what came of that
  bool starts_thinking = false;      // the prompt ends inside the marks
};

struct Prompt {
  std::vector<TokenId> tokens;
  std::string text;  // what echo repeats; filled in only for echo
};

struct GenerationRequest {
  Api api = Api::completion;
  Request engine;  // but for its prompt
  std::vector<Prompt> prompts;
  ReplyOptions reply;
  std::string request_id;                     // asked for in the body; "" = none
  std::optional<LatencyClass> latency_class;  // the same
};

using ReadResult = std::variant<GenerationRequest, ApiError>;

ReadResult read_completion_request(const Json& body, const ServedModel& model, const ApiLimits& limits);
ReadResult read_chat_request(const Json& body, const ServedModel& model, const ApiLimits& limits);

// Fields that both APIs share: sampling, limits, stream and reply options, and the refusal of known fields that are not
// supported. Leaves errors in `fields`.
void read_common_fields(const Json& body, Fields& fields, const ServedModel& model, const ApiLimits& limits,
                        GenerationRequest& request);

// 404 for a model that is not the served one; nothing when the name is absent or right.
std::optional<ApiError> check_model_name(const Json& body, const ServedModel& model);

// A prompt cut to its last tokens (truncate_prompt_tokens), and refused when it leaves no room in the context for the
// first token of the answer, if there is to be one.
std::optional<ApiError> fit_prompt(const Json& body, const ServedModel& model, const Request& engine,
                                   std::vector<TokenId>& tokens);

// The header that names a latency class where the body does not.
inline constexpr const char* latency_class_header = "X-Latency-Class";

// Sets the class of the engine's request: the body's, else the header's, else the key's, else standard; never a better
// one than the key's. An error where the header says something else than a class.
std::optional<ApiError> choose_latency_class(GenerationRequest& request, std::string_view header,
                                             std::optional<LatencyClass> of_key);

// An API error for the first known but unsupported field that asks for something.
std::optional<ApiError> find_unsupported_field(const Json& body);

// A visible ASCII name of 1 to 128 characters: fit for headers and logs.
bool valid_request_id(std::string_view id);

}  // namespace tidemill
