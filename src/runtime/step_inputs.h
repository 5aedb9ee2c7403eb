// A plan flattened for a model: tokens, positions and the KV views of one slice of rows.
//
// The executor keeps what it knows of each sequence in SequenceState; a slice refers to the states' tables, so it is
// valid until they change. Storage is reused from step to step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/step_plan.h"
#include "model/model.h"
#include "runtime/kv_storage.h"
#include "sampling/sampler.h"

namespace tidemill {

// One sequence's blocks in one layer group.
struct SequenceTable {
  int32_t first_block = 0;
  std::vector<BlockPlace> places;
};

// All that the executor knows of a running sequence.
struct SequenceState {
  bool live = false;
  KvFormatId kv_format = 0;
  TokenHistory history;
  SamplingParams sampling;
  std::vector<SequenceTable> tables;  // by layer group
};

// Rows [first_row, first_row + num_rows) of a planned sequence.
struct RowRange {
  size_t sequence = 0;  // index into the plan's sequences
  int32_t first_position = 0;
  int32_t num_rows = 0;
};

class StepSlice {
 public:
  explicit StepSlice(const KvStorage& storage);

  void clear();
  void add(const SequenceState& state, const RowRange& range);
  int32_t num_rows() const { return static_cast<int32_t>(tokens_.size()); }
  std::span<const RowRange> ranges() const { return ranges_; }
  // Valid until the next clear() or add().
  StepInputs inputs();

 private:
  const KvStorage& storage_;
  std::vector<TokenId> tokens_;
  std::vector<int32_t> positions_;
  std::vector<RowRange> ranges_;
  std::vector<std::vector<KvSegment>> segments_;  // by layer group
  std::vector<KvGroupView> groups_;
};

}  // namespace tidemill
