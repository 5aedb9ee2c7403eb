#include "cli/options/run_options.h"

#include "base/printable.h"
#include "cli/options/kv_format_options.h"
#include "cli/options/values.h"

namespace tidemill {
namespace {

constexpr int64_t max_bytes = int64_t{1} << 50;
constexpr int64_t max_tokens = int64_t{1} << 30;
constexpr int64_t max_sequences = 16384;

Result<void> set_max_model_len(const std::string& text, int32_t& target) {
  if (text == "auto" || text == "-1") {
    target = RunOptions::auto_length;
    return {};
  }
  const Result<int64_t> tokens = parse_scaled(text);
  if (!tokens) return tokens.error();
  if (*tokens < 1 || *tokens > max_tokens) {
    return error("{} is not between 1 and {}, nor 'auto'", printable(text), max_tokens);
  }
  target = static_cast<int32_t>(*tokens);
  return {};
}

void add_packed_cache_options(OptionList& list, RunOptions& target) {
  list.choice("--packed-cache", &target.packed_cache,
              {{"auto", PackedCache::automatic}, {"on", PackedCache::on}, {"off", PackedCache::off}},
              "Keep packed weights under $TIDEMILL_CACHE or ~/.cache/tidemill for the next start; auto = where packing "
              "takes more than a second.");
  list.integer("--packed-cache-limit", &target.packed_limit_bytes, "SIZE", 0, max_bytes,
               "Bytes that packed weights of all models may take on disk.", "32GiB");
}

}  // namespace

void add_model_options(OptionList& list, RunOptions& target) {
  list.group("Model");
  list.choice("--quantization", &target.quantization,
              {{"none", std::nullopt}, {"q8_0", DType::q8_0}, {"q4_0", DType::q4_0}},
              "Quantize float weights while loading.");
  list.choice("--generation-config", &target.model_sampling, {{"auto", true}, {"off", false}, {"vllm", false}},
              "auto takes the sampling defaults that the model brings along; off (or vllm) does not.");
  add_packed_cache_options(list, target);
}

void add_length_option(OptionList& list, RunOptions& target) {
  list.custom("--max-model-len,--ctx-size", "TOKENS",
              "Longest prompt and answer together, as 4096 or 32k; 'auto' takes what the memory holds.",
              "the model's context length",
              [&target](const std::string& text) { return set_max_model_len(text, target.max_model_len); });
}

void add_compute_options(OptionList& list, RunOptions& target) {
  list.group("Compute");
  list.integer("--threads,-t", &target.num_threads, "N", 0, 1024, "Compute threads; 0 = every core.");
  list.choice("--kernels", &target.kernels,
              {{"auto", "auto"}, {"scalar", "scalar"}, {"avx2", "avx2"}, {"avx512", "avx512"}, {"amx", "amx"}},
              "Instruction set of the kernels; auto = the best that the machine has.");
  list.choice("--cpu-binding", &target.binding,
              {{"auto", CoreBinding::automatic},
               {"none", CoreBinding::none},
               {"node", CoreBinding::node},
               {"core", CoreBinding::core}},
              "Keeps compute threads on the cores of a memory node, or on one core each; auto = node where the machine "
              "has more than one.");
}

void add_trace_options(OptionList& list, RunOptions& target) {
  list.text("--trace-steps", &target.trace_path, "FILE",
            "Write where the time of each step goes, by operation and thread, as JSON for chrome://tracing or "
            "ui.perfetto.dev.");
  list.integer("--trace-steps-count", &target.trace_limits.max_steps, "N", 1, int64_t{1} << 20,
               "Steps to trace; tracing also ends when the file has 256 MiB.");
}

void add_memory_options(OptionList& list, RunOptions& target) {
  list.group("Memory");
  list.integer("--kv-cache-memory-bytes", &target.kv_budget.bytes, "SIZE", 1, max_bytes,
               "Bytes of the KV cache, as 2GiB; counts more than the two below.");
  list.integer("--num-kv-blocks,--num-gpu-blocks-override", &target.kv_budget.num_blocks, "N", 1, max_tokens,
               "Blocks that the KV cache holds.");
  list.number("--memory-utilization,--gpu-memory-utilization", &target.kv_budget.memory_utilization, 0.001, 1.0,
              "Share of the memory that is left after the weights which the KV cache may take.");
  add_kv_format_options(list, target.kv_choice);
  list.choice("--kv-fidelity", &target.kv_fidelity,
              {{"exact", KvFidelity::exact},
               {"high", KvFidelity::high},
               {"balanced", KvFidelity::balanced},
               {"compact", KvFidelity::compact}},
              "How true --kv-cache-dtype auto keeps the cache to an uncompressed one (docs/kv-fidelity.md).");
  list.integer("--kv-host-bytes", &target.engine.kv_host_bytes, "SIZE", 0, max_bytes,
               "Bytes of a second tier, in plain memory, for blocks that the KV cache has to let go; 0 = none.");
  list.text("--kv-disk-path", &target.kv_disk_path, "FILE",
            "Keep the KV cache's blocks in this file too, so that they are found after a restart.");
  list.integer("--kv-disk-bytes", &target.engine.kv_disk_bytes, "SIZE", 0, int64_t{1} << 40, "Bytes of that file.",
               "8GiB with --kv-disk-path");
  list.choice("--kv-eviction-policy", &target.engine.eviction,
              {{"fifo", EvictionPolicy::fifo}, {"lru", EvictionPolicy::lru}, {"heuristic", EvictionPolicy::heuristic}},
              "Which block kept for prefix hits goes first when memory is needed.");
  list.choice("--block-size", &target.engine.block_size_tokens, {{"16", 16}, {"32", 32}, {"64", 64}},
              "Tokens in a block of the KV cache.");
}

void add_audit_options(OptionList& list, RunOptions& target) {
  list.number("--kv-audit", &target.kv_audit_share, 0, 1,
              "The live meter: the share of requests that are read again with an fp32 cache when they have ended, to "
              "measure what the cache's format did to them; at most that share of all computed tokens goes into it.");
  list.integer(
      "--kv-audit-tokens", &target.kv_audit_tokens, "TOKENS", 2, 1 << 20,
      "The live meter reads no more of a request than that; memory for two caches of that length is set aside.");
}

void add_scheduler_options(OptionList& list, RunOptions& target) {
  EngineConfig& engine = target.engine;
  list.group("Scheduler");
  list.integer("--max-num-seqs", &engine.max_num_seqs, "N", 1, max_sequences, "Sequences that run at once.");
  list.integer("--max-num-batched-tokens", &engine.max_num_batched_tokens, "TOKENS", 1, 65536,
               "Most tokens computed in one step.");
  list.custom("--target-itl-ms", "MS",
              "Most time between two tokens of a stream that prompts beside it may cause: they are read in pieces that "
              "fit. 0 = --itl-multiple says how much.",
              "0", [&engine](const std::string& text) -> Result<void> {
                const Result<double> ms = parse_number(text);
                if (!ms) return ms.error();
                if (!(*ms >= 0 && *ms <= 60000)) return error("{} is not between 0 and 60000", printable(text));
                engine.target_itl = std::chrono::microseconds(static_cast<int64_t>(*ms * 1000));
                return {};
              });
  list.number("--itl-multiple", &engine.itl_multiple, 0, 1000,
              "How many times as long as a step without prompts one with prompts may take, while somebody streams; 0 = "
              "no limit.");
  list.choice("--batching", &engine.batching,
              {{"continuous", BatchingMode::continuous}, {"static", BatchingMode::fixed}, {"none", BatchingMode::none}},
              "When sequences may join: at every step, when the whole batch is done, or one by one.");
  list.choice("--kv-cache", &engine.kv_cache, {{"on", true}, {"off", false}},
              "off computes the whole sequence again for every token: the baseline that shows what the cache is for.");
  list.choice("--kv-reserve", &engine.kv_reserve, {{"on-demand", KvReserve::on_demand}, {"full", KvReserve::full}},
              "full reserves room for the longest answer at once: the baseline that shows what blocks are for.");
  list.choice("--scheduling-policy", &engine.policy,
              {{"fcfs", PolicyKind::first_come}, {"priority", PolicyKind::priority}},
              "Order of waiting requests: first come, or by the field `priority` (lower runs earlier).");
  list.choice("--preemption-victim", &engine.victim,
              {{"heuristic", VictimRule::heuristic}, {"newest", VictimRule::newest}},
              "Which running sequence gives way when no block is left; heuristic = the one that frees most for longest "
              "at the least cost.");
  list.duration("--priority-aging", &engine.priority_aging,
                "Waiting time that raises a request by one priority, and now and then by one latency class, so that "
                "nobody starves.");
  list.flag("--enable-prefix-caching", &engine.prefix_caching, "Reuse the KV blocks of equal beginnings of prompts.");
  list.integer("--seed", &engine.seed, "N", 0, int64_t{1} << 52,
               "Seed of requests that bring none; 0 = a fresh one each.");
}

}  // namespace tidemill
