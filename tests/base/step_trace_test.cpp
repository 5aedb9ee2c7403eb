#include "base/step_trace.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/thread_pool.h"

namespace tidemill {
namespace {

std::filesystem::path trace_path(const std::string& name) {
  return std::filesystem::path(::testing::TempDir()) / (name + ".json");
}

std::unique_ptr<StepTrace> open_trace(const std::string& name, TraceLimits limits = {}) {
  Result<std::unique_ptr<StepTrace>> trace = StepTrace::open(trace_path(name), limits);
  EXPECT_TRUE(trace);
  return *std::move(trace);
}

nlohmann::json read_trace(const std::string& name) {
  std::ifstream in(trace_path(name));
  std::stringstream text;
  text << in.rdbuf();
  return nlohmann::json::parse(text.str());
}

std::vector<nlohmann::json> spans(const nlohmann::json& trace, const std::string& name) {
  std::vector<nlohmann::json> found;
  for (const nlohmann::json& event : trace)
    if (event["ph"] == "X" && event["name"] == name) found.push_back(event);
  return found;
}

double end_of(const nlohmann::json& span) {
  return span["ts"].get<double>() + span["dur"].get<double>();
}

// Spans of one thread nest or follow each other.
void expect_nested(const nlohmann::json& trace) {
  std::map<int, std::vector<nlohmann::json>> lanes;
  for (const nlohmann::json& event : trace)
    if (event["ph"] == "X") lanes[event["tid"].get<int>()].push_back(event);
  constexpr double rounding_us = 0.002;
  for (auto& [thread, events] : lanes) {
    std::stable_sort(events.begin(), events.end(), [](const auto& a, const auto& b) {
      return a["ts"] != b["ts"] ? a["ts"] < b["ts"] : a["dur"] > b["dur"];
    });
    std::vector<double> open_until;
    for (const nlohmann::json& event : events) {
      while (!open_until.empty() && open_until.back() <= event["ts"].get<double>() + rounding_us) open_until.pop_back();
      if (!open_until.empty()) {
        EXPECT_LE(end_of(event), open_until.back() + rounding_us) << thread << event.dump();
      }
      open_until.push_back(end_of(event));
    }
  }
}

TEST(StepTrace, OperationsBarriersAndWaitsOfAllWorkers) {
  {
    const std::unique_ptr<StepTrace> trace = open_trace("operations");
    ThreadPool pool({.num_threads = 3, .places = {}, .trace = trace.get()});
    for (uint64_t step = 1; step <= 2; ++step) {
      trace->begin_step();
      { const TraceSpan span(trace.get(), {.name = "schedule"}); }
      for (int32_t layer = 0; layer < 4; ++layer) {
        const TraceOperation operation(trace.get(), {.name = "product", .layer = layer, .num_rows = 7});
        pool.run([&](int32_t worker) {
          std::this_thread::sleep_for(std::chrono::microseconds(300 * (worker + 1)));
          pool.barrier();
        });
      }
      trace->end_step(step, 7, 5);
    }
  }
  const nlohmann::json trace = read_trace("operations");
  expect_nested(trace);
  const auto steps = spans(trace, "step");
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[1]["args"], (nlohmann::json{{"step", 2}, {"rows", 7}, {"sequences", 5}}));
  EXPECT_EQ(spans(trace, "schedule").size(), 2u);
  const auto products = spans(trace, "product");
  ASSERT_EQ(products.size(), 2u * 4 * 3);
  std::map<int, double> busy_us, waited_us;
  for (const auto& product : products) {
    EXPECT_EQ(product["args"]["rows"], 7);
    busy_us[product["tid"].get<int>()] += product["dur"].get<double>();
  }
  // The slowest worker's share lasts 900 us; all wait for it inside the operation.
  for (int worker = 0; worker < 3; ++worker) EXPECT_GE(busy_us[worker], 8 * 900) << worker;
  for (const auto& barrier : spans(trace, "barrier"))
    waited_us[barrier["tid"].get<int>()] += barrier["dur"].get<double>();
  EXPECT_GT(waited_us[0], waited_us[2]);
  // A worker's shares and waits fill the step.
  for (int worker = 1; worker < 3; ++worker) {
    double filled_us = busy_us[worker], steps_us = 0;
    for (const auto& wait : spans(trace, "wait")) filled_us += wait["tid"] == worker ? wait["dur"].get<double>() : 0;
    for (const auto& step : steps) steps_us += step["dur"].get<double>();
    EXPECT_NEAR(filled_us, steps_us, 0.02 * steps_us);
  }
}

TEST(StepTrace, EndsAtItsLimits) {
  for (const TraceLimits limits : {TraceLimits{.max_steps = 3}, TraceLimits{.max_steps = 1000, .max_bytes = 1000}}) {
    uint64_t num_steps = 0;
    {
      const std::unique_ptr<StepTrace> trace = open_trace("limits", limits);
      for (uint64_t step = 0; step < 100; ++step) {
        trace->begin_step();
        { const TraceSpan span(trace.get(), {.name = "schedule"}); }
        trace->end_step(step, 1, 1);
      }
      EXPECT_TRUE(trace->closed());
      EXPECT_FALSE(trace->recording());
      num_steps = trace->num_steps();
      EXPECT_LT(num_steps, 10u);
    }
    EXPECT_EQ(spans(read_trace("limits"), "step").size(), num_steps);
    EXPECT_LT(std::filesystem::file_size(trace_path("limits")), 1500u);
  }
}

TEST(StepTrace, StepsThatDidNothingAreNotWritten) {
  {
    const std::unique_ptr<StepTrace> trace = open_trace("dropped");
    trace->begin_step();
    { const TraceSpan span(trace.get(), {.name = "schedule"}); }
    trace->drop_step();
    const TraceSpan outside(trace.get(), {.name = "outside"});
  }
  for (const nlohmann::json& event : read_trace("dropped")) EXPECT_EQ(event["ph"], "M");
}

TEST(StepTrace, AFileThatCannotBeWritten) {
  const Result<std::unique_ptr<StepTrace>> trace = StepTrace::open("/nonexistent/trace.json", {});
  ASSERT_FALSE(trace);
  EXPECT_NE(trace.error().message.find("/nonexistent/trace.json"), std::string::npos);
}

TEST(StepTrace, NoTraceIsNoFault) {
  const TraceSpan span(nullptr, {.name = "nothing"});
  const TraceOperation operation(nullptr, {.name = "nothing"});
}

}  // namespace
}  // namespace tidemill
