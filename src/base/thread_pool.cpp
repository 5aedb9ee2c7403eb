#include "base/thread_pool.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <utility>

#include "base/check.h"

namespace tidemill {
namespace {

constexpr int pauses_per_look = 32;   // between looks at the clock
constexpr int looks_per_yield = 8;    // where cores are shared, the thread that is waited for may need this one
constexpr int32_t meeting_width = 8;  // members of one counter

// Which worker of a pool this thread is while it runs a job.
thread_local int32_t this_worker = 0;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

void sleep_while(std::atomic<uint32_t>& word, uint32_t old) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, old, nullptr, nullptr, 0);
}

void wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

// Where the system refuses (a core that went away), the thread stays where it is: a matter of speed only.
void bind_this_thread(const WorkerPlace& place) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  for (const int32_t core : place.cores)
    if (core >= 0 && core < CPU_SETSIZE) CPU_SET(core, &cores);
  sched_setaffinity(0, sizeof(cores), &cores);
}

}  // namespace

ThreadPool::Meeting::Meeting(int32_t num_members) {
  for (int32_t below = num_members; below > 1 || num_nodes_ == 0;) {
    below = (below + meeting_width - 1) / meeting_width;
    num_nodes_ += below;
  }
  nodes_ = std::make_unique<Node[]>(static_cast<size_t>(num_nodes_));
  int32_t begin = 0;
  for (int32_t below = num_members; begin < num_nodes_;) {
    const int32_t count = std::max(1, (below + meeting_width - 1) / meeting_width);
    for (int32_t i = 0; i < count; ++i) {
      nodes_[begin + i].num_expected = std::min(meeting_width, below - i * meeting_width);
      nodes_[begin + i].parent = count > 1 ? begin + count + i / meeting_width : -1;
    }
    begin += count;
    below = count;
  }
}

bool ThreadPool::Meeting::arrive(int32_t member) {
  for (int32_t i = member / meeting_width;; i = nodes_[i].parent) {
    Node& node = nodes_[i];
    if (node.num_arrived.fetch_add(1, std::memory_order_acq_rel) + 1 < node.num_expected) return false;
    // Nobody comes here again before the signal that follows the root's last arrival.
    node.num_arrived.store(0, std::memory_order_relaxed);
    if (node.parent < 0) return true;
  }
}

ThreadPool::ThreadPool(ThreadPoolOptions options)
    : num_threads_(options.num_threads),
      places_(std::move(options.places)),
      spin_time_(options.spin_time),
      trace_(options.trace),
      end_(std::max(1, num_threads_ - 1)),
      barrier_(num_threads_) {
  TM_CHECK(num_threads_ >= 1, "a thread pool has at least one worker");
  TM_CHECK(places_.empty() || places_.size() == static_cast<size_t>(num_threads_), "every worker has a place or none");
  if (trace_ != nullptr) trace_->set_num_workers(num_threads_);
  threads_.reserve(static_cast<size_t>(num_threads_ - 1));
  for (int32_t worker = 1; worker < num_threads_; ++worker) threads_.emplace_back([this, worker] { work(worker); });
}

ThreadPool::~ThreadPool() {
  job_.stopping = true;
  raise(job_.signal, job_.signal.value.load(std::memory_order_relaxed) + 1);
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::bind_caller() {
  if (bound_caller_ == std::this_thread::get_id()) return;
  bound_caller_ = std::this_thread::get_id();
  sched_getaffinity(0, sizeof(caller_cores_), &caller_cores_);
  bind_this_thread(places_[0]);
}

void ThreadPool::release_caller() {
  if (bound_caller_ != std::this_thread::get_id()) return;
  sched_setaffinity(0, sizeof(caller_cores_), &caller_cores_);
  bound_caller_.reset();
}

void ThreadPool::run_job(Function function, void* argument) {
  if (!places_.empty()) bind_caller();
  if (num_threads_ == 1) return function(argument, 0);
  const int32_t outer = std::exchange(this_worker, 0);
  job_.function = function;
  job_.argument = argument;
  const uint32_t number = job_.signal.value.load(std::memory_order_relaxed);
  raise(job_.signal, number + 1);
  function(argument, 0);
  const int64_t begin_ns = traced() ? StepTrace::now_ns() : 0;
  wait_for_change(end_.signal(), number);
  if (traced()) trace_->add(0, {.name = "wait"}, begin_ns, StepTrace::now_ns());
  this_worker = outer;
}

void ThreadPool::work(int32_t worker) {
  this_worker = worker;
  if (!places_.empty()) bind_this_thread(places_[static_cast<size_t>(worker)]);
  for (uint32_t number = 0;; ++number) {
    wait_for_change(job_.signal, number);
    if (job_.stopping) return;
    const bool traced = this->traced();
    if (traced) trace_->begin_share(worker);
    job_.function(job_.argument, worker);
    if (traced) trace_->end_share(worker);
    if (end_.arrive(worker - 1)) raise(end_.signal(), number + 1);
  }
}

void ThreadPool::barrier() {
  if (num_threads_ == 1) return;
  Signal& signal = barrier_.signal();
  const uint32_t number = signal.value.load(std::memory_order_relaxed);
  if (barrier_.arrive(this_worker)) return raise(signal, number + 1);
  const int64_t begin_ns = traced() ? StepTrace::now_ns() : 0;
  wait_for_change(signal, number);
  if (traced()) trace_->add(this_worker, {.name = "barrier"}, begin_ns, StepTrace::now_ns());
}

void ThreadPool::raise(Signal& signal, uint32_t value) {
  // Sequentially consistent with the count of sleepers: either the sleeper sees the new value, or it is seen here.
  signal.value.store(value, std::memory_order_seq_cst);
  if (signal.num_asleep.load(std::memory_order_seq_cst) != 0) wake_all(signal.value);
}

// Spinning at first, then asleep.
void ThreadPool::wait_for_change(Signal& signal, uint32_t old) {
  std::chrono::steady_clock::time_point end{};
  for (int look = 0;; ++look) {
    for (int i = 0; i < pauses_per_look; ++i) {
      if (signal.value.load(std::memory_order_acquire) != old) return;
      pause_briefly();
    }
    const auto now = std::chrono::steady_clock::now();
    if (look == 0) end = now + spin_time_;
    if (now >= end) break;
    if (look % looks_per_yield == looks_per_yield - 1) std::this_thread::yield();
  }
  signal.num_asleep.fetch_add(1, std::memory_order_seq_cst);
  num_sleeps_.fetch_add(1, std::memory_order_relaxed);
  while (signal.value.load(std::memory_order_seq_cst) == old) sleep_while(signal.value, old);
  signal.num_asleep.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace tidemill
