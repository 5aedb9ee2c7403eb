// A fixed set of threads that run one job at a time, all of them together.
//
// The thread that calls run() is worker 0; size() - 1 threads are started. Between jobs and at barriers, workers spin
// (a step's operations follow each other closely), then sleep until they are woken; while jobs follow each other within
// the spinning time, nobody calls the system. Arrivals are counted in a tree, so that no counter is written by more
// than a few workers. Nothing allocates after construction.
//
// Workers may be bound to cores (base/cpu_topology.h). The caller's thread is bound at its first run() and set free by
// release_caller().
#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/cpu_topology.h"
#include "base/step_trace.h"

namespace tidemill {

struct ThreadPoolOptions {
  int32_t num_threads = 1;  // >= 1, the caller included
  // Where each worker runs; empty = wherever the system puts it. Otherwise one place for each worker.
  std::vector<WorkerPlace> places = {};
  // How long a worker without work spins before it sleeps.
  std::chrono::microseconds spin_time = std::chrono::microseconds(200);
  StepTrace* trace = nullptr;  // outlives the pool; null = no trace
};

class ThreadPool {
 public:
  explicit ThreadPool(int32_t num_threads) : ThreadPool(ThreadPoolOptions{.num_threads = num_threads}) {}
  explicit ThreadPool(ThreadPoolOptions options);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int32_t size() const { return num_threads_; }
  // The memory node that the worker is bound to; 0 where it is not bound.
  int32_t node_of(int32_t worker) const { return places_.empty() ? 0 : places_[static_cast<size_t>(worker)].node; }

  // Calls job(worker) once on every worker, 0 .. size() - 1, and returns when all have ended. One caller at a time; not
  // from inside a job. What the caller wrote before is seen by the job, and what the job wrote by the caller
  // afterwards.
  template <typename Job>
  void run(Job&& job) {
    using Plain = std::remove_reference_t<Job>;
    run_job([](void* argument, int32_t worker) { (*static_cast<Plain*>(argument))(worker); },
            const_cast<void*>(static_cast<const void*>(&job)));
  }

  // Inside a job, from the worker's own thread: returns when all workers have called it. Every worker must call it
  // equally often.
  void barrier();

  // Gives the calling thread the cores back that it had before its first run(). Without effect where it is not bound.
  void release_caller();

  // How often a worker went to sleep for want of work. For tests and measurements.
  uint64_t num_sleeps() const { return num_sleeps_.load(std::memory_order_relaxed); }

 private:
  using Function = void (*)(void*, int32_t);
  // A number that threads wait on. Wakes only where somebody sleeps.
  struct Signal {
    std::atomic<uint32_t> value{0};
    std::atomic<uint32_t> num_asleep{0};
  };
  // The job comes with its signal: one cache line goes to each worker.
  struct alignas(64) Job {
    Signal signal;  // number of the job that the workers shall run
    Function function = nullptr;
    void* argument = nullptr;
    bool stopping = false;
  };
  // Where threads come together: a tree of counters, of which the last, the root, has the signal that all have come, so
  // that the last arrival and the signal are one cache line.
  class Meeting {
   public:
    explicit Meeting(int32_t num_members);
    // True for the last member, who then must raise the signal by one. member: 0 .. num_members - 1.
    bool arrive(int32_t member);
    Signal& signal() { return nodes_[num_nodes_ - 1].signal; }

   private:
    struct alignas(64) Node {
      std::atomic<int32_t> num_arrived{0};
      int32_t num_expected = 0;
      int32_t parent = -1;  // -1: this is the root
      alignas(64) Signal signal;
    };
    int32_t num_nodes_ = 0;
    std::unique_ptr<Node[]> nodes_;  // leaves first
  };

  void run_job(Function function, void* argument);
  void work(int32_t worker);
  void bind_caller();
  void wait_for_change(Signal& signal, uint32_t old);
  static void raise(Signal& signal, uint32_t value);
  bool traced() const { return trace_ != nullptr && trace_->recording(); }

  const int32_t num_threads_;
  const std::vector<WorkerPlace> places_;
  const std::chrono::microseconds spin_time_;
  StepTrace* const trace_;
  Job job_;
  Meeting end_;      // of a job: all workers but the caller, who waits for them
  Meeting barrier_;  // all workers
  std::atomic<uint64_t> num_sleeps_{0};
  std::optional<std::thread::id> bound_caller_;
  cpu_set_t caller_cores_;  // before it was bound
  std::vector<std::thread> threads_;
};

}  // namespace tidemill
