#include "compute/cpu/amx/simd.h"
// The instruction set's vectors come first.
#include "compute/cpu/amx/tile_product.h"
