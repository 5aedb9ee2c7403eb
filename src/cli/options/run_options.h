// Options that every command shares that runs a model: which one, on what, with how much memory, scheduled how.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/cpu_topology.h"
#include "base/step_trace.h"
#include "cli/options/option_list.h"
#include "compute/backend.h"
#include "compute/dtype.h"
#include "engine/engine_config.h"
#include "engine/kv_fidelity.h"
#include "runtime/memory_plan.h"

namespace tidemill {

struct RunOptions {
  std::string model_path;
  std::string chat_template_path;  // "" = the model's own
  std::optional<DType> quantization;
  bool model_sampling = true;  // take sampling defaults from the model's generation_config

  int32_t num_threads = 0;  // 0 = every core that the process may use
  std::string kernels = "auto";
  CoreBinding binding = CoreBinding::automatic;
  std::string trace_path;  // "" = no trace of steps
  TraceLimits trace_limits;
  PackedCache packed_cache = PackedCache::automatic;
  uint64_t packed_limit_bytes = uint64_t{32} << 30;

  // The context length: 0 = the model's, auto_length = as much of it as the memory holds.
  static constexpr int32_t auto_length = -1;
  int32_t max_model_len = 0;
  KvBudgetOptions kv_budget;
  std::string kv_disk_path;  // "" = no disk tier
  KvFormatChoice kv_choice;
  std::optional<KvFormat> kv_reencode;        // what cold blocks get a second life in
  std::vector<KvFormat> kv_request_formats;   // that requests may ask for where the cache's own are less
  KvFidelity kv_fidelity = KvFidelity::high;  // that --kv-cache-dtype auto keeps to
  double kv_audit_share = 0;                  // 0 = no live meter
  int32_t kv_audit_tokens = 4096;             // of a request, that the live meter reads at most
  size_t kv_min_bytes = 0, kv_max_bytes = 0;  // between which the cache breathes; 0 = it keeps its size

  EngineConfig engine;  // its groups, budget and lengths are filled in from the model (cli/engine_stack)
};

// Each adds one group of options (add_length_option: one, to the group before it). `target` must outlive the list.
void add_model_options(OptionList& list, RunOptions& target);
void add_length_option(OptionList& list, RunOptions& target);
void add_compute_options(OptionList& list, RunOptions& target);
void add_trace_options(OptionList& list, RunOptions& target);
void add_memory_options(OptionList& list, RunOptions& target);
void add_audit_options(OptionList& list, RunOptions& target);
void add_scheduler_options(OptionList& list, RunOptions& target);

}  // namespace tidemill
