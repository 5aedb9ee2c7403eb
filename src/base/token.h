// The id of an entry of a model's vocabulary: 0 <= id < vocabulary size. -1 is used by nobody; "no token" is an empty
// std::optional.
#pragma once

#include <cstdint>

namespace tidemill {

using TokenId = int32_t;

}  // namespace tidemill
