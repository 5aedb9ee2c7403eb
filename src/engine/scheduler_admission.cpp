// The part of the scheduler that lets sequences in: who may be next, whether its blocks fit, and the choices of a
// request that part from its computed prompt.
#include <algorithm>
#include <limits>

#include "base/check.h"
#include "engine/scheduler.h"

namespace tidemill {
namespace {

constexpr int32_t most_candidates = 16;  // waiting sequences that a step may let in
constexpr int32_t most_followers = 64;   // that it looks at, with those that wait for another's blocks

}  // namespace

int32_t Scheduler::num_open_slots() const {
  if (blocked_on_kv_ || (config_.batching == BatchingMode::fixed && !running_.empty())) return 0;
  return std::max(0, max_running_ - num_running());
}

bool Scheduler::tenant_may_run(const LiveRequest& request) const {
  return config_.max_running_per_tenant == 0 || request.num_running_choices > 0 ||
         tenants_.num_running(request.request.tenant) < config_.max_running_per_tenant;
}

// The first of the queue in order of service, of those that may run now.
void Scheduler::find_next_waiting(int32_t most) {
  next_waiting_.clear();
  for (Sequence* sequence : waiting_) {
    if (config_.batching == BatchingMode::fixed && !sequence->request->in_batch) continue;
    if (tenant_may_run(*sequence->request)) next_waiting_.push_back(sequence);
  }
  const auto middle = next_waiting_.begin() + std::min<ptrdiff_t>(most, std::ssize(next_waiting_));
  std::partial_sort(next_waiting_.begin(), middle, next_waiting_.end(),
                    [this](auto* a, auto* b) { return before(a, b); });
  next_waiting_.erase(middle, next_waiting_.end());
}

// Appends waiting sequences as long as the blocks of all of them would fit, so that none overtakes another by being
// small where blocks are scarce.
void Scheduler::gather_waiting() {
  const int32_t num_slots = std::min<int32_t>(max_running_ - num_running(), std::ssize(free_slots_));
  if (num_slots <= 0 || waiting_.empty()) return;
  const size_t available = kv_.pool().available_bytes();
  size_t claimed = outstanding_bytes(nullptr);
  bool is_first = true;
  find_next_waiting(std::min(num_slots, most_followers));
  int32_t num_candidates = 0;
  for (Sequence* sequence : next_waiting_) {
    const int32_t num_hit = kv_.match_prefix(*sequence);
    if (const Sequence* leader = find_leader(*sequence, num_hit)) {
      // Its slot and the blocks that are its own stay free for it.
      const int64_t num_common = KvAllocator::num_common_blocks(*sequence, *leader);
      const size_t common =
          kv_.bytes_for_tokens(num_common * config_.block_size_tokens, sequence->request->request.kv_format);
      const size_t whole = admission_bytes(*sequence);
      claimed += whole > common ? whole - common : 0;
      sequence->request->waited_for_prefix = true;
      continue;
    }
    const bool loading = !kv_.loads_ended(*sequence) || kv_.load_prefix(*sequence, num_hit, spare_bytes(), moves_);
    if (loading && !sequence->disk_wait_since) sequence->disk_wait_since = now_;
    if (loading) {  // it comes in when its blocks have; what it needs stays free for it
      claimed += admission_bytes(*sequence);
      is_first = false;
      continue;
    }
    if (++num_candidates > most_candidates) return;
    claimed += admission_bytes(*sequence) - kv_.shared_bytes(*sequence, num_hit);
    const bool alone = running_.empty() && is_first && !kv_.waits_for_disk();
    if (alone && claimed > available && free_pins_for(claimed)) return;  // the next step finds the room
    if (claimed + (alone ? 0 : headroom_bytes()) > available) {
      blocked_on_kv_ = is_first;
      if (alone) overfull_.push_back(sequence);
      return;
    }
    const int32_t num_computed = num_hit * config_.block_size_tokens;
    prompts_.push_back(
        {.sequence = sequence, .first_position = num_computed, .num_remaining = sequence->num_tokens() - num_computed});
    is_first = false;
  }
}

LatencyClass Scheduler::served_class(const Sequence& sequence) const {
  return std::min(sequence.request->request.latency_class, sequence.inherited_class);
}

// Who computes the block that follows a hit: a running sequence, or a waiting one that this step lets in.
Sequence* Scheduler::find_leader(const Sequence& follower, int32_t num_hit) const {
  if (num_hit >= kv_.most_hit_blocks(follower)) return nullptr;
  for (Sequence* sequence : running_) {
    if (kv_.will_compute_next(*sequence, follower, num_hit)) return sequence;
  }
  for (const PromptDemand& demand : prompts_) {
    if (demand.sequence->status != SequenceStatus::waiting) continue;
    if (kv_.will_compute_next(*demand.sequence, follower, num_hit)) return demand.sequence;
  }
  return nullptr;
}

// Before anything else in a step: who waits for whom, and what that makes of those who compute.
void Scheduler::find_leaders() {
  bool any_leader = false;
  for (Sequence* sequence : running_) {
    sequence->inherited_class = LatencyClass::bulk;
    sequence->inherited_priority = std::numeric_limits<int32_t>::max();
    any_leader |= sequence->num_entered_blocks < static_cast<int32_t>(sequence->hashes.size());
  }
  for (Sequence* sequence : waiting_) sequence->leader = nullptr;
  if (!any_leader || waiting_.empty()) return;
  prompts_.clear();
  find_next_waiting(most_followers);
  for (Sequence* follower : next_waiting_) {
    Sequence* leader = find_leader(*follower, kv_.match_prefix(*follower));
    follower->leader = leader;
    if (leader == nullptr) continue;
    leader->inherited_class = std::min(leader->inherited_class, follower->request->request.latency_class);
    leader->inherited_priority = std::min(leader->inherited_priority, follower->request->request.priority);
  }
}

bool Scheduler::fits_at_once(Sequence& sequence) const {
  if (num_running() >= max_running_ || free_slots_.empty()) return false;
  const size_t needed = admission_bytes(sequence) - kv_.shared_bytes(sequence, kv_.match_prefix(sequence));
  return outstanding_bytes(nullptr) + needed + headroom_bytes() <= kv_.pool().available_bytes();
}

// The next of the queue, where it is not bulk itself, takes the place of bulk sequences rather than wait for their end.
void Scheduler::make_way() {
  if (config_.batching != BatchingMode::continuous || waiting_.empty()) return;
  const auto is_bulk = [](const Sequence* sequence) {
    return sequence->request->request.latency_class == LatencyClass::bulk;
  };
  if (std::ranges::none_of(running_, is_bulk)) return;
  find_next_waiting(most_followers);
  const auto first = std::ranges::find(next_waiting_, nullptr, &Sequence::leader);
  if (first == next_waiting_.end() || is_bulk(*first)) return;
  Sequence& next = **first;
  while (!fits_at_once(next)) {
    Sequence* victim = pick_victim(LatencyClass::bulk);
    if (victim == nullptr) return;
    preempt(*victim);
  }
}

// One block for each running sequence, so that who comes in does not put another out at once.
size_t Scheduler::headroom_bytes() const {
  size_t bytes = 0;
  for (const Sequence* sequence : running_) bytes += kv_.formats().block_bytes(sequence->request->request.kv_format);
  return std::min(bytes, kv_.pool().budget_bytes() / 8);
}

size_t Scheduler::admission_bytes(const Sequence& sequence) const {
  const KvFormatId format = sequence.request->request.kv_format;
  const bool full = config_.kv_reserve == KvReserve::full;
  return kv_.bytes_for_tokens(full ? kv_.capacity_tokens(format) : sequence.num_tokens(), format);
}

// What tiers may use of the pool for a while without being in anybody's way.
size_t Scheduler::spare_bytes() const {
  const size_t taken = outstanding_bytes(nullptr) + 2 * headroom_bytes();
  const size_t available = kv_.pool().available_bytes();
  return available > taken ? available - taken : 0;
}

bool Scheduler::has_disk_work() const {
  return kv_.disk() != nullptr && (kv_.disk()->in_flight() || kv_.disk()->has_offers());
}

bool Scheduler::admit(Sequence& sequence) {
  if (num_running() >= max_running_ || free_slots_.empty() || !tenant_may_run(*sequence.request)) return false;
  if (!kv_.loads_ended(sequence)) return false;
  const int32_t num_hit = kv_.match_prefix(sequence);
  const size_t needed = admission_bytes(sequence) - kv_.shared_bytes(sequence, num_hit);
  if (needed + outstanding_bytes(nullptr) > kv_.pool().available_bytes()) return false;
  LiveRequest& request = *sequence.request;
  const int32_t num_fetched = kv_.adopt_prefix(sequence, num_hit, moves_) * config_.block_size_tokens;
  request.num_fetched_tokens += num_fetched;
  request.num_reencoded_tokens =
      std::max(request.num_reencoded_tokens, sequence.num_reencoded_blocks * config_.block_size_tokens);
  counters_.tokens_fetched += num_fetched;
  start_running(sequence);
  sequence.num_ever_computed = std::max(sequence.num_ever_computed, sequence.num_computed);
  if (request.queued) {
    request.queued = false;
    request.num_cached_tokens = sequence.num_computed;
    newly_admitted_.push_back(&request);
    promise_pin(sequence);
    counters_.prompt_tokens += request.num_prompt_tokens;
    counters_.prompt_tokens_cached += sequence.num_computed;
    if (config_.prefix_caching && config_.kv_cache) {
      counters_.prefix_cache_queries += request.num_prompt_tokens;
      counters_.prefix_cache_hits += sequence.num_computed;
      ++counters_.prefix_requests;
      counters_.prefix_request_hits += sequence.num_computed > 0;
      counters_.prefix_waits += request.waited_for_prefix;
    }
  }
  return true;
}

// The other choices of a request, now that all of its prompt but the last token is computed. A choice that finds a slot
// and the bytes shares the blocks; another waits in front of the queue and finds them in the prefix cache later.
void Scheduler::fork_choices(Sequence& parent) {
  LiveRequest& request = *parent.request;
  while (request.choices_unborn()) {
    auto child = std::make_unique<Sequence>();
    child->request = &request;
    child->choice = static_cast<int32_t>(request.choices.size());
    child->tokens = parent.tokens;
    child->hashes = parent.hashes;
    child->sampling = parent.sampling;
    child->sampling.seed = parent.sampling.seed + static_cast<uint64_t>(child->choice);
    child->num_prompt_tokens = parent.num_prompt_tokens;
    child->max_output_tokens = parent.max_output_tokens;
    child->admitted_before = true;
    Sequence& born = *child;
    request.choices.push_back(std::move(child));
    enqueue(born);

    if (!config_.kv_cache || num_running() >= max_running_ || free_slots_.empty()) continue;
    const size_t shared = kv_.held_bytes(parent);
    const size_t promise = admission_bytes(born);
    const size_t needed =
        std::max(kv_.bytes_to_fork(parent), promise > shared ? promise - shared : 0) + headroom_bytes();
    if (needed + outstanding_bytes(nullptr) > kv_.pool().available_bytes()) continue;
    TM_CHECK(kv_.fork(parent, born, moves_), "bytes that are available can be reserved");
    start_running(born);
  }
}

// BatchingMode::fixed: the next batch, once nothing is left of the last.
void Scheduler::form_batch() {
  const auto in_batch = [](const Sequence* sequence) { return sequence->request->in_batch; };
  if (!running_.empty() || std::ranges::any_of(waiting_, in_batch)) return;
  std::vector<Sequence*> order = waiting_;
  std::ranges::stable_sort(order, [this](const auto* a, const auto* b) { return before(a, b); });
  size_t claimed = 0;
  int32_t num_sequences = 0;
  for (Sequence* sequence : order) {
    claimed += admission_bytes(*sequence);
    const bool fits = claimed <= kv_.pool().budget_bytes() && num_sequences < max_running_;
    if (!fits && num_sequences > 0) break;
    sequence->request->in_batch = true;
    num_sequences += sequence->request->request.num_choices;
  }
}

}  // namespace tidemill
