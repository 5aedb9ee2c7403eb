// One step of SplitMix64 (Steele, Lea, Flood 2014): neighbouring numbers become unrelated ones. Without state: draws,
// seeds and digests are functions of what they are made from.
#pragma once

#include <cstdint>

namespace tidemill {

constexpr uint64_t split_mix(uint64_t value) {
  value += 0x9E3779B97F4A7C15u;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

}  // namespace tidemill
