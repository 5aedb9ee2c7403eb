// SmolLM3 (Hugging Face, 2025). SmolLM and SmolLM2 are Llamas.
//
// The plain decoder in which every fourth layer does not rotate, unless the configuration says which. GGUF files hold
// query and key rows with the rotation's halves side by side.
#include "model/families/family.h"
#include "model/families/plain_decoder.h"

namespace tidemill {
namespace {
constexpr size_t unrotated_period = 4;
}

Result<DecoderSpec> smollm3_spec(const FamilyInputs& inputs) {
  Result<DecoderSpec> spec = plain_decoder(inputs);
  if (!spec) return spec;
  spec->interleaved_rows = inputs.is_gguf();
  for (size_t i = 0; i < spec->layers.size(); ++i) {
    AttentionSpec& attention = spec->layers[i].attention;
    if (inputs.config.layer_has_rope.empty() && (i + 1) % unrotated_period == 0) {
      attention.rotary = AttentionSpec::no_rotation;
    }
    attention.query_key_value_bias = Bias::optional;
    attention.output_bias = Bias::optional;
    spec->layers[i].feed_forward.bias = Bias::optional;
  }
  return spec;
}

}  // namespace tidemill
