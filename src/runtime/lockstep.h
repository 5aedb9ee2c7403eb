// A reference cache and candidates that run the same tokens in lockstep, over one loaded model.
//
// Owns the caches and the reference's kept rows. Engine thread only; nobody else may run the model meanwhile. Refers to
// the model and the backend, which must outlive it.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "runtime/kept_rows.h"
#include "runtime/text_runner.h"

namespace tidemill {

struct LockstepOptions {
  KvFormats reference;
  std::vector<KvFormats> candidates;
  std::vector<KvFormats> other_formats{};  // that the candidates' caches may keep a text in instead
  int32_t block_size_tokens = 32;
  int32_t max_tokens = 2048;  // of a text
  int32_t max_rows = 512;     // of an advance; fewer where the kept logits would take more than 64 MiB
  Backend* backend = nullptr;
};

class Lockstep {
 public:
  static Result<std::unique_ptr<Lockstep>> make(Model& model, const LockstepOptions& options);

  using OnRow = std::function<void(size_t candidate, int32_t position, const RowDivergence& row)>;
  // A text of at least two tokens. Of its rows [first_row, num_tokens - 1), whose following tokens are known, each is
  // compared; the last token is never computed. Candidates keep it in their own formats (0) or in one of other_formats
  // (from 1 on).
  void start(std::span<const TokenId> tokens, int32_t first_row, KvFormatId format = 0);
  bool done() const { return turn_ == 0 && reference_->num_computed() >= end_; }
  // The next rows of one cache, at most so many: of the reference, then the same of each candidate in turn. Tells the
  // compared ones, ascending. Returns how many it computed.
  int32_t advance_one(int32_t most_rows, const OnRow& on_row);
  // How many that will be.
  int32_t num_next(int32_t most_rows) const;
  // The next rows, at most so many, in every cache.
  void advance(int32_t most_rows, const OnRow& on_row) {
    do advance_one(most_rows, on_row);
    while (turn_ != 0);
  }
  void run(std::span<const TokenId> tokens, int32_t first_row, const OnRow& on_row) {
    start(tokens, first_row);
    while (!done()) advance(std::numeric_limits<int32_t>::max(), on_row);
  }

  size_t num_candidates() const { return candidates_.size(); }
  TextRunner& reference() { return *reference_; }
  TextRunner& candidate(size_t index) { return *candidates_[index]; }

 private:
  Lockstep() = default;
  KeptRows kept_;
  std::unique_ptr<TextRunner> reference_;
  std::vector<std::unique_ptr<TextRunner>> candidates_;
  int32_t first_row_ = 0, end_ = 0;
  size_t turn_ = 0;   // whose rows are next: 0 = the reference's, i + 1 = those of candidate i ...
  int32_t rows_ = 0;  // ... which are so many
};

}  // namespace tidemill
