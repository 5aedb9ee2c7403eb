#include "engine/pins.h"

#include <algorithm>

#include "base/check.h"

namespace tidemill {

bool Pins::prolong(const BlockHash& last, Clock::Time until) {
  const auto found = std::ranges::find(pins_, last, &Pin::last);
  if (found == pins_.end()) return false;
  found->until = std::max(found->until, until);
  return true;
}

void Pins::add(Pin pin) {
  bytes_ += pin.bytes;
  pins_.push_back(std::move(pin));
}

bool Pins::has_room(const BlockHash& last, size_t bytes, size_t limit) const {
  size_t held = bytes_ + bytes;
  for (size_t i = 0; i < promises_.size(); ++i) {
    const auto before = promises_.begin() + static_cast<std::ptrdiff_t>(i);
    const bool counted = std::ranges::find(promises_.begin(), before, before->last, &Promise::last) != before;
    if (!counted && before->last != last) held += before->bytes;
  }
  return held <= limit;
}

void Pins::withdraw(const BlockHash& last) {
  const auto found = std::ranges::find(promises_, last, &Promise::last);
  TM_CHECK(found != promises_.end(), "what is withdrawn was promised");
  promises_.erase(found);
}

bool Pins::remove(const BlockHash& last) {
  const auto found = std::ranges::find(pins_, last, &Pin::last);
  if (found == pins_.end()) return false;
  erase(found - pins_.begin());
  return true;
}

void Pins::expire(Clock::Time now) {
  for (size_t i = pins_.size(); i-- > 0;) {
    if (now >= pins_[i].until) erase(i);
  }
}

void Pins::give_up_one() {
  TM_CHECK(!pins_.empty(), "a pin to give up");
  erase(std::ranges::min_element(pins_, {}, &Pin::until) - pins_.begin());
}

void Pins::limit(size_t bytes) {
  while (bytes_ > bytes) give_up_one();
}

void Pins::erase(size_t index) {
  bytes_ -= pins_[index].bytes;
  pins_.erase(pins_.begin() + static_cast<std::ptrdiff_t>(index));
}

}  // namespace tidemill
