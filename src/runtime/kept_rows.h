// Logits of the rows that a plan asked to keep, for rows of later plans to be compared with.
//
// Shared by the executors of one model that run one text with several caches. A new run of kept rows replaces the one
// before. Filled by the executor's threads, each its own row; otherwise the engine thread only. Owns
// [num_rows, width] floats, which stay from run to run.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"

namespace tidemill {

class KeptRows {
 public:
  void start(int32_t first_position, int32_t num_rows, int32_t width) {
    first_position_ = first_position;
    num_rows_ = num_rows;
    width_ = static_cast<size_t>(width);
    const size_t needed = static_cast<size_t>(num_rows) * width_;
    if (logits_.size() < needed) logits_.resize(needed);
  }
  std::span<float> row(int32_t position) {
    TM_CHECK(position >= first_position_ && position < first_position_ + num_rows_, "a compared row was kept");
    return std::span(logits_).subspan(static_cast<size_t>(position - first_position_) * width_, width_);
  }

 private:
  int32_t first_position_ = 0, num_rows_ = 0;
  size_t width_ = 0;
  std::vector<float> logits_;
};

}  // namespace tidemill
