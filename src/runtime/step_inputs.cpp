#include "runtime/step_inputs.h"

#include "base/check.h"

namespace tidemill {

StepSlice::StepSlice(const KvStorage& storage)
    : storage_(storage), segments_(storage.num_groups()), groups_(storage.num_groups()) {}

void StepSlice::clear() {
  tokens_.clear();
  positions_.clear();
  ranges_.clear();
  for (auto& segments : segments_) segments.clear();
}

void StepSlice::add(const SequenceState& state, const RowRange& range) {
  const std::span<const TokenId> tokens = state.history.tokens();
  const int32_t end = range.first_position + range.num_rows;
  TM_CHECK(range.first_position >= 0 && static_cast<size_t>(end) <= tokens.size(), "planned rows have known tokens");
  const int32_t first_row = num_rows();
  for (int32_t position = range.first_position; position < end; ++position) {
    tokens_.push_back(tokens[position]);
    positions_.push_back(position);
  }
  const int32_t last_block = (end - 1) / storage_.block_size();
  for (size_t group = 0; group < segments_.size(); ++group) {
    const SequenceTable& table = state.tables[group];
    const int32_t num_places = last_block + 1 - table.first_block;
    TM_CHECK(num_places > 0 && static_cast<size_t>(num_places) <= table.places.size(), "planned rows have blocks");
    segments_[group].push_back({.first_row = first_row,
                                .num_rows = range.num_rows,
                                .first_position = range.first_position,
                                .first_block = table.first_block,
                                .places = std::span(table.places).first(num_places),
                                .storage_class = storage_.storage_class(state.kv_format, group),
                                .hadamard = storage_.hadamard(state.kv_format, group)});
  }
  ranges_.push_back(range);
}

StepInputs StepSlice::inputs() {
  for (size_t group = 0; group < groups_.size(); ++group)
    groups_[group] = {.shape = storage_.shape(group), .arenas = storage_.arenas(), .segments = segments_[group]};
  return {.tokens = tokens_, .positions = positions_, .groups = groups_};
}

}  // namespace tidemill
