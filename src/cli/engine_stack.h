// Everything between a model's path and a running engine, built in order and owned together.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/step_trace.h"
#include "cli/kv_format_choice.h"
#include "cli/model_text.h"
#include "cli/options/run_options.h"
#include "compute/backend.h"
#include "engine/engine.h"
#include "engine/kv_fidelity.h"
#include "model/model.h"
#include "runtime/disk_file.h"
#include "runtime/host_tier.h"
#include "runtime/kv_storage.h"
#include "runtime/memory_plan.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tidemill {

// A loaded model with its cache. The engine comes last (make_engine), since whoever listens to it wants the tokenizer.
// Members are destroyed in reverse order: what is below may refer to what is above.
struct EngineStack {
  std::string name;  // as the file calls itself
  std::string family;
  std::string identity;               // of the weights as they were loaded; "" = unknown
  std::string chat_template_source;   // the model's own or the one given instead; "" = neither
  std::string chat_template_problem;  // why chat_template is nullptr, one sentence
  std::vector<std::string> warnings;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;  // nullptr = none
  GenerationDefaults generation;
  std::unique_ptr<StepTrace> trace;  // nullptr = none
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;
  MemoryPlan memory;
  KvFormats kv_formats;
  std::optional<KvFidelity> kv_fidelity;           // of these formats for this model file; nothing: never measured
  std::vector<KvFormatsWithLevel> kv_better;       // that requests may ask for, ascending
  std::optional<KvFormatsWithLevel> kv_reencoded;  // that cold blocks are encoded in anew
  std::string kv_explanation;                      // why these formats, where they were chosen by measurement
  EngineConfig engine_config;
  std::unique_ptr<KvStorage> storage;
  std::unique_ptr<KvAuditor> auditor;  // goes into the engine; nullptr = no live meter
  std::unique_ptr<DiskFile> disk;      // nullptr = none; ends what it was told before the storage goes
  std::unique_ptr<HostTier> host;      // nullptr = none
};

struct LoadProgress {
  size_t done_bytes = 0;
  size_t total_bytes = 0;
};

// Errors name the file, tensor, option or limit at fault.
Result<std::unique_ptr<EngineStack>> load_engine_stack(const RunOptions& options,
                                                       const std::function<void(LoadProgress)>& progress);

// The longest sequence, of at most `wanted` tokens, that fits into the stack's KV cache alone.
int32_t longest_that_fits(const EngineStack& stack, int32_t wanted);

// How the model's makers want it sampled, where a request says nothing.
SamplingParams default_sampling(const EngineStack& stack);

// Runs plans on the stack's model; the stack must outlive it.
std::unique_ptr<Executor> make_executor(EngineStack& stack);

// An engine over the stack's model, not yet started. The stack, the clock and the listener must outlive it.
std::unique_ptr<Engine> make_engine(EngineStack& stack, const Clock& clock, EventListener& listener);

}  // namespace tidemill
