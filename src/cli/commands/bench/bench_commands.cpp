#include "cli/commands/bench/bench_commands.h"

#include "cli/version.h"

namespace tidemill {

// The first is what `tidemill bench MODEL` means.
std::vector<std::unique_ptr<Command>> bench_commands() {
  std::vector<std::unique_ptr<Command>> commands;
  commands.push_back(make_bench_latency_command());
  commands.push_back(make_bench_throughput_command());
  commands.push_back(make_bench_serve_command());
  commands.push_back(make_bench_modes_command());
  commands.push_back(make_bench_compare_command());
  commands.push_back(make_bench_kernels_command());
  return commands;
}

RunInfo run_info(const Command& command) {
  return {version_text(), command.arguments(), command.description().name};
}

}  // namespace tidemill
