// Which cores share a memory node and which are threads of one core, and where compute workers go on them.
//
// Plain values, read once at start from the files that Linux shows under /sys/devices/system. The root of these files
// is an argument, so that tests describe machines that are not there. A machine that shows no nodes has one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

namespace tidemill {

// How workers are kept near their memory.
enum class CoreBinding : uint8_t {
  automatic,  // node on machines of more than one node, else none
  none,       // the system moves threads as it likes
  node,       // a worker stays on the cores of its node
  core,       // a worker stays on one core
};

struct CpuTopology {
  struct Core {
    int32_t id = 0;
    int32_t rank = 0;  // 0 = the first hardware thread of its physical core, 1 = the second ...
  };
  // Nodes that have usable cores, by ascending number; cores ascending by (rank, id).
  std::vector<std::vector<Core>> nodes;
};

// Where a worker runs: any of `cores`, which belong to nodes[node] of the topology.
struct WorkerPlace {
  int32_t node = 0;
  std::vector<int32_t> cores;
};

// Cores that this process may use, ascending.
std::vector<int32_t> usable_cores();

// Of the usable cores only. root: the folder that has devices/system below it, "/sys" on a real machine.
CpuTopology read_topology(const std::filesystem::path& root, std::span<const int32_t> usable);

// Places for num_threads workers, neighbours on one node, spread over the nodes by their cores; empty where workers are
// not bound. With `core`, physical cores are filled before their second threads, and shared where workers are more.
std::vector<WorkerPlace> place_workers(const CpuTopology& topology, int32_t num_threads, CoreBinding binding);

// "0-3,8" as {0, 1, 2, 3, 8}; what is no list of cores ends it. Cores beyond 65535 are left out.
std::vector<int32_t> parse_core_list(std::string_view text);

}  // namespace tidemill
