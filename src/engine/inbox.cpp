#include "engine/inbox.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tidemill {
namespace {

constexpr double longest_retry_ms = 300e3;
constexpr double unknown_retry_ms = 1000;

}  // namespace

Inbox::Inbox(const EngineConfig& config)
    : max_requests_(config.max_num_queued_requests),
      max_tokens_(config.max_num_queued_tokens),
      max_tenant_tokens_(config.max_queued_tokens_per_tenant),
      num_open_slots_(config.batching == BatchingMode::none ? 1 : config.max_num_seqs) {}

// How long the measured rate takes for an amount of work.
std::chrono::milliseconds Inbox::time_for(double amount, double per_s) const {
  const double ms = per_s > 0 ? amount / per_s * 1e3 : unknown_retry_ms;
  return std::chrono::milliseconds(static_cast<int64_t>(std::ceil(std::clamp(ms, 1.0, longest_retry_ms))));
}

std::optional<Refusal> Inbox::check_limits(const LiveRequest& request) const {
  using Kind = Refusal::Kind;
  if (!accepting_) return Refusal{Kind::shutting_down, "the server is shutting down", {}};
  const int64_t num_tokens = request.num_prompt_tokens;
  const int64_t excess_requests = num_queued_ - num_open_slots_ + 1 - max_requests_;
  if (max_requests_ > 0 && excess_requests > 0) {
    return Refusal{Kind::queue_full, fmt::format("the queue is full ({} requests)", max_requests_),
                   time_for(static_cast<double>(excess_requests), rates_.requests_per_s)};
  }
  if (max_tokens_ > 0 && num_queued_tokens_ > 0 && num_queued_tokens_ + num_tokens > max_tokens_) {
    return Refusal{Kind::queue_full,
                   fmt::format("{} prompt tokens are queued and at most {} may be", num_queued_tokens_, max_tokens_),
                   time_for(static_cast<double>(num_queued_tokens_ + num_tokens - max_tokens_), rates_.rows_per_s)};
  }
  const auto tenant = tenant_tokens_.find(request.request.tenant);
  const int64_t queued = tenant == tenant_tokens_.end() ? 0 : tenant->second;
  if (max_tenant_tokens_ > 0 && queued > 0 && queued + num_tokens > max_tenant_tokens_) {
    return Refusal{
        Kind::tenant_limit,
        fmt::format("{} prompt tokens of this key are queued and at most {} may be", queued, max_tenant_tokens_),
        time_for(static_cast<double>(queued + num_tokens - max_tenant_tokens_), rates_.rows_per_s)};
  }
  return std::nullopt;
}

std::variant<RequestId, Refusal> Inbox::submit(std::unique_ptr<LiveRequest> request) {
  std::lock_guard lock(mutex_);
  if (std::optional<Refusal> refusal = check_limits(*request)) {
    ++refused_[static_cast<size_t>(refusal->kind)];
    return *std::move(refusal);
  }
  const RequestId id = ++last_id_;
  request->id = id;
  request->order = id;
  ++num_queued_;
  num_queued_tokens_ += request->num_prompt_tokens;
  tenant_tokens_[request->request.tenant] += request->num_prompt_tokens;
  messages_.arrivals.push_back(std::move(request));
  changed_.notify_one();
  return id;
}

void Inbox::cancel(RequestId request) {
  std::lock_guard lock(mutex_);
  messages_.cancels.push_back(request);
  changed_.notify_one();
}

void Inbox::finish(ChoiceFinish finish) {
  std::lock_guard lock(mutex_);
  messages_.finishes.push_back(finish);
  changed_.notify_one();
}

void Inbox::resize(size_t budget_bytes) {
  std::lock_guard lock(mutex_);
  messages_.budget_bytes = budget_bytes;
  changed_.notify_one();
}

void Inbox::shutdown(Clock::Time end_by) {
  std::lock_guard lock(mutex_);
  accepting_ = false;
  messages_.end_by = messages_.end_by ? std::min(*messages_.end_by, end_by) : end_by;
  changed_.notify_one();
}

void Inbox::stop() {
  std::lock_guard lock(mutex_);
  accepting_ = false;
  stopped_ = true;
  changed_.notify_one();
}

void Inbox::count_refusal(Refusal::Kind kind) {
  std::lock_guard lock(mutex_);
  ++refused_[static_cast<size_t>(kind)];
}

InboxMessages Inbox::drain() {
  std::lock_guard lock(mutex_);
  return std::exchange(messages_, {});
}

void Inbox::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stopped_ || !messages_.empty(); });
}

bool Inbox::stopped() const {
  std::lock_guard lock(mutex_);
  return stopped_;
}

void Inbox::dequeue(const LiveRequest& request) {
  std::lock_guard lock(mutex_);
  --num_queued_;
  num_queued_tokens_ -= request.num_prompt_tokens;
  const auto tenant = tenant_tokens_.find(request.request.tenant);
  tenant->second -= request.num_prompt_tokens;
  if (tenant->second == 0) tenant_tokens_.erase(tenant);
}

void Inbox::publish(int32_t num_open_slots, EngineRates rates) {
  std::lock_guard lock(mutex_);
  num_open_slots_ = num_open_slots;
  rates_ = rates;
}

int64_t Inbox::num_queued_tokens() const {
  std::lock_guard lock(mutex_);
  return num_queued_tokens_;
}

std::array<uint64_t, 6> Inbox::refused() const {
  std::lock_guard lock(mutex_);
  return refused_;
}

}  // namespace tidemill
