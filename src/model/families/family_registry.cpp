#include "model/families/family_registry.h"

#include <algorithm>

#include "base/printable.h"
#include "model/decoder.h"
#include "model/families/plain_decoder.h"
#include "model/layers/weight_reader.h"
#include "model/weight_names.h"

namespace tidemill {
namespace {

using SpecOfFamily = Result<DecoderSpec> (*)(const FamilyInputs& inputs);

template <SpecOfFamily spec_of>
Result<std::unique_ptr<Model>> load_decoder(const FamilyInputs& inputs) {
  Result<DecoderSpec> spec = spec_of(inputs);
  if (!spec) return spec.error();
  const RotaryLengths lengths = inputs.rotary_lengths();
  drop_idle_windows(*spec, std::max(lengths.context_length, lengths.longest_sequence));
  const AttentionSpec& first = spec->layers.front().attention;
  const WeightNaming hub_naming = first.post_norm ? WeightNaming::hub_post_norms : WeightNaming::hub;
  WeightReader reader(inputs.file, inputs.is_gguf() ? WeightNaming::gguf : hub_naming, inputs.backend, inputs.options);
  Result<std::unique_ptr<Decoder>> decoder = Decoder::load(std::move(*spec), reader, inputs.backend);
  if (!decoder) return decoder.error();
  return std::unique_ptr<Model>(std::move(*decoder));
}

constexpr Family families[] = {
    {"llama", load_decoder<llama_spec>},        {"mistral", load_decoder<llama_spec>},
    {"qwen2", load_decoder<qwen2_spec>},        {"qwen3", load_decoder<qwen3_spec>},
    {"gemma2", load_decoder<gemma2_spec>},      {"gemma3", load_decoder<gemma3_spec>},
    {"gemma3_text", load_decoder<gemma3_spec>}, {"phi3", load_decoder<phi3_spec>},
    {"granite", load_decoder<granite_spec>},    {"olmo2", load_decoder<olmo2_spec>},
    {"smollm3", load_decoder<smollm3_spec>},
};

}  // namespace

std::span<const Family> all_families() {
  return families;
}

Result<const Family*> find_family(std::string_view name) {
  const Family* family = std::find_if(std::begin(families), std::end(families),
                                      [&](const Family& candidate) { return candidate.name == name; });
  if (family != std::end(families)) return family;
  std::string known;
  for (const Family& candidate : families) {
    if (!known.empty()) known += ", ";
    known += candidate.name;
  }
  return error("the model family \"{}\" is not known; known are {}", printable(name), known);
}

}  // namespace tidemill
