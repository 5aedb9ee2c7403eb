#include "base/step_trace.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "base/check.h"
#include "base/printable.h"

namespace tidemill {
namespace {

constexpr size_t lane_events = 4096;  // room from the start, so that short models' lanes never grow in a step

double microseconds(int64_t ns) {
  return static_cast<double>(ns) / 1000.0;
}

}  // namespace

Result<std::unique_ptr<StepTrace>> StepTrace::open(const std::filesystem::path& path, TraceLimits limits) {
  std::FILE* file = std::fopen(path.c_str(), "we");
  if (file == nullptr) {
    return error("the trace file {} cannot be written: {}", printable(path.native(), 200), std::strerror(errno));
  }
  return std::unique_ptr<StepTrace>(new StepTrace(file, limits));
}

StepTrace::StepTrace(std::FILE* file, TraceLimits limits)
    : file_(file), limits_(limits), opened_ns_(now_ns()), lanes_(1) {
  num_bytes_ = static_cast<uint64_t>(std::max(0, std::fprintf(file_, "[\n")));
  set_num_workers(1);
}

StepTrace::~StepTrace() {
  close();
}

void StepTrace::set_num_workers(int32_t num_workers) {
  TM_CHECK(num_workers >= 1 && !recording_, "a trace learns of its workers between steps");
  lanes_.resize(static_cast<size_t>(num_workers));
  for (Lane& lane : lanes_) lane.events.reserve(lane_events);
}

void StepTrace::begin_step() {
  if (file_ == nullptr) return;
  step_begin_ns_ = now_ns();
  for (Lane& lane : lanes_) {
    lane.events.clear();
    lane.idle_since_ns = step_begin_ns_;
  }
  recording_ = true;
}

void StepTrace::drop_step() {
  recording_ = false;
}

void StepTrace::add(int32_t worker, const TraceLabel& label, int64_t begin_ns, int64_t end_ns) {
  lanes_[static_cast<size_t>(worker)].events.push_back({label, begin_ns, end_ns});
}

void StepTrace::begin_share(int32_t worker) {
  Lane& lane = lanes_[static_cast<size_t>(worker)];
  lane.share_begin_ns = now_ns();
  lane.events.push_back({{.name = "wait"}, lane.idle_since_ns, lane.share_begin_ns});
}

void StepTrace::end_share(int32_t worker) {
  Lane& lane = lanes_[static_cast<size_t>(worker)];
  lane.idle_since_ns = now_ns();
  lane.events.push_back({operation_, lane.share_begin_ns, lane.idle_since_ns});
}

void StepTrace::end_step(uint64_t step, int32_t num_rows, int32_t num_sequences) {
  if (!recording_) return;
  recording_ = false;
  const int64_t end_ns = now_ns();
  if (num_steps_ == 0) write_names();
  num_bytes_ += static_cast<uint64_t>(
      std::max(0, std::fprintf(file_,
                               "{\"name\":\"step\",\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,\"pid\":1,\"tid\":0,\"args\":"
                               "{\"step\":%llu,\"rows\":%d,\"sequences\":%d}},\n",
                               microseconds(step_begin_ns_ - opened_ns_), microseconds(end_ns - step_begin_ns_),
                               static_cast<unsigned long long>(step), num_rows, num_sequences)));
  for (size_t worker = 0; worker < lanes_.size(); ++worker) {
    Lane& lane = lanes_[worker];
    if (worker > 0) lane.events.push_back({{.name = "wait"}, lane.idle_since_ns, end_ns});
    for (const Event& event : lane.events) write(static_cast<int32_t>(worker), event);
  }
  ++num_steps_;
  if (num_steps_ >= limits_.max_steps || num_bytes_ >= limits_.max_bytes) close();
}

void StepTrace::write(int32_t worker, const Event& event) {
  char args[64] = "";
  if (event.label.layer >= 0 && event.label.num_rows >= 0) {
    std::snprintf(args, sizeof(args), "\"layer\":%d,\"rows\":%d", event.label.layer, event.label.num_rows);
  } else if (event.label.layer >= 0) {
    std::snprintf(args, sizeof(args), "\"layer\":%d", event.label.layer);
  } else if (event.label.num_rows >= 0) {
    std::snprintf(args, sizeof(args), "\"rows\":%d", event.label.num_rows);
  }
  const int written = std::fprintf(
      file_, "{\"name\":\"%s\",\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,\"pid\":1,\"tid\":%d,\"args\":{%s}},\n",
      event.label.name, microseconds(event.begin_ns - opened_ns_), microseconds(event.end_ns - event.begin_ns), worker,
      args);
  num_bytes_ += static_cast<uint64_t>(std::max(0, written));
}

void StepTrace::write_names() {
  for (size_t worker = 0; worker < lanes_.size(); ++worker) {
    const int written = std::fprintf(
        file_, "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":%zu,\"args\":{\"name\":\"%s %zu\"}},\n",
        worker, worker == 0 ? "engine, worker" : "worker", worker);
    num_bytes_ += static_cast<uint64_t>(std::max(0, written));
  }
}

// JSON allows no comma before the end, so the array's last entry names the process.
void StepTrace::close() {
  if (file_ == nullptr) return;
  std::fprintf(file_,
               "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"tid\":0,\"args\":{\"name\":\"tidemill\"}}\n]\n");
  std::fclose(file_);
  file_ = nullptr;
  recording_ = false;
}

}  // namespace tidemill
