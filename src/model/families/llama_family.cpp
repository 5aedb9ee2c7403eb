// Llama 1 to 3 (arXiv:2302.13971, arXiv:2407.21783), Mistral (arXiv:2310.06825), SmolLM and SmolLM2, and everybody who
// publishes under their name.
//
// The plain decoder. Biases where the file has them. GGUF files of these families hold query and key rows with the
// rotation's halves side by side.
#include "model/families/family.h"
#include "model/families/plain_decoder.h"

namespace tidemill {

Result<DecoderSpec> llama_spec(const FamilyInputs& inputs) {
  Result<DecoderSpec> spec = plain_decoder(inputs);
  if (!spec) return spec;
  spec->interleaved_rows = inputs.is_gguf();
  for (LayerSpec& layer : spec->layers) {
    layer.attention.query_key_value_bias = Bias::optional;
    layer.attention.output_bias = Bias::optional;
    layer.feed_forward.bias = Bias::optional;
  }
  return spec;
}

}  // namespace tidemill
