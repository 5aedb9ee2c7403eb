// Where the time of each step goes, operation by operation and thread by thread, as a file that trace viewers read.
//
// The file is a JSON array of complete events ("ph": "X", times in microseconds since the trace was opened) in the
// Chrome trace event format; pid is 1, tid the compute worker, 0 being the engine's thread. args name the layer and the
// rows where an operation has them. Spans of one thread nest or follow each other, never overlap partly.
// Spans named "barrier" and "wait" are time in which a worker had nothing to do: inside an operation until the others
// came to its barrier, and between a worker's end of one operation and its beginning of the next.
//
// Between begin_step and end_step, each worker records into a lane of its own; end_step, on the engine's thread while
// the workers are idle, writes the lanes out. After the given number of steps or bytes, the array is closed and nothing
// is recorded any more. A process that is killed leaves an array without its end, which viewers accept.
// Who traces nothing has a null pointer: TraceSpan and TraceOperation cost one predictable branch then.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/result.h"

namespace tidemill {

struct TraceLimits {
  int64_t max_steps = 500;
  uint64_t max_bytes = uint64_t{256} << 20;
};

// What a span shows. `name` must be a literal. layer < 0 and num_rows < 0: has none.
struct TraceLabel {
  const char* name = "";
  int32_t layer = -1;
  int32_t num_rows = -1;
};

class StepTrace {
 public:
  // An Error when the file cannot be created. An existing file is overwritten.
  static Result<std::unique_ptr<StepTrace>> open(const std::filesystem::path& path, TraceLimits limits);
  ~StepTrace();  // closes the array
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  // Before the first step; the thread that records as worker 0 is the engine's.
  void set_num_workers(int32_t num_workers);

  // Engine thread. A step that turns out to have done nothing is not written.
  void begin_step();
  void end_step(uint64_t step, int32_t num_rows, int32_t num_sequences);
  void drop_step();

  // Inside a step and below the limits. Changes only while the workers are idle.
  bool recording() const { return recording_; }
  // Nothing will be recorded any more.
  bool closed() const { return file_ == nullptr; }
  uint64_t num_steps() const { return static_cast<uint64_t>(num_steps_); }

  static int64_t now_ns() {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  // While recording. A worker records its own spans only.
  void add(int32_t worker, const TraceLabel& label, int64_t begin_ns, int64_t end_ns);
  // Worker > 0 takes up its share of the operation at hand, and has done it.
  void begin_share(int32_t worker);
  void end_share(int32_t worker);
  // What shares are called. Engine thread, while the workers are idle.
  const TraceLabel& operation() const { return operation_; }
  void set_operation(const TraceLabel& label) { operation_ = label; }

 private:
  struct Event {
    TraceLabel label;
    int64_t begin_ns;
    int64_t end_ns;
  };
  struct alignas(64) Lane {
    std::vector<Event> events;
    int64_t share_begin_ns = 0;
    int64_t idle_since_ns = 0;
  };

  StepTrace(std::FILE* file, TraceLimits limits);
  void write(int32_t worker, const Event& event);
  void write_names();
  void close();

  std::FILE* file_;
  const TraceLimits limits_;
  const int64_t opened_ns_;
  int64_t num_steps_ = 0;
  uint64_t num_bytes_ = 0;
  int64_t step_begin_ns_ = 0;
  bool recording_ = false;
  TraceLabel operation_;
  std::vector<Lane> lanes_;
};

// The time from its construction to its end, as a span of the engine's thread. trace may be null.
class TraceSpan {
 public:
  TraceSpan(StepTrace* trace, const TraceLabel& label) : trace_(trace) {
    if (trace_ == nullptr) return;
    label_ = label;
    begin_ns_ = trace_->recording() ? StepTrace::now_ns() : 0;
  }
  ~TraceSpan() { end(); }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

  void end() {
    if (trace_ == nullptr) return;
    if (trace_->recording() && begin_ns_ != 0) trace_->add(0, label_, begin_ns_, StepTrace::now_ns());
    trace_ = nullptr;
  }

 private:
  StepTrace* trace_;
  TraceLabel label_;
  int64_t begin_ns_ = 0;
};

// The same for an operation that all workers share: their shares have its name.
class TraceOperation {
 public:
  TraceOperation(StepTrace* trace, const TraceLabel& label) : trace_(trace), span_(trace, label) {
    if (trace_ != nullptr) trace_->set_operation(label);
  }
  ~TraceOperation() {
    if (trace_ != nullptr) trace_->set_operation({.name = "work"});
  }
  TraceOperation(const TraceOperation&) = delete;
  TraceOperation& operator=(const TraceOperation&) = delete;

 private:
  StepTrace* trace_;
  TraceSpan span_;
};

}  // namespace tidemill
