// Names of block contents: a chain of 128-bit hashes, one per full block of a sequence.
//
// The hash of a block covers its parent's hash and its tokens; the first parent is a root, which covers everything else
// that the KV depends on or that must keep requests apart (salt, tenant, format key). Each part is tagged by kind and
// prefixed by its length, so that no part can imitate another or its neighbour.
//
// SHA-256 over a secret key and the parts, cut to 128 bits: a hit compares token ids besides (kv/prefix_cache.h), but
// of the block alone, so what keeps tenants apart is that nobody can prepare a block whose parents differ. The key
// never leaves the process, except to be kept with blocks on disk.
#pragma once

#include <array>
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

using HashKey = std::array<uint8_t, 32>;
HashKey random_hash_key();  // from the system's entropy

enum class HashPart : uint8_t { parent = 1, tokens = 2, salt = 3, tenant = 4, format = 5, request = 6 };

struct RootPart {
  HashPart kind;
  std::string_view value;
};

BlockHash root_hash(const HashKey& key, std::span<const RootPart> parts);
BlockHash block_hash(const HashKey& key, const BlockHash& parent, std::span<const TokenId> tokens);

}  // namespace tidemill
