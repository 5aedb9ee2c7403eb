// The 16-bit and 8-bit float types in memory, as types that kernels can be templates of.
#pragma once

#include <stdint.h>

#include "compute/cpu/kernel_types.h"

namespace tidemill::cpu {

struct Half {
  uint16_t bits;
};
struct BFloat {
  uint16_t bits;
};

struct Float8E4M3 {
  uint8_t bits;
};
struct Float8E5M2 {
  uint8_t bits;
};

}  // namespace tidemill::cpu
