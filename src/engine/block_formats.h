// The formats that KV blocks are kept in, as the engine knows them: sizes by layer group, and size classes.
//
// Format 0 is what a request gets that asks for nothing; the others are better ones that requests may ask for. A
// sequence keeps all of its blocks in one format. BlockPlace::size_class has two numbers for each format and layer
// group: one of blocks in tail precision, one of sealed blocks, which is not used where sealing moves nothing. All
// classes are paid from one budget, so formats share memory without a fixed division.
//
// Plain value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "engine/engine_config.h"

namespace tidemill {

class BlockFormats {
 public:
  explicit BlockFormats(const EngineConfig& config) : groups_{config.groups} {
    for (const ExtraFormat& format : config.extra_formats) groups_.push_back(format.groups);
    TM_CHECK(groups_.size() <= most_kv_formats && 2 * groups_.size() * config.groups.size() <= most_size_classes,
             "size classes are numbered in 8 bits");
    for (const std::vector<BlockGroup>& groups : groups_) {
      TM_CHECK(groups.size() == config.groups.size(), "every format has all layer groups");
      for (const BlockGroup& group : groups) {
        TM_CHECK(group.sealed_bytes > 0 && group.tail_bytes > 0, "blocks of a layer group have bytes");
        TM_CHECK(!group.same_format || group.sealed_bytes == group.tail_bytes, "blocks of one format have one size");
      }
    }
  }

  size_t size() const { return groups_.size(); }
  int32_t num_groups() const { return static_cast<int32_t>(groups_.front().size()); }
  size_t num_classes() const { return 2 * groups_.size() * groups_.front().size(); }
  const std::vector<BlockGroup>& groups(KvFormatId format) const { return groups_[format]; }
  const BlockGroup& group(KvFormatId format, int32_t group) const {
    return groups_[format][static_cast<size_t>(group)];
  }

  uint8_t tail_class(KvFormatId format, int32_t group) const {
    return static_cast<uint8_t>(2 * (format * num_groups() + group));
  }
  uint8_t sealed_class(KvFormatId format, int32_t group) const {
    return static_cast<uint8_t>(tail_class(format, group) + (this->group(format, group).same_format ? 0 : 1));
  }
  int32_t group_of(uint8_t size_class) const { return size_class / 2 % num_groups(); }
  KvFormatId format_of(uint8_t size_class) const { return static_cast<KvFormatId>(size_class / 2 / num_groups()); }
  static bool is_tail_class(uint8_t size_class) { return size_class % 2 == 0; }
  bool is_sealed_class(uint8_t size_class) const {
    return size_class == sealed_class(format_of(size_class), group_of(size_class));
  }
  // Some blocks of the format are other bytes when they are full than before.
  bool encodes(KvFormatId format) const {
    for (const BlockGroup& group : groups_[format]) {
      if (!group.same_format) return true;
    }
    return false;
  }
  // Of one full block in every layer group.
  size_t block_bytes(KvFormatId format) const {
    size_t bytes = 0;
    for (const BlockGroup& group : groups_[format]) bytes += group.sealed_bytes;
    return bytes;
  }

  // Bytes of a slot by size class; 0 = the class is not used.
  std::vector<size_t> class_bytes() const {
    std::vector<size_t> bytes = sealed_class_bytes();
    for (size_t format = 0; format < groups_.size(); ++format) {
      for (int32_t i = 0; i < num_groups(); ++i) {
        const auto id = static_cast<KvFormatId>(format);
        bytes[tail_class(id, i)] = group(id, i).tail_bytes;
      }
    }
    return bytes;
  }
  // Of full blocks alone, which are what moves to other tiers.
  std::vector<size_t> sealed_class_bytes() const {
    std::vector<size_t> bytes(num_classes(), 0);
    for (size_t format = 0; format < groups_.size(); ++format) {
      for (int32_t i = 0; i < num_groups(); ++i) {
        const auto id = static_cast<KvFormatId>(format);
        bytes[sealed_class(id, i)] = group(id, i).sealed_bytes;
      }
    }
    return bytes;
  }
  std::vector<int32_t> class_groups() const {
    std::vector<int32_t> groups;
    for (size_t size_class = 0; size_class < num_classes(); ++size_class) {
      groups.push_back(group_of(static_cast<uint8_t>(size_class)));
    }
    return groups;
  }

 private:
  std::vector<std::vector<BlockGroup>> groups_;  // [formats][layer groups]
};

}  // namespace tidemill
