// A checksum against damage and mix-ups, not against malice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tidemill {

// 64 bits over bytes and length; the same on every machine of this byte order.
uint64_t checksum_of(std::span<const std::byte> bytes);

}  // namespace tidemill
