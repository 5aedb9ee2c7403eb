#include "runtime/text_runner.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tidemill {
namespace {

// A tail is sealed while it is still held, so there is one block more of each kind.
size_t budget_bytes(const std::vector<BlockGroup>& groups, const TextRunnerOptions& options) {
  const auto blocks = static_cast<size_t>((options.max_tokens - 1) / options.block_size_tokens + 1);
  size_t bytes = 0;
  for (const BlockGroup& group : groups) bytes += (blocks + 1) * group.sealed_bytes + 2 * group.tail_bytes;
  return bytes;
}

}  // namespace

EngineConfig TextRunner::config_for(const KvLayout& layout, const TextRunnerOptions& options) {
  EngineConfig config;
  config.groups = block_groups(layout, options.block_size_tokens, options.formats);
  config.block_size_tokens = options.block_size_tokens;
  config.max_model_len_tokens = options.max_tokens;
  config.max_num_seqs = 1;
  config.max_num_batched_tokens = options.max_rows;
  config.prefix_caching = false;
  config.kv_budget_bytes = budget_bytes(config.groups, options);
  for (const KvFormats& formats : options.other_formats) {
    ExtraFormat& other = config.extra_formats.emplace_back();
    other.groups = block_groups(layout, options.block_size_tokens, formats);
    const size_t bytes = budget_bytes(other.groups, options);
    config.kv_budget_bytes = std::max(config.kv_budget_bytes, bytes);
  }
  return config;
}

size_t TextRunner::cache_bytes(const KvLayout& layout, const TextRunnerOptions& options) {
  return config_for(layout, options).kv_budget_bytes;
}

Result<std::unique_ptr<TextRunner>> TextRunner::make(Model& model, const TextRunnerOptions& options) {
  TM_CHECK(options.max_tokens > 0 && options.max_rows > 0 && options.max_rows % options.block_size_tokens == 0,
           "a text is run in whole blocks");
  EngineConfig config = config_for(model.kv_layout(), options);
  Result<std::unique_ptr<KvStorage>> storage =
      KvStorage::make(model.kv_layout(), options.block_size_tokens, options.formats, config.kv_budget_bytes,
                      options.backend, options.other_formats);
  if (!storage) return storage.error();
  return std::unique_ptr<TextRunner>(new TextRunner(model, options, *std::move(storage), std::move(config)));
}

TextRunner::TextRunner(Model& model, const TextRunnerOptions& options, std::unique_ptr<KvStorage> storage,
                       EngineConfig config)
    : options_(options),
      storage_(std::move(storage)),
      allocator_(config),
      executor_(model, *storage_,
                {.max_num_seqs = 1,
                 .max_rows = options.max_rows,
                 .max_logit_rows = options.max_logit_rows,
                 .backend = options.backend,
                 .kept_rows = options.kept_rows}) {
  sequence_.request = &request_;
}

TextRunner::~TextRunner() {
  allocator_.release(sequence_, false);
}

void TextRunner::start(std::span<const TokenId> tokens, KvFormatId format) {
  TM_CHECK(!tokens.empty() && tokens.size() <= static_cast<size_t>(options_.max_tokens), "a text fits its runner");
  TM_CHECK(format <= options_.other_formats.size(), "a text's format is one of its runner's");
  plan_.ended.clear();
  if (sequence_.started) plan_.ended.push_back(0);
  allocator_.release(sequence_, false);
  request_.request.kv_format = format;
  sequence_.tokens.assign(tokens.begin(), tokens.end());
  sequence_.num_prompt_tokens = static_cast<int32_t>(tokens.size());
  sequence_.started = false;
  plan_.moves.clear();
  allocator_.adopt_prefix(sequence_, 0, plan_.moves);
}

int32_t TextRunner::next_rows() const {
  const int32_t in_block = num_computed() % options_.block_size_tokens;
  const int32_t most = in_block == 0 ? options_.max_rows : options_.block_size_tokens - in_block;
  return std::min(most, num_tokens() - num_computed());
}

std::span<const RowDivergence> TextRunner::advance(int32_t num_rows, RowUse use, int32_t first_used_position) {
  TM_CHECK(num_rows > 0 && num_rows <= next_rows(), "rows follow each other within a text");
  plan_.moves.clear();
  plan_.sequences.resize(1);
  ++plan_.step;
  PlannedSequence& planned = plan_.sequences.front();
  planned = {};
  planned.first_position = num_computed();
  planned.num_rows = num_rows;
  planned.use = use;
  planned.first_used_position = first_used_position;
  if (!sequence_.started) planned.start = SequenceStart{sequence_.tokens, num_tokens(), {}, request_.request.kv_format};
  allocator_.trim_windows(sequence_);
  TM_CHECK(allocator_.reserve(sequence_, num_computed() + num_rows, plan_.moves), "a runner's cache holds its text");
  plan_tables(planned);
  executor_.recycle(std::move(result_));
  result_ = executor_.execute(plan_);
  plan_.ended.clear();
  sequence_.started = true;
  sequence_.num_computed += num_rows;
  return result_.sequences.front().divergences;
}

// What the executor does not know of the tables yet.
void TextRunner::plan_tables(PlannedSequence& planned) {
  planned.tables.resize(sequence_.tables.size());
  for (size_t group = 0; group < sequence_.tables.size(); ++group) {
    const BlockTable& table = sequence_.tables[group];
    int32_t& told_first = sequence_.told_first[group];
    int32_t& told_end = sequence_.told_end[group];
    if (!sequence_.started) told_first = told_end = table.first_block();
    TableChange& change = planned.tables[group];
    change.first_block = told_first;
    change.num_dropped = table.first_block() - told_first;
    const auto places = table.places().subspan(static_cast<size_t>(told_end - table.first_block()));
    change.appended.assign(places.begin(), places.end());
    told_first = table.first_block();
    told_end = table.end_block();
  }
}

}  // namespace tidemill
