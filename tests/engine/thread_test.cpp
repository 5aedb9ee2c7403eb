// The engine on its own thread, many threads talking to it; meant for the thread sanitizer.
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>

#include "engine/engine_harness.h"

namespace tidemill {
namespace {

class Waiter : public EventListener {
 public:
  void publish(std::vector<RequestEvent> events) override {
    std::lock_guard lock(mutex_);
    for (const RequestEvent& event : events) {
      if (event.kind == RequestEvent::Kind::token) tokens_[event.request].push_back(event.draw.token);
      if (event.kind == RequestEvent::Kind::finished) {
        EXPECT_EQ(done_.count(event.request), 0u);
        if (event.request_done) done_[event.request] = event.reason;
      }
    }
    changed_.notify_all();
  }
  FinishReason wait(RequestId id) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_.contains(id); });
    return done_[id];
  }
  std::vector<TokenId> tokens(RequestId id) {
    std::lock_guard lock(mutex_);
    return tokens_[id];
  }
  size_t num_done() {
    std::lock_guard lock(mutex_);
    return done_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RequestId, std::vector<TokenId>> tokens_;
  std::map<RequestId, FinishReason> done_;
};

TEST(EngineThread, ManyClientsAtOnce) {
  EngineConfig config = pool_config(24, 16);
  std::vector<std::vector<TokenId>> expected;
  for (int32_t i = 0; i < 10; ++i) expected.push_back(Harness(config).run_alone(make_request(20 + i, 40, i)));
  SystemClock clock;
  Waiter waiter;
  Engine engine(config, std::make_unique<SimulatedExecutor>(config, SimulatedOptions{}), clock, waiter);
  engine.start();
  std::atomic<bool> stop{false};
  std::thread watcher([&] {
    while (!stop) {
      const EngineStats stats = engine.stats();
      EXPECT_LE(stats.kv_held_bytes, stats.kv_budget_bytes);
      EXPECT_FALSE(engine.stuck());
      std::this_thread::yield();
    }
  });
  std::vector<std::thread> clients;
  for (unsigned client = 0; client < 6; ++client) {
    clients.emplace_back([&, client] {
      std::mt19937 random(client);
      for (int round = 0; round < 15; ++round) {
        const int32_t name = static_cast<int32_t>(random() % 10);
        const auto result = engine.submit(make_request(20 + name, 40, name));
        const RequestId id = std::get<RequestId>(result);
        if (random() % 4 == 0) {
          if (random() % 2 == 0) {
            engine.cancel(id);
          } else {
            engine.finish_choice(id, 0, 3);
          }
          waiter.wait(id);
        } else {
          EXPECT_EQ(waiter.wait(id), FinishReason::length);
          EXPECT_EQ(waiter.tokens(id), expected[name]);
        }
      }
    });
  }
  for (std::thread& client : clients) client.join();
  stop = true;
  watcher.join();
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.num_requests_running + stats.num_requests_waiting, 0);
  EXPECT_EQ(stats.kv_held_bytes, 0u);
  EXPECT_EQ(waiter.num_done(), 90u);
}

TEST(EngineThread, SleepsWhenIdleAndStopsWithOpenRequests) {
  const EngineConfig config = pool_config(64, 16);
  SystemClock clock;
  Waiter waiter;
  RequestId id = 0;
  {
    Engine engine(config, std::make_unique<SimulatedExecutor>(config, SimulatedOptions{}), clock, waiter);
    engine.start();
    timespec before{}, after{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    const double used_ms = (after.tv_sec - before.tv_sec) * 1e3 + (after.tv_nsec - before.tv_nsec) / 1e6;
    EXPECT_LT(used_ms, 20);
    id = std::get<RequestId>(engine.submit(make_request(500, 400)));
  }
  const FinishReason reason = waiter.wait(id);
  EXPECT_TRUE(reason == FinishReason::shutdown || reason == FinishReason::length);
}

TEST(EngineThread, ShutdownReportsWhenItIsDone) {
  const EngineConfig config = pool_config(64, 16);
  SystemClock clock;
  Waiter waiter;
  Engine engine(config, std::make_unique<SimulatedExecutor>(config, SimulatedOptions{}), clock, waiter);
  engine.start();
  const RequestId id = std::get<RequestId>(engine.submit(make_request(100, 50)));
  engine.shutdown(std::chrono::milliseconds(5000));
  while (!engine.finished()) std::this_thread::yield();
  const FinishReason reason = waiter.wait(id);
  EXPECT_TRUE(reason == FinishReason::length || reason == FinishReason::shutdown);
  EXPECT_TRUE(std::holds_alternative<Refusal>(engine.submit(make_request(5, 5))));
}

}  // namespace
}  // namespace tidemill
