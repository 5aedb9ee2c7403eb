#include "server/work_queue.h"

#include <utility>

namespace tidemill {

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
