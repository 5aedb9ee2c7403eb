// The part of the scheduler that keeps the cache itself: a budget that moves, pinned prefixes, and what watchers see.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/scheduler.h"

namespace tidemill {
namespace {

// What a step gives back beside its work: a few milliseconds of the system's time.
constexpr size_t bytes_given_back_per_step = size_t{64} << 20;

constexpr CacheTier all_tiers[] = {CacheTier::memory, CacheTier::host, CacheTier::disk};

TierBytes bytes_of(const LowerTier* tier) {
  if (tier == nullptr) return {};
  const BlockPool& pool = tier->pool();
  return {.budget = pool.budget_bytes(),
          .held = pool.held_bytes(),
          .cached = pool.cached_bytes(),
          .idle = pool.occupied_bytes() - pool.held_bytes() - pool.cached_bytes()};
}

}  // namespace

void Scheduler::resize(size_t budget_bytes) {
  wanted_budget_ = std::min(budget_bytes, kv_.pool().largest_budget_bytes());
  ++resize_epoch_;
  follow_wanted_budget();
}

// Requests that came before the change keep the room that the longest of them may need, so that none is cut short.
void Scheduler::follow_wanted_budget() {
  size_t needed = 0;
  const auto count = [&](const std::vector<Sequence*>& sequences) {
    for (const Sequence* sequence : sequences) {
      if (sequence->request->resize_epoch == resize_epoch_) continue;
      const int64_t longest = int64_t{sequence->num_prompt_tokens} + sequence->max_output_tokens;
      needed = std::max(needed, kv_.bytes_for_tokens(longest, sequence->request->request.kv_format));
    }
  };
  count(running_);
  count(waiting_);
  const size_t kept = std::min(needed, kv_.pool().budget_bytes());
  kv_.set_budget(std::max(wanted_budget_, kept), wanted_budget_);
  pins_.limit(pin_limit_bytes());
}

size_t Scheduler::pin_limit_bytes() const {
  return static_cast<size_t>(config_.kv_pin_share * static_cast<double>(kv_.pool().budget_bytes()));
}

bool Scheduler::has_housework() const {
  return kv_.pool().can_shrink() || kv_.pool().budget_bytes() != wanted_budget_ || !moves_.empty();
}

// Before a step is made.
void Scheduler::keep_house() {
  if (!started_at_) started_at_ = now_;
  const auto since_start = std::chrono::duration_cast<std::chrono::milliseconds>(now_ - *started_at_);
  const auto ms = static_cast<uint32_t>(since_start.count());
  kv_.pool().set_time(ms);
  for (const CacheTier tier : {CacheTier::host, CacheTier::disk}) {
    if (LowerTier* lower = kv_.lower(tier)) lower->set_time(ms);
  }
  if (!pins_.empty()) pins_.expire(now_);
  if (kv_.pool().budget_bytes() != wanted_budget_) follow_wanted_budget();
  if (!kv_.pool().can_shrink()) return;
  const bool idle = running_.empty() && waiting_.empty();
  kv_.shrink(idle ? kv_.pool().occupied_bytes() : bytes_given_back_per_step, moves_);
}

// The budget was lowered under what is held and promised: nobody is spared for having made no progress.
bool Scheduler::is_squeezed() const {
  return kv_.pool().held_bytes() + outstanding_bytes(nullptr) > kv_.pool().budget_bytes();
}

// Pins give way to a request that has everything else to itself.
bool Scheduler::free_pins_for(size_t needed_bytes) {
  while (!pins_.empty() && kv_.pool().available_bytes() < needed_bytes) pins_.give_up_one();
  return kv_.pool().available_bytes() >= needed_bytes;
}

// When a request comes in: its pin has room from then on, or never, so that one which insists on it ends before its
// first token.
void Scheduler::promise_pin(Sequence& sequence) {
  LiveRequest& request = *sequence.request;
  if (!request.request.pin_for || request.request.pin_for->count() <= 0) return;
  const size_t bytes = kv_.pin_bytes(sequence);
  const BlockHash name = bytes > 0 ? kv_.pin_name(sequence) : BlockHash{};
  if (bytes > 0 && pins_.prolong(name, now_ + *request.request.pin_for)) {
    request.num_pinned_tokens = sequence.num_prompt_tokens / config_.block_size_tokens * config_.block_size_tokens;
  } else if (bytes == 0 || !pins_.has_room(name, bytes, pin_limit_bytes())) {
    request.num_pinned_tokens = 0;
  } else {
    request.promised_pin = name;
    pins_.promise(name, bytes);
  }
}

void Scheduler::give_up_promise(LiveRequest& request) {
  if (request.promised_pin) pins_.withdraw(*std::exchange(request.promised_pin, std::nullopt));
}

// When the blocks of its prompt are there, or at its end with what is there.
void Scheduler::pin_prompt(Sequence& sequence, bool at_end) {
  LiveRequest& request = *sequence.request;
  if (!request.request.pin_for || request.num_pinned_tokens >= 0 || sequence.choice != 0) return;
  const int32_t num_wanted = sequence.num_prompt_tokens / config_.block_size_tokens;
  if (!at_end && sequence.num_entered_blocks < num_wanted) return;
  request.num_pinned_tokens = 0;
  give_up_promise(request);
  Pins::Pin pin = kv_.make_pin(sequence);
  if (pin.tables.empty()) return;
  const int32_t num_blocks = std::min(num_wanted, sequence.num_entered_blocks);
  if (request.request.pin_for->count() <= 0) {
    pins_.remove(pin.last);
    return;
  }
  pin.until = now_ + *request.request.pin_for;
  if (!pins_.prolong(pin.last, pin.until)) {
    if (!pins_.has_room(pin.last, pin.bytes, pin_limit_bytes())) return;  // the pool was made smaller
    pins_.add(std::move(pin));
  }
  request.num_pinned_tokens = num_blocks * config_.block_size_tokens;
}

// --- For watchers.

CacheTotals Scheduler::cache_totals() const {
  const BlockPool& pool = kv_.pool();
  CacheTotals totals{.budget_bytes = pool.budget_bytes(),
                     .wanted_bytes = wanted_budget_,
                     .held_bytes = pool.held_bytes(),
                     .cached_bytes = pool.cached_bytes(),
                     .idle_bytes = pool.occupied_bytes() - pool.held_bytes() - pool.cached_bytes(),
                     .pinned_bytes = pins_.bytes(),
                     .num_pins = pins_.size(),
                     .formats = {},
                     .host = bytes_of(kv_.lower(CacheTier::host)),
                     .disk = bytes_of(kv_.lower(CacheTier::disk))};
  for (size_t size_class = 0; size_class < kv_.formats().num_classes(); ++size_class) {
    const auto id = static_cast<uint8_t>(size_class);
    const ClassBytes bytes = pool.bytes_of_class(id);
    FormatBytes& format = totals.formats[kv_.formats().format_of(id)];
    format.held += bytes.held;
    format.cached += bytes.cached;
    format.idle += bytes.idle;
  }
  return totals;
}

// Who holds what is not in the prefix cache, and what is pinned.
Scheduler::Holders Scheduler::holders() const {
  Holders found;
  const auto note = [&found](const std::vector<BlockTable>& tables, uint32_t owner, bool pinned) {
    for (const BlockTable& table : tables) {
      for (BlockPlace place : table.places()) {
        auto& each = found[(uint64_t{place.size_class} << 32) | place.slot];
        each = {std::max(each.first, owner), each.second || pinned};
      }
    }
  };
  for (const Sequence* sequence : running_) note(sequence->tables, sequence->request->owner, false);
  for (const Pins::Pin& pin : pins_.all()) note(pin.tables, 0, true);
  return found;
}

CacheBlock Scheduler::describe(CacheTier tier, BlockPlace place, const Holders& holders) const {
  CacheBlock block = kv_.describe(tier, place);
  if (tier != CacheTier::memory) return block;
  const auto found = holders.find((uint64_t{place.size_class} << 32) | place.slot);
  if (found == holders.end()) return block;
  if (block.owner == 0) block.owner = found->second.first;
  block.pinned = found->second.second;
  return block;
}

CacheMap Scheduler::cache_map() const {
  CacheMap map{.step = step_, .now_ms = kv_.pool().time_ms(), .totals = cache_totals(), .blocks = {}};
  const Holders known = holders();
  std::vector<BlockInfo> infos;
  for (const CacheTier tier : all_tiers) {
    const LowerTier* lower = kv_.lower(tier);
    if (tier != CacheTier::memory && lower == nullptr) continue;
    infos.clear();
    (lower == nullptr ? kv_.pool() : lower->pool()).list(infos);
    for (const BlockInfo& info : infos) map.blocks.push_back(describe(tier, info.place, known));
  }
  return map;
}

void Scheduler::record_changes(bool on) {
  for (const CacheTier tier : all_tiers) {
    std::vector<BlockPlace>& changed = changed_[static_cast<size_t>(tier)];
    changed.clear();
    if (LowerTier* lower = kv_.lower(tier)) lower->record_changes(on ? &changed : nullptr);
    if (tier == CacheTier::memory) kv_.pool().record_changes(on ? &changed : nullptr);
  }
}

void Scheduler::take_changes(CacheChanges& changes) {
  changes.step = step_;
  changes.now_ms = kv_.pool().time_ms();
  changes.totals = cache_totals();
  changes.blocks.clear();
  if (std::ranges::all_of(changed_, &std::vector<BlockPlace>::empty)) return;
  const auto key = [](BlockPlace place) { return (uint64_t{place.size_class} << 32) | place.slot; };
  const Holders known = holders();
  for (const CacheTier tier : all_tiers) {
    std::vector<BlockPlace>& changed = changed_[static_cast<size_t>(tier)];
    std::ranges::sort(changed, {}, key);
    const auto repeated = std::ranges::unique(changed);
    changed.erase(repeated.begin(), repeated.end());
    for (BlockPlace place : changed) changes.blocks.push_back(describe(tier, place, known));
    changed.clear();
  }
}

}  // namespace tidemill
