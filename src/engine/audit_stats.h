// What the live meter found: totals for the metrics, by the format that the requests had, and a record of each of the
// last audited choices.
//
// Divergences are in nats a token, of the reference cache's distribution to that of the server's formats.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/histogram.h"

namespace tidemill {

// Of one choice: the rows whose tokens were drawn.
struct AuditRecord {
  uint64_t request = 0;  // RequestId
  int32_t choice = 0;
  std::string label;      // the client's or server's request id
  uint8_t kv_format = 0;  // KvFormatId, of its blocks
  int64_t num_rows = 0;
  int64_t num_same_top = 0;
  double kl_sum = 0, worst_kl = 0;
  double logprob_sum = 0, reference_logprob_sum = 0;  // of the tokens that were drawn
  double mean_kl() const { return num_rows > 0 ? kl_sum / static_cast<double>(num_rows) : 0; }
};

inline constexpr size_t most_audit_records = 128;
inline constexpr std::array audit_divergence_bounds = {1e-7, 1e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3,
                                                       1e-2, 3e-2, 0.1,  0.3,  1.0,  3.0,  10.0};

// Of all rows whose requests had one format.
struct AuditFigures {
  uint64_t num_rows = 0;  // compared
  uint64_t num_same_top = 0;
  double worst_kl = 0;
  Histogram divergence{audit_divergence_bounds};
};

struct AuditStats {
  bool on = false;
  double share = 0;
  uint64_t num_done = 0;
  uint64_t num_skipped = 0;           // sampled, but too much was waiting, or too long
  uint64_t num_reencoded = 0;         // sampled, but it read re-encoded copies, which nobody can replay
  uint64_t computed_rows = 0;         // by both caches
  std::vector<AuditFigures> formats;  // by KvFormatId, of those that requests may have
  std::vector<AuditRecord> recent;    // the last ones, oldest first

  uint64_t num_left_out() const { return num_skipped + num_reencoded; }
};

}  // namespace tidemill
