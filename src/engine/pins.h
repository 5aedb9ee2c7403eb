// Prefixes that somebody wants kept: references to their blocks, for a time.
//
// A pin is named by the hash of its last block, so pinning the same prefix again only prolongs it. Pins together may
// hold a bounded number of bytes (each counts all of its blocks, also those that another one shares). They give way
// only to a request that could not run at all otherwise. Prefixes whose blocks are still to be computed may have room
// promised, once for all who want the same one pinned. Engine thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "kv/block_hash.h"
#include "kv/block_table.h"

namespace tidemill {

class Pins {
 public:
  struct Pin {
    BlockHash last;
    std::vector<BlockTable> tables;  // [num_groups]
    size_t bytes = 0;
    Clock::Time until{};
  };

  bool empty() const { return pins_.empty(); }
  int32_t size() const { return static_cast<int32_t>(pins_.size()); }
  size_t bytes() const { return bytes_; }
  const std::vector<Pin>& all() const { return pins_; }

  // Whether there is a pin of this prefix, which now lasts until then at least.
  bool prolong(const BlockHash& last, Clock::Time until);
  void add(Pin pin);
  // Whether a pin of so many bytes has room within `limit`, beside all others and what was promised to others.
  bool has_room(const BlockHash& last, size_t bytes, size_t limit) const;
  // Every promise is withdrawn once.
  void promise(const BlockHash& last, size_t bytes) { promises_.push_back({last, bytes}); }
  void withdraw(const BlockHash& last);
  bool remove(const BlockHash& last);
  void expire(Clock::Time now);
  // Gives up the pin that would end first; there is one.
  void give_up_one();
  // Gives pins up until they hold at most so much.
  void limit(size_t bytes);

 private:
  struct Promise {
    BlockHash last;
    size_t bytes;
  };
  void erase(size_t index);
  std::vector<Pin> pins_;
  std::vector<Promise> promises_;
  size_t bytes_ = 0;
};

}  // namespace tidemill
