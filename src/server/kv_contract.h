// In what formats the server's KV cache can keep a request's blocks and how true each is, for requests that ask for a
// quality.
//
// Plain value, filled in by cli. A request names the least that it accepts: a level of fidelity (kv_fidelity), a number
// format (kv_cache_dtype), or both, of which the stricter counts. It gets the first offer that is enough. Where none
// is, it is refused; nothing is promised that was not measured for this model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_config.h"
#include "engine/kv_fidelity.h"
#include "server/json_fields.h"

namespace tidemill {

struct KvOffer {
  std::string formats = "fp16";                            // of keys and values, for people
  std::optional<KvFidelity> fidelity = KvFidelity::exact;  // nothing: never measured for this model
  int32_t rank = 0;                                        // how true its lesser half is, as in rank_by_format
};

struct KvContract {
  std::vector<KvOffer> offers = {{}};  // by KvFormatId: [0] is the usual, the others are better, in ascending order
  // What cold blocks of the usual format are encoded in anew (the KvFormatId after the offers'), which a request may
  // permit by asking for no more.
  std::optional<KvOffer> reencoded{};
  // What kv_cache_dtype may name, and how true each is; more is truer.
  std::vector<std::pair<std::string, int32_t>> rank_by_format;
};

// What a request is granted.
struct KvGrant {
  KvFormatId format = 0;
  bool may_read_reencoded = false;
};

// What a request's blocks were kept in, as its reply shows it, and in what the smaller copies were that it read so many
// tokens from.
Json kv_cache_json(const KvContract& contract, KvFormatId format, int64_t num_reencoded_tokens = 0);

// Reads kv_fidelity and kv_cache_dtype; nothing where neither was given. Leaves an error in `fields` where no offer is
// enough.
std::optional<KvGrant> read_kv_contract(Fields& fields, const KvContract& contract);

}  // namespace tidemill
