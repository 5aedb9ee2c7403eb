// The 16-bit float types in memory, as types that kernels can be templates of.
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

}  // namespace tidemill::cpu
