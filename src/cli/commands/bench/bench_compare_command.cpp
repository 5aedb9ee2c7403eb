// tidemill bench compare: our server and another one, each started afresh, under the same load in turns.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "bench/compare.h"
#include "bench/machine.h"
#include "bench/report.h"
#include "bench/server_process.h"
#include "cli/commands/bench/bench_commands.h"
#include "cli/commands/bench/server_options.h"
#include "cli/commands/bench/workload_options.h"
#include "cli/terminal.h"

namespace tidemill {
namespace {

class BenchCompareCommand final : public Command {
 public:
  CommandDescription description() const override {
    return {"bench compare", "Our server and another one, each started afresh, under the same load in turns.",
            "Example: tidemill bench compare model.gguf --peer-url http://127.0.0.1:8080 \\\n"
            "    --peer 'llama-server -m model.gguf --port 8080 -np 32 -c 65536 -t 2 --cache-ram 0'\n"
            "Each run starts the server, waits until it is healthy, sends the workload, and ends its process group.\n"
            "Output of the servers goes to files in the temporary folder, removed at the end."};
  }

  void add_options(OptionList& options) override {
    options.positional("[MODEL]", &model_path_, "Model that our server serves.");
    options.text("--peer", &peer_command_, "COMMAND", "Shell command that starts the other server and stays.");
    options.text("--peer-url", &peer_url_, "URL", "Where the other server answers, as http://127.0.0.1:8080.");
    options.text("--peer-name", &peer_name_, "NAME", "What the table calls it.");
    options.text("--serve-flags", &serve_flags_, "FLAGS", "More flags of our `tidemill serve`, as one text.");
    options.integer("--runs", &compare_.num_runs, "N", 1, 100, "Runs of each server.");
    options.duration("--start-limit", &compare_.start_limit, "Longest time until a server is healthy.");
    options.text("--json", &json_path_, "FILE", "Write the result here, too.");
    add_server_load_options(options, load_);
    add_workload_options(options, workload_);
  }

  Result<void> check() override {
    if (model_path_.empty()) return error("bench compare needs a model: tidemill bench compare MODEL");
    if (peer_command_.empty()) return error("bench compare needs --peer, the command that starts the other server");
    if (peer_url_.empty()) return error("bench compare needs --peer-url, as http://127.0.0.1:8080");
    if (load_.concurrencies.size() + load_.rates_per_s.size() > 1)
      return error("bench compare takes one load, no sweep");
    return check_server_load_options(load_);
  }

  Result<int> run() override {
    const Result<std::vector<BenchRequest>> requests = load_workload(workload_);
    if (!requests) return requests.error();
    const Result<HttpUrl> peer_url = HttpUrl::parse(peer_url_);
    if (!peer_url) return peer_url.error();
    const Result<std::vector<FileDigest>> files = digest_model(model_path_);
    if (!files) return files.error();
    const LoadPass pass = passes_of(load_, !workload_.trace_path.empty()).front();
    nlohmann::ordered_json json = result_head(run_info(*this));
    json["files"] = json_of(*files);
    json["workload"] = workload_text(workload_, requests->size());
    json["pass"] = pass.name;
    std::printf("%s\n%s, %s, %s\n", machine_text(this_machine()).c_str(),
                files->empty() ? "-" : files->front().name.c_str(), json["workload"].get<std::string>().c_str(),
                pass.name.c_str());
    std::fflush(stdout);
    const Result<Comparison> comparison = compare(*requests, pass, *peer_url);
    if (!comparison) return comparison.error();
    std::fputs(comparison_table(*comparison, peer_name_).c_str(), stdout);
    json.update(json_of(*comparison));
    if (Result<void> done = write_json(json_path_, json); !done) return done.error();
    return 0;
  }

 private:
  Result<Comparison> compare(const std::vector<BenchRequest>& requests, const LoadPass& pass, const HttpUrl& peer_url) {
    const InterruptCounter interrupts;
    compare_.should_stop = [&interrupts] { return interrupts.count() > 0; };
    compare_.load = [&](const ComparedServer& server, int32_t run) -> Result<LoadResult> {
      if (interrupts.count() > 0) return error("interrupted");
      Result<std::string> model =
          load_.model.empty() ? first_model(server.url, load_.api_key) : Result<std::string>(load_.model);
      if (!model) return model.error();
      LoadPass named = pass;
      named.name = fmt::format("{}, run {} of {}", server.name, run + 1, compare_.num_runs);
      Result<LoadResult> result =
          run_pass(server.url, *model, load_, named, requests, workload_.seed, compare_.should_stop);
      if (result && interrupts.count() > 0) return error("interrupted");
      return result;
    };
    const std::filesystem::path folder = std::filesystem::temp_directory_path();
    const std::string stem = (folder / fmt::format("tidemill-bench-{}-", getpid())).string();
    const ComparedServer ours = our_server(stem + "ours.log");
    const ComparedServer peer = {peer_name_, peer_command_, peer_url, stem + "peer.log"};
    Result<Comparison> comparison = compare_servers(ours, peer, compare_);
    std::error_code ignored;
    std::filesystem::remove(ours.output_path, ignored);
    std::filesystem::remove(peer.output_path, ignored);
    return comparison;
  }

  ComparedServer our_server(std::string output_path) const {
    std::error_code ignored;
    const std::string program = std::filesystem::read_symlink("/proc/self/exe", ignored).string();
    const std::string port = std::to_string(free_port());
    const std::string command = fmt::format("exec {} serve {} --host 127.0.0.1 --port {} {}", shell_quoted(program),
                                            shell_quoted(model_path_), port, serve_flags_);
    return {"tidemill", command, {"127.0.0.1", port, ""}, std::move(output_path)};
  }

  std::string model_path_, peer_command_, peer_url_, serve_flags_, json_path_;
  std::string peer_name_ = "peer";
  CompareOptions compare_;
  ServerLoadOptions load_;
  WorkloadOptions workload_;
};

}  // namespace

std::unique_ptr<Command> make_bench_compare_command() {
  return std::make_unique<BenchCompareCommand>();
}

}  // namespace tidemill
