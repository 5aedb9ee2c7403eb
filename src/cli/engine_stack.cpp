#include "cli/engine_stack.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>

#include "cli/version.h"
#include "engine/block_formats.h"
#include "model/loader.h"
#include "model/model_files.h"
#include "runtime/kv_audit.h"
#include "runtime/model_executor.h"

namespace tidemill {
namespace {

// Rows that the model computes in one go. More bring no speed, and scratch memory grows with them.
constexpr int32_t max_slice_rows = 512;
constexpr int32_t max_logit_rows = 64;

int32_t slice_rows(const EngineConfig& config) {
  return std::min(max_slice_rows, std::max(config.max_num_batched_tokens, config.max_num_seqs));
}

Result<void> load_text(EngineStack& stack, const ModelFiles& files, const RunOptions& options) {
  Result<std::unique_ptr<Tokenizer>> tokenizer = tokenizer_of(files, &stack.warnings);
  if (!tokenizer) return tokenizer.error();
  stack.tokenizer = *std::move(tokenizer);
  Result<std::string> source = chat_template_source_of(files, options.chat_template_path);
  if (!source) return source.error();
  Result<std::unique_ptr<ChatTemplate>> chat_template = chat_template_of(*source, options.chat_template_path);
  if (!chat_template && !options.chat_template_path.empty()) return chat_template.error();
  if (!chat_template) {
    // A model whose template is beyond us still completes texts.
    stack.chat_template_problem = chat_template.error().message;
    stack.warnings.push_back(stack.chat_template_problem + "; chat requests will be refused");
  } else if (*chat_template == nullptr) {
    stack.chat_template_problem = "the model brings no chat template; give one with --chat-template";
  } else {
    stack.chat_template = *std::move(chat_template);
  }
  stack.chat_template_source = *std::move(source);
  Result<GenerationDefaults> generation = generation_defaults_of(files);
  if (!generation) return generation.error();
  if (options.model_sampling) {
    stack.generation = *std::move(generation);
  } else {
    stack.generation.end_token_ids = std::move(generation->end_token_ids);
  }
  return {};
}

// Beside the downloaded models; "" where there is no home.
std::filesystem::path packed_folder() {
  if (const char* cache = std::getenv("TIDEMILL_CACHE"); cache && *cache)
    return std::filesystem::path(cache) / "packed";
  const char* home = std::getenv("HOME");
  return home && *home ? std::filesystem::path(home) / ".cache/tidemill/packed" : std::filesystem::path();
}

// "" = not to be kept.
std::string packed_key(const WeightFile& weights, const RunOptions& options) {
  const std::string identity = weights.identity();
  if (identity.empty() || packed_folder().empty()) return {};
  return fmt::format("{} quantized {}", identity, options.quantization ? dtype_name(*options.quantization) : "none");
}

Result<void> load_weights(EngineStack& stack, const ModelFiles& files, const ModelConfig& config,
                          const RunOptions& options, const std::function<void(LoadProgress)>& progress) {
  if (const std::string identity = files.weights->identity(); !identity.empty()) {
    stack.identity =
        fmt::format("{} quantized {} length {}", identity,
                    options.quantization ? dtype_name(*options.quantization) : "none", options.max_model_len);
  }
  const std::string_view kernels = options.kernels == "auto" ? "" : std::string_view(options.kernels);
  if (!options.trace_path.empty()) {
    Result<std::unique_ptr<StepTrace>> trace = StepTrace::open(options.trace_path, options.trace_limits);
    if (!trace) return trace.error();
    stack.trace = *std::move(trace);
  }
  Result<std::unique_ptr<Backend>> backend = make_cpu_backend({.num_threads = options.num_threads,
                                                               .kernels = kernels,
                                                               .binding = options.binding,
                                                               .trace = stack.trace.get(),
                                                               .packed_cache = options.packed_cache,
                                                               .packed_folder = packed_folder(),
                                                               .packed_key = packed_key(*files.weights, options),
                                                               .packed_limit_bytes = options.packed_limit_bytes});
  if (!backend) return backend.error();
  stack.backend = *std::move(backend);
  LoadOptions load;
  load.quantization = options.quantization;
  load.longest_sequence = std::max(0, options.max_model_len);
  load.warn = [&stack](const std::string& sentence) { stack.warnings.push_back(sentence); };
  if (progress) load.progress = [&progress](size_t done, size_t total) { progress({done, total}); };
  Result<std::unique_ptr<Model>> model = load_model(*files.weights, config, *stack.backend, load);
  if (!model) return model.error();
  stack.model = *std::move(model);
  return {};
}

KvAuditOptions audit_options(const EngineStack& stack, const RunOptions& options) {
  const int32_t longest = options.max_model_len > 0 ? options.max_model_len : stack.model->info().context_length;
  std::vector<KvFormats> formats = {stack.kv_formats};
  for (const KvFormatsWithLevel& each : stack.kv_better) formats.push_back(each.formats);
  return {.share = options.kv_audit_share,
          .formats = std::move(formats),
          .reference = {KvFormat::fp32},
          .block_size_tokens = stack.engine_config.block_size_tokens,
          .max_tokens = std::min(options.kv_audit_tokens, longest),
          .seed = options.engine.seed,
          .backend = stack.backend.get()};
}

Result<void> plan_cache(EngineStack& stack, const RunOptions& options) {
  EngineConfig& config = stack.engine_config;
  const KvLayout& layout = stack.model->kv_layout();
  const size_t scratch_bytes = stack.model->reserve(slice_rows(config), max_logit_rows);
  size_t available_bytes = available_memory_bytes();
  if (options.kv_audit_share > 0) {
    const KvAuditOptions audit = audit_options(stack, options);
    Result<std::unique_ptr<KvAudit>> auditor = KvAudit::make(*stack.model, audit);
    if (!auditor) return auditor.error();
    stack.auditor = *std::move(auditor);
    available_bytes -= std::min(available_bytes, KvAudit::cache_bytes(layout, audit));
  }
  KvBudgetOptions budget = options.kv_budget;
  budget.host_bytes = config.kv_host_bytes;
  Result<MemoryPlan> memory = plan_memory(layout, config.block_size_tokens, stack.kv_formats,
                                          stack.model->info().weight_bytes, scratch_bytes, available_bytes, budget);
  if (!memory) return memory.error();
  stack.memory = *memory;
  config.kv_largest_budget_bytes = std::max(memory->kv_budget_bytes, options.kv_max_bytes);
  std::vector<KvFormats> extra;
  for (const KvFormatsWithLevel& each : stack.kv_better) extra.push_back(each.formats);
  if (stack.kv_reencoded) {
    extra.push_back(stack.kv_reencoded->formats);
    config.kv_reencode = static_cast<KvFormatId>(extra.size());
  }
  if (extra.size() >= most_kv_formats || 2 * (1 + extra.size()) * layout.groups.size() > most_size_classes)
    return error("--kv-request-formats names {} formats, and a model with {} groups of layers can have {} at most",
                 extra.size(), layout.groups.size(), most_size_classes / 2 / layout.groups.size() - 1);
  Result<std::unique_ptr<KvStorage>> storage = KvStorage::make(
      layout, config.block_size_tokens, stack.kv_formats, config.kv_largest_budget_bytes, stack.backend.get(), extra);
  if (!storage) return storage.error();
  stack.storage = *std::move(storage);
  config.groups = block_groups(layout, config.block_size_tokens, stack.kv_formats);
  config.kv_tail_format = kv_format_name(stack.kv_formats.tail().keys.format);
  config.kv_sealed_format = kv_formats_text(stack.kv_formats);
  config.kv_format_key = kv_format_key(stack.kv_formats, config.block_size_tokens);
  for (const KvFormats& formats : extra) {
    config.extra_formats.push_back({.groups = block_groups(layout, config.block_size_tokens, formats),
                                    .tail_name = kv_format_name(formats.tail().keys.format),
                                    .sealed_name = kv_formats_text(formats),
                                    .key = kv_format_key(formats, config.block_size_tokens)});
  }
  config.kv_budget_bytes = memory->kv_budget_bytes;
  if (config.kv_host_bytes == 0) return {};
  Result<std::unique_ptr<HostTier>> host =
      HostTier::make(config.kv_host_bytes, BlockFormats(config).sealed_class_bytes());
  if (!host) return host.error();
  stack.host = *std::move(host);
  return {};
}

// A disk tier that cannot be had is a warning: the engine works without.
void open_disk(EngineStack& stack, const RunOptions& options) {
  constexpr size_t usual_bytes = size_t{8} << 30;
  EngineConfig& config = stack.engine_config;
  const size_t budget_bytes = config.kv_disk_bytes > 0 ? config.kv_disk_bytes : usual_bytes;
  config.kv_disk_bytes = 0;
  if (options.kv_disk_path.empty()) return;
  const auto refuse = [&stack](const std::string& why) {
    stack.warnings.push_back(fmt::format("{}; no blocks are kept on disk", why));
  };
  if (stack.identity.empty()) return refuse("--kv-disk-path needs a model file whose identity is known");
  const BlockFormats formats(config);
  const std::vector<size_t> payload_bytes = formats.sealed_class_bytes();
  std::string keys = config.kv_format_key;  // of all formats: size classes are numbered by them
  for (const ExtraFormat& format : config.extra_formats) keys += ", " + format.key;
  Result<std::unique_ptr<DiskFile>> disk =
      DiskFile::open({.path = options.kv_disk_path,
                      .budget_bytes = budget_bytes,
                      .identity = fmt::format("{} kv {} tidemill {} kernels {}", stack.identity, keys, version_text(),
                                              stack.backend->kernels()),
                      .payload_bytes = payload_bytes,
                      .groups = formats.class_groups(),
                      .block_size_tokens = config.block_size_tokens});
  if (!disk) return refuse(fmt::format("--kv-disk-path: {}", disk.error().message));
  stack.disk = *std::move(disk);
  config.kv_disk_bytes = budget_bytes;
  config.kv_disk_class_bytes = DiskFile::record_bytes(payload_bytes, config.block_size_tokens);
  config.kv_hash_key = stack.disk->hash_key();
}

// Whatever any of the model's files names as the end of a text.
void add_end_tokens(EngineStack& stack, const ModelConfig& config) {
  std::vector<TokenId> ids = stack.tokenizer->end_of_generation_ids();
  const auto add = [&](int64_t id) {
    if (static_cast<size_t>(id) < stack.tokenizer->vocab_size()) ids.push_back(static_cast<TokenId>(id));
  };
  std::ranges::for_each(stack.generation.end_token_ids, add);
  std::ranges::for_each(config.eos_token_ids, add);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  stack.engine_config.vocabulary_end_ids = std::move(ids);
}

}  // namespace

int32_t longest_that_fits(const EngineStack& stack, int32_t wanted) {
  const auto fits = [&stack](int32_t tokens) {
    return sequence_kv_bytes(stack.model->kv_layout(), stack.engine_config.block_size_tokens, stack.kv_formats,
                             tokens) <= stack.memory.kv_budget_bytes;
  };
  int32_t low = 1, high = wanted;
  while (low < high) {
    const int32_t middle = low + (high - low + 1) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

Result<std::unique_ptr<EngineStack>> load_engine_stack(const RunOptions& options,
                                                       const std::function<void(LoadProgress)>& progress) {
  Result<ModelFiles> files = open_model_files(options.model_path);
  if (!files) return files.error();
  const Result<ModelConfig> config = read_model_config(*files);
  if (!config) return config.error();
  if (options.max_model_len > config->context_length) {
    return error("--max-model-len {} is more than the {} positions that the model was trained on",
                 options.max_model_len, config->context_length);
  }
  for (int32_t layer : options.kv_choice.skipped_layers) {
    if (layer >= config->num_layers) {
      return error("--kv-cache-dtype-skip-layers names layer {}; the model has {}, from 0 on", layer,
                   config->num_layers);
    }
  }
  auto stack = std::make_unique<EngineStack>();
  stack->name = files->name;
  stack->family = config->family;
  stack->engine_config = options.engine;
  if (Result<void> done = load_text(*stack, *files, options); !done) return done.error();
  if (Result<void> done = load_weights(*stack, *files, *config, options, progress); !done) return done.error();
  Result<KvFormatDecision> formats = decide_kv_formats(
      {stack->model.get(), stack->backend.get(), stack->tokenizer.get()}, files->weights->identity(), options);
  if (!formats) return formats.error();
  stack->kv_formats = formats->usual.formats;
  stack->kv_fidelity = formats->usual.fidelity;
  stack->kv_better = formats->better;
  stack->kv_reencoded = formats->reencoded;
  stack->kv_explanation = formats->explanation;
  std::ranges::copy(formats->warnings, std::back_inserter(stack->warnings));
  files = Error{};  // closes the mapping: the weights were repacked
  if (Result<void> done = plan_cache(*stack, options); !done) return done.error();
  EngineConfig& engine = stack->engine_config;
  engine.max_model_len_tokens = options.max_model_len > 0 ? options.max_model_len : config->context_length;
  if (options.max_model_len == RunOptions::auto_length) {
    engine.max_model_len_tokens = longest_that_fits(*stack, config->context_length);
  }
  open_disk(*stack, options);
  add_end_tokens(*stack, *config);
  return stack;
}

SamplingParams default_sampling(const EngineStack& stack) {
  const GenerationDefaults& generation = stack.generation;
  SamplingParams params;
  params.temperature = static_cast<float>(generation.temperature.value_or(params.temperature));
  params.top_p = static_cast<float>(generation.top_p.value_or(params.top_p));
  params.min_p = static_cast<float>(generation.min_p.value_or(params.min_p));
  params.repetition_penalty = static_cast<float>(generation.repetition_penalty.value_or(params.repetition_penalty));
  params.top_k = static_cast<int32_t>(std::clamp<int64_t>(generation.top_k.value_or(0), 0, INT32_MAX));
  params.end_token_ids = stack.engine_config.vocabulary_end_ids;
  return params;
}

std::unique_ptr<Executor> make_executor(EngineStack& stack) {
  return std::make_unique<ModelExecutor>(*stack.model, *stack.storage,
                                         ExecutorOptions{.max_num_seqs = stack.engine_config.max_num_seqs,
                                                         .max_rows = slice_rows(stack.engine_config),
                                                         .max_logit_rows = max_logit_rows,
                                                         .backend = stack.backend.get(),
                                                         .trace = stack.trace.get(),
                                                         .disk = stack.disk.get(),
                                                         .host = stack.host.get()});
}

std::unique_ptr<Engine> make_engine(EngineStack& stack, const Clock& clock, EventListener& listener) {
  return std::make_unique<Engine>(stack.engine_config, make_executor(stack), clock, listener, stack.trace.get(),
                                  std::move(stack.auditor));
}

}  // namespace tidemill
