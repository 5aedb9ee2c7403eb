// A fixed set of threads that run one job at a time, all of them together.
//
// The thread that calls run() is worker 0; size() - 1 threads are started. Between jobs, and at
// barriers, workers spin for some tens of microseconds (a step's operations follow each other closely), then sleep
// until they are woken. Nothing allocates after construction.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace tidemill {

class ThreadPool {
 public:
  // num_threads >= 1, the caller included.
  explicit ThreadPool(int32_t num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int32_t size() const { return num_threads_; }

  // Calls job(worker) once on every worker, 0 .. size() - 1, and returns when all have ended. One caller at a time; not
  // from inside a job. What the caller wrote before is seen by the job, and what the job wrote by the caller
  // afterwards.
  template <typename Job>
  void run(Job&& job) {
    using Plain = std::remove_reference_t<Job>;
    run_job([](void* argument, int32_t worker) { (*static_cast<Plain*>(argument))(worker); },
            const_cast<void*>(static_cast<const void*>(&job)));
  }

  // Inside a job: returns when all workers have called it. Every worker must call it equally often.
  void barrier();

 private:
  using Function = void (*)(void*, int32_t);

  void run_job(Function function, void* argument);
  void work(int32_t worker);

  const int32_t num_threads_;
  Function function_ = nullptr;
  void* argument_ = nullptr;
  // Each on its own cache line: they are written by different workers at different times.
  alignas(64) std::atomic<int32_t> job_number_{0};
  alignas(64) std::atomic<int32_t> num_running_{0};
  alignas(64) std::atomic<int32_t> num_arrived_{0};
  alignas(64) std::atomic<int32_t> barrier_number_{0};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> threads_;
};

}  // namespace tidemill
