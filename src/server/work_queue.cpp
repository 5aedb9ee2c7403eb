#include "server/work_queue.h"

#include <sys/resource.h>
#include <unistd.h>

#include <utility>

namespace tidemill {

namespace {
// A third of the share of a compute thread: on a machine whose cores all compute, a long text that is read must not
// hold up the steps of the running streams.
constexpr int text_niceness = 5;
}  // namespace

WorkQueue::WorkQueue(size_t num_threads, size_t max_waiting_jobs) : max_waiting_jobs_(max_waiting_jobs) {
  for (size_t i = 0; i < num_threads; ++i) threads_.emplace_back([this] { run(); });
}

WorkQueue::~WorkQueue() {
  stop();
}

bool WorkQueue::push(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || jobs_.size() >= max_waiting_jobs_) return false;
    jobs_.push_back(std::move(job));
  }
  filled_.notify_one();
  return true;
}

void WorkQueue::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    jobs_.clear();
  }
  filled_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

bool WorkQueue::idle() const {
  const std::lock_guard lock(mutex_);
  return jobs_.empty() && num_running_ == 0;
}

void WorkQueue::run() {
  // Of this thread alone on Linux. Where it is not allowed, texts are read at the common priority.
  const int niceness = getpriority(PRIO_PROCESS, static_cast<id_t>(gettid()));
  (void)setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), niceness + text_niceness);
  std::unique_lock lock(mutex_);
  while (true) {
    filled_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (stopping_) return;
    {
      const std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      ++num_running_;
      lock.unlock();
      job();
    }
    lock.lock();
    --num_running_;
  }
}

}  // namespace tidemill
