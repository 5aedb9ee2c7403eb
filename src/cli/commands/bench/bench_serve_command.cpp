// tidemill bench serve: load on any server that speaks the OpenAI API.
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "bench/machine.h"
#include "bench/report.h"
#include "cli/commands/bench/bench_commands.h"
#include "cli/commands/bench/server_options.h"
#include "cli/commands/bench/workload_options.h"
#include "cli/terminal.h"

namespace tidemill {
namespace {

class BenchServeCommand final : public Command {
 public:
  CommandDescription description() const override {
    return {"bench serve", "Load on any OpenAI-compatible server: closed or open loop, sweeps, traces.",
            "Streams every request with usage, temperature 0 and ignore_eos. Time to first token counts from the\n"
            "moment that a request is sent; a gap lies between two tokens of one stream; jitter is the deviation of\n"
            "a stream's gaps over their mean, median over streams. Servers keep prompts: start one afresh for each\n"
            "figure. Made-up texts differ from pass to pass of a sweep, files' do not."};
  }

  void add_options(OptionList& options) override {
    options.text("--url,--base-url", &url_, "URL", "Address of the server, as http://127.0.0.1:8000.");
    options.text("--json", &json_path_, "FILE", "Write the result here, too.");
    options.text("--save-requests", &records_path_, "FILE", "Write what was seen of each request, as JSON lines.");
    add_server_load_options(options, load_);
    add_workload_options(options, workload_);
  }

  Result<void> check() override {
    if (url_.empty()) return error("bench serve needs --url, as http://127.0.0.1:8000");
    return check_server_load_options(load_);
  }

  Result<int> run() override {
    const Result<HttpUrl> url = HttpUrl::parse(url_);
    if (!url) return url.error();
    Result<std::vector<BenchRequest>> requests = load_workload(workload_);
    if (!requests) return requests.error();
    Result<std::string> model =
        load_.model.empty() ? first_model(*url, load_.api_key) : Result<std::string>(load_.model);
    if (!model) return model.error();
    nlohmann::ordered_json json = result_head(run_info(*this));
    json["url"] = url_;
    json["model"] = *model;
    json["workload"] = workload_text(workload_, requests->size());
    std::printf("client on %s\n%s, model %s: %s\n", machine_text(this_machine()).c_str(), printable(url_).c_str(),
                printable(*model).c_str(), json["workload"].get<std::string>().c_str());
    Result<bool> fine = run_passes(*url, *model, *std::move(requests), json);
    if (!fine) return fine.error();
    if (Result<void> done = write_json(json_path_, json); !done) return done.error();
    return *fine ? 0 : 1;
  }

 private:
  // False where requests failed.
  Result<bool> run_passes(const HttpUrl& url, const std::string& model, std::vector<BenchRequest> requests,
                          nlohmann::ordered_json& json) {
    Table table = load_table("pass");
    std::vector<RequestRecord> all_records;
    bool fine = true;
    const InterruptCounter interrupts;
    const auto interrupted = [&interrupts] { return interrupts.count() > 0; };
    WorkloadOptions workload = workload_;
    for (const LoadPass& pass : passes_of(load_, !workload_.trace_path.empty())) {
      const Result<LoadResult> result = run_pass(url, model, load_, pass, requests, workload.seed, interrupted);
      if (!result) return result.error();
      fine = report_errors(*result, requests.size()) && fine;
      add_load_rows(table, pass.name, result->records, result->wall_s);
      json["passes"].push_back(json_of_pass(pass, *result));
      all_records.insert(all_records.end(), result->records.begin(), result->records.end());
      if (interrupted()) break;
      ++workload.text_number;
      Result<std::vector<BenchRequest>> next = load_workload(workload);
      if (!next) return next.error();
      requests = *std::move(next);
    }
    std::fputs(table.text().c_str(), stdout);
    if (Result<void> done = write_records(records_path_, all_records); !done) return done.error();
    return fine;
  }

  static nlohmann::ordered_json json_of_pass(const LoadPass& pass, const LoadResult& result) {
    nlohmann::ordered_json json = {{"name", pass.name}, {"loop", pass.open_loop ? "open" : "closed"}};
    if (pass.open_loop && pass.rate_per_s > 0) json["request_rate_per_s"] = pass.rate_per_s;
    if (!pass.open_loop) json["concurrency"] = pass.concurrency;
    json["server"] = result.server;
    json["client_cpu_share"] = result.wall_s > 0 ? result.client_cpu_s / result.wall_s : 0;
    json.update(json_by_class(result.records, result.wall_s));
    return json;
  }

  static bool report_errors(const LoadResult& result, size_t num_requests) {
    size_t num_shown = 0;
    for (const RequestRecord& record : result.records) {
      if (record.error.empty()) continue;
      if (++num_shown <= 3) {
        std::fprintf(stderr, "tidemill: request %zu: %s\n", record.index + 1, record.error.c_str());
      }
    }
    const size_t unsent = num_requests - result.records.size();
    if (unsent > 0) std::fprintf(stderr, "tidemill: %zu requests were never sent\n", unsent);
    return num_shown == 0 && unsent == 0;
  }

  std::string url_, json_path_, records_path_;
  ServerLoadOptions load_;
  WorkloadOptions workload_;
};

}  // namespace

std::unique_ptr<Command> make_bench_serve_command() {
  return std::make_unique<BenchServeCommand>();
}

}  // namespace tidemill
