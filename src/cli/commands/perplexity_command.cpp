// tidemill perplexity: how well the model predicts a text, chunk by chunk.
#include <cmath>
#include <cstdio>
#include <map>

#include "cli/commands/command.h"
#include "cli/local_engine.h"

namespace tidemill {
namespace {

constexpr uint64_t max_text_bytes = uint64_t{1} << 30;
constexpr int32_t chunks_at_once = 4;

// Sums over the tokens that were scored.
struct Score {
  double negative_log_likelihood = 0;
  int64_t num_tokens = 0;
  double perplexity() const { return std::exp(negative_log_likelihood / static_cast<double>(num_tokens)); }
};

class PerplexityCommand final : public Command {
 public:
  CommandDescription description() const override {
    return {
        "perplexity", "Measure how well a model predicts a text.",
        "The text is cut into chunks of --ctx-size tokens, each on its own; where the model begins texts with BOS,\n"
        "it replaces a chunk's first token. The second half of each chunk is scored."};
  }

  void add_options(OptionList& options) override {
    options.positional("FILE", &text_path_, "The text, UTF-8.");
    options.text("--model,-m", &run_.model_path, "PATH", "Model file or folder.");
    options.integer("--ctx-size,-c", &chunk_tokens_, "TOKENS", 8, 1 << 20, "Tokens in a chunk.");
    options.integer("--chunks", &max_chunks_, "N", 1, 1 << 30, "At most so many chunks.", "all");
    add_model_options(options, run_);
    add_compute_options(options, run_);
    add_memory_options(options, run_);
  }

  Result<void> check() override {
    if (run_.model_path.empty()) return error("perplexity needs a model: --model PATH");
    if (text_path_.empty()) return error("perplexity needs a text: the path of a file");
    return {};
  }

  Result<int> run() override {
    const Result<std::string> text = read_text_file(text_path_, max_text_bytes);
    if (!text) return text.error();
    run_.max_model_len = chunk_tokens_ + 1;  // the engine wants room for one more
    run_.engine.max_num_seqs = chunks_at_once;
    run_.engine.max_num_batched_tokens = 512;
    run_.engine.prefix_caching = false;
    Result<std::unique_ptr<LocalEngine>> engine = LocalEngine::load(run_);
    if (!engine) return engine.error();
    const std::vector<TokenId> tokens = (*engine)->stack().tokenizer->encode(*text);
    const int64_t in_text = static_cast<int64_t>(tokens.size()) / chunk_tokens_;
    const int64_t num_chunks = max_chunks_ ? std::min(in_text, *max_chunks_) : in_text;
    if (num_chunks == 0) {
      return error("the text has {} tokens; one chunk needs {}", tokens.size(), chunk_tokens_);
    }
    const Result<Score> score = score_chunks(**engine, tokens, num_chunks);
    if (!score) return score.error();
    std::printf("perplexity = %.4f\n", score->perplexity());
    return 0;
  }

 private:
  Request request_for(const LocalEngine& engine, const std::vector<TokenId>& tokens, int64_t chunk) const {
    Request request;
    const auto begin = tokens.begin() + chunk * chunk_tokens_;
    request.prompt.assign(begin, begin + chunk_tokens_);
    const Tokenizer& tokenizer = *engine.stack().tokenizer;
    if (tokenizer.adds_bos() && tokenizer.bos()) request.prompt.front() = *tokenizer.bos();
    request.max_tokens = 0;
    request.prompt_logprobs = 0;
    return request;
  }

  Score score_of(const std::vector<Draw>& draws) const {
    // draws[i] is of the chunk's token i + 1; the tokens of the second half but its first are scored.
    Score score;
    for (size_t i = static_cast<size_t>(chunk_tokens_) / 2; i < draws.size(); ++i) {
      score.negative_log_likelihood -= draws[i].logprob;
      ++score.num_tokens;
    }
    return score;
  }

  Result<Score> score_chunks(LocalEngine& engine, const std::vector<TokenId>& tokens, int64_t num_chunks) const {
    Score total;
    for (int64_t first = 0; first < num_chunks; first += chunks_at_once) {
      std::map<RequestId, Score> scores;  // ascending ids: the chunks' order
      std::string failure;
      const int64_t end = std::min<int64_t>(num_chunks, first + chunks_at_once);
      for (int64_t chunk = first; chunk < end; ++chunk) {
        const Result<RequestId> request = engine.submit(request_for(engine, tokens, chunk));
        if (!request) return request.error();
        scores[*request] = {};
      }
      engine.run([&](const RequestEvent& event) {
        if (event.kind == RequestEvent::Kind::prompt_logprobs) scores[event.request] = score_of(event.prompt_logprobs);
        if (event.kind == RequestEvent::Kind::finished && !event.message.empty()) failure = event.message;
      });
      if (!failure.empty()) return Error{failure};
      int64_t chunk = first;
      for (const auto& [id, score] : scores) {
        if (score.num_tokens == 0) return error("the engine sent no log-probabilities for chunk {}", chunk);
        total.negative_log_likelihood += score.negative_log_likelihood;
        total.num_tokens += score.num_tokens;
        std::printf("chunk %lld: %.4f, all so far %.4f\n", static_cast<long long>(++chunk), score.perplexity(),
                    total.perplexity());
        std::fflush(stdout);
      }
    }
    return total;
  }

  RunOptions run_;
  std::string text_path_;
  int32_t chunk_tokens_ = 512;
  std::optional<int64_t> max_chunks_;
};

}  // namespace

std::unique_ptr<Command> make_perplexity_command() {
  return std::make_unique<PerplexityCommand>();
}

}  // namespace tidemill
