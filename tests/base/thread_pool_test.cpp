#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

namespace tidemill {
namespace {

TEST(ThreadPool, EveryWorkerRunsEveryJobOnce) {
  for (const int num_threads : {1, 2, 5}) {
    ThreadPool pool(num_threads);
    std::vector<int> calls(static_cast<size_t>(num_threads));
    for (int job = 0; job < 200; ++job) {
      pool.run([&](int32_t worker) { ++calls[static_cast<size_t>(worker)]; });
    }
    for (const int count : calls) EXPECT_EQ(count, 200);
  }
}

TEST(ThreadPool, BarrierSeparatesPhases) {
  constexpr int num_threads = 4;
  ThreadPool pool(num_threads);
  std::vector<int> written(num_threads);
  std::atomic<int> wrong = 0;
  pool.run([&](int32_t worker) {
    for (int phase = 1; phase <= 100; ++phase) {
      written[static_cast<size_t>(worker)] = phase;
      pool.barrier();
      for (const int value : written) wrong += value != phase;
      pool.barrier();
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST(ThreadPool, WakesWorkersThatSleep) {
  ThreadPool pool(3);
  std::atomic<int> calls = 0;
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    pool.run([&](int32_t worker) {
      if (worker == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      ++calls;
    });
  }
  EXPECT_EQ(calls, 15);
}

TEST(ThreadPool, ConstructsAndEndsWithoutWork) {
  for (int i = 0; i < 20; ++i) ThreadPool pool(3);
}

}  // namespace
}  // namespace tidemill
