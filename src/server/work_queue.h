// A bounded queue of jobs and the threads that do them: JSON, templates, tokens, away from the I/O thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tidemill {

class WorkQueue {
 public:
  WorkQueue(size_t num_threads, size_t max_waiting_jobs);
  ~WorkQueue();  // stop()
  // False when the queue is full or stopped: the job was not taken.
  [[nodiscard]] bool push(std::function<void()> job);
  // Ends the threads after the job at hand; waiting jobs are dropped.
  void stop();
  bool idle() const;

 private:
  void run();
  const size_t max_waiting_jobs_;
  mutable std::mutex mutex_;
  std::condition_variable filled_;
  std::deque<std::function<void()>> jobs_;
  size_t num_running_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tidemill
