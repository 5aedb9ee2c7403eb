// How long attention takes beside what its bytes and its products cost at least: a piece for programs that measure.
//
// The keys and values of all layers lie in blocks scattered over one arena, as a server's pool hands them out. For
// comparison the same arena is read from end to end by as many threads: what memory (or a cache, where it fits) gives
// at that moment, at that size.
#pragma once

#include <cstdint>

#include "compute/backend.h"

namespace tidemill {

// SmolLM2-135M, unless told otherwise.
struct AttentionShape {
  int32_t num_layers = 30, num_heads = 9, num_kv_heads = 3, head_dim = 64;
  int32_t window = 0;  // 0 = none
  int32_t block_size = 32;
  KvBlockFormat format = KvFormat::fp16;
};

// The last rows of sequences of equal length: one row each in decode, many in prefill.
struct AttentionLoad {
  int32_t num_sequences = 1;
  int32_t rows_each = 1;
  int32_t length = 128;  // positions, these rows included
};

struct AttentionTime {
  double seconds = 0;       // all layers; the best of several passes
  double read_bytes = 0;    // of keys and values that some row sees, each counted once
  double macs = 0;          // products that enter a sum: of queries with keys and of weights with values
  double read_seconds = 0;  // for as many bytes of the same arena, read by plain loads; the best of several passes
};

// Repeats until `budget_s` has passed, at least twice. One thread is measured by its own processor time, so that other
// programs do not count. Engine thread only, as every Backend's.
AttentionTime time_attention(Backend& backend, const AttentionShape& shape, const AttentionLoad& load, double budget_s);

}  // namespace tidemill
