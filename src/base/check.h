// Stops the process when an invariant of our own is broken: going on would corrupt other users' output.
// Never for input, files or scarcity; those are Results and ordinary return values.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace tidemill {

[[noreturn]] inline void invariant_broken(const char* name, const char* file, int line) {
  std::fprintf(stderr, "tidemill: invariant broken: %s (%s:%d)\n", name, file, line);
  std::abort();
}

}  // namespace tidemill

#define TM_CHECK(condition, name) \
  ((condition) ? static_cast<void>(0) : ::tidemill::invariant_broken(name, __FILE__, __LINE__))
