// A token id, as the vocabulary numbers them: 0 <= id < vocabulary size.
#pragma once

#include <cstdint>

namespace tidemill {

using TokenId = int32_t;

}  // namespace tidemill
