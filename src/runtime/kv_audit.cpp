#include "runtime/kv_audit.h"

#include <algorithm>
#include <utility>

#include "base/split_mix.h"

namespace tidemill {
namespace {

constexpr size_t most_waiting = 16;  // choices
constexpr double caches_per_row = 2;
// Of a piece: as many as a waiting prompt may add to any step, whatever they cost.
constexpr int32_t most_rows_at_once = 16;

LockstepOptions caches_of(const KvAuditOptions& options) {
  return {.reference = options.reference,
          .candidates = {options.formats.front()},
          .other_formats = {options.formats.begin() + 1, options.formats.end()},
          .block_size_tokens = options.block_size_tokens,
          .max_tokens = (options.max_tokens + options.block_size_tokens - 1) / options.block_size_tokens *
                        options.block_size_tokens,
          .max_rows = options.block_size_tokens,
          .backend = options.backend};
}

}  // namespace

Result<std::unique_ptr<KvAudit>> KvAudit::make(Model& model, const KvAuditOptions& options) {
  Result<std::unique_ptr<Lockstep>> caches = Lockstep::make(model, caches_of(options));
  if (!caches) return caches.error();
  return std::unique_ptr<KvAudit>(new KvAudit(*std::move(caches), options));
}

size_t KvAudit::cache_bytes(const KvLayout& layout, const KvAuditOptions& options) {
  const LockstepOptions caches = caches_of(options);
  TextRunnerOptions runner{.formats = caches.reference,
                           .block_size_tokens = caches.block_size_tokens,
                           .max_tokens = caches.max_tokens,
                           .max_rows = caches.max_rows};
  const size_t reference = TextRunner::cache_bytes(layout, runner);
  runner.formats = caches.candidates.front();
  runner.other_formats = caches.other_formats;
  return reference + TextRunner::cache_bytes(layout, runner);
}

KvAudit::KvAudit(std::unique_ptr<Lockstep> caches, const KvAuditOptions& options)
    : caches_(std::move(caches)), options_(options) {
  stats_.on = true;
  stats_.share = options.share;
  stats_.formats.resize(options.formats.size());
}

// By a hash of who it is, so that the same requests are sampled whatever the order in which they end.
bool KvAudit::sampled(const EndedChoice& choice) const {
  const uint64_t hash =
      split_mix(options_.seed ^ split_mix(choice.request * 131 + static_cast<uint64_t>(choice.choice)));
  return static_cast<double>(hash >> 11) * 0x1p-53 < options_.share;
}

void KvAudit::offer(const EndedChoice& choice) {
  const auto num_tokens = std::min<size_t>(choice.tokens.size(), static_cast<size_t>(options_.max_tokens));
  const bool drew = choice.num_prompt_tokens < static_cast<int32_t>(choice.tokens.size());
  if (!drew || !sampled(choice)) return;
  if (choice.read_reencoded) {
    ++stats_.num_reencoded;
    return;
  }
  if (waiting_.size() >= most_waiting || static_cast<size_t>(choice.num_prompt_tokens) >= num_tokens) {
    ++stats_.num_skipped;
    return;
  }
  Waiting& entry = waiting_.emplace_back();
  entry.record.request = choice.request;
  entry.record.choice = choice.choice;
  entry.record.label = choice.label != nullptr ? *choice.label : std::string();
  entry.record.kv_format = choice.kv_format;
  entry.tokens.assign(choice.tokens.begin(), choice.tokens.begin() + static_cast<ptrdiff_t>(num_tokens));
  entry.first_row = choice.num_prompt_tokens - 1;
}

void KvAudit::note_step(int64_t num_rows) {
  allowance_rows_ += options_.share * static_cast<double>(num_rows);
  // What nobody used is not saved up without end.
  if (waiting_.empty()) allowance_rows_ = std::min(allowance_rows_, caches_per_row * options_.max_tokens);
}

bool KvAudit::run() {
  if (waiting_.empty()) return false;
  const Waiting& entry = waiting_.front();
  if (!std::exchange(running_, true)) caches_->start(entry.tokens, entry.first_row, entry.record.kv_format);
  if (allowance_rows_ < caches_->num_next(most_rows_at_once)) return false;
  const int32_t rows =
      caches_->advance_one(most_rows_at_once, [this](size_t, int32_t, const RowDivergence& row) { take(row); });
  allowance_rows_ -= rows;
  stats_.computed_rows += static_cast<uint64_t>(rows);
  if (caches_->done()) finish();
  return true;
}

void KvAudit::take(const RowDivergence& row) {
  AuditRecord& record = waiting_.front().record;
  ++record.num_rows;
  record.num_same_top += row.same_top();
  record.kl_sum += row.kl;
  record.worst_kl = std::max(record.worst_kl, row.kl);
  record.logprob_sum += row.logprob;
  record.reference_logprob_sum += row.reference_logprob;
  AuditFigures& figures = stats_.formats[record.kv_format];
  ++figures.num_rows;
  figures.num_same_top += row.same_top();
  figures.worst_kl = std::max(figures.worst_kl, row.kl);
  figures.divergence.observe(row.kl);
}

void KvAudit::finish() {
  running_ = false;
  ++stats_.num_done;
  if (stats_.recent.size() == most_audit_records) stats_.recent.erase(stats_.recent.begin());
  stats_.recent.push_back(std::move(waiting_.front().record));
  waiting_.pop_front();
}

}  // namespace tidemill
