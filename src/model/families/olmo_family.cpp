// OLMo 2 (arXiv:2501.00656).
//
// Norms behind attention and feed-forward and none before them; queries and keys are normalized as whole rows.
#include "model/families/family.h"
#include "model/families/plain_decoder.h"

namespace tidemill {

Result<DecoderSpec> olmo2_spec(const FamilyInputs& inputs) {
  // OLMo 3 files carry the same GGUF architecture, but scale the rotation of their full layers only.
  if (inputs.config.sliding_window) return error("OLMo with a sliding window (OLMo 3) is not supported");
  Result<DecoderSpec> spec = plain_decoder(inputs);
  if (!spec) return spec;
  for (LayerSpec& layer : spec->layers) {
    layer.attention.pre_norm = false;
    layer.attention.post_norm = true;
    layer.attention.query_key_norm = QueryKeyNorm::whole_row;
    layer.feed_forward.pre_norm = false;
    layer.feed_forward.post_norm = true;
  }
  return spec;
}

}  // namespace tidemill
