// How true a KV cache must be to an uncompressed one: the levels, and what is measured for each.
//
// A level is a promise about distributions. exact means that nothing was encoded: keys and values in fp16 or wider. Any
// other format has a level where its divergence was measured for that model file and lies within the level's gate. The
// gate bounds what the format loses beyond the fp16 cache measured in the same run: where activations are quantized,
// any change at all, even fp16 for fp32, moves a distribution by the noise of their rounding, which says nothing of a
// format. What was not measured has no level.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tidemill {

// Ascending: each level allows more loss than the one before.
enum class KvFidelity : uint8_t { exact, high, balanced, compact };
inline constexpr std::array<std::string_view, 4> kv_fidelity_names = {"exact", "high", "balanced", "compact"};
constexpr std::string_view kv_fidelity_name(KvFidelity level) {
  return kv_fidelity_names[static_cast<size_t>(level)];
}
constexpr std::optional<KvFidelity> kv_fidelity_named(std::string_view name) {
  for (size_t i = 0; i < kv_fidelity_names.size(); ++i) {
    if (name == kv_fidelity_names[i]) return static_cast<KvFidelity>(i);
  }
  return std::nullopt;
}

// What one cache's rows look like beside those of the reference.
struct FidelityFigures {
  double mean_kl = 0;      // nats a token
  double changed_top = 0;  // share of tokens whose likeliest successor is another
  double perplexity = 0;
};

// What a format may lose beyond the fp16 cache.
struct FidelityGate {
  KvFidelity level = KvFidelity::high;
  double most_mean_kl = 0;
  double most_changed_top = 0;
  double most_perplexity_ratio = 0;
};
inline constexpr std::array<FidelityGate, 3> fidelity_gates = {{{KvFidelity::high, 0.002, 0.015, 1.005},
                                                                {KvFidelity::balanced, 0.01, 0.04, 1.02},
                                                                {KvFidelity::compact, 0.05, 0.08, 1.08}}};

// The strictest level whose gate an encoded format passes; nothing where it passes none.
constexpr std::optional<KvFidelity> measured_fidelity(const FidelityFigures& format, const FidelityFigures& fp16) {
  for (const FidelityGate& gate : fidelity_gates) {
    if (format.mean_kl - fp16.mean_kl <= gate.most_mean_kl &&
        format.changed_top - fp16.changed_top <= gate.most_changed_top &&
        format.perplexity <= gate.most_perplexity_ratio * fp16.perplexity)
      return gate.level;
  }
  return std::nullopt;
}

}  // namespace tidemill
