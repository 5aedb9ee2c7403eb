// Granite 3 (IBM, 2024), the dense models.
//
// A Llama with multipliers of embeddings, scores and branches, and logits divided by one.
#include "model/families/family.h"

namespace tidemill {

Result<DecoderSpec> granite_spec(const FamilyInputs& inputs) {
  Result<DecoderSpec> spec = llama_spec(inputs);
  if (!spec) return spec;
  const double logits_scaling = inputs.config.logit_scale.value_or(1.0);
  if (!(logits_scaling > 0.0)) return error("logits_scaling {} is not a positive number", logits_scaling);
  spec->logit_scale = static_cast<float>(1.0 / logits_scaling);
  return spec;
}

}  // namespace tidemill
