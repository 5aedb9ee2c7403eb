// A set of byte strings with a value each, walked byte by byte: finds every entry that begins at a position.
//
// Immutable after construction, safe from any thread. Built without recursion, so an entry may be as long as memory.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/token.h"

namespace tidemill {

class ByteTrie {
 public:
  ByteTrie() = default;
  // Entries are non-empty; of two equal ones the first given counts.
  explicit ByteTrie(std::vector<std::pair<std::string, TokenId>> entries);

  bool empty() const { return nodes_.empty(); }
  bool may_begin_with(char first) const { return !empty() && child(0, first) != none; }

  // Calls found(length_bytes, value) for each entry that is a prefix of `text`, shortest first.
  template <typename Found>
  void prefixes_of(std::string_view text, Found found) const {
    if (empty()) return;
    uint32_t node = 0;
    for (size_t length = 0; length < text.size(); ++length) {
      node = child(node, text[length]);
      if (node == none) return;
      if (nodes_[node].value >= 0) found(length + 1, nodes_[node].value);
    }
  }

 private:
  static constexpr uint32_t none = 0xFFFFFFFF;
  // The children of a node lie side by side, ordered by label.
  struct Node {
    uint32_t first_child = 0;
    uint16_t num_children = 0;
    TokenId value = -1;
  };

  uint32_t child(uint32_t node, char byte) const {
    if (node == 0) return root_[static_cast<unsigned char>(byte)];
    const Node& n = nodes_[node];
    const auto label = static_cast<unsigned char>(byte);
    uint32_t low = n.first_child, high = n.first_child + n.num_children;
    while (low < high) {
      const uint32_t middle = (low + high) / 2;
      if (labels_[middle] < label) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low < n.first_child + n.num_children && labels_[low] == label ? low : none;
  }

  std::vector<Node> nodes_;
  std::vector<unsigned char> labels_;  // [nodes], the byte that leads to the node
  std::array<uint32_t, 256> root_;
};

}  // namespace tidemill
