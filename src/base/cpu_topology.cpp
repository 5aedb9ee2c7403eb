#include "base/cpu_topology.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>

namespace tidemill {
namespace {

namespace fs = std::filesystem;

constexpr int32_t max_core = 65535;

std::vector<int32_t> read_core_list(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return parse_core_list(line);
}

// Numbers of the folders node0, node1, ...
std::vector<int32_t> node_numbers(const fs::path& folder) {
  std::vector<int32_t> numbers;
  std::error_code failed;
  for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end; entry.increment(failed)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with("node")) continue;
    int32_t number = 0;
    const auto [rest, fault] = std::from_chars(name.data() + 4, name.data() + name.size(), number);
    if (fault == std::errc() && rest == name.data() + name.size()) numbers.push_back(number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

int32_t rank_in_core(const fs::path& root, int32_t core) {
  const std::vector<int32_t> siblings =
      read_core_list(root / "devices/system/cpu" / ("cpu" + std::to_string(core)) / "topology/thread_siblings_list");
  const auto found = std::find(siblings.begin(), siblings.end(), core);
  return found == siblings.end() ? 0 : static_cast<int32_t>(found - siblings.begin());
}

std::vector<CpuTopology::Core> ranked(const fs::path& root, std::span<const int32_t> ids) {
  std::vector<CpuTopology::Core> cores;
  for (const int32_t id : ids) cores.push_back({id, rank_in_core(root, id)});
  std::sort(cores.begin(), cores.end(), [](const CpuTopology::Core& a, const CpuTopology::Core& b) {
    return a.rank != b.rank ? a.rank < b.rank : a.id < b.id;
  });
  return cores;
}

}  // namespace

std::vector<int32_t> parse_core_list(std::string_view text) {
  std::vector<int32_t> cores;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    int32_t first = 0;
    auto [rest, fault] = std::from_chars(at, end, first);
    if (fault != std::errc() || first < 0) break;
    int32_t last = first;
    if (rest < end && *rest == '-') {
      const auto range = std::from_chars(rest + 1, end, last);
      if (range.ec != std::errc()) break;
      rest = range.ptr;
    }
    for (int32_t core = first; core <= std::min(last, max_core); ++core) cores.push_back(core);
    if (rest == end || *rest != ',') break;
    at = rest + 1;
  }
  return cores;
}

std::vector<int32_t> usable_cores() {
  std::vector<int32_t> cores;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return {0};
  for (int32_t core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

CpuTopology read_topology(const fs::path& root, std::span<const int32_t> usable) {
  CpuTopology topology;
  std::vector<int32_t> left(usable.begin(), usable.end());
  const fs::path folder = root / "devices/system/node";
  for (const int32_t number : node_numbers(folder)) {
    std::vector<int32_t> mine;
    for (const int32_t core : read_core_list(folder / ("node" + std::to_string(number)) / "cpulist")) {
      const auto found = std::find(left.begin(), left.end(), core);
      if (found == left.end()) continue;
      mine.push_back(core);
      left.erase(found);
    }
    if (!mine.empty()) topology.nodes.push_back(ranked(root, mine));
  }
  if (topology.nodes.empty()) topology.nodes.push_back(ranked(root, left));
  return topology;
}

std::vector<WorkerPlace> place_workers(const CpuTopology& topology, int32_t num_threads, CoreBinding binding) {
  if (binding == CoreBinding::automatic) {
    binding = topology.nodes.size() > 1 ? CoreBinding::node : CoreBinding::none;
  }
  size_t num_cores = 0;
  for (const auto& node : topology.nodes) num_cores += node.size();
  if (binding == CoreBinding::none || num_cores == 0) return {};
  std::vector<WorkerPlace> places;
  size_t cores_before = 0;  // on the nodes up to here
  for (size_t n = 0; n < topology.nodes.size(); ++n) {
    const std::vector<CpuTopology::Core>& cores = topology.nodes[n];
    cores_before += cores.size();
    const size_t workers_so_far = (static_cast<size_t>(num_threads) * cores_before + num_cores / 2) / num_cores;
    for (size_t i = 0; places.size() < workers_so_far; ++i) {
      WorkerPlace& place = places.emplace_back();
      place.node = static_cast<int32_t>(n);
      if (binding == CoreBinding::core) {
        place.cores = {cores[i % cores.size()].id};
      } else {
        for (const CpuTopology::Core& core : cores) place.cores.push_back(core.id);
      }
    }
  }
  return places;
}

}  // namespace tidemill
