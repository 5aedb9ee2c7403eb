#include "base/checksum.h"

#include <cstring>

namespace tidemill {
namespace {

uint64_t mixed(uint64_t hash) {
  hash ^= hash >> 32;
  hash *= 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 29);
}

}  // namespace

// Four independent lanes of multiply and rotate, folded at the end together with the length.
uint64_t checksum_of(std::span<const std::byte> bytes) {
  constexpr uint64_t factor = 0xC2B2AE3D27D4EB4Fu;
  uint64_t lanes[4] = {1, 2, 3, 4};
  size_t at = 0;
  const auto step = [&](uint64_t& lane, uint64_t word) {
    lane = (lane ^ word) * factor;
    lane ^= lane >> 31;
  };
  for (; at + 32 <= bytes.size(); at += 32) {
    uint64_t words[4];
    std::memcpy(words, bytes.data() + at, sizeof(words));
    for (int i = 0; i < 4; ++i) step(lanes[i], words[i]);
  }
  uint64_t rest[4] = {};
  if (at < bytes.size()) std::memcpy(rest, bytes.data() + at, bytes.size() - at);
  uint64_t hash = mixed(bytes.size());
  for (int i = 0; i < 4; ++i) {
    step(lanes[i], rest[i]);
    hash = mixed(hash ^ lanes[i]);
  }
  return hash;
}

}  // namespace tidemill
