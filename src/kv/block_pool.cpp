#include "kv/block_pool.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tidemill {
namespace {

constexpr uint32_t no_class = 256;

}  // namespace

BlockPool::BlockPool(size_t budget_bytes, const std::vector<size_t>& class_bytes, EvictionPolicy policy)
    : budget_bytes_(budget_bytes), largest_bytes_(budget_bytes), policy_(policy), queues_(num_eviction_queues(policy)) {
  for (uint32_t queue = 0; queue < queues_.size(); ++queue) weights_.push_back(eviction_weight(policy, queue));
  TM_CHECK(class_bytes.size() <= 256, "size classes are numbered in 8 bits");
  for (size_t bytes : class_bytes) {
    SizeClass size_class;
    size_class.slot_bytes = bytes;
    size_class.max_slots = bytes == 0 ? 0 : budget_bytes / bytes;
    classes_.push_back(std::move(size_class));
  }
}

BlockPool::Slot& BlockPool::slot(BlockPlace place) {
  return const_cast<Slot&>(std::as_const(*this).slot(place));
}

const BlockPool::Slot& BlockPool::slot(BlockPlace place) const {
  TM_CHECK(place.size_class < classes_.size() && place.slot < classes_[place.size_class].slots.size(),
           "a block lies in the pool");
  return classes_[place.size_class].slots[place.slot];
}

std::optional<BlockPlace> BlockPool::allocate(uint8_t size_class, std::vector<BlockPlace>& dropped) {
  TM_CHECK(size_class < classes_.size() && classes_[size_class].slot_bytes > 0, "a used size class");
  SizeClass& wanted = classes_[size_class];
  if (wanted.slot_bytes > available_bytes()) return std::nullopt;
  while (wanted.idle.empty() && !back_new_slot(wanted)) {
    if (!trim_idle(size_class, dropped)) TM_CHECK(evict_one(), "bytes that are not held can be had");
  }
  const uint32_t index = wanted.idle.back();
  wanted.idle.pop_back();
  Slot& taken = wanted.slots[index];
  TM_CHECK(taken.state == State::idle && taken.num_references == 0, "an idle slot has no references");
  enter(taken, State::held);
  taken.kept = false;
  taken.num_references = 1;
  idle_bytes_ -= wanted.slot_bytes;
  held_bytes_ += wanted.slot_bytes;
  ++wanted.num_held;
  ++num_held_;
  note_change({index, size_class});
  return BlockPlace{index, size_class};
}

bool BlockPool::allocate_at(BlockPlace place) {
  TM_CHECK(place.size_class < classes_.size(), "a size class exists");
  SizeClass& wanted = classes_[place.size_class];
  const bool fits = wanted.slot_bytes > 0 && place.slot < wanted.max_slots &&
                    held_bytes_ + cached_bytes_ + idle_bytes_ + wanted.slot_bytes <= budget_bytes_;
  if (!fits) return false;
  while (wanted.slots.size() <= place.slot) {
    wanted.unbacked.push_back(static_cast<uint32_t>(wanted.slots.size()));
    wanted.slots.emplace_back();
  }
  if (std::erase(wanted.unbacked, place.slot) == 0) return false;
  wanted.slots[place.slot].state = State::held;
  wanted.slots[place.slot].num_references = 1;
  held_bytes_ += wanted.slot_bytes;
  ++wanted.num_held;
  ++num_held_;
  return true;
}

// Pays for one more slot of the class from bytes that nothing occupies.
bool BlockPool::back_new_slot(SizeClass& size_class) {
  if (occupied_bytes() + size_class.slot_bytes > budget_bytes_) return false;
  uint32_t index;
  if (!size_class.unbacked.empty()) {
    index = size_class.unbacked.back();
    size_class.unbacked.pop_back();
  } else {
    TM_CHECK(size_class.slots.size() < size_class.max_slots, "slots of a class stay within the budget");
    index = static_cast<uint32_t>(size_class.slots.size());
    size_class.slots.emplace_back();
  }
  size_class.slots[index].state = State::idle;
  size_class.idle.push_back(index);
  idle_bytes_ += size_class.slot_bytes;
  return true;
}

bool BlockPool::trim_idle(uint32_t except_class, std::vector<BlockPlace>& dropped) {
  for (size_t c = 0; c < classes_.size(); ++c) {
    SizeClass& other = classes_[c];
    if (c == except_class || other.idle.empty()) continue;
    drop_idle(static_cast<uint8_t>(c), dropped);
    return true;
  }
  return false;
}

void BlockPool::drop_idle(uint8_t size_class, std::vector<BlockPlace>& dropped) {
  SizeClass& of = classes_[size_class];
  const uint32_t index = of.idle.back();
  of.idle.pop_back();
  enter(of.slots[index], State::unbacked);
  of.unbacked.push_back(index);
  idle_bytes_ -= of.slot_bytes;
  dropped.push_back({index, size_class});
  note_change(dropped.back());
}

void BlockPool::allow_budgets_up_to(size_t largest_bytes) {
  TM_CHECK(occupied_bytes() == 0 && largest_bytes >= budget_bytes_, "the largest budget is said at the start");
  largest_bytes_ = largest_bytes;
  for (SizeClass& each : classes_) each.max_slots = each.slot_bytes == 0 ? 0 : largest_bytes / each.slot_bytes;
}

void BlockPool::set_budget(size_t bytes) {
  TM_CHECK(bytes <= largest_bytes_, "a budget within the largest one");
  budget_bytes_ = bytes;
}

void BlockPool::shrink(size_t max_bytes, std::vector<BlockPlace>& dropped) {
  const size_t before = occupied_bytes();
  while (occupied_bytes() > budget_bytes_ && before - occupied_bytes() < max_bytes) {
    if (trim_idle(no_class, dropped)) continue;
    if (!evict_one()) return;
  }
}

ClassBytes BlockPool::bytes_of_class(uint8_t size_class) const {
  const SizeClass& of = classes_[size_class];
  return {.held = of.num_held * of.slot_bytes,
          .cached = of.num_cached * of.slot_bytes,
          .idle = of.idle.size() * of.slot_bytes};
}

BlockInfo BlockPool::info(BlockPlace place) const {
  const Slot& of = slot(place);
  return {.place = place, .state = of.state, .num_references = of.num_references, .since_ms = of.since_ms};
}

void BlockPool::list(std::vector<BlockInfo>& blocks) const {
  for (size_t c = 0; c < classes_.size(); ++c) {
    for (uint32_t index = 0; index < classes_[c].slots.size(); ++index) {
      const BlockPlace place{index, static_cast<uint8_t>(c)};
      if (slot(place).state != State::unbacked) blocks.push_back(info(place));
    }
  }
}

std::optional<BlockPlace> BlockPool::coldest() const {
  const EvictionQueue* chosen = nullptr;
  double greatest = 0;
  for (size_t queue = 0; queue < queues_.size(); ++queue) {
    if (queues_[queue].empty()) continue;
    const double age = static_cast<double>(tick_ - queues_[queue].oldest().tick + 1) * weights_[queue];
    if (age <= greatest) continue;
    greatest = age;
    chosen = &queues_[queue];
  }
  if (chosen == nullptr) return std::nullopt;
  return chosen->oldest().place;
}

bool BlockPool::evict_one() {
  const std::optional<BlockPlace> place = coldest();
  if (place) evict(*place);
  return place.has_value();
}

void BlockPool::evict(BlockPlace place) {
  TM_CHECK(slot(place).state == State::cached, "an evicted block is cached");
  ++num_evicted_;
  num_evicted_unused_ += slot(place).worth.num_hits == 0;
  if (on_eviction_) on_eviction_(place);
  mark_kept(place, false);
}

void BlockPool::share(BlockPlace place) {
  Slot& shared = slot(place);
  if (shared.state == State::cached) {
    unlink(place);
    SizeClass& of = classes_[place.size_class];
    enter(shared, State::held);
    cached_bytes_ -= of.slot_bytes;
    held_bytes_ += of.slot_bytes;
    --of.num_cached;
    ++of.num_held;
    --num_cached_;
    ++num_held_;
  }
  TM_CHECK(shared.state == State::held, "only held and cached blocks can be shared");
  ++shared.num_references;
  note_change(place);
}

void BlockPool::release(BlockPlace place) {
  Slot& released = slot(place);
  TM_CHECK(released.state == State::held && released.num_references > 0, "a released block was held");
  note_change(place);
  if (--released.num_references > 0) return;
  SizeClass& of = classes_[place.size_class];
  held_bytes_ -= of.slot_bytes;
  --of.num_held;
  --num_held_;
  if (released.kept) {
    enter(released, State::cached);
    cached_bytes_ += of.slot_bytes;
    ++of.num_cached;
    ++num_cached_;
    link(place);
  } else {
    enter(released, State::idle);
    idle_bytes_ += of.slot_bytes;
    of.idle.push_back(place.slot);
  }
}

void BlockPool::mark_kept(BlockPlace place, bool kept) {
  Slot& marked = slot(place);
  TM_CHECK(marked.state == State::held || (marked.state == State::cached && !kept), "a kept block is held or cached");
  if (kept && !marked.kept) marked.worth = {.importance = UINT8_MAX};
  marked.kept = kept;
  if (marked.state != State::cached) return;
  unlink(place);
  SizeClass& of = classes_[place.size_class];
  enter(marked, State::idle);
  note_change(place);
  cached_bytes_ -= of.slot_bytes;
  idle_bytes_ += of.slot_bytes;
  --of.num_cached;
  --num_cached_;
  of.idle.push_back(place.slot);
}

void BlockPool::note_use(BlockPlace place, uint8_t importance, int32_t chain_tokens, bool hit) {
  Slot& used = slot(place);
  TM_CHECK(used.state == State::held, "a used block is held");
  if (!used.kept) return;
  if (hit && used.worth.num_hits < UINT8_MAX) ++used.worth.num_hits;
  used.worth.importance = std::min(used.worth.importance, importance);
  used.worth.chain_tokens = std::max(used.worth.chain_tokens, chain_tokens);
}

void BlockPool::set_worth(BlockPlace place, const BlockWorth& worth) {
  Slot& known = slot(place);
  TM_CHECK(known.state == State::held && known.kept, "a worth belongs to a kept block");
  known.worth = worth;
  known.worth.entered_tick = 0;
}

void BlockPool::link(BlockPlace place) {
  Slot& linked = slot(place);
  ++tick_;
  if (linked.worth.entered_tick == 0) linked.worth.entered_tick = tick_;
  const EvictionRank rank = eviction_rank(policy_, linked.worth, tick_);
  linked.queue = rank.queue;
  queues_[rank.queue].insert({rank.tick, place},
                             [this](BlockPlace moved, uint32_t index) { slot(moved).index = index; });
}

void BlockPool::unlink(BlockPlace place) {
  const Slot& gone = slot(place);
  queues_[gone.queue].erase(gone.index, [this](BlockPlace moved, uint32_t index) { slot(moved).index = index; });
}

void BlockPool::check_integrity() const {
  size_t held_bytes = 0, cached_bytes = 0, idle_bytes = 0;
  int64_t num_held = 0, num_cached = 0;
  for (const SizeClass& size_class : classes_) {
    size_t num_idle = 0, num_unbacked = 0;
    const int64_t num_held_before = num_held, num_cached_before = num_cached;
    for (const Slot& each : size_class.slots) {
      TM_CHECK((each.num_references > 0) == (each.state == State::held), "exactly the held blocks have references");
      TM_CHECK(each.state != State::cached || each.kept, "a cached block is kept");
      num_held += each.state == State::held;
      num_cached += each.state == State::cached;
      num_idle += each.state == State::idle;
      num_unbacked += each.state == State::unbacked;
      held_bytes += each.state == State::held ? size_class.slot_bytes : 0;
      cached_bytes += each.state == State::cached ? size_class.slot_bytes : 0;
    }
    TM_CHECK(num_held - num_held_before == static_cast<int64_t>(size_class.num_held) &&
                 num_cached - num_cached_before == static_cast<int64_t>(size_class.num_cached),
             "block counts of a size class");
    TM_CHECK(num_idle == size_class.idle.size(), "every idle slot is listed once");
    TM_CHECK(num_unbacked == size_class.unbacked.size(), "every dropped slot is listed once");
    idle_bytes += num_idle * size_class.slot_bytes;
  }
  TM_CHECK(held_bytes == held_bytes_ && cached_bytes == cached_bytes_ && idle_bytes == idle_bytes_,
           "byte counts of the pool");
  TM_CHECK(num_held == num_held_ && num_cached == num_cached_, "block counts of the pool");
  TM_CHECK(held_bytes + cached_bytes + idle_bytes <= largest_bytes_, "the pool stays within its largest budget");
  size_t num_linked = 0;
  for (uint32_t queue = 0; queue < queues_.size(); ++queue) {
    for (size_t i = 0; i < queues_[queue].size(); ++i) {
      const EvictionQueue::Entry& entry = queues_[queue].entry(i);
      const Slot& linked = slot(entry.place);
      TM_CHECK(linked.state == State::cached && linked.queue == queue && linked.index == i,
               "the eviction order holds cached blocks");
      TM_CHECK(queues_[queue].entry((i + 1) / 2 - (i > 0)).tick <= entry.tick, "the eviction order is a heap");
    }
    num_linked += queues_[queue].size();
  }
  TM_CHECK(num_linked == static_cast<size_t>(num_cached_), "every cached block is in the eviction order");
}

}  // namespace tidemill
