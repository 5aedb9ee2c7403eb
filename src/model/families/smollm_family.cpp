// SmolLM3 (Hugging Face, 2025). SmolLM and SmolLM2 are Llamas.
//
// A Llama in which every fourth layer does not rotate, unless the configuration says which.
#include "model/families/family.h"

namespace tidemill {
namespace {
constexpr size_t unrotated_period = 4;
}

Result<DecoderSpec> smollm3_spec(const FamilyInputs& inputs) {
  Result<DecoderSpec> spec = llama_spec(inputs);
  if (!spec) return spec;
  if (!inputs.config.layer_has_rope.empty()) return spec;
  for (size_t i = unrotated_period - 1; i < spec->layers.size(); i += unrotated_period) {
    spec->layers[i].attention.rotary = AttentionSpec::no_rotation;
  }
  return spec;
}

}  // namespace tidemill
