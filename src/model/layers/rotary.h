// Frequencies of rotary position embeddings (arXiv:2104.09864) under the scalings that published models use.
//
// Frequencies are fixed for the life of a model: scalings that depend on the length of the text (dynamic, longrope) are
// computed for the longest sequence that will be served, so a key never depends on when it was computed.
// Pure functions; an Error names the value and its limit.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "model/layers/decoder_spec.h"
#include "model/model_config.h"

namespace tidemill {

// Lengths in tokens.
struct RotaryLengths {
  int32_t context_length = 0;    // trained, scaling included
  int32_t longest_sequence = 0;  // that will be served
};

// linear: all frequencies over the factor. dynamic: a larger base ("NTK-aware"). llama3: long wavelengths over the
// factor, short ones kept, a ramp between. yarn: arXiv:2309.00071. longrope: a divisor per frequency, one set up to the
// original context length and another beyond it (arXiv:2402.13753). The yarn and longrope factor on the rotated vectors
// goes to attention_factor.
Result<RotarySpec> make_rotary(const RopeConfig& rope, int32_t rotary_dim, RotaryLengths lengths);

// Divides every frequency by the factor of the same index, as a GGUF file's rope_freqs asks. An Error names a factor
// that is not a positive number, or the wrong count.
Result<void> divide_frequencies(RotarySpec& rotary, std::span<const double> factors);

}  // namespace tidemill
