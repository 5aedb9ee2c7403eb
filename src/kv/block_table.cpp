#include "kv/block_table.h"

#include <utility>

#include "base/check.h"

namespace tidemill {

BlockTable::BlockTable(BlockTable&& other) noexcept
    : pool_(other.pool_), first_block_(std::exchange(other.first_block_, 0)), places_(std::move(other.places_)) {
  other.places_.clear();
}

BlockTable& BlockTable::operator=(BlockTable&& other) noexcept {
  if (this == &other) return *this;
  clear();
  pool_ = other.pool_;
  first_block_ = std::exchange(other.first_block_, 0);
  places_ = std::exchange(other.places_, {});
  return *this;
}

BlockPlace BlockTable::place(int32_t block) const {
  TM_CHECK(block >= first_block_ && block < end_block(), "a block of the table");
  return places_[block - first_block_];
}

void BlockTable::replace(int32_t block, BlockPlace place) {
  TM_CHECK(block >= first_block_ && block < end_block(), "a block of the table");
  pool_->release(std::exchange(places_[block - first_block_], place));
}

void BlockTable::drop_leading(int32_t new_first) {
  TM_CHECK(new_first <= end_block(), "leading blocks of the table");
  if (new_first <= first_block_) return;
  const int32_t num_dropped = new_first - first_block_;
  for (int32_t i = num_dropped - 1; i >= 0; --i) pool_->release(places_[i]);
  places_.erase(places_.begin(), places_.begin() + num_dropped);
  first_block_ = new_first;
}

BlockTable BlockTable::share(int32_t end_block) const {
  BlockTable shared(*pool_, first_block_);
  for (int32_t block = first_block_; block < end_block; ++block) {
    pool_->share(place(block));
    shared.append(place(block));
  }
  return shared;
}

void BlockTable::clear() {
  while (!places_.empty()) {
    pool_->release(places_.back());
    places_.pop_back();
  }
  first_block_ = 0;
}

}  // namespace tidemill
