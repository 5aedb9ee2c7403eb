// Qwen 2 and 2.5 (arXiv:2407.10671), Qwen 3 (arXiv:2505.09388).
//
// Qwen 2 has biases on queries, keys and values; Qwen 3 has a norm of queries and keys per head instead.
#include "model/families/family.h"
#include "model/families/plain_decoder.h"

namespace tidemill {
namespace {

Result<DecoderSpec> qwen_spec(const FamilyInputs& inputs) {
  Result<DecoderSpec> spec = plain_decoder(inputs);
  if (!spec) return spec;
  // Published models state a window and switch it off; a GGUF keeps only the first half of that.
  if (inputs.is_gguf()) {
    for (LayerSpec& layer : spec->layers) layer.attention.window = 0;
  }
  return spec;
}

}  // namespace

Result<DecoderSpec> qwen2_spec(const FamilyInputs& inputs) {
  Result<DecoderSpec> spec = qwen_spec(inputs);
  if (!spec) return spec;
  for (LayerSpec& layer : spec->layers) layer.attention.query_key_value_bias = Bias::required;
  return spec;
}

Result<DecoderSpec> qwen3_spec(const FamilyInputs& inputs) {
  Result<DecoderSpec> spec = qwen_spec(inputs);
  if (!spec) return spec;
  for (LayerSpec& layer : spec->layers) {
    layer.attention.query_key_norm = QueryKeyNorm::per_head;
    layer.attention.query_key_value_bias = Bias::optional;
    layer.attention.output_bias = Bias::optional;
  }
  return spec;
}

}  // namespace tidemill
