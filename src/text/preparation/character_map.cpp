#include "text/preparation/character_map.h"

#include <cstring>

#include "base/utf8.h"

namespace tidemill {
namespace {

// Darts-clone's unit layout.
bool has_leaf(uint32_t unit) {
  return unit >> 8 & 1;
}
uint32_t value_of(uint32_t unit) {
  return unit & 0x7FFFFFFF;
}
uint32_t label_of(uint32_t unit) {
  return unit & 0x800000FF;
}
uint32_t offset_of(uint32_t unit) {
  return (unit >> 10) << ((unit & 0x200) >> 6);
}

}  // namespace

Result<CharacterMap> CharacterMap::parse(std::string_view blob) {
  uint32_t trie_bytes = 0;
  if (blob.size() < sizeof(trie_bytes)) return error("the table has {} bytes, fewer than its header", blob.size());
  std::memcpy(&trie_bytes, blob.data(), sizeof(trie_bytes));
  blob.remove_prefix(sizeof(trie_bytes));
  if (trie_bytes > blob.size() || trie_bytes % 4 != 0 || trie_bytes == 0) {
    return error("the table says its trie has {} bytes, but {} are left", trie_bytes, blob.size());
  }
  CharacterMap map;
  map.units_.resize(trie_bytes / 4);
  std::memcpy(map.units_.data(), blob.data(), trie_bytes);
  map.replacements_ = blob.substr(trie_bytes);
  if (!is_valid_utf8(map.replacements_)) return error("the table's replacements are not valid UTF-8");
  return map;
}

size_t CharacterMap::longest(std::string_view text, std::string_view& replacement) const {
  size_t best = 0;
  size_t node = offset_of(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    if (byte == 0 || node >= units_.size() || label_of(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    if (node >= units_.size()) break;
    const size_t start = value_of(units_[node]);
    if (start >= replacements_.size()) continue;
    const size_t stop = std::min(replacements_.find('\0', start), replacements_.size());
    replacement = std::string_view(replacements_).substr(start, stop - start);
    best = i + 1;
  }
  return best;
}

std::string CharacterMap::apply(std::string_view text) const {
  std::string mapped;
  mapped.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    std::string_view replacement;
    if (const size_t length = longest(text.substr(at), replacement)) {
      mapped += replacement;
      at += length;
      continue;
    }
    const size_t length = decode_utf8(text, at).length_bytes;
    mapped += text.substr(at, length);
    at += length;
  }
  // An entry of a broken table may end inside a character.
  return is_valid_utf8(mapped) ? mapped : sanitize_utf8(mapped);
}

}  // namespace tidemill
