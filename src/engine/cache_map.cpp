#include "engine/cache_map.h"

#include <utility>

namespace tidemill {

std::optional<CacheChanges> CacheFeed::take(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  filled_.wait_for(lock, limit, [this] { return any_ || interrupted_; });
  interrupted_ = false;
  if (!any_) return std::nullopt;
  any_ = false;
  return std::exchange(pending_, {});
}

void CacheFeed::interrupt() {
  std::lock_guard lock(mutex_);
  interrupted_ = true;
  filled_.notify_one();
}

void CacheFeed::add(const CacheChanges& changes) {
  std::lock_guard lock(mutex_);
  if (pending_.blocks.size() + changes.blocks.size() > most_blocks) {
    pending_.blocks.clear();
    pending_.lost = true;
  } else if (!pending_.lost) {
    pending_.blocks.insert(pending_.blocks.end(), changes.blocks.begin(), changes.blocks.end());
  }
  pending_.step = changes.step;
  pending_.now_ms = changes.now_ms;
  pending_.totals = changes.totals;
  any_ = true;
  filled_.notify_one();
}

}  // namespace tidemill
