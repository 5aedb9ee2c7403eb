// tidemill bench: how fast a model reads prompts and writes answers, at several batch sizes.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "cli/commands/command.h"
#include "cli/engine_stack.h"
#include "cli/local_engine.h"
#include "cli/options/values.h"
#include "engine/step_plan.h"

namespace tidemill {
namespace {

using Clock = std::chrono::steady_clock;

struct BenchRow {
  double prefill_seconds = 0;
  double decode_seconds = 0;
};

// Runs one batch through the executor by hand-made plans: first all prompts, in steps of at most step_rows rows, then
// one row of every sequence per step. No scheduler is in between, so the two phases do not mix.
class BatchRun {
 public:
  BatchRun(EngineStack& stack, Executor& executor, int32_t batch, int32_t prompt_tokens, int32_t new_tokens)
      : stack_(stack), executor_(executor), batch_(batch), prompt_tokens_(prompt_tokens), new_tokens_(new_tokens) {}

  BenchRow run() {
    BenchRow row;
    Clock::time_point start = Clock::now();
    prefill(stack_.engine_config.max_num_batched_tokens);
    row.prefill_seconds = std::chrono::duration<double>(Clock::now() - start).count();
    start = Clock::now();
    for (int32_t i = 0; i < new_tokens_; ++i) decode(prompt_tokens_ + i);
    row.decode_seconds = std::chrono::duration<double>(Clock::now() - start).count();
    end();
    return row;
  }

 private:
  // Token ids spread over the vocabulary, different for every sequence.
  std::vector<TokenId> prompt_of(int32_t sequence) const {
    const uint64_t vocabulary = static_cast<uint64_t>(stack_.model->info().vocab_size);
    std::vector<TokenId> tokens(prompt_tokens_);
    uint64_t state = static_cast<uint64_t>(sequence) + 1;
    for (TokenId& token : tokens) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      token = static_cast<TokenId>((state >> 33) % vocabulary);
    }
    return tokens;
  }

  // All blocks that a sequence will need, in every group.
  std::vector<TableChange> tables_of(int32_t sequence) const {
    const EngineConfig& config = stack_.engine_config;
    const int32_t blocks = (prompt_tokens_ + new_tokens_ + config.block_size_tokens) / config.block_size_tokens;
    std::vector<TableChange> tables(config.groups.size());
    for (size_t group = 0; group < tables.size(); ++group) {
      for (int32_t i = 0; i < blocks; ++i) {
        BlockPlace place;
        place.size_class = sealed_class(config.groups[group], static_cast<int32_t>(group));
        place.slot = sequence * blocks + i;
        tables[group].appended.push_back(place);
      }
    }
    return tables;
  }

  PlannedSequence row_of(int32_t sequence, int32_t first_position, int32_t num_rows) const {
    PlannedSequence planned;
    planned.slot = sequence;
    planned.first_position = first_position;
    planned.num_rows = num_rows;
    planned.tables.resize(stack_.engine_config.groups.size());
    return planned;
  }

  void prefill(int32_t step_rows) {
    StepPlan plan;
    last_tokens_.assign(batch_, 0);
    int32_t room = step_rows;
    for (int32_t sequence = 0; sequence < batch_; ++sequence) {
      for (int32_t position = 0; position < prompt_tokens_;) {
        const int32_t rows = std::min(room, prompt_tokens_ - position);
        PlannedSequence planned = row_of(sequence, position, rows);
        if (position == 0) {
          planned.start = SequenceStart{prompt_of(sequence), prompt_tokens_, greedy()};
          planned.tables = tables_of(sequence);
        }
        position += rows;
        planned.draw = position == prompt_tokens_;
        plan.sequences.push_back(std::move(planned));
        room -= rows;
        if (room == 0) {
          execute(plan);
          room = step_rows;
        }
      }
    }
    if (!plan.sequences.empty()) execute(plan);
  }

  void decode(int32_t position) {
    StepPlan plan;
    for (int32_t sequence = 0; sequence < batch_; ++sequence) {
      PlannedSequence planned = row_of(sequence, position, 1);
      planned.new_tokens = {last_tokens_[sequence]};
      planned.draw = true;
      plan.sequences.push_back(std::move(planned));
    }
    execute(plan);
  }

  void end() {
    StepPlan plan;
    for (int32_t sequence = 0; sequence < batch_; ++sequence) plan.ended.push_back(sequence);
    execute(plan);
  }

  void execute(StepPlan& plan) {
    plan.step = ++num_steps_;
    const StepResult result = executor_.execute(plan);
    for (size_t i = 0; i < result.sequences.size(); ++i) {
      if (result.sequences[i].draw) last_tokens_[plan.sequences[i].slot] = result.sequences[i].draw->token;
    }
    plan = StepPlan{};
  }

  static SamplingParams greedy() {
    SamplingParams params;
    params.temperature = 0;
    return params;
  }

  EngineStack& stack_;
  Executor& executor_;
  const int32_t batch_, prompt_tokens_, new_tokens_;
  std::vector<TokenId> last_tokens_;
  uint64_t num_steps_ = 0;
};

class BenchCommand final : public Command {
 public:
  CommandDescription description() const override {
    return {"bench", "Measure how fast a model reads prompts and writes answers.",
            "Offline: no server and no scheduler, first all prompts of a batch, then its answers, greedy. Columns:\n"
            "sequences, prompt and new tokens of each, seconds and tokens per second of both phases."};
  }

  void add_options(OptionList& options) override {
    options.positional("[MODEL]", &positional_model_, "Model file or folder.");
    options.text("--model,-m", &run_.model_path, "PATH", "Model file or folder.");
    options.integer("--prompt-tokens,--npp", &prompt_tokens_, "TOKENS", 1, 1 << 20, "Prompt of each sequence.");
    options.integer("--new-tokens,--ntg", &new_tokens_, "TOKENS", 1, 1 << 20, "Answer of each sequence.");
    options.custom("--batch-sizes,--npl", "N,N,...", "Sequences at once.", "1,4,16,32,64",
                   [this](const std::string& text) { return set_batch_sizes(text); });
    options.integer("--repeat", &repeat_, "N", 1, 1000, "Runs of each batch size, of which the fastest counts.");
    options.integer("--max-num-batched-tokens,--ubatch-size", &run_.engine.max_num_batched_tokens, "TOKENS", 1, 65536,
                    "Prompt tokens computed in one step.");
    add_model_options(options, run_);
    add_compute_options(options, run_);
    add_memory_options(options, run_);
  }

  Result<void> check() override {
    if (run_.model_path.empty()) run_.model_path = positional_model_;
    if (run_.model_path.empty()) return error("bench needs a model: tidemill bench MODEL");
    return {};
  }

  Result<int> run() override {
    run_.engine.max_num_seqs = *std::max_element(batch_sizes_.begin(), batch_sizes_.end());
    Result<std::unique_ptr<EngineStack>> loaded = load_engine_stack(run_, show_loading);
    if (!loaded) return loaded.error();
    EngineStack& stack = **loaded;
    if (Result<void> fits = check_size(stack); !fits) return fits.error();
    std::printf("%s, %s kernels, %d threads, KV %s\n", stack.name.c_str(),
                std::string(stack.backend->kernels()).c_str(), stack.backend->num_threads(),
                bytes_text(stack.memory.kv_budget_bytes).c_str());
    std::printf("|%5s |%6s |%6s |%8s |%9s |%8s |%9s |%8s |%9s |\n", "B", "PP", "TG", "T_PP s", "S_PP t/s", "T_TG s",
                "S_TG t/s", "T s", "S t/s");
    const std::unique_ptr<Executor> executor = make_executor(stack);
    BatchRun(stack, *executor, 1, std::min(prompt_tokens_, 32), 2).run();  // touches all weights once
    for (const int32_t batch : batch_sizes_) print_row(batch, fastest(stack, *executor, batch));
    return 0;
  }

 private:
  Result<void> set_batch_sizes(const std::string& text) {
    batch_sizes_.clear();
    size_t begin = 0;
    while (begin <= text.size()) {
      const size_t end = std::min(text.find(',', begin), text.size());
      const Result<int64_t> size = parse_scaled(std::string_view(text).substr(begin, end - begin));
      if (!size) return size.error();
      if (*size < 1 || *size > 4096) return error("{} is not between 1 and 4096", *size);
      batch_sizes_.push_back(static_cast<int32_t>(*size));
      begin = end + 1;
    }
    return {};
  }

  Result<void> check_size(const EngineStack& stack) const {
    const int32_t tokens = prompt_tokens_ + new_tokens_;
    if (tokens >= stack.engine_config.max_model_len_tokens) {
      return error("{} prompt and {} new tokens do not fit the model's {}", prompt_tokens_, new_tokens_,
                   stack.engine_config.max_model_len_tokens);
    }
    size_t sequence_bytes = 0;
    const int32_t block = stack.engine_config.block_size_tokens;
    for (const BlockGroup& group : stack.engine_config.groups) {
      sequence_bytes += group.sealed_bytes * static_cast<size_t>((tokens + block) / block);
    }
    const size_t needed = sequence_bytes * static_cast<size_t>(stack.engine_config.max_num_seqs);
    if (needed > stack.memory.kv_budget_bytes) {
      return error("{} sequences of {} tokens need {} of KV cache; there are {} (--kv-cache-memory-bytes)",
                   stack.engine_config.max_num_seqs, tokens, bytes_text(needed),
                   bytes_text(stack.memory.kv_budget_bytes));
    }
    return {};
  }

  BenchRow fastest(EngineStack& stack, Executor& executor, int32_t batch) const {
    BenchRow best;
    for (int32_t i = 0; i < repeat_; ++i) {
      const BenchRow row = BatchRun(stack, executor, batch, prompt_tokens_, new_tokens_).run();
      if (i == 0 || row.prefill_seconds < best.prefill_seconds) best.prefill_seconds = row.prefill_seconds;
      if (i == 0 || row.decode_seconds < best.decode_seconds) best.decode_seconds = row.decode_seconds;
    }
    return best;
  }

  void print_row(int32_t batch, const BenchRow& row) const {
    const double prompt = static_cast<double>(batch) * prompt_tokens_;
    const double written = static_cast<double>(batch) * new_tokens_;
    const double total = row.prefill_seconds + row.decode_seconds;
    std::printf("|%5d |%6d |%6d |%8.3f |%9.1f |%8.3f |%9.1f |%8.3f |%9.1f |\n", batch, prompt_tokens_, new_tokens_,
                row.prefill_seconds, prompt / row.prefill_seconds, row.decode_seconds, written / row.decode_seconds,
                total, (prompt + written) / total);
    std::fflush(stdout);
  }

  RunOptions run_ = [] {
    RunOptions options;
    options.engine.max_num_batched_tokens = 512;
    return options;
  }();
  std::string positional_model_;
  int32_t prompt_tokens_ = 128;
  int32_t new_tokens_ = 64;
  int32_t repeat_ = 1;
  std::vector<int32_t> batch_sizes_ = {1, 4, 16, 32, 64};
};

}  // namespace

std::unique_ptr<Command> make_bench_command() {
  return std::make_unique<BenchCommand>();
}

}  // namespace tidemill
