#include "eval/kv_eval.h"

#include <algorithm>
#include <chrono>

#include "runtime/lockstep.h"
#include "runtime/memory_plan.h"

namespace tidemill {
namespace {

using std::chrono::steady_clock;

constexpr int32_t decoded_rows = 16;  // whose time makes the decode speed

// Tokens with the row from which on they are scored.
struct Piece {
  std::vector<TokenId> tokens;
  int32_t first_row = 0;
};

void begin_with_bos(const Tokenizer& tokenizer, std::vector<TokenId>& tokens) {
  if (tokenizer.adds_bos() && tokenizer.bos()) tokens.insert(tokens.begin(), *tokenizer.bos());
}

// The tokens of the continuation are those after what it has in common with its context alone.
Piece piece_of(const Tokenizer& tokenizer, const EvalOption& option) {
  Piece piece;
  // Without what the model would put at the end.
  const EncodeOptions plain{.add_special = false};
  std::vector<TokenId> context = tokenizer.encode(option.context, plain);
  piece.tokens = tokenizer.encode(option.context + option.continuation, plain);
  begin_with_bos(tokenizer, context);
  begin_with_bos(tokenizer, piece.tokens);
  const auto common = std::ranges::mismatch(context, piece.tokens).in2 - piece.tokens.begin();
  const auto last = static_cast<int32_t>(piece.tokens.size()) - 2;
  piece.first_row = std::clamp(static_cast<int32_t>(common) - 1, 0, std::max(0, last));
  return piece;
}

class Evaluation {
 public:
  Evaluation(const EvalModel& model, const EvalData& data, const KvEvalOptions& options)
      : model_(model), data_(data), options_(options), start_(steady_clock::now()) {}

  Result<KvEvalResult> run() {
    if (Result<void> done = cut_texts(); !done) return done.error();
    if (Result<void> done = cut_tasks(); !done) return done.error();
    if (Result<void> done = make_caches(); !done) return done.error();
    for (const TextPieces& text : texts_) run_text(text);
    for (const TaskPieces& task : tasks_) run_task(task);
    if (options_.speed_tokens > 0 && !stopped_) measure_speed();
    result_.seconds = seconds();
    result_.stopped = stopped_;
    return std::move(result_);
  }

 private:
  struct TextPieces {
    const EvalText* text = nullptr;
    int32_t context_tokens = 0;
    std::vector<Piece> pieces;
  };
  struct TaskPieces {
    const EvalTask* task = nullptr;
    std::vector<std::vector<Piece>> items;
  };

  double seconds() const { return std::chrono::duration<double>(steady_clock::now() - start_).count(); }

  Result<void> cut_texts() {
    for (const EvalText& text : data_.texts) {
      const std::vector<TokenId> tokens = model_.tokenizer->encode(text.text);
      for (const int32_t length : options_.context_lengths) {
        TextPieces cut{&text, length, {}};
        const int64_t in_text = static_cast<int64_t>(tokens.size()) / length;
        if (in_text == 0)
          return error("{} has {} tokens; one piece of context needs {}", text.name, tokens.size(), length);
        const int64_t count = std::min(in_text, std::max<int64_t>(1, options_.text_tokens / length));
        for (int64_t i = 0; i < count; ++i) {
          const auto begin = tokens.begin() + i * length;
          cut.pieces.push_back({{begin, begin + length}, length / 2});
          const Tokenizer& tokenizer = *model_.tokenizer;
          if (tokenizer.adds_bos() && tokenizer.bos()) cut.pieces.back().tokens.front() = *tokenizer.bos();
        }
        enter(cut.pieces.front().tokens.size(), count);
        texts_.push_back(std::move(cut));
      }
    }
    return {};
  }

  Result<void> cut_tasks() {
    for (const EvalTask& task : data_.tasks) {
      TaskPieces cut{&task, {}};
      for (const EvalItem& item : task.items) {
        std::vector<Piece>& pieces = cut.items.emplace_back();
        for (const EvalOption& option : item.options) {
          pieces.push_back(piece_of(*model_.tokenizer, option));
          const size_t size = pieces.back().tokens.size();
          if (size < 2) return error("an item of {} has {} tokens; two are needed", task.name, size);
          if (size > static_cast<size_t>(model_.model->info().context_length))
            return error("an item of {} has {} tokens; the model has {}", task.name, size,
                         model_.model->info().context_length);
          enter(size, 1);
        }
      }
      tasks_.push_back(std::move(cut));
    }
    return {};
  }

  void enter(size_t num_tokens, int64_t count) {
    progress_.num_tokens += static_cast<int64_t>(num_tokens) * count;
    longest_ = std::max(longest_, static_cast<int32_t>(num_tokens));
  }

  Result<void> make_caches() {
    LockstepOptions caches{.reference = options_.reference.formats,
                           .candidates = {},
                           .block_size_tokens = options_.block_size_tokens,
                           .max_tokens = std::max({longest_, options_.speed_tokens, 1}),
                           .backend = model_.backend};
    const KvLayout& layout = model_.model->kv_layout();
    result_.reference = options_.reference;
    result_.reference_bytes_per_token =
        kv_bytes_per_token(layout, options_.block_size_tokens, options_.reference.formats);
    for (const NamedKvFormats& format : options_.formats) {
      caches.candidates.push_back(format.formats);
      FormatFigures& figures = result_.formats.emplace_back();
      figures.format = format;
      figures.bytes_per_token = kv_bytes_per_token(layout, options_.block_size_tokens, format.formats);
    }
    Result<std::unique_ptr<Lockstep>> lockstep = Lockstep::make(*model_.model, caches);
    if (!lockstep) return lockstep.error();
    lockstep_ = *std::move(lockstep);
    return {};
  }

  // False when the run is to end.
  bool go_on(const std::string& what) {
    progress_.what = what;
    progress_.seconds = seconds();
    if (options_.on_progress) options_.on_progress(progress_);
    stopped_ |= options_.should_stop();
    return !stopped_;
  }

  void run_text(const TextPieces& text) {
    for (FormatFigures& format : result_.formats)
      format.texts.push_back({text.text->name, text.text->kind, text.context_tokens, 0, {}});
    for (const Piece& piece : text.pieces) {
      if (!go_on(text.text->name)) return;
      lockstep_->run(piece.tokens, piece.first_row, [&](size_t i, int32_t, const RowDivergence& row) {
        result_.formats[i].texts.back().rows.add(row);
      });
      for (FormatFigures& format : result_.formats) ++format.texts.back().num_pieces;
      progress_.num_done_tokens += static_cast<int64_t>(piece.tokens.size());
    }
  }

  // What one cache makes of the options of an item.
  struct Choice {
    bool all_top = true;
    int32_t best = 0;
    double best_score = 0;
    double sum = 0;
    int64_t count = 0;
    void begin() { sum = 0, count = 0; }
    void add(double logprob, bool is_top) {
      sum += logprob;
      ++count;
      all_top = all_top && is_top;
    }
    void end(int32_t option) {
      const double score = sum / static_cast<double>(count);
      if (option == 0 || score > best_score) best = option, best_score = score;
    }
    bool right(const EvalItem& item) const { return item.options.size() == 1 ? all_top : best == item.gold; }
  };

  void run_task(const TaskPieces& task) {
    for (FormatFigures& format : result_.formats) format.tasks.push_back({task.task->name, task.task->kind, {}, {}});
    for (size_t i = 0; i < task.items.size(); ++i) {
      if (!go_on(task.task->name)) return;
      run_item(task.task->items[i], task.items[i]);
    }
  }

  void run_item(const EvalItem& item, const std::vector<Piece>& pieces) {
    std::vector<Choice> own(result_.formats.size()), reference(result_.formats.size());
    for (size_t option = 0; option < pieces.size(); ++option) {
      const Piece& piece = pieces[option];
      for (Choice& choice : own) choice.begin();
      for (Choice& choice : reference) choice.begin();
      lockstep_->run(piece.tokens, piece.first_row, [&](size_t i, int32_t position, const RowDivergence& row) {
        const TokenId next = piece.tokens[static_cast<size_t>(position) + 1];
        own[i].add(row.logprob, row.top == next);
        reference[i].add(row.reference_logprob, row.reference_top == next);
        result_.formats[i].tasks.back().rows.add(row);
      });
      for (Choice& choice : own) choice.end(static_cast<int32_t>(option));
      for (Choice& choice : reference) choice.end(static_cast<int32_t>(option));
      progress_.num_done_tokens += static_cast<int64_t>(piece.tokens.size());
    }
    for (size_t i = 0; i < result_.formats.size(); ++i)
      result_.formats[i].tasks.back().items.add(reference[i].right(item), own[i].right(item));
  }

  void measure_speed() {
    std::vector<TokenId> tokens;
    const auto vocab_size = static_cast<uint32_t>(model_.model->info().vocab_size);
    for (int32_t i = 0; i < options_.speed_tokens; ++i)
      tokens.push_back(static_cast<TokenId>(static_cast<uint32_t>(i) * 7919u % vocab_size));
    go_on("speed");
    result_.reference_speed = speed_of(lockstep_->reference(), tokens);
    for (size_t i = 0; i < result_.formats.size(); ++i)
      result_.formats[i].speed = speed_of(lockstep_->candidate(i), tokens);
  }

  // Decode rows have their logits computed, as for a draw.
  static SpeedFigures speed_of(TextRunner& runner, std::span<const TokenId> tokens) {
    const auto length = static_cast<int32_t>(tokens.size());
    SpeedFigures speed{.context_tokens = length};
    const int32_t prompt = std::max(1, length - decoded_rows);
    runner.start(tokens);
    const steady_clock::time_point begin = steady_clock::now();
    while (runner.num_computed() < prompt) runner.advance(std::min(runner.next_rows(), prompt - runner.num_computed()));
    const steady_clock::time_point middle = steady_clock::now();
    while (!runner.done()) runner.advance(1, RowUse::keep);
    const steady_clock::time_point end = steady_clock::now();
    speed.prefill_tokens_per_s = prompt / std::chrono::duration<double>(middle - begin).count();
    if (length > prompt)
      speed.decode_tokens_per_s = (length - prompt) / std::chrono::duration<double>(end - middle).count();
    return speed;
  }

  const EvalModel& model_;
  const EvalData& data_;
  const KvEvalOptions& options_;
  steady_clock::time_point start_;
  std::vector<TextPieces> texts_;
  std::vector<TaskPieces> tasks_;
  int32_t longest_ = 0;
  std::unique_ptr<Lockstep> lockstep_;
  EvalProgress progress_;
  bool stopped_ = false;
  KvEvalResult result_;
};

template <typename Figures, typename Part, typename Statistics>
Statistics sum_where(const std::vector<Figures>& all, Statistics Figures::*part, const Part& fits) {
  Statistics sum;
  for (const Figures& each : all) {
    if (fits(each)) sum.add(each.*part);
  }
  return sum;
}

}  // namespace

RowStatistics FormatFigures::rows_of(TextKind kind) const {
  return sum_where(texts, &TextFigures::rows, [kind](const TextFigures& text) { return text.kind == kind; });
}

RowStatistics FormatFigures::rows_of_length(int32_t context_tokens) const {
  return sum_where(texts, &TextFigures::rows,
                   [context_tokens](const TextFigures& text) { return text.context_tokens == context_tokens; });
}

RowStatistics FormatFigures::all_rows() const {
  return sum_where(texts, &TextFigures::rows, [](const TextFigures&) { return true; });
}

ItemStatistics FormatFigures::items_of(TextKind kind) const {
  return sum_where(tasks, &TaskFigures::items, [kind](const TaskFigures& task) { return task.kind == kind; });
}

ItemStatistics FormatFigures::all_items() const {
  return sum_where(tasks, &TaskFigures::items, [](const TaskFigures&) { return true; });
}

const FormatFigures* KvEvalResult::floor() const {
  const auto found =
      std::ranges::find_if(formats, [](const FormatFigures& format) { return format.format.name == floor_format; });
  return found == formats.end() ? nullptr : &*found;
}

Result<KvEvalResult> evaluate_kv(const EvalModel& model, const EvalData& data, const KvEvalOptions& options) {
  return Evaluation(model, data, options).run();
}

}  // namespace tidemill
