#include "server/request_hub.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace tidemill {
namespace {

constexpr size_t most_spares = 4;

}  // namespace

RequestHub::RequestHub() : thread_([this] { run(); }) {}

RequestHub::~RequestHub() {
  stop();
}

void RequestHub::attach(Engine& engine) {
  const std::lock_guard lock(registry_mutex_);
  engine_ = &engine;
}

void RequestHub::detach() {
  const std::lock_guard lock(registry_mutex_);
  engine_ = nullptr;
}

void RequestHub::stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(queue_mutex_);
    stopping_ = true;
  }
  queue_filled_.notify_one();
  thread_.join();
  const std::lock_guard lock(registry_mutex_);
  open_.clear();
}

void RequestHub::publish(std::vector<RequestEvent> events) {
  if (events.empty()) return;
  {
    const std::lock_guard lock(queue_mutex_);
    queue_.push_back(std::move(events));
  }
  queue_filled_.notify_one();
}

std::vector<RequestEvent> RequestHub::spare_events() {
  const std::lock_guard lock(queue_mutex_);
  if (spares_.empty()) return {};
  std::vector<RequestEvent> spare = std::move(spares_.back());
  spares_.pop_back();
  return spare;
}

RequestHub::Submitted RequestHub::submit(const std::shared_ptr<EventConsumer>& consumer, std::vector<Request> requests,
                                         std::vector<ReplyPiece> first) {
  const std::lock_guard lock(registry_mutex_);
  if (consumer->gone_) return Gone{};
  if (!engine_) return Refusal{.kind = Refusal::Kind::shutting_down, .message = {}, .retry_after = {}};
  for (Request& request : requests) {
    std::variant<RequestId, Refusal> taken = engine_->submit(std::move(request));
    if (Refusal* refusal = std::get_if<Refusal>(&taken)) {
      // Their events find nobody here and are dropped.
      for (const RequestId id : consumer->ids_) engine_->cancel(id);
      consumer->ids_.clear();
      return std::move(*refusal);
    }
    consumer->ids_.push_back(std::get<RequestId>(taken));
  }
  for (size_t i = 0; i < consumer->ids_.size(); ++i) open_[consumer->ids_[i]] = {consumer, i};
  Exchange::deliver(std::move(first));
  return std::monostate{};
}

void RequestHub::abandon(EventConsumer& consumer) {
  consumer.gone_ = true;
  cancel_all(consumer);
}

void RequestHub::cancel_all(EventConsumer& consumer) {
  const std::lock_guard lock(registry_mutex_);
  if (!engine_) return;
  for (const RequestId id : consumer.ids_)
    if (open_.contains(id)) engine_->cancel(id);
}

void RequestHub::finish_choice(EventConsumer& consumer, size_t index, int32_t choice, int32_t num_tokens) {
  const std::lock_guard lock(registry_mutex_);
  if (engine_ && index < consumer.ids_.size()) engine_->finish_choice(consumer.ids_[index], choice, num_tokens);
}

int RequestHub::estimate_retry_seconds() const {
  const std::lock_guard lock(registry_mutex_);
  if (!engine_) return 1;
  const EngineStats stats = engine_->stats();
  const double num_done = static_cast<double>(stats.e2e_latency.count());
  const double mean_s = num_done > 0 ? stats.e2e_latency.sum() / num_done : 1;
  const double rounds = 1 + static_cast<double>(stats.num_requests_waiting) / std::max(1, stats.num_requests_running);
  return static_cast<int>(std::clamp(std::ceil(mean_s * rounds), 1.0, 60.0));
}

bool RequestHub::idle() const {
  const std::scoped_lock lock(registry_mutex_, queue_mutex_);
  return open_.empty() && queue_.empty() && !handing_out_;
}

size_t RequestHub::num_open() const {
  const std::lock_guard lock(registry_mutex_);
  return open_.size();
}

void RequestHub::hand_out(std::vector<RequestEvent>& events) {
  std::vector<Registration> receivers(events.size());
  {
    const std::lock_guard lock(registry_mutex_);
    for (size_t i = 0; i < events.size(); ++i) {
      const auto found = open_.find(events[i].request);
      if (found == open_.end()) continue;
      receivers[i] = found->second;
      if (events[i].request_done) open_.erase(found);
    }
  }
  std::vector<ReplyPiece> pieces;
  for (size_t i = 0; i < events.size(); ++i)
    if (receivers[i].consumer && !receivers[i].consumer->gone())
      receivers[i].consumer->on_event(receivers[i].index, events[i], pieces);
  Exchange::deliver(std::move(pieces));
}

void RequestHub::run() {
  std::vector<std::vector<RequestEvent>> taken;  // its memory and the queue's change places
  std::unique_lock lock(queue_mutex_);
  while (true) {
    queue_filled_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    taken.swap(queue_);
    handing_out_ = true;
    lock.unlock();
    for (std::vector<RequestEvent>& events : taken) {
      hand_out(events);
      events.clear();
    }
    lock.lock();
    handing_out_ = false;
    for (std::vector<RequestEvent>& events : taken) {
      if (spares_.size() < most_spares) spares_.push_back(std::move(events));
    }
    taken.clear();
  }
}

}  // namespace tidemill
