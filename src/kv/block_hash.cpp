#include "kv/block_hash.h"

#include <openssl/sha.h>

#include <cstring>
#include <random>
#include <string>

namespace tidemill {
namespace {

void append_part(std::string& bytes, HashPart kind, const void* data, uint64_t size) {
  bytes.push_back(static_cast<char>(kind));
  bytes.append(reinterpret_cast<const char*>(&size), sizeof(size));
  bytes.append(static_cast<const char*>(data), size);
}

void begin_with(std::string& bytes, const HashKey& key) {
  bytes.assign(reinterpret_cast<const char*>(key.data()), key.size());
}

BlockHash hash_bytes(const std::string& bytes) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest);
  BlockHash hash;
  std::memcpy(&hash.low, digest, sizeof(hash.low));
  std::memcpy(&hash.high, digest + sizeof(hash.low), sizeof(hash.high));
  return hash;
}

}  // namespace

HashKey random_hash_key() {
  std::random_device entropy;
  HashKey key;
  for (size_t i = 0; i < key.size(); i += sizeof(uint32_t)) {
    const uint32_t word = entropy();
    std::memcpy(key.data() + i, &word, sizeof(word));
  }
  return key;
}

BlockHash root_hash(const HashKey& key, std::span<const RootPart> parts) {
  std::string bytes;
  begin_with(bytes, key);
  for (const RootPart& part : parts) append_part(bytes, part.kind, part.value.data(), part.value.size());
  return hash_bytes(bytes);
}

BlockHash block_hash(const HashKey& key, const BlockHash& parent, std::span<const TokenId> tokens) {
  static thread_local std::string bytes;
  begin_with(bytes, key);
  append_part(bytes, HashPart::parent, &parent, sizeof(parent));
  append_part(bytes, HashPart::tokens, tokens.data(), tokens.size_bytes());
  return hash_bytes(bytes);
}

}  // namespace tidemill
