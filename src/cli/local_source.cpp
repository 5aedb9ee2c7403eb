#include <chrono>
#include <nlohmann/json.hpp>

#include "cli/local_engine.h"
#include "cli/text_source.h"
#include "text/detokenizer.h"

namespace tidemill {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A prompt's pieces as the tokenizer takes them; views into the prompt.
std::vector<TextSegment> segments_of(const RenderedPrompt& prompt) {
  std::vector<TextSegment> segments;
  for (const PromptPiece& piece : prompt.pieces) {
    segments.push_back({std::string_view(prompt.text).substr(piece.begin, piece.end - piece.begin), piece.trusted});
  }
  return segments;
}

class LocalSource final : public TextSource {
 public:
  explicit LocalSource(std::unique_ptr<LocalEngine> engine) : engine_(std::move(engine)) {}

  std::string model_name() const override { return engine_->stack().name; }

  Result<Answer> chat(const nlohmann::ordered_json& messages, const SamplingOptions& sampling,
                      const AnswerCallbacks& callbacks) override {
    const EngineStack& stack = engine_->stack();
    if (!stack.chat_template) return Error{stack.chat_template_problem};
    nlohmann::ordered_json variables = {{"messages", messages}, {"add_generation_prompt", true}};
    if (const auto bos = stack.tokenizer->bos()) variables["bos_token"] = stack.tokenizer->token_text(*bos);
    if (const auto eos = stack.tokenizer->eos()) variables["eos_token"] = stack.tokenizer->token_text(*eos);
    const RenderResult rendered = stack.chat_template->render(variables);
    if (const RenderError* fault = std::get_if<RenderError>(&rendered)) {
      return error("the model's chat template refuses the conversation: {}", fault->message);
    }
    const RenderedPrompt& prompt = std::get<RenderedPrompt>(rendered);
    return generate(stack.tokenizer->encode_segments(segments_of(prompt), {.add_special = false}), false, sampling,
                    callbacks);
  }

  Result<Answer> complete(const std::string& prompt, const SamplingOptions& sampling,
                          const AnswerCallbacks& callbacks) override {
    return generate(engine_->stack().tokenizer->encode(prompt), true, sampling, callbacks);
  }

 private:
  Request request_for(std::vector<TokenId> prompt, const SamplingOptions& sampling) const {
    Request request;
    request.prompt = std::move(prompt);
    request.sampling = default_sampling(engine_->stack());
    SamplingParams& params = request.sampling;
    if (sampling.temperature) params.temperature = static_cast<float>(*sampling.temperature);
    if (sampling.top_p) params.top_p = static_cast<float>(*sampling.top_p);
    if (sampling.min_p) params.min_p = static_cast<float>(*sampling.min_p);
    if (sampling.repetition_penalty) params.repetition_penalty = static_cast<float>(*sampling.repetition_penalty);
    if (sampling.top_k) params.top_k = static_cast<int32_t>(*sampling.top_k);
    params.seed = static_cast<uint64_t>(sampling.seed.value_or(0));
    request.has_seed = sampling.seed.has_value();
    request.max_tokens = sampling.max_tokens;
    return request;
  }

  Result<Answer> generate(std::vector<TokenId> prompt, bool continues_text, const SamplingOptions& sampling,
                          const AnswerCallbacks& callbacks) {
    if (prompt.empty()) return error("the prompt is empty");
    const Clock::time_point start = Clock::now();
    const Result<RequestId> submitted = engine_->submit(request_for(std::move(prompt), sampling));
    if (!submitted) return submitted.error();
    Answer answer;
    std::string failure;
    Detokenizer detokenizer(*engine_->stack().tokenizer, true, continues_text);
    const auto hand_over = [&](const std::string& piece) {
      if (piece.empty()) return;
      answer.text += piece;
      callbacks.on_text(piece);
    };
    engine_->run(
        [&](const RequestEvent& event) {
          if (event.kind == RequestEvent::Kind::token) {
            if (answer.first_token_seconds == 0) answer.first_token_seconds = seconds_since(start);
            hand_over(detokenizer.push(event.draw.token));
          } else if (event.kind == RequestEvent::Kind::finished) {
            hand_over(detokenizer.finish());
            answer.finish_reason = finish_reason_name(event.reason);
            answer.prompt_tokens = event.usage.prompt_tokens;
            answer.cached_tokens = event.usage.cached_tokens;
            answer.completion_tokens = event.usage.completion_tokens;
            failure = event.message;
          }
        },
        callbacks.should_stop);
    answer.total_seconds = seconds_since(start);
    if (!failure.empty()) return Error{failure};
    return answer;
  }

  std::unique_ptr<LocalEngine> engine_;
};

}  // namespace

Result<std::unique_ptr<TextSource>> make_local_source(const RunOptions& options) {
  Result<std::unique_ptr<LocalEngine>> engine = LocalEngine::load(options);
  if (!engine) return engine.error();
  return std::unique_ptr<TextSource>(std::make_unique<LocalSource>(*std::move(engine)));
}

void add_sampling_options(OptionList& list, SamplingOptions& target) {
  list.group("Sampling");
  list.optional_number("--temperature,--temp", &target.temperature, 0, 100,
                       "0 takes the most likely token every time.");
  list.optional_number("--top-p", &target.top_p, 0, 1, "Only the most likely tokens that make up this share.");
  list.integer("--top-k", &target.top_k, "N", 0, INT32_MAX, "Only the N most likely tokens; 0 = all.");
  list.optional_number("--min-p", &target.min_p, 0, 1, "Only tokens at least this likely, relative to the likeliest.");
  list.optional_number("--repetition-penalty", &target.repetition_penalty, 0.01, 100,
                       "Above 1 makes tokens that came before less likely.");
  list.integer("--seed,-s", &target.seed, "N", 0, int64_t{1} << 52, "Seed of the draws.", "a fresh one");
  list.integer("--max-tokens,-n", &target.max_tokens, "TOKENS", 1, int64_t{1} << 30, "Longest answer.",
               "up to the context length");
}

}  // namespace tidemill
