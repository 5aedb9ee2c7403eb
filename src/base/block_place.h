// Where a block lies: a slot of one size class. Ids only; runtime/kv_storage turns them into addresses.
#pragma once

#include <cstdint>

namespace tidemill {

struct BlockPlace {
  uint32_t slot = 0;
  uint8_t size_class = 0;
  bool operator==(const BlockPlace&) const = default;
};

}  // namespace tidemill
