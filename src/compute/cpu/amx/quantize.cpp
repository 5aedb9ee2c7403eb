#include "compute/cpu/amx/simd.h"
// The instruction set's vectors come first.
#include "compute/cpu/avx512/quantize_four.h"
#include "compute/cpu/generic/quantize.h"
