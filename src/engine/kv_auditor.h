// The live meter: measures, of some ended choices, how far the distributions they were drawn from are from those of an
// uncompressed KV cache.
//
// The engine offers every ended choice, tells what its steps compute, and lets the auditor run between them; the
// auditor decides what it takes and keeps its computed rows below its share of the engine's. Nothing that it does
// reaches a sequence, a block of the pool or an answer. Engine thread only. runtime/kv_audit is the real one.
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
  KvFormatId kv_format = 0;     // of its blocks
  bool read_reencoded = false;  // but for some that it found in a smaller one
};

class KvAuditor {
 public:
  virtual ~KvAuditor() = default;
  // Copies what it takes.
  virtual void offer(const EndedChoice& choice) = 0;
  // A step computed so many rows.
  virtual void note_step(int64_t num_rows) = 0;
  // Between two steps: some rows, where the share allows them; no more than a stream may wait for at once. Returns
  // whether rows were computed.
  virtual bool run() = 0;
  virtual const AuditStats& stats() const = 0;
};

}  // namespace tidemill
