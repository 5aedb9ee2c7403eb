// Granite 3 (IBM, 2024), the dense models.
//
// The plain decoder with multipliers of embeddings, scores and branches, and logits divided by one. GGUF files hold
// query and key rows with the rotation's halves side by side.
#include "model/families/family.h"
#include "model/families/plain_decoder.h"

namespace tidemill {

Result<DecoderSpec> granite_spec(const FamilyInputs& inputs) {
  Result<DecoderSpec> spec = plain_decoder(inputs);
  if (!spec) return spec;
  const double logits_scaling = inputs.config.logit_scale.value_or(1.0);
  if (!(logits_scaling > 0.0)) return error("logits_scaling {} is not a positive number", logits_scaling);
  spec->logit_scale = static_cast<float>(1.0 / logits_scaling);
  spec->interleaved_rows = inputs.is_gguf();
  for (LayerSpec& layer : spec->layers) {
    layer.attention.query_key_value_bias = Bias::optional;
    layer.attention.output_bias = Bias::optional;
    layer.feed_forward.bias = Bias::optional;
  }
  return spec;
}

}  // namespace tidemill
