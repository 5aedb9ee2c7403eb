#include "server/kv_contract.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"

namespace tidemill {
namespace {

constexpr size_t most_name_bytes = 64;

// What a request asks for; nothing = anything will do.
struct Wish {
  std::optional<KvFidelity> fidelity;
  std::optional<int32_t> rank;

  bool has_fidelity(const KvOffer& offer) const {
    return !fidelity || (offer.fidelity && *offer.fidelity <= *fidelity);
  }
  bool has_format(const KvOffer& offer) const { return !rank || offer.rank >= *rank; }
};

std::optional<KvFidelity> read_fidelity(Fields& fields, const std::optional<std::string>& name) {
  if (!name) return std::nullopt;
  const std::optional<KvFidelity> level = kv_fidelity_named(*name);
  if (!level) fields.fail("kv_fidelity", "must be exact, high, balanced or compact");
  return level;
}

std::optional<int32_t> read_format(Fields& fields, const std::optional<std::string>& name, const KvContract& contract) {
  if (!name || *name == "auto") return std::nullopt;
  const auto& known = contract.rank_by_format;
  const auto found = std::ranges::find(known, *name, &std::pair<std::string, int32_t>::first);
  if (found != known.end()) return found->second;
  std::string names = "auto";
  for (const auto& [each, rank] : known) names += ", " + each;
  fields.fail("kv_cache_dtype", fmt::format("is \"{}\", not one of {}", printable(*name, 20), names));
  return std::nullopt;
}

// "int4 (balanced), fp16 (exact)"
std::string offers_text(const KvContract& contract) {
  std::string text;
  for (const KvOffer& offer : contract.offers) {
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", offer.formats,
                        offer.fidelity ? kv_fidelity_name(*offer.fidelity) : "not measured for this model");
  }
  return text;
}

}  // namespace

Json kv_cache_json(const KvContract& contract, KvFormatId format, int64_t num_reencoded_tokens) {
  const auto json_of = [](const KvOffer& offer) -> Json {
    return {{"formats", offer.formats},
            {"fidelity", offer.fidelity ? Json(kv_fidelity_name(*offer.fidelity)) : Json()}};
  };
  Json kept = json_of(contract.offers[format]);
  if (num_reencoded_tokens > 0 && contract.reencoded) {
    kept["reencoded"] = json_of(*contract.reencoded);
    kept["reencoded"]["tokens"] = num_reencoded_tokens;
  }
  return kept;
}

std::optional<KvGrant> read_kv_contract(Fields& fields, const KvContract& contract) {
  const auto fidelity = fields.string("kv_fidelity", most_name_bytes);
  const auto format = fields.string("kv_cache_dtype", most_name_bytes);
  if (!fidelity && !format) return std::nullopt;
  const Wish wish{read_fidelity(fields, fidelity), read_format(fields, format, contract)};
  const auto suffices = [&](const KvOffer& offer) { return wish.has_fidelity(offer) && wish.has_format(offer); };
  const auto enough = std::ranges::find_if(contract.offers, suffices);
  if (enough != contract.offers.end()) {
    const bool permits = (wish.fidelity || wish.rank) && contract.reencoded && suffices(*contract.reencoded);
    return KvGrant{static_cast<KvFormatId>(enough - contract.offers.begin()), permits};
  }
  const bool any_format =
      std::ranges::any_of(contract.offers, [&](const KvOffer& offer) { return wish.has_format(offer); });
  fields.fail(any_format ? "kv_fidelity" : "kv_cache_dtype",
              fmt::format("is {}, and the server keeps KV blocks in {}", any_format ? *fidelity : *format,
                          offers_text(contract)));
  return std::nullopt;
}

}  // namespace tidemill
