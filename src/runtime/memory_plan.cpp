#include "runtime/memory_plan.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>

namespace tidemill {
namespace {

constexpr size_t unlimited = std::numeric_limits<size_t>::max();

std::optional<size_t> read_bytes(const std::string& path) {
  std::ifstream in(path);
  unsigned long long value = 0;
  if (in >> value) return static_cast<size_t>(value);
  return {};
}

size_t system_available_bytes() {
  std::ifstream in("/proc/meminfo");
  std::string key, unit;
  unsigned long long kib = 0;
  while (in >> key >> kib) {
    std::getline(in, unit);
    if (key == "MemAvailable:") return static_cast<size_t>(kib) * 1024;
  }
  return unlimited;
}

// What a version of control groups calls its files, and where they are.
struct CgroupFiles {
  const char* root;
  const char* limit;
  const char* usage;
  std::array<std::string_view, 2> reclaimable;  // lines of memory.stat
};
constexpr CgroupFiles version_2 = {
    "/sys/fs/cgroup", "/memory.max", "/memory.current", {"inactive_file", "active_file"}};
constexpr CgroupFiles version_1 = {"/sys/fs/cgroup/memory",
                                   "/memory.limit_in_bytes",
                                   "/memory.usage_in_bytes",
                                   {"total_inactive_file", "total_active_file"}};

// Room under the memory limit of one group.
size_t cgroup_room_bytes(const CgroupFiles& files, const std::string& path) {
  const std::string folder = files.root + path;
  const auto limit = read_bytes(folder + files.limit);  // "max" does not parse: no limit
  if (!limit) return unlimited;
  const size_t used = read_bytes(folder + files.usage).value_or(0);
  // Page cache counts as used there although the kernel gives it back.
  size_t reclaimable = 0;
  std::ifstream stat(folder + "/memory.stat");
  std::string key;
  unsigned long long value = 0;
  while (stat >> key >> value)
    if (std::ranges::find(files.reclaimable, key) != files.reclaimable.end()) reclaimable += value;
  const size_t held = used - std::min(used, reclaimable);
  return *limit - std::min(*limit, held);
}

// Of a group and its ancestors, the least.
size_t cgroup_room_above_bytes(const CgroupFiles& files, std::string path) {
  size_t room = unlimited;
  while (true) {
    room = std::min(room, cgroup_room_bytes(files, path));
    const size_t slash = path.find_last_of('/');
    if (path.empty() || slash == std::string::npos) return room;
    path.resize(slash);
  }
}

// Over this process's groups: "0::PATH" of version 2, "N:...,memory,...:PATH" of version 1.
size_t cgroup_available_bytes() {
  std::ifstream in("/proc/self/cgroup");
  std::string path_2, path_1;
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers == ",,") path_2 = line.substr(second + 1);
    if (controllers.find(",memory,") != std::string::npos) path_1 = line.substr(second + 1);
  }
  return std::min(cgroup_room_above_bytes(version_2, path_2), cgroup_room_above_bytes(version_1, path_1));
}

int64_t num_blocks_held(const KvLayerGroup& group, int32_t block_size, int64_t num_tokens) {
  const int64_t blocks = (num_tokens + block_size - 1) / block_size;
  if (group.window == 0) return blocks;
  // A window that starts inside a block reaches into one block more than it fills.
  return std::min<int64_t>(blocks, (group.window + block_size - 1) / block_size + 1);
}

}  // namespace

size_t available_memory_bytes() {
  return std::min(system_available_bytes(), cgroup_available_bytes());
}

size_t sequence_kv_bytes(const KvLayout& layout, int32_t block_size, const KvFormats& formats, int64_t num_tokens) {
  const std::vector<BlockGroup> groups = block_groups(layout, block_size, formats);
  size_t total = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    total += groups[i].sealed_bytes * static_cast<size_t>(num_blocks_held(layout.groups[i], block_size, num_tokens));
    if (!groups[i].same_format) total += groups[i].tail_bytes;
  }
  return total;
}

double kv_bytes_per_token(const KvLayout& layout, int32_t block_size, const KvFormats& formats) {
  size_t total = 0;
  for (const BlockGroup& group : block_groups(layout, block_size, formats)) total += group.sealed_bytes;
  return static_cast<double>(total) / block_size;
}

Result<MemoryPlan> plan_memory(const KvLayout& layout, int32_t block_size, const KvFormats& formats,
                               size_t weight_bytes, size_t scratch_bytes, size_t available_bytes,
                               const KvBudgetOptions& options) {
  MemoryPlan plan{.weight_bytes = weight_bytes,
                  .scratch_bytes = scratch_bytes,
                  .available_bytes = available_bytes,
                  .block_size_tokens = block_size};
  for (const BlockGroup& group : block_groups(layout, block_size, formats)) plan.block_bytes += group.sealed_bytes;
  if (options.host_bytes > available_bytes)
    return error("a host tier of {} bytes does not fit: {} bytes of memory are available", options.host_bytes,
                 available_bytes);
  const size_t room_bytes = available_bytes - options.host_bytes;
  if (options.bytes) {
    plan.kv_budget_bytes = *options.bytes;
  } else if (options.num_blocks) {
    const auto count = static_cast<uint64_t>(*options.num_blocks);
    if (*options.num_blocks <= 0 || count > unlimited / 2 / plan.block_bytes)
      return error("{} KV blocks of {} bytes are not between 1 block and what memory can address", *options.num_blocks,
                   plan.block_bytes);
    plan.kv_budget_bytes = count * plan.block_bytes;
  } else {
    plan.kv_budget_bytes = static_cast<size_t>(static_cast<double>(room_bytes) * options.memory_utilization);
  }
  if (plan.kv_budget_bytes < plan.block_bytes)
    return error("a KV cache of {} bytes holds no block: one block of {} tokens takes {} bytes", plan.kv_budget_bytes,
                 block_size, plan.block_bytes);
  if (plan.kv_budget_bytes > room_bytes) {
    const std::string beside =
        options.host_bytes == 0 ? "" : fmt::format(" beside a host tier of {} bytes", options.host_bytes);
    return error("a KV cache of {} bytes does not fit{}: {} bytes of memory are available", plan.kv_budget_bytes,
                 beside, available_bytes);
  }
  plan.num_blocks = static_cast<int64_t>(plan.kv_budget_bytes / plan.block_bytes);
  return plan;
}

int64_t num_sequences_that_fit(const MemoryPlan& plan, const KvLayout& layout, const KvFormats& formats,
                               int64_t num_tokens) {
  const size_t each = sequence_kv_bytes(layout, plan.block_size_tokens, formats, num_tokens);
  return each == 0 ? 0 : static_cast<int64_t>(plan.kv_budget_bytes / each);
}

}  // namespace tidemill
