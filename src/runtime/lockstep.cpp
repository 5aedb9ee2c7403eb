#include "runtime/lockstep.h"

#include <algorithm>

#include "base/check.h"

namespace tidemill {
namespace {

constexpr int64_t most_kept_bytes = int64_t{64} << 20;

// Whole blocks, as many as are wanted and the kept logits have room for.
int32_t rows_at_once(const LockstepOptions& options, int32_t vocab_size) {
  const int64_t fit = most_kept_bytes / (int64_t{vocab_size} * static_cast<int64_t>(sizeof(float)));
  const int64_t rows = std::min<int64_t>(options.max_rows, fit) / options.block_size_tokens * options.block_size_tokens;
  return static_cast<int32_t>(std::max<int64_t>(options.block_size_tokens, rows));
}

}  // namespace

Result<std::unique_ptr<Lockstep>> Lockstep::make(Model& model, const LockstepOptions& options) {
  std::unique_ptr<Lockstep> lockstep(new Lockstep);
  TextRunnerOptions each{.formats = options.reference,
                         .block_size_tokens = options.block_size_tokens,
                         .max_tokens = options.max_tokens,
                         .max_rows = rows_at_once(options, model.info().vocab_size),
                         .backend = options.backend,
                         .kept_rows = &lockstep->kept_};
  Result<std::unique_ptr<TextRunner>> reference = TextRunner::make(model, each);
  if (!reference) return reference.error();
  lockstep->reference_ = *std::move(reference);
  each.other_formats = options.other_formats;
  for (const KvFormats& formats : options.candidates) {
    each.formats = formats;
    Result<std::unique_ptr<TextRunner>> candidate = TextRunner::make(model, each);
    if (!candidate) return candidate.error();
    lockstep->candidates_.push_back(*std::move(candidate));
  }
  return lockstep;
}

void Lockstep::start(std::span<const TokenId> tokens, int32_t first_row, KvFormatId format) {
  TM_CHECK(tokens.size() >= 2 && first_row >= 0, "a compared text has two tokens");
  reference_->start(tokens);
  for (const auto& candidate : candidates_) candidate->start(tokens, format);
  first_row_ = first_row;
  end_ = static_cast<int32_t>(tokens.size()) - 1;
  turn_ = 0;
}

int32_t Lockstep::num_next(int32_t most_rows) const {
  return turn_ != 0 ? rows_ : std::min({most_rows, reference_->next_rows(), end_ - reference_->num_computed()});
}

int32_t Lockstep::advance_one(int32_t most_rows, const OnRow& on_row) {
  rows_ = num_next(most_rows);
  TextRunner& runner = turn_ == 0 ? *reference_ : *candidates_[turn_ - 1];
  const int32_t begin = runner.num_computed();
  const RowUse use = begin + rows_ <= first_row_ ? RowUse::none : turn_ == 0 ? RowUse::keep : RowUse::compare;
  int32_t position = std::max(begin, first_row_);
  for (const RowDivergence& row : runner.advance(rows_, use, first_row_)) on_row(turn_ - 1, position++, row);
  turn_ = (turn_ + 1) % (1 + candidates_.size());
  return rows_;
}

}  // namespace tidemill
