// The program: finds the command that the first argument names, fills its options and runs it.
//
// Exit codes: 0 done, 1 the command could not do its work, 2 a mistake in usage, 130 ended by Ctrl-C. Messages go to
// standard error, results and --help to standard output.
#pragma once

#include <string>
#include <vector>

namespace tidemill {

// arguments: without the program's own name.
int run_program(const std::vector<std::string>& arguments);

}  // namespace tidemill
