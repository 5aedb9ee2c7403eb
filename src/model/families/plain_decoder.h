// The decoder that most families are: what a family file starts from and then changes.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "model/families/family.h"
#include "model/layers/decoder_spec.h"

namespace tidemill {

// A norm before attention and feed-forward, gated SiLU feed-forward (or the configuration's activation), scores over
// sqrt(head_dim), rotation of all layers but those that the configuration excepts, the configuration's windows, no
// biases, a head of its own unless tied. Sizes, scales and soft caps are the configuration's; rotary factors that a
// GGUF holds as tensors are applied. An Error names what a decoder cannot be: experts, keys and values of different
// sizes, an unknown activation.
Result<DecoderSpec> plain_decoder(const FamilyInputs& inputs);

// Every n-th layer full, the others with the window; 0 = no windows. For families that their files are silent about.
void set_window_pattern(DecoderSpec& spec, int32_t window, int32_t every_nth_is_full);

// Makes layers full whose window no sequence outgrows, so that they share blocks with the others.
void drop_idle_windows(DecoderSpec& spec, int32_t longest_sequence);

}  // namespace tidemill
