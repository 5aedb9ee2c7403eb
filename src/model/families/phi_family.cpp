// Phi 3 and 3.5 (arXiv:2404.14219), Phi 4 mini (arXiv:2503.01743).
//
// The plain decoder with one tensor for queries, keys and values and one for gate and up. Long-context models scale the
// rotation with a factor per frequency.
#include "model/families/family.h"
#include "model/families/plain_decoder.h"

namespace tidemill {

Result<DecoderSpec> phi3_spec(const FamilyInputs& inputs) {
  Result<DecoderSpec> spec = plain_decoder(inputs);
  if (!spec) return spec;
  for (LayerSpec& layer : spec->layers) {
    layer.attention.fused_query_key_value = true;
    layer.feed_forward.fused_gate_up = true;
  }
  return spec;
}

}  // namespace tidemill
