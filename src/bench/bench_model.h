// The loaded model that an offline benchmark runs, as its parts: whoever loaded it says how to make executors for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "engine/engine_config.h"
#include "engine/executor.h"
#include "text/tokenizer.h"

namespace tidemill {

struct BenchModel {
  std::string name;
  std::string kernels;
  int32_t num_threads = 0;
  int32_t vocab_size = 0;
  size_t weight_bytes = 0;
  size_t scratch_bytes = 0;
  const Tokenizer* tokenizer = nullptr;
  EngineConfig config;  // with the model's groups, budget and lengths
  // Executors share the model and its cache: one lives at a time, on one thread.
  std::function<std::unique_ptr<Executor>()> make_executor;
};

}  // namespace tidemill
