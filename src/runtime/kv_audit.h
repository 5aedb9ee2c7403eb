// The auditor that runs a real model (engine/kv_auditor.h).
//
// A sampled choice is replayed when it has ended, teacher-forced, by two caches of the auditor's own: one in the
// formats that its request had, one in the reference format. The first gives the very rows that the choice was drawn
// from (an answer depends on its own tokens and formats alone), the second what they would have been; the rows that had
// a token drawn are compared. So a compared token costs two computed rows, and all of them together are at most the
// auditor's share of the rows that the engine computed. They are computed in pieces of a few rows of one cache. What
// comes while too much waits is left out and counted, and so is what read re-encoded copies.
//
// Engine thread only. Refers to the model and the backend, which must outlive it; owns its caches, whose memory is
// taken as the first audits fill them.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "base/result.h"
#include "engine/kv_auditor.h"
#include "runtime/lockstep.h"

namespace tidemill {

struct KvAuditOptions {
  double share = 0.01;  // of choices that are sampled, and of the engine's rows that may be computed for them
  std::vector<KvFormats> formats;  // that requests may have, by KvFormatId; at least the server's own
  KvFormats reference;
  int32_t block_size_tokens = 32;
  int32_t max_tokens = 4096;  // of a choice; what follows is not audited
  uint64_t seed = 0;          // which choices are sampled
  Backend* backend = nullptr;
};

class KvAudit final : public KvAuditor {
 public:
  static Result<std::unique_ptr<KvAudit>> make(Model& model, const KvAuditOptions& options);
  // The most bytes that the caches take.
  static size_t cache_bytes(const KvLayout& layout, const KvAuditOptions& options);

  void offer(const EndedChoice& choice) override;
  void note_step(int64_t num_rows) override;
  bool run() override;
  const AuditStats& stats() const override { return stats_; }

 private:
  struct Waiting {
    AuditRecord record;
    std::vector<TokenId> tokens;
    int32_t first_row = 0;
  };

  KvAudit(std::unique_ptr<Lockstep> caches, const KvAuditOptions& options);
  bool sampled(const EndedChoice& choice) const;
  void take(const RowDivergence& row);
  void finish();

  std::unique_ptr<Lockstep> caches_;
  KvAuditOptions options_;
  std::deque<Waiting> waiting_;  // the first is the one at hand, where running_
  bool running_ = false;
  double allowance_rows_ = 0;
  AuditStats stats_;
};

}  // namespace tidemill
