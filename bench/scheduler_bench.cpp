// How levers of the scheduler trade gaps between tokens against time to first token: replays a workload (a .jsonl file
// of prompts and max_tokens) on the simulated executor in virtual time, so many requests at once, and prints a table.
// Seconds of work for minutes of traffic. Without a workload: how long the engine's own part of a step takes, in real
// time.
//
//   scheduler_bench [WORKLOAD.jsonl] [--quick] [--concurrency N] [--class CLASS] [--rows N,N] [--multiples X,X]
//                   [--step-ms X] [--row-us X] [--draw-us X] [--position-ns X] [--prompt-position-ns X]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "sim/simulated_executor.h"
#include "sim/virtual_clock.h"

namespace tidemill {
namespace {

struct Row {
  int32_t num_prompt_tokens = 0;
  int32_t num_output_tokens = 0;
  std::string kind;
};

std::vector<Row> read_workload(const std::string& path) {
  std::vector<Row> rows;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line.empty()) continue;
    const nlohmann::json row = nlohmann::json::parse(line);
    const size_t num_chars = row["prompt"].get_ref<const std::string&>().size();
    rows.push_back({std::max<int32_t>(1, static_cast<int32_t>(num_chars / 4)), row["max_tokens"].get<int32_t>(),
                    row.value("class", "all")});
  }
  return rows;
}

struct Options {
  std::string workload;
  int32_t concurrency = 32;
  CostModel cost{.per_step = std::chrono::microseconds(5000),
                 .per_row = std::chrono::microseconds(280),
                 .per_draw = std::chrono::microseconds(120),
                 .per_position = std::chrono::nanoseconds(400),
                 .per_prompt_position = std::chrono::nanoseconds(120)};
  std::vector<double> multiples = {0, 1.5, 2, 2.3, 3, 4};
  std::vector<double> rows = {512};
};

double percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[std::min(values.size() - 1, static_cast<size_t>(share * static_cast<double>(values.size())))];
}

// What one request saw.
struct Trace {
  double sent = 0;
  std::vector<double> tokens;
};

class Replay final : public EventListener {
 public:
  Replay(const Options& options, const std::vector<Row>& rows, double multiple, int32_t max_rows)
      : options_(options), rows_(rows) {
    EngineConfig config;
    config.groups = {{.tail_bytes = 100, .sealed_bytes = 100, .same_format = true, .window_tokens = 0}};
    config.kv_budget_bytes = 100 * 8192;
    config.max_model_len_tokens = 8192;
    config.max_num_batched_tokens = max_rows;
    config.itl_multiple = multiple;
    config.seed = 1;
    SimulatedOptions simulated;
    simulated.cost = options.cost;
    simulated.clock = &clock_;
    engine_ = std::make_unique<Engine>(config, std::make_unique<SimulatedExecutor>(config, simulated), clock_, *this);
  }

  void publish(std::vector<RequestEvent> events) override {
    for (const RequestEvent& event : events) {
      const size_t index = indices_.at(event.request);
      if (event.kind == RequestEvent::Kind::token) traces_[index].tokens.push_back(now_s());
      if (event.request_done) --num_open_;
    }
  }

  void run() {
    traces_.resize(rows_.size());
    for (size_t next = 0; next < rows_.size() || num_open_ > 0;) {
      for (; next < rows_.size() && num_open_ < options_.concurrency; ++next) send(next);
      engine_->step_once();
    }
  }

  void print(double multiple, int32_t max_rows) {
    std::map<std::string, std::vector<size_t>> kinds;
    for (size_t i = 0; i < rows_.size(); ++i) {
      kinds["all"].push_back(i);
      if (rows_[i].kind != "all") kinds[rows_[i].kind].push_back(i);
    }
    const EngineStats stats = engine_->stats();
    for (const auto& [kind, members] : kinds) {
      std::vector<double> first, gaps, jitters;
      int64_t num_tokens = 0;
      for (size_t i : members) {
        const Trace& trace = traces_[i];
        num_tokens += std::ssize(trace.tokens);
        first.push_back((trace.tokens.front() - trace.sent) * 1e3);
        std::vector<double> own;
        for (size_t t = 1; t < trace.tokens.size(); ++t) own.push_back((trace.tokens[t] - trace.tokens[t - 1]) * 1e3);
        gaps.insert(gaps.end(), own.begin(), own.end());
        if (own.size() >= 8) jitters.push_back(jitter(own));
      }
      const double p50 = percentile(gaps, 0.5), p99 = percentile(gaps, 0.99);
      fmt::print("{:8.2f} {:5} {:8} {:8.1f} {:8.1f} {:9.0f} {:9.0f} {:7.1f} {:7.1f} {:7.1f} {:6.2f} {:6.2f} {:6}\n",
                 multiple, max_rows, kind, now_s(), static_cast<double>(num_tokens) / now_s(), percentile(first, 0.5),
                 percentile(first, 0.99), p50, p99, percentile(gaps, 1), p99 / p50, percentile(jitters, 0.5),
                 stats.num_steps);
    }
  }

  static void print_head() {
    fmt::print("{:>8} {:>5} {:8} {:>8} {:>8} {:>9} {:>9} {:>7} {:>7} {:>7} {:>6} {:>6} {:>6}\n", "multiple", "rows",
               "class", "wall s", "tok/s", "TTFT p50", "p99 ms", "gap p50", "p99", "max ms", "ratio", "jitter",
               "steps");
  }

 private:
  static double jitter(const std::vector<double>& gaps) {
    double sum = 0, squares = 0;
    for (double gap : gaps) {
      sum += gap;
      squares += gap * gap;
    }
    const double n = static_cast<double>(gaps.size());
    return std::sqrt(std::max(0.0, squares / n - sum * sum / n / n)) / (sum / n);
  }
  double now_s() const { return std::chrono::duration<double>(clock_.now() - begin_).count(); }
  void send(size_t index) {
    Request request;
    for (int32_t i = 0; i < rows_[index].num_prompt_tokens; ++i) {
      request.prompt.push_back(static_cast<TokenId>((index * 7919 + static_cast<size_t>(i) * 31) % 900));
    }
    request.max_tokens = rows_[index].num_output_tokens;
    request.sampling.temperature = 0;
    request.sampling.ignore_eos = true;
    traces_[index].sent = now_s();
    indices_[std::get<RequestId>(engine_->submit(std::move(request)))] = index;
    ++num_open_;
  }

  const Options& options_;
  const std::vector<Row>& rows_;
  VirtualClock clock_;
  Clock::Time begin_ = clock_.now();
  std::unique_ptr<Engine> engine_;
  std::map<RequestId, size_t> indices_;
  std::vector<Trace> traces_;
  int32_t num_open_ = 0;
};

// Draws without computing, so that what is left is the engine's own work.
class EmptyExecutor final : public Executor {
 public:
  StepResult execute(const StepPlan& plan) override {
    StepResult result = std::exchange(spare_, {});
    result.sequences.clear();
    result.sequences.resize(plan.sequences.size());
    for (size_t i = 0; i < plan.sequences.size(); ++i) {
      if (plan.sequences[i].draw) result.sequences[i].draw.emplace().token = 5;
    }
    return result;
  }
  void recycle(StepResult result) override { spare_ = std::move(result); }

 private:
  StepResult spare_;
};

class Sink final : public EventListener {
 public:
  void publish(std::vector<RequestEvent> events) override { spare_ = std::move(events); }
  std::vector<RequestEvent> spare_events() override { return std::exchange(spare_, {}); }

 private:
  std::vector<RequestEvent> spare_;
};

void measure_own_work(int32_t num_streams, int32_t num_waiting, int32_t num_steps) {
  EngineConfig config;
  config.groups = {{.tail_bytes = 100, .sealed_bytes = 100, .same_format = true, .window_tokens = 0}};
  config.kv_budget_bytes = 100 * 65536;
  config.max_model_len_tokens = 8192;
  config.max_num_seqs = num_streams;
  const SystemClock clock;
  Sink sink;
  Engine engine(config, std::make_unique<EmptyExecutor>(), clock, sink);
  for (int32_t i = 0; i < num_streams + num_waiting; ++i) {
    Request request;
    for (int32_t t = 0; t < 100; ++t) request.prompt.push_back((i * 7919 + t * 31) % 900);
    request.max_tokens = 8000;
    request.sampling.ignore_eos = true;
    static_cast<void>(engine.submit(std::move(request)));
  }
  for (int i = 0; i < 200; ++i) engine.step_once();
  const EngineStats before = engine.stats();
  for (int32_t i = 0; i < num_steps; ++i) engine.step_once();
  const EngineStats after = engine.stats();
  fmt::print("{:8} {:8}", num_streams, num_waiting);
  for (size_t i = 0; i < step_phase_names.size(); ++i) {
    fmt::print(" {:10.1f}", (after.phase_s[i] - before.phase_s[i]) * 1e6 / num_steps);
  }
  fmt::print("\n");
}

std::vector<double> numbers(const std::string& list) {
  std::vector<double> values;
  size_t begin = 0;
  while (begin <= list.size()) {
    const size_t end = std::min(list.find(',', begin), list.size());
    values.push_back(std::atof(list.substr(begin, end - begin).c_str()));
    begin = end + 1;
  }
  return values;
}

std::chrono::nanoseconds span(const char* text, double unit_ns) {
  return std::chrono::nanoseconds(static_cast<int64_t>(std::atof(text) * unit_ns));
}

int main_of(int argc, char** argv) {
  Options options;
  std::string kind;
  int32_t num_steps = 4000;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--quick") {
      num_steps = 200;
      continue;
    }
    if (!name.starts_with("--")) {
      options.workload = name;
      continue;
    }
    if (++i == argc) break;
    if (name == "--concurrency") options.concurrency = std::atoi(argv[i]);
    if (name == "--step-ms") options.cost.per_step = span(argv[i], 1e6);
    if (name == "--row-us") options.cost.per_row = span(argv[i], 1e3);
    if (name == "--draw-us") options.cost.per_draw = span(argv[i], 1e3);
    if (name == "--position-ns") options.cost.per_position = span(argv[i], 1);
    if (name == "--prompt-position-ns") options.cost.per_prompt_position = span(argv[i], 1);
    if (name == "--multiples") options.multiples = numbers(argv[i]);
    if (name == "--rows") options.rows = numbers(argv[i]);
    if (name == "--class") kind = argv[i];
  }
  if (options.workload.empty()) {
    fmt::print("Microseconds of a step without its execution:\n{:>8} {:>8}", "streams", "waiting");
    for (const char* name : step_phase_names) fmt::print(" {:>10}", name);
    fmt::print("\n");
    for (int32_t num_streams : {1, 16, 64, 256}) measure_own_work(num_streams, 0, num_steps);
    measure_own_work(64, 500, num_steps);
    return 0;
  }
  std::vector<Row> rows = read_workload(options.workload);
  if (!kind.empty()) std::erase_if(rows, [&](const Row& row) { return row.kind != kind; });
  if (rows.empty()) {
    fmt::print(stderr, "no requests in {}\n", options.workload);
    return 2;
  }
  Replay::print_head();
  for (double max_rows : options.rows) {
    for (double multiple : options.multiples) {
      Replay replay(options, rows, multiple, static_cast<int32_t>(max_rows));
      replay.run();
      replay.print(multiple, static_cast<int32_t>(max_rows));
    }
  }
  return 0;
}

}  // namespace
}  // namespace tidemill

int main(int argc, char** argv) {
  return tidemill::main_of(argc, argv);
}
