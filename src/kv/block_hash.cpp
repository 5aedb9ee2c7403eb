#include "kv/block_hash.h"

#include <xxhash.h>

#include <cstring>
#include <string>

namespace tidemill {
namespace {

void append_part(std::string& bytes, HashPart kind, const void* data, uint64_t size) {
  bytes.push_back(static_cast<char>(kind));
  bytes.append(reinterpret_cast<const char*>(&size), sizeof(size));
  bytes.append(static_cast<const char*>(data), size);
}

BlockHash hash_bytes(uint64_t seed, const std::string& bytes) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(bytes.data(), bytes.size(), seed);
  return {hash.low64, hash.high64};
}

}  // namespace

BlockHash root_hash(uint64_t seed, std::span<const RootPart> parts) {
  std::string bytes;
  for (const RootPart& part : parts) append_part(bytes, part.kind, part.value.data(), part.value.size());
  return hash_bytes(seed, bytes);
}

BlockHash block_hash(uint64_t seed, const BlockHash& parent, std::span<const TokenId> tokens) {
  static thread_local std::string bytes;
  bytes.clear();
  append_part(bytes, HashPart::parent, &parent, sizeof(parent));
  append_part(bytes, HashPart::tokens, tokens.data(), tokens.size_bytes());
  return hash_bytes(seed, bytes);
}

}  // namespace tidemill
