// The kinds of `tidemill bench`, one file each, and what their results say of how they came about.
#pragma once

#include <memory>

#include "bench/machine.h"
#include "cli/commands/command.h"

namespace tidemill {

std::unique_ptr<Command> make_bench_latency_command();
std::unique_ptr<Command> make_bench_throughput_command();
std::unique_ptr<Command> make_bench_serve_command();
std::unique_ptr<Command> make_bench_modes_command();
std::unique_ptr<Command> make_bench_compare_command();
std::unique_ptr<Command> make_bench_kernels_command();

// The program's version, the command's name and its arguments.
RunInfo run_info(const Command& command);

}  // namespace tidemill
