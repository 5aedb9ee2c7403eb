#include "server/kv_contract.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"

namespace tidemill {
namespace {

constexpr size_t most_name_bytes = 64;

void check_fidelity(Fields& fields, const std::string& name, const KvContract& contract) {
  const std::optional<KvFidelity> asked = kv_fidelity_named(name);
  if (!asked) return fields.fail("kv_fidelity", "must be exact, high, balanced or compact");
  if (!contract.fidelity) {
    return fields.fail("kv_fidelity", fmt::format("cannot be promised: the cache is in {}, whose loss was not measured "
                                                  "for this model",
                                                  contract.formats));
  }
  if (*contract.fidelity <= *asked) return;
  fields.fail("kv_fidelity", fmt::format("is {}, and the server's cache, in {}, is {}", name, contract.formats,
                                         kv_fidelity_name(*contract.fidelity)));
}

void check_format(Fields& fields, const std::string& name, const KvContract& contract) {
  if (name == "auto") return;
  const auto& known = contract.bits_by_format;
  const auto found = std::ranges::find(known, name, &std::pair<std::string, int32_t>::first);
  if (found == known.end()) {
    std::string names = "auto";
    for (const auto& [each, bits] : known) names += ", " + each;
    return fields.fail("kv_cache_dtype", fmt::format("is \"{}\", not one of {}", printable(name, 20), names));
  }
  if (found->second <= contract.least_bits) return;
  fields.fail("kv_cache_dtype", fmt::format("is {}, of {} bits, and the server's cache, in {}, keeps {}", name,
                                            found->second, contract.formats, contract.least_bits));
}

}  // namespace

Json kv_cache_json(const KvContract& contract) {
  return {{"formats", contract.formats},
          {"fidelity", contract.fidelity ? Json(kv_fidelity_name(*contract.fidelity)) : Json()}};
}

bool read_kv_contract(Fields& fields, const KvContract& contract) {
  const auto fidelity = fields.string("kv_fidelity", most_name_bytes);
  const auto format = fields.string("kv_cache_dtype", most_name_bytes);
  if (fidelity) check_fidelity(fields, *fidelity, contract);
  if (format) check_format(fields, *format, contract);
  return fidelity || format;
}

}  // namespace tidemill
