#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <chrono>
#include <vector>

namespace tidemill {
namespace {

TEST(ThreadPool, EveryWorkerRunsEveryJobOnce) {
  for (const int num_threads : {1, 2, 5, 8, 9, 16, 70}) {
    ThreadPool pool(num_threads);
    std::vector<int> calls(static_cast<size_t>(num_threads));
    const int num_jobs = num_threads > 16 ? 10 : 100;
    for (int job = 0; job < num_jobs; ++job) {
      pool.run([&](int32_t worker) { ++calls[static_cast<size_t>(worker)]; });
    }
    for (const int count : calls) EXPECT_EQ(count, num_jobs);
  }
}

// Up to 16, and more than 64, where the tree of arrivals has three levels; all more than most machines' cores.
TEST(ThreadPool, BarrierSeparatesPhases) {
  for (const int num_threads : {1, 2, 3, 4, 7, 8, 9, 13, 16, 65}) {
    ThreadPool pool(num_threads);
    std::vector<int> written(static_cast<size_t>(num_threads));
    std::atomic<int> wrong = 0;
    for (int job = 0; job < 3; ++job) {
      pool.run([&](int32_t worker) {
        for (int phase = 1; phase <= (num_threads > 16 ? 5 : 20); ++phase) {
          written[static_cast<size_t>(worker)] = phase;
          pool.barrier();
          for (const int value : written) wrong += value != phase;
          pool.barrier();
        }
      });
    }
    EXPECT_EQ(wrong, 0) << num_threads;
  }
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

TEST(ThreadPool, WorkersSleepWithoutWorkAndStayAwakeBetweenJobs) {
  ThreadPool sleepy({.num_threads = 3, .places = {}, .spin_time = std::chrono::microseconds(0)});
  sleepy.run([](int32_t) {});
  while (sleepy.num_sleeps() < 2) std::this_thread::yield();
  ThreadPool awake({.num_threads = 3, .places = {}, .spin_time = std::chrono::hours(1)});
  for (int i = 0; i < 100; ++i) {
    awake.run([&](int32_t) { awake.barrier(); });
  }
  EXPECT_EQ(awake.num_sleeps(), 0u);
}

cpu_set_t cores_of_this_thread() {
  cpu_set_t cores;
  EXPECT_EQ(sched_getaffinity(0, sizeof(cores), &cores), 0);
  return cores;
}

TEST(ThreadPool, BindsWorkersToTheirCoresAndSetsTheCallerFree) {
  const std::vector<int32_t> usable = usable_cores();
  const cpu_set_t before = cores_of_this_thread();
  const std::vector<WorkerPlace> places = {{0, {usable.front()}}, {1, {usable.back()}}, {1, usable}};
  ThreadPool pool({.num_threads = 3, .places = places});
  std::vector<cpu_set_t> seen(3);
  pool.run([&](int32_t worker) { seen[static_cast<size_t>(worker)] = cores_of_this_thread(); });
  for (size_t worker = 0; worker < 3; ++worker) {
    EXPECT_EQ(static_cast<size_t>(CPU_COUNT(&seen[worker])), places[worker].cores.size());
    for (const int32_t core : places[worker].cores) EXPECT_TRUE(CPU_ISSET(core, &seen[worker]));
    EXPECT_EQ(pool.node_of(static_cast<int32_t>(worker)), places[worker].node);
  }
  pool.release_caller();
  const cpu_set_t after = cores_of_this_thread();
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

TEST(ThreadPool, ConstructsAndEndsWithoutWork) {
  for (int i = 0; i < 20; ++i) ThreadPool pool(3);
}

}  // namespace
}  // namespace tidemill
