// Formats of a KV cache under one name each, as `tidemill eval kv --formats` and kept measurements write them.
//
//   int8, int8/int4, int4:token+rotation    as runtime/kv_formats.h reads them
// and behind it, in any order:
//   +windows    layers with a window stay in tail precision
//   +ends       the first and the last two layers do
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "runtime/kv_formats.h"

namespace tidemill {

struct NamedKvFormats {
  std::string name;
  KvFormats formats;
  bool exact = false;  // nothing is encoded: fp16 or wider
};
// The cache whose loss is the floor under all others (engine/kv_fidelity.h).
inline constexpr const char* floor_format = "fp16";

// Whether keys and values are stored in fp16 or wider.
bool is_exact(const KvFormats& formats);

// num_layers: of the model, for "ends".
Result<NamedKvFormats> kv_formats_named(std::string_view name, int32_t num_layers);
// Separated by commas.
Result<std::vector<NamedKvFormats>> kv_format_list(std::string_view names, int32_t num_layers);

}  // namespace tidemill
