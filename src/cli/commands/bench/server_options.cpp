#include "cli/commands/bench/server_options.h"

#include "base/printable.h"
#include "bench/arrivals.h"
#include "cli/commands/bench/bench_model_options.h"
#include "cli/commands/bench/progress_line.h"
#include "cli/options/values.h"

namespace tidemill {
namespace {

constexpr int32_t default_concurrency = 32;
constexpr double fastest_rate_per_s = 1e5;

Result<std::vector<double>> parse_rates(const std::string& text) {
  std::vector<double> rates;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const Result<double> rate = parse_number(std::string_view(text).substr(begin, end - begin));
    if (!rate) return rate.error();
    if (!(*rate > 0) || *rate > fastest_rate_per_s)
      return error("{} is not a rate up to {}", *rate, fastest_rate_per_s);
    rates.push_back(*rate);
    begin = end + 1;
  }
  return rates;
}

// Text that no workload has, so that nothing of the workload is in the server's cache.
BenchRequest warm_up() {
  return {"Warm up.", 8, "warm-up", {}};
}

}  // namespace

void add_server_load_options(OptionList& list, ServerLoadOptions& target) {
  list.group("Load");
  list.text("--served-model,--model,-m", &target.model, "NAME", "Model to ask for; without it the server's first.");
  list.text("--api-key", &target.api_key, "KEY", "Sent as Authorization: Bearer KEY.");
  list.choice("--endpoint", &target.chat,
              {{"completions", false}, {"chat", true}, {"/v1/completions", false}, {"/v1/chat/completions", true}},
              "completions sends prompts as they are, chat as the message of a user.");
  list.text("--extra-body", &target.extra_fields, "JSON", "An object merged into every request.");
  list.custom("--concurrency,--max-concurrency", "N,N,...",
              "Closed loop: so many requests are open, the next comes when one ends; several numbers are a sweep.",
              "32, where no rate and no trace is given", [&target](const std::string& text) -> Result<void> {
                Result<std::vector<int32_t>> counts = parse_counts(text, 16384);
                if (!counts) return counts.error();
                target.concurrencies = *std::move(counts);
                return {};
              });
  list.custom("--request-rate,--request-rates", "R,R,...",
              "Open loop: so many requests a second on average, whatever is still open; several are a sweep.", "",
              [&target](const std::string& text) -> Result<void> {
                Result<std::vector<double>> rates = parse_rates(text);
                if (!rates) return rates.error();
                target.rates_per_s = *std::move(rates);
                return {};
              });
  list.number("--burstiness", &target.burstiness, 1e-3, 1e6,
              "Shape of the gaps between arrivals: 1 = Poisson, less = bursts, more = evenly.");
  list.duration("--limit", &target.limit, "Longest time of one pass; what is open then counts as failed.");
}

Result<void> check_server_load_options(const ServerLoadOptions& options) {
  if (!options.concurrencies.empty() && !options.rates_per_s.empty()) {
    return error("--concurrency is a closed loop and --request-rate an open one; give one");
  }
  return {};
}

std::vector<LoadPass> passes_of(const ServerLoadOptions& options, bool is_trace) {
  std::vector<LoadPass> passes;
  for (const double rate : options.rates_per_s) passes.push_back({fmt::format("{} requests/s", rate), true, 0, rate});
  for (const int32_t count : options.concurrencies)
    passes.push_back({fmt::format("{} at once", count), false, count, 0});
  if (passes.empty() && is_trace) passes.push_back({"as in the trace", true, 0, 0});
  if (passes.empty()) {
    passes.push_back({fmt::format("{} at once", default_concurrency), false, default_concurrency, 0});
  }
  return passes;
}

Result<LoadResult> run_pass(const HttpUrl& url, const std::string& model, const ServerLoadOptions& options,
                            const LoadPass& pass, std::vector<BenchRequest> requests, uint64_t seed,
                            const std::function<bool()>& should_stop) {
  if (pass.rate_per_s > 0) {
    const std::vector<double> times =
        arrival_times(static_cast<int32_t>(requests.size()), pass.rate_per_s, options.burstiness, seed);
    for (size_t i = 0; i < times.size(); ++i) requests[i].arrival_s = times[i];
  }
  LoadOptions load;
  load.url = url;
  load.api_key = options.api_key;
  load.model = model;
  load.chat = options.chat;
  load.extra_fields = options.extra_fields;
  load.concurrency = 1;
  load.limit_s = static_cast<double>(options.limit.count()) / 1e3;
  load.should_stop = should_stop;
  const std::vector<BenchRequest> first = {warm_up()};
  const Result<LoadResult> warm = run_load(first, load);
  if (!warm) return warm.error();
  if (const std::string& problem = warm->records.front().error; !problem.empty()) {
    return error("{}:{}: {}", url.host, url.port, problem);
  }
  load.open_loop = pass.open_loop;
  load.concurrency = pass.concurrency;
  ProgressLine line(pass.name);
  load.on_progress = [&line](const RunProgress& progress) { line.show(progress); };
  return run_load(requests, load);
}

}  // namespace tidemill
