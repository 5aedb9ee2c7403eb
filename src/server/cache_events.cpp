#include "server/cache_events.h"

#include <algorithm>
#include <chrono>

#include "server/cache_json.h"

namespace tidemill {
namespace {

constexpr std::chrono::milliseconds longest_wait{1000};
constexpr std::chrono::milliseconds between_events{100};
constexpr const char* sse_ping = ": ping\n\n";

HttpReply stream_reply() {
  HttpReply reply;
  reply.content_type = "text/event-stream; charset=utf-8";
  reply.headers.emplace_back("Cache-Control", "no-cache");
  reply.headers.emplace_back("X-Accel-Buffering", "no");
  return reply;
}

}  // namespace

void CacheEvents::subscribe(Engine& engine, const std::shared_ptr<Exchange>& exchange) {
  ReplyPiece piece;
  piece.exchange = exchange;
  piece.head = StreamHead{stream_reply(), sse_ping};
  piece.bytes = ": the cache from now on\n\n";
  {
    std::lock_guard lock(mutex_);
    piece.last = stopping_;
    if (!stopping_) {
      engine_ = &engine;
      clients_.push_back(exchange);
      engine.cache_feed().watch(true);
      if (!running_) {
        if (thread_.joinable()) thread_.join();  // it has ended, or is about to
        running_ = true;
        thread_ = std::thread([this, &engine] { run(engine); });
      }
    }
  }
  std::vector<ReplyPiece> pieces;
  pieces.push_back(std::move(piece));
  Exchange::deliver(std::move(pieces));
}

void CacheEvents::unsubscribe(const Exchange& exchange) {
  std::lock_guard lock(mutex_);
  std::erase_if(clients_, [&](const auto& client) { return client.get() == &exchange; });
}

void CacheEvents::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    if (engine_ != nullptr) engine_->cache_feed().interrupt();
    engine_ = nullptr;  // it may be gone when this is called again
  }
  if (thread_.joinable()) thread_.join();
  send("", true);
  std::lock_guard lock(mutex_);
  clients_.clear();
}

void CacheEvents::run(Engine& engine) {
  CacheFeed& feed = engine.cache_feed();
  for (;;) {
    const std::optional<CacheChanges> changes = feed.take(longest_wait);
    {
      std::lock_guard lock(mutex_);
      if (stopping_ || clients_.empty()) {
        feed.watch(false);
        running_ = false;
        return;
      }
    }
    if (!changes) continue;
    send("data: " + to_line(cache_changes_json(*changes, engine.config())) + "\n\n", false);
    std::this_thread::sleep_for(between_events);
  }
}

void CacheEvents::send(const std::string& bytes, bool last) {
  std::vector<ReplyPiece> pieces;
  {
    std::lock_guard lock(mutex_);
    for (const auto& client : clients_) {
      ReplyPiece& piece = pieces.emplace_back();
      piece.exchange = client;
      // What the thread sends may overtake what subscribe sent: the I/O thread keeps its own posts back for a while.
      piece.head = StreamHead{stream_reply(), sse_ping};
      piece.bytes = bytes;
      piece.last = last;
    }
  }
  if (!pieces.empty()) Exchange::deliver(std::move(pieces));
}

}  // namespace tidemill
