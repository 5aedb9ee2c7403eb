#include "base/cpu_topology.h"

#include <gtest/gtest.h>

#include <fstream>
#include <numeric>

#include "test_data.h"

namespace tidemill {
namespace {

namespace fs = std::filesystem;

void write_line(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text << "\n";
}

// A machine of two nodes of four cores, which are two physical cores of two threads each: (0, 4), (1, 5) and (2, 6),
// (3, 7).
fs::path two_nodes() {
  static const testing::TemporaryFolder folder;
  const fs::path devices = folder.path() / "devices/system";
  write_line(devices / "node/node0/cpulist", "0-1,4-5");
  write_line(devices / "node/node1/cpulist", "2-3,6-7");
  write_line(devices / "node/has_cpu", "0-1");
  for (int core = 0; core < 8; ++core) {
    write_line(devices / "cpu" / ("cpu" + std::to_string(core)) / "topology/thread_siblings_list",
               std::to_string(core % 4) + "," + std::to_string(core % 4 + 4));
  }
  return folder.path();
}

std::vector<int32_t> first_cores(int32_t count) {
  std::vector<int32_t> cores(static_cast<size_t>(count));
  std::iota(cores.begin(), cores.end(), 0);
  return cores;
}

std::vector<int32_t> ids(const std::vector<CpuTopology::Core>& cores) {
  std::vector<int32_t> result;
  for (const CpuTopology::Core& core : cores) result.push_back(core.id);
  return result;
}

TEST(CpuTopology, ListsOfCores) {
  EXPECT_EQ(parse_core_list("0-3,8"), (std::vector<int32_t>{0, 1, 2, 3, 8}));
  EXPECT_EQ(parse_core_list("5"), (std::vector<int32_t>{5}));
  EXPECT_EQ(parse_core_list("1,x,3"), (std::vector<int32_t>{1}));
  EXPECT_EQ(parse_core_list("4-2"), (std::vector<int32_t>{}));
  EXPECT_EQ(parse_core_list("2-"), (std::vector<int32_t>{}));
  EXPECT_EQ(parse_core_list("65535-4000000000"), (std::vector<int32_t>{}));
  EXPECT_EQ(parse_core_list("65534-2000000000"), (std::vector<int32_t>{65534, 65535}));
  EXPECT_EQ(parse_core_list("-3"), (std::vector<int32_t>{}));
  EXPECT_TRUE(parse_core_list("").empty());
}

TEST(CpuTopology, NodesWithPhysicalCoresFirst) {
  const CpuTopology topology = read_topology(two_nodes(), first_cores(8));
  ASSERT_EQ(topology.nodes.size(), 2u);
  EXPECT_EQ(ids(topology.nodes[0]), (std::vector<int32_t>{0, 1, 4, 5}));
  EXPECT_EQ(ids(topology.nodes[1]), (std::vector<int32_t>{2, 3, 6, 7}));
}

TEST(CpuTopology, OnlyUsableCores) {
  const CpuTopology topology = read_topology(two_nodes(), std::vector<int32_t>{2, 5, 6});
  ASSERT_EQ(topology.nodes.size(), 2u);
  EXPECT_EQ(ids(topology.nodes[0]), (std::vector<int32_t>{5}));
  EXPECT_EQ(ids(topology.nodes[1]), (std::vector<int32_t>{2, 6}));
  EXPECT_EQ(read_topology(two_nodes(), std::vector<int32_t>{0, 1}).nodes.size(), 1u);
}

TEST(CpuTopology, AMachineThatShowsNothingHasOneNode) {
  const CpuTopology topology = read_topology("/nonexistent", first_cores(3));
  ASSERT_EQ(topology.nodes.size(), 1u);
  EXPECT_EQ(ids(topology.nodes[0]), first_cores(3));
}

TEST(CpuTopology, ThisMachine) {
  const std::vector<int32_t> usable = usable_cores();
  size_t num_cores = 0;
  for (const auto& node : read_topology("/sys", usable).nodes) num_cores += node.size();
  EXPECT_EQ(num_cores, usable.size());
}

TEST(CpuTopology, WorkersAreSpreadOverNodesAndNeighboursStayTogether) {
  const CpuTopology topology = read_topology(two_nodes(), first_cores(8));
  for (const int32_t num_threads : {1, 2, 3, 4, 8, 11}) {
    const auto places = place_workers(topology, num_threads, CoreBinding::node);
    ASSERT_EQ(places.size(), static_cast<size_t>(num_threads));
    int32_t on_first = 0;
    for (size_t i = 0; i < places.size(); ++i) {
      on_first += places[i].node == 0;
      EXPECT_EQ(places[i].cores.size(), 4u);
      EXPECT_TRUE(i == 0 || places[i].node >= places[i - 1].node);
    }
    EXPECT_LE(std::abs(2 * on_first - num_threads), 1) << num_threads;
  }
}

TEST(CpuTopology, OneCoreEachPhysicalOnesFirst) {
  const CpuTopology topology = read_topology(two_nodes(), first_cores(8));
  std::vector<int32_t> cores;
  for (const WorkerPlace& place : place_workers(topology, 4, CoreBinding::core)) {
    ASSERT_EQ(place.cores.size(), 1u);
    cores.push_back(place.cores[0]);
  }
  EXPECT_EQ(cores, (std::vector<int32_t>{0, 1, 2, 3}));
  // More workers than cores share them.
  EXPECT_EQ(place_workers(topology, 12, CoreBinding::core)[5].cores,
            place_workers(topology, 12, CoreBinding::core)[1].cores);
}

TEST(CpuTopology, BoundByItselfOnlyWhereThereAreNodes) {
  EXPECT_EQ(place_workers(read_topology(two_nodes(), first_cores(8)), 4, CoreBinding::automatic).size(), 4u);
  EXPECT_TRUE(place_workers(read_topology("/nonexistent", first_cores(8)), 4, CoreBinding::automatic).empty());
  EXPECT_TRUE(place_workers(read_topology(two_nodes(), first_cores(8)), 4, CoreBinding::none).empty());
}

}  // namespace
}  // namespace tidemill
