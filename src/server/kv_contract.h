// What the server's KV cache stores and how true that is, for requests that ask for a quality.
//
// Plain value, filled in by cli. A request names the least that it accepts: a level of fidelity (kv_fidelity), a number
// format (kv_cache_dtype), or both, of which the stricter counts. What the cache does not keep is refused; nothing is
// promised that was not measured for this model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/kv_fidelity.h"
#include "server/json_fields.h"

namespace tidemill {

struct KvContract {
  std::string formats = "fp16";                            // of keys and values, for people
  std::optional<KvFidelity> fidelity = KvFidelity::exact;  // nothing: never measured for this model
  int32_t least_bits = 16;                                 // of a stored key or value
  // What kv_cache_dtype may name, and the bits of each.
  std::vector<std::pair<std::string, int32_t>> bits_by_format;
};

// The cache as a reply shows it.
Json kv_cache_json(const KvContract& contract);

// Reads kv_fidelity and kv_cache_dtype; true where one was given, so that the reply says what was used. Leaves an error
// in `fields` where the cache is less than was asked for.
bool read_kv_contract(Fields& fields, const KvContract& contract);

}  // namespace tidemill
