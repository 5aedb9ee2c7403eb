// Names of block contents: a chain of 128-bit hashes, one per full block of a sequence.
//
// The hash of a block covers its parent's hash and its tokens; the first parent is a root, which covers everything else
// that the KV depends on or that must keep requests apart (salt, tenant, format key). Each part is tagged by kind and
// prefixed by its length, so that no part can imitate another or its neighbour. XXH3 under a secret seed; the seed
// keeps collisions from being prepared, and a hit compares token ids besides (kv/prefix_cache.h).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/token.h"

namespace tidemill {

struct BlockHash {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const BlockHash&) const = default;
};

struct BlockHasher {
  size_t operator()(const BlockHash& hash) const { return hash.low; }
};

enum class HashPart : uint8_t { parent = 1, tokens = 2, salt = 3, tenant = 4, format = 5, request = 6 };

struct RootPart {
  HashPart kind;
  std::string_view value;
};

BlockHash root_hash(uint64_t seed, std::span<const RootPart> parts);
BlockHash block_hash(uint64_t seed, const BlockHash& parent, std::span<const TokenId> tokens);

}  // namespace tidemill
