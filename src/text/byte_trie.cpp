#include "text/byte_trie.h"

#include <algorithm>

namespace tidemill {

ByteTrie::ByteTrie(std::vector<std::pair<std::string, TokenId>> entries) {
  root_.fill(none);
  std::erase_if(entries, [](const auto& entry) { return entry.first.empty(); });
  if (entries.empty()) return;
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.first < b.first; });

  // Breadth first: each node owns a range of the sorted entries that share its prefix.
  struct Range {
    size_t begin, end, depth;
  };
  std::vector<Range> ranges{{0, entries.size(), 0}};
  nodes_.emplace_back();
  labels_.push_back(0);
  for (size_t node = 0; node < nodes_.size(); ++node) {
    auto [begin, end, depth] = ranges[node];
    if (begin < end && entries[begin].first.size() == depth) nodes_[node].value = entries[begin].second;
    while (begin < end && entries[begin].first.size() == depth) ++begin;
    nodes_[node].first_child = static_cast<uint32_t>(nodes_.size());
    while (begin < end) {
      const char label = entries[begin].first[depth];
      size_t next = begin + 1;
      while (next < end && entries[next].first[depth] == label) ++next;
      if (node == 0) root_[static_cast<unsigned char>(label)] = static_cast<uint32_t>(nodes_.size());
      nodes_.emplace_back();
      labels_.push_back(static_cast<unsigned char>(label));
      ranges.push_back({begin, next, depth + 1});
      ++nodes_[node].num_children;
      begin = next;
    }
  }
}

}  // namespace tidemill
