// Where `chat` and `complete` get their answers from: a model in this process, or a running server.
//
// One thread. A call blocks until the answer is complete, hands over its text as it comes, and ends early where
// should_stop turns true (what came until then is the answer).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "base/result.h"
#include "cli/options/run_options.h"

namespace tidemill {

// What the user said of the sampling; nullopt leaves it to the model's own defaults.
struct SamplingOptions {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k, seed, max_tokens;
};
void add_sampling_options(OptionList& list, SamplingOptions& target);

struct Answer {
  std::string text;
  std::string finish_reason;  // "stop", "length", "abort"
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t completion_tokens = 0;
  double first_token_seconds = 0;
  double total_seconds = 0;
};

struct AnswerCallbacks {
  std::function<void(const std::string&)> on_text;
  std::function<bool()> should_stop;
};

class TextSource {
 public:
  virtual ~TextSource() = default;
  virtual std::string model_name() const = 0;
  // messages: the OpenAI API's list of {"role", "content"}.
  virtual Result<Answer> chat(const nlohmann::ordered_json& messages, const SamplingOptions& sampling,
                              const AnswerCallbacks& callbacks) = 0;
  virtual Result<Answer> complete(const std::string& prompt, const SamplingOptions& sampling,
                                  const AnswerCallbacks& callbacks) = 0;
};

Result<std::unique_ptr<TextSource>> make_local_source(const RunOptions& options);

// url: "http://127.0.0.1:8000", with or without "/v1". model "" = the server's first one.
struct ServerAddress {
  std::string url;
  std::string api_key;
  std::string model;
};
Result<std::unique_ptr<TextSource>> make_remote_source(const ServerAddress& address);

}  // namespace tidemill
