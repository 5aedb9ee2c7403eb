// What a client asked for, in the engine's terms: token ids, no text.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/token.h"
#include "engine/engine_config.h"
#include "sampling/sampler.h"
#include "sampling/sampling_params.h"

namespace tidemill {

using RequestId = uint64_t;  // given by Engine::submit, never used twice

struct Request {
  std::string label;            // the client's or server's request id, for logs
  std::vector<TokenId> prompt;  // at least one token
  SamplingParams sampling;      // choice i of a request with seed s draws as the only choice of seed s + i
  bool has_seed = false;        // without one the engine picks a fresh seed
  int32_t num_choices = 1;
  std::optional<int64_t> max_tokens;  // absent = up to the context length; 0 = compute the prompt, draw nothing
  int32_t prompt_logprobs = -1;       // k best for each prompt token after the first; -1 = none
  int32_t priority = 0;               // lower runs earlier (vLLM's meaning); only under the priority policy
  LatencyClass latency_class = LatencyClass::standard;
  std::string tenant;                                      // identity of the API key, for fair shares; "" = nobody's
  std::string cache_tenant;                                // prefix blocks are shared only within it
  std::string cache_salt;                                  // and only between equal salts
  std::optional<std::chrono::milliseconds> pin_for;        // keeps the prompt's full blocks so long; 0 ends that
  bool pin_or_end = false;                                 // without the pin no answer: FinishReason::refused
  KvFormatId kv_format = 0;                                // that its blocks are kept in
  bool may_read_reencoded = false;                         // hits may be blocks that were encoded anew, smaller
  bool want_progress = false;                              // progress events while the prompt is read
  std::optional<std::chrono::milliseconds> timeout;        // whole life; ends with FinishReason::timeout
  std::optional<std::chrono::milliseconds> queue_timeout;  // waiting for a first slot
};

// refused: something that it insisted on could not be had (pin_or_end).
enum class FinishReason : uint8_t { stop, length, abort, timeout, error, shutdown, refused };

// As replies and metrics say it, by FinishReason.
inline constexpr std::array finish_reason_names = {"stop",  "length",   "abort",  "timeout",
                                                   "error", "shutdown", "refused"};
constexpr const char* finish_reason_name(FinishReason reason) {
  return finish_reason_names[static_cast<size_t>(reason)];
}

// Where a request's time went. Milliseconds since arrival unless said otherwise.
struct RequestTimings {
  double queue_ms = 0;    // arrival to the first step that computes its prompt
  double prefill_ms = 0;  // from there to the first token
  double decode_ms = 0;   // first to last token
  double time_to_first_token_ms = 0;
  double mean_itl_ms = 0;  // mean gap between tokens
  double itl_jitter = 0;   // standard deviation of the gaps over their mean
  int32_t num_cached_tokens = 0;
  int32_t num_preemptions = 0;
  int32_t num_recomputed_tokens = 0;
  int32_t num_loaded_blocks = 0;   // from the disk tier
  double disk_wait_ms = 0;         // of queue_ms, what was waited for them
  int32_t num_fetched_tokens = 0;  // from tiers below the pool
};

struct Usage {
  int32_t prompt_tokens = 0;
  int32_t completion_tokens = 0;  // delivered
  int32_t discarded_tokens = 0;   // drawn beyond a stop string
  int32_t cached_tokens = 0;
  int32_t reencoded_tokens = 0;  // computed never, but read from blocks that were encoded anew, smaller
  int32_t pinned_tokens = 0;     // of a request that asked for it; 0 = the limit of pins did not allow it
};

// What happens to a request, in order. Exactly one terminal event per choice (finished), the last of which carries
// `request_done`; a refused request has no events at all.
struct RequestEvent {
  enum class Kind : uint8_t { progress, prompt_logprobs, token, finished };
  Kind kind = Kind::token;
  RequestId request = 0;
  int32_t choice = 0;
  Draw draw;                          // token
  std::vector<Draw> prompt_logprobs;  // prompt_logprobs: for prompt tokens 1..n-1; sent once, before the first token
  int32_t num_prompt_computed = 0;    // progress: of num_prompt_tokens, num_cached from the prefix cache
  int32_t num_prompt_tokens = 0;
  int32_t num_cached = 0;
  FinishReason reason = FinishReason::stop;  // finished
  // finished by this token. It was delivered as the last token event and counts as completion, as vLLM counts it;
  // whether its text is shown is the consumer's business.
  std::optional<TokenId> stop_token;
  std::string message;     // finished by error, timeout or shutdown: one sentence
  Usage usage;             // finished: of this choice
  RequestTimings timings;  // finished
  bool request_done = false;
};

}  // namespace tidemill
