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
  // compared; the last token is never computed.
  void start(std::span<const TokenId> tokens, int32_t first_row);
  bool done() const { return num_remaining() <= 0; }
  int32_t num_remaining() const { return end_ - reference_->num_computed(); }  // rows
  // The next rows, at most so many, in every cache; tells the compared ones, ascending for each candidate. Returns the
  // rows that each cache computed.
  int32_t advance(int32_t most_rows, const OnRow& on_row);
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
};

}  // namespace tidemill
