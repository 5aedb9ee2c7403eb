#include "base/thread_pool.h"

#include <chrono>

#include "base/check.h"

namespace tidemill {
namespace {

constexpr auto spin_time = std::chrono::microseconds(50);
constexpr int pauses_per_look = 32;  // between looks at the clock
constexpr int looks_per_yield = 8;   // where cores are shared, the thread that is waited for may need this one

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Waits until value != old: spinning at first, then asleep.
void wait_for_change(const std::atomic<int32_t>& value, int32_t old) {
  const auto end = std::chrono::steady_clock::now() + spin_time;
  for (int look = 1;; ++look) {
    for (int i = 0; i < pauses_per_look; ++i) {
      if (value.load(std::memory_order_acquire) != old) return;
      pause_briefly();
    }
    if (std::chrono::steady_clock::now() >= end) break;
    if (look % looks_per_yield == 0) std::this_thread::yield();
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(int32_t num_threads) : num_threads_(num_threads) {
  TM_CHECK(num_threads >= 1, "a thread pool has at least one worker");
  threads_.reserve(static_cast<size_t>(num_threads - 1));
  for (int32_t worker = 1; worker < num_threads; ++worker) threads_.emplace_back([this, worker] { work(worker); });
}

ThreadPool::~ThreadPool() {
  stopping_.store(true, std::memory_order_relaxed);
  job_number_.fetch_add(1, std::memory_order_release);
  job_number_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::run_job(Function function, void* argument) {
  if (num_threads_ == 1) return function(argument, 0);
  function_ = function;
  argument_ = argument;
  num_running_.store(num_threads_ - 1, std::memory_order_relaxed);
  job_number_.fetch_add(1, std::memory_order_release);
  job_number_.notify_all();
  function(argument, 0);
  for (int32_t running = num_running_.load(std::memory_order_acquire); running != 0;
       running = num_running_.load(std::memory_order_acquire)) {
    wait_for_change(num_running_, running);
  }
}

void ThreadPool::work(int32_t worker) {
  for (int32_t last_job = 0;; ++last_job) {
    wait_for_change(job_number_, last_job);
    if (stopping_.load(std::memory_order_relaxed)) return;
    function_(argument_, worker);
    if (num_running_.fetch_sub(1, std::memory_order_acq_rel) == 1) num_running_.notify_one();
  }
}

void ThreadPool::barrier() {
  if (num_threads_ == 1) return;
  const int32_t number = barrier_number_.load(std::memory_order_acquire);
  if (num_arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == num_threads_) {
    num_arrived_.store(0, std::memory_order_relaxed);
    barrier_number_.store(number + 1, std::memory_order_release);
    barrier_number_.notify_all();
    return;
  }
  wait_for_change(barrier_number_, number);
}

}  // namespace tidemill
