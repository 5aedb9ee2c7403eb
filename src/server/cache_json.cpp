#include "server/cache_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "engine/block_formats.h"

namespace tidemill {
namespace {

// The names of a row's columns, in order.
constexpr std::array columns = {"id",     "group", "state",  "format", "references",
                                "age_ms", "tier",  "tenant", "pinned", "bytes"};

const std::string& format_name(const EngineConfig& config, KvFormatId format, bool tail) {
  if (format == 0) return tail ? config.kv_tail_format : config.kv_sealed_format;
  const ExtraFormat& better = config.extra_formats[format - 1];
  return tail ? better.tail_name : better.sealed_name;
}

Json row(const CacheBlock& block, uint32_t now_ms, const EngineConfig& config) {
  const BlockPlace place = block.info.place;
  const bool in_tail_format = BlockFormats::is_tail_class(place.size_class);
  Json fields = Json::array();
  const char* tier = cache_tier_names[static_cast<size_t>(block.tier)];
  const std::string prefix = block.tier == CacheTier::memory ? "" : fmt::format("{}.", tier);
  fields.push_back(fmt::format("{}{}.{}", prefix, place.size_class, place.slot));
  fields.push_back(block.group);
  // A held block that is not full yet is a tail.
  const bool tail = block.info.state == BlockState::held && !block.sealed;
  fields.push_back(tail ? "tail" : block_state_names[static_cast<size_t>(block.info.state)]);
  fields.push_back(format_name(config, block.format, in_tail_format));
  fields.push_back(block.info.num_references);
  fields.push_back(now_ms - std::min(now_ms, block.info.since_ms));
  fields.push_back(tier);
  fields.push_back(block.owner == 0 ? Json() : Json(fmt::format("t{:08x}", block.owner)));
  fields.push_back(block.pinned);
  fields.push_back(block.bytes);
  return fields;
}

Json formats_json(const CacheTotals& totals, const EngineConfig& config) {
  Json formats = Json::array();
  for (size_t i = 0; i <= config.extra_formats.size(); ++i) {
    const FormatBytes& bytes = totals.formats[i];
    formats.push_back({{"format", format_name(config, static_cast<KvFormatId>(i), false)},
                       {"held_bytes", bytes.held},
                       {"cached_bytes", bytes.cached},
                       {"idle_bytes", bytes.idle}});
  }
  return formats;
}

Json tiers_json(const CacheTotals& totals) {
  Json tiers = Json::array();
  const auto add = [&tiers](CacheTier tier, const TierBytes& bytes) {
    if (bytes.budget == 0) return;
    const size_t occupied = bytes.held + bytes.cached + bytes.idle;
    tiers.push_back({{"tier", cache_tier_names[static_cast<size_t>(tier)]},
                     {"budget_bytes", bytes.budget},
                     {"held_bytes", bytes.held},
                     {"cached_bytes", bytes.cached},
                     {"idle_bytes", bytes.idle},
                     {"unbacked_bytes", std::max(bytes.budget, occupied) - occupied}});
  };
  add(CacheTier::memory, {totals.budget_bytes, totals.held_bytes, totals.cached_bytes, totals.idle_bytes});
  add(CacheTier::host, totals.host);
  add(CacheTier::disk, totals.disk);
  return tiers;
}

Json totals_json(const CacheTotals& totals, const EngineConfig& config) {
  const size_t occupied = totals.held_bytes + totals.cached_bytes + totals.idle_bytes;
  return {
      {"budget_bytes", totals.budget_bytes},     {"wanted_bytes", totals.wanted_bytes},
      {"held_bytes", totals.held_bytes},         {"cached_bytes", totals.cached_bytes},
      {"idle_bytes", totals.idle_bytes},         {"unbacked_bytes", std::max(totals.budget_bytes, occupied) - occupied},
      {"pinned_bytes", totals.pinned_bytes},     {"pins", totals.num_pins},
      {"formats", formats_json(totals, config)}, {"tiers", tiers_json(totals)}};
}

}  // namespace

Json cache_map_json(const CacheMap& map, const EngineConfig& config) {
  Json groups = Json::array();
  const BlockFormats formats(config);
  for (int32_t group = 0; group < formats.num_groups(); ++group) {
    Json sizes = Json::array();
    for (size_t i = 0; i < formats.size(); ++i) {
      const auto format = static_cast<KvFormatId>(i);
      const BlockGroup& blocks = formats.group(format, group);
      sizes.push_back({{"format", format_name(config, format, false)},
                       {"tail_format", format_name(config, format, true)},
                       {"block_bytes", blocks.sealed_bytes},
                       {"tail_bytes", blocks.tail_bytes}});
    }
    Json entry = sizes[0];
    entry["window_tokens"] = config.groups[static_cast<size_t>(group)].window_tokens;
    sizes.erase(0);
    entry["extra_formats"] = std::move(sizes);
    groups.push_back(std::move(entry));
  }
  const size_t num_rows = std::min(map.blocks.size(), most_map_rows);
  Json rows = Json::array();
  for (size_t i = 0; i < num_rows; ++i) rows.push_back(row(map.blocks[i], map.now_ms, config));
  return {{"object", "cache"},
          {"step", map.step},
          {"block_size", config.block_size_tokens},
          {"totals", totals_json(map.totals, config)},
          {"groups", std::move(groups)},
          {"columns", columns},
          {"blocks", std::move(rows)},
          {"blocks_left_out", map.blocks.size() - num_rows}};
}

Json cache_changes_json(const CacheChanges& changes, const EngineConfig& config) {
  // A block that changed in several steps counts as it was in the last.
  std::vector<CacheBlock> blocks = changes.blocks;
  const auto key = [](const CacheBlock& block) {
    const BlockPlace place = block.info.place;
    return (uint64_t{static_cast<uint8_t>(block.tier)} << 40) | (uint64_t{place.size_class} << 32) | place.slot;
  };
  std::ranges::reverse(blocks);
  std::ranges::stable_sort(blocks, {}, key);
  const auto repeated = std::ranges::unique(blocks, {}, key);
  blocks.erase(repeated.begin(), repeated.end());
  Json rows = Json::array();
  for (const CacheBlock& block : blocks) rows.push_back(row(block, changes.now_ms, config));
  return {{"step", changes.step},
          {"lost", changes.lost},
          {"totals", totals_json(changes.totals, config)},
          {"blocks", std::move(rows)}};
}

}  // namespace tidemill
