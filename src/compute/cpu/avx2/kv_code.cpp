#include "compute/cpu/avx2/simd.h"
// The instruction set's vectors come first.
#include "compute/cpu/generic/kv_encode.h"
