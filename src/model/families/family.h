// What a family gets and what it gives.
//
// A family is one file that says how a model of its kind differs from the plain decoder, and one row in
// family_registry.cpp (recipe: docs/adding-a-family.md).
#pragma once

#include <memory>

#include "base/result.h"
#include "model/layers/decoder_spec.h"
#include "model/layers/rotary.h"
#include "model/loader.h"
#include "model/model.h"
#include "model/model_config.h"
#include "model/weight_file.h"

namespace tidemill {

// Everything that a model is made from; references are valid while loading, the backend as long as the model.
struct FamilyInputs {
  const WeightFile& file;
  const ModelConfig& config;
  Backend& backend;
  const LoadOptions& options;

  bool is_gguf() const { return config.source == ConfigSource::gguf; }
  RotaryLengths rotary_lengths() const;
};

// What the rows of family_registry.cpp call.
Result<DecoderSpec> llama_spec(const FamilyInputs& inputs);
Result<DecoderSpec> qwen2_spec(const FamilyInputs& inputs);
Result<DecoderSpec> qwen3_spec(const FamilyInputs& inputs);
Result<DecoderSpec> gemma2_spec(const FamilyInputs& inputs);
Result<DecoderSpec> gemma3_spec(const FamilyInputs& inputs);
Result<DecoderSpec> phi3_spec(const FamilyInputs& inputs);
Result<DecoderSpec> granite_spec(const FamilyInputs& inputs);
Result<DecoderSpec> olmo2_spec(const FamilyInputs& inputs);
Result<DecoderSpec> smollm3_spec(const FamilyInputs& inputs);

}  // namespace tidemill
