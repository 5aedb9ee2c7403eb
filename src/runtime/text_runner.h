// A known text through a model, with a KV cache of its own: what evaluation and audit measure with.
//
// One text at a time, teacher-forced: the rows come in plans like those of the engine, so a cache's format, its seals
// and its windows work as they do for a request. Runners of one model may share kept rows; then the rows of one can be
// compared with those that another kept (RowUse). Nobody else may run the model meanwhile.
//
// Engine thread only. Owns its cache; refers to the model, the backend and the kept rows, which must outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/kv_allocator.h"
#include "engine/sequence.h"
#include "model/model.h"
#include "runtime/kv_storage.h"
#include "runtime/model_executor.h"

namespace tidemill {

struct TextRunnerOptions {
  KvFormats formats;
  std::vector<KvFormats> other_formats{};  // a text may be kept in instead
  int32_t block_size_tokens = 32;
  int32_t max_tokens = 2048;  // of a text
  int32_t max_rows = 64;      // of one advance; whole blocks
  int32_t max_logit_rows = 64;
  Backend* backend = nullptr;  // that encodes, and whose threads share the work on logits
  KeptRows* kept_rows = nullptr;
};

class TextRunner {
 public:
  static Result<std::unique_ptr<TextRunner>> make(Model& model, const TextRunnerOptions& options);
  ~TextRunner();

  // Bytes of address space that a runner's cache takes at most; memory is taken as a text fills it.
  static size_t cache_bytes(const KvLayout& layout, const TextRunnerOptions& options);

  const TextRunnerOptions& options() const { return options_; }
  // Forgets the text before it. 1 .. max_tokens tokens, which are kept in `formats` (0) or in one of other_formats
  // (from 1 on).
  void start(std::span<const TokenId> tokens, KvFormatId format = 0);
  int32_t num_tokens() const { return sequence_.num_tokens(); }
  int32_t num_computed() const { return sequence_.num_computed; }
  bool done() const { return num_computed() == num_tokens(); }
  // How many rows may come next: up to max_rows, and no more than end with the text or, begun inside a block, with it.
  int32_t next_rows() const;
  // Computes the next num_rows rows. The divergences, where they are compared, are those of the rows from
  // first_used_position on; valid until the next call.
  std::span<const RowDivergence> advance(int32_t num_rows, RowUse use = RowUse::none, int32_t first_used_position = 0);

 private:
  TextRunner(Model& model, const TextRunnerOptions& options, std::unique_ptr<KvStorage> storage, EngineConfig config);
  static EngineConfig config_for(const KvLayout& layout, const TextRunnerOptions& options);
  void plan_tables(PlannedSequence& planned);

  TextRunnerOptions options_;
  std::unique_ptr<KvStorage> storage_;
  KvAllocator allocator_;
  ModelExecutor executor_;
  LiveRequest request_;  // what a sequence belongs to
  Sequence sequence_;
  StepPlan plan_;
  StepResult result_;
};

}  // namespace tidemill
