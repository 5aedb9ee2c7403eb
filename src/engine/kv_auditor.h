// The live meter: measures, of some ended choices, how far the distributions they were drawn from are from those of an
// uncompressed KV cache.
//
// The engine offers every ended choice and lets the auditor run between steps; the auditor decides what it takes and
// keeps its computed rows below its share of the engine's. Nothing that it does reaches a sequence, a block of the pool
// or an answer. Engine thread only. runtime/kv_audit is the real one.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/token.h"
#include "engine/engine_stats.h"
#include "engine/request.h"

namespace tidemill {

// An ended choice: prompt, and what was drawn after it.
struct EndedChoice {
  RequestId request = 0;
  int32_t choice = 0;
  const std::string* label = nullptr;
  std::span<const TokenId> tokens;
  int32_t num_prompt_tokens = 0;
};

class KvAuditor {
 public:
  virtual ~KvAuditor() = default;
  // Copies what it takes.
  virtual void offer(const EndedChoice& choice) = 0;
  // Between two steps, of which the last computed `num_rows` rows. Returns whether rows were computed.
  virtual bool run(int64_t num_rows) = 0;
  virtual const AuditStats& stats() const = 0;
};

}  // namespace tidemill
