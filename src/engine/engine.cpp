#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <random>
#include <thread>

#include "base/check.h"
#include "base/split_mix.h"
#include "engine/audit_turns.h"
#include "engine/inbox.h"
#include "engine/request_book.h"
#include "engine/scheduler.h"

namespace tidemill {
namespace {

constexpr double rate_memory_s = 30;  // how long past steps weigh in the measured rates
constexpr std::chrono::seconds self_check_every{1};
// Far enough to be never; keeps the sum of two times in range.
constexpr std::chrono::milliseconds longest_span{int64_t{1} << 40};

uint64_t seed_or_entropy(uint64_t seed) {
  if (seed != 0) return split_mix(seed);
  std::random_device entropy;
  return (uint64_t{entropy()} << 32) | entropy();
}

// Work per second of busy time, recent steps weighing most.
class RateMeter {
 public:
  void add(double step_s, double num_rows, double num_requests) {
    const double kept = std::exp(-step_s / rate_memory_s);
    seconds_ = seconds_ * kept + step_s;
    rows_ = rows_ * kept + num_rows;
    requests_ = requests_ * kept + num_requests;
  }
  EngineRates rates() const {
    if (seconds_ <= 0) return {};
    return {.requests_per_s = requests_ / seconds_, .rows_per_s = rows_ / seconds_};
  }

 private:
  double seconds_ = 0, rows_ = 0, requests_ = 0;
};

int64_t ticks(Clock::Time time) {
  return time.time_since_epoch().count();
}

std::chrono::milliseconds bounded(std::chrono::milliseconds span) {
  return std::clamp(span, std::chrono::milliseconds(0), longest_span);
}

std::optional<Clock::Time> deadline(Clock::Time now, std::chrono::milliseconds limit,
                                    std::optional<std::chrono::milliseconds> wanted) {
  if (limit.count() <= 0 && !wanted) return std::nullopt;
  auto span = wanted.value_or(limit);
  if (limit.count() > 0) span = std::min(span, limit);
  return now + bounded(span);
}

}  // namespace

struct Engine::State {
  State(EngineConfig given, std::unique_ptr<Executor> runner, const Clock& time, EventListener& events,
        StepTrace* step_trace, std::unique_ptr<KvAuditor> meter_of_kv);

  std::optional<Refusal> check(const Request& request) const;
  std::unique_ptr<LiveRequest> make_live(Request request);
  bool pass();
  bool handle_messages(Clock::Time now);
  void end_what_is_over(Clock::Time now);
  void run_step(Clock::Time now);
  void run_moves();
  void publish_events();
  bool run_audit(int32_t num_rows, Clock::Time step_began);
  // Books the time since the last call, or since the pass began, under a phase.
  void end_phase(StepPhase phase);
  void refresh_gauges();
  void follow_watchers();
  void publish_changes();

  const EngineConfig config;
  std::unique_ptr<Executor> executor;
  const Clock& clock;
  EventListener& listener;
  StepTrace* const trace;
  const std::unique_ptr<KvAuditor> auditor;
  std::optional<AuditTurns> audit_turns;  // where there is an auditor
  const uint64_t seed_root;
  std::atomic<uint64_t> num_seeds{0};
  Inbox inbox;
  mutable std::mutex mutex;  // guards stats; held while a pass works on them, not during a step
  EngineStats stats;
  Scheduler scheduler;
  RequestBook book;
  RateMeter meter;
  StepPlan plan;  // of the step at hand
  std::vector<RequestEvent> spare;
  std::vector<DiskEnd> disk_ends;
  CacheFeed feed;
  CacheChanges changes;  // of the last step, for its memory
  bool recording = false;
  Clock::Time phase_began{};
  std::optional<Clock::Time> end_by;
  std::optional<Clock::Time> last_self_check;
  std::atomic<int64_t> pass_began{0};  // ticks of the clock; 0 = between passes
  std::atomic<bool> finished{false};
  std::thread thread;
};

Engine::State::State(EngineConfig given, std::unique_ptr<Executor> runner, const Clock& time, EventListener& events,
                     StepTrace* step_trace, std::unique_ptr<KvAuditor> meter_of_kv)
    : config(std::move(given)),
      executor(std::move(runner)),
      clock(time),
      listener(events),
      trace(step_trace),
      auditor(std::move(meter_of_kv)),
      seed_root(seed_or_entropy(config.seed)),
      inbox(config),
      stats(make_engine_stats(config.max_model_len_tokens)),
      scheduler(config),
      book(scheduler, inbox, stats, auditor.get()) {
  if (auditor != nullptr) {
    audit_turns.emplace(*auditor, clock);
    stats.audit = auditor->stats();
  }
  if (config.kv_disk_bytes > 0) scheduler.restore(executor->stored_blocks());
  refresh_gauges();
}

// --- Arrivals, on the caller's thread. Reads only what never changes.

std::optional<Refusal> Engine::State::check(const Request& request) const {
  using Kind = Refusal::Kind;
  const auto refuse = [](Kind kind, std::string message) { return Refusal{kind, std::move(message), {}}; };
  if (request.prompt.empty()) return refuse(Kind::invalid, "a prompt has at least one token");
  if (request.num_choices < 1 || request.num_choices > config.max_num_choices) {
    return refuse(Kind::invalid,
                  fmt::format("n is {} and must lie between 1 and {}", request.num_choices, config.max_num_choices));
  }
  if (request.max_tokens && *request.max_tokens < 0) {
    return refuse(Kind::invalid, fmt::format("max_tokens is {} and must not be negative", *request.max_tokens));
  }
  if (request.prompt_logprobs < -1) return refuse(Kind::invalid, "prompt_logprobs must not be negative");
  const int64_t num_tokens = static_cast<int64_t>(request.prompt.size());
  const bool draws = request.max_tokens != 0;
  if (num_tokens + draws > config.max_model_len_tokens) {
    return refuse(Kind::context_length_exceeded,
                  fmt::format("the prompt has {} tokens and the context length is {}{}", num_tokens,
                              config.max_model_len_tokens, draws ? ", of which one must be left" : ""));
  }
  if (request.kv_format >= scheduler.kv().formats().size() || request.kv_format == config.kv_reencode) {
    return refuse(Kind::invalid,
                  fmt::format("the KV cache has no format {} that requests may have", request.kv_format));
  }
  const int64_t capacity = scheduler.kv().capacity_tokens(request.kv_format);
  if (num_tokens > capacity) {
    const std::string format =
        request.kv_format == 0 ? "" : fmt::format(" in {}", config.extra_formats[request.kv_format - 1].sealed_name);
    return refuse(
        Kind::kv_capacity_exceeded,
        fmt::format("the prompt has {} tokens and the KV cache holds at most {}{}", num_tokens, capacity, format));
  }
  return std::nullopt;
}

std::unique_ptr<LiveRequest> Engine::State::make_live(Request request) {
  auto live = std::make_unique<LiveRequest>();
  live->arrival = clock.now();
  live->deadline = deadline(live->arrival, config.request_timeout, request.timeout);
  live->queue_deadline = deadline(live->arrival, config.queue_timeout, request.queue_timeout);
  live->num_prompt_tokens = static_cast<int32_t>(request.prompt.size());
  live->num_open_choices = request.num_choices;

  auto first = std::make_unique<Sequence>();
  first->request = live.get();
  first->num_prompt_tokens = live->num_prompt_tokens;
  const int64_t room = config.max_model_len_tokens - live->num_prompt_tokens;
  first->max_output_tokens = std::min(room, request.max_tokens.value_or(room));
  first->sampling = request.sampling;
  if (!request.has_seed) first->sampling.seed = split_mix(seed_root + num_seeds.fetch_add(1) * 0xD1342543DE82EF95u);
  if (first->sampling.end_token_ids.empty()) first->sampling.end_token_ids = config.vocabulary_end_ids;
  first->tokens = std::exchange(request.prompt, {});
  live->request = std::move(request);
  live->choices.push_back(std::move(first));
  return live;
}

// --- One pass of the loop: schedule, execute, apply.

bool Engine::State::pass() {
  const Clock::Time now = clock.now();
  pass_began = std::max<int64_t>(1, ticks(now));
  if (trace != nullptr) trace->begin_step();
  phase_began = now;
  bool busy = false, planned = false;
  {
    const TraceSpan span(trace, {.name = "schedule"});
    std::lock_guard lock(mutex);
    follow_watchers();
    busy = handle_messages(now);
    end_what_is_over(now);
    disk_ends.clear();
    executor->take_disk_ends(disk_ends);
    scheduler.end_disk_moves(disk_ends, now);
    if (!book.empty() || scheduler.has_disk_work() || scheduler.has_housework()) {
      busy = true;
      scheduler.schedule(now, plan);
      planned = !plan.sequences.empty() || !plan.moves.empty() || !plan.disk_moves.empty();
      for (const LiveRequest* request : scheduler.newly_admitted()) inbox.dequeue(*request);
      for (Sequence* sequence : scheduler.take_overfull()) book.end_overfull(*sequence, now);
    }
    inbox.publish(scheduler.num_open_slots(), meter.rates());
    if (busy) end_phase(StepPhase::schedule);
  }
  const int32_t num_rows = plan.num_rows();
  const auto num_sequences = static_cast<int32_t>(plan.sequences.size());
  if (planned && num_sequences > 0) run_step(now);
  if (planned && num_sequences == 0) run_moves();
  if (busy && num_sequences == 0 && scheduler.waits_for_disk()) executor->await_disk(std::chrono::milliseconds(2));
  publish_events();
  if (trace != nullptr && planned) trace->end_step(plan.step, num_rows, num_sequences);
  if (trace != nullptr && !planned) trace->drop_step();
  if (auditor != nullptr) busy |= run_audit(planned ? num_rows : 0, now);
  pass_began = 0;
  return busy;
}

bool Engine::State::handle_messages(Clock::Time now) {
  InboxMessages messages = inbox.drain();
  const bool any = !messages.empty();
  for (auto& request : messages.arrivals) book.open(std::move(request), now);
  for (const ChoiceFinish& finish : messages.finishes) book.finish_choice(finish, now);
  for (RequestId request : messages.cancels) book.cancel(request, now);
  if (messages.budget_bytes) scheduler.resize(*messages.budget_bytes);
  if (messages.end_by) {
    end_by = end_by ? std::min(*end_by, *messages.end_by) : *messages.end_by;
    book.end_queued(now);
  }
  return any;
}

void Engine::State::end_what_is_over(Clock::Time now) {
  book.expire(now);
  if (end_by && now >= *end_by) book.end_all(now);
}

void Engine::State::end_phase(StepPhase phase) {
  const Clock::Time now = clock.now();
  stats.phase_s[static_cast<size_t>(phase)] += std::chrono::duration<double>(now - phase_began).count();
  phase_began = now;
}

// A plan of movements alone.
void Engine::State::run_moves() {
  StepResult result = executor->execute(plan);
  std::lock_guard lock(mutex);
  for (size_t kind = 0; kind < num_move_kinds; ++kind) stats.ladder.moves[kind].add(result.moves[kind]);
  executor->recycle(std::move(result));
}

void Engine::State::run_step(Clock::Time now) {
  TraceSpan execution(trace, {.name = "execute"});
  StepResult result = executor->execute(plan);
  execution.end();
  const TraceSpan application(trace, {.name = "apply"});
  const Clock::Time end = clock.now();
  std::lock_guard lock(mutex);
  end_phase(StepPhase::execute);
  scheduler.note_moves(result);
  for (size_t kind = 0; kind < num_move_kinds; ++kind) stats.ladder.moves[kind].add(result.moves[kind]);
  if (plan.sequences.empty()) return executor->recycle(std::move(result));  // blocks were moved, that is all
  const double step_s = std::chrono::duration<double>(end - now).count();
  stats.step_limit_s = scheduler.limit_s() < endless_s ? scheduler.limit_s() : 0;
  if (step_s > 0) {
    stats.step_time.observe(step_s);
    stats.step_time_error.observe(std::abs(step_s - scheduler.step_moving_s() - scheduler.predicted_s()) / step_s);
  }
  scheduler.note_step_time(step_s);
  stats.step_cost_s = scheduler.cost().coefficients();
  const uint64_t finished_before = book.num_finished_requests();
  book.apply(plan, result, end);
  executor->recycle(std::move(result));
  meter.add(std::chrono::duration<double>(end - now).count(), plan.num_rows(),
            static_cast<double>(book.num_finished_requests() - finished_before));
  ++stats.num_steps;
  // Held by sequences, and unused of it, as the step leaves them.
  refresh_gauges();
  stats.kv_held_byte_steps += static_cast<double>(stats.kv_held_bytes);
  stats.kv_unused_byte_steps += static_cast<double>(stats.kv_unused_bytes);
  stats.iteration_tokens.observe(plan.num_rows());
  end_phase(StepPhase::apply);
}

// Between steps, when everybody's tokens are out.
bool Engine::State::run_audit(int32_t num_rows, Clock::Time step_began) {
  const bool computed = audit_turns->take(num_rows, step_began);
  const AuditStats& found = auditor->stats();
  if (!computed && found.num_left_out() == stats.audit.num_left_out()) return false;
  std::lock_guard lock(mutex);
  stats.audit = found;
  return computed;
}

// The gauges first, so that who has seen a request's last event sees its blocks gone.
void Engine::State::publish_events() {
  const TraceSpan span(trace, {.name = "publish"});
  std::vector<RequestEvent> events;
  {
    std::lock_guard lock(mutex);
    refresh_gauges();
    publish_changes();
    if (book.has_events()) events = book.take_events(std::exchange(spare, {}));
    const Clock::Time now = clock.now();
    if (book.empty() && !events.empty() && (!last_self_check || now - *last_self_check >= self_check_every)) {
      last_self_check = now;
      scheduler.check_integrity();
    }
  }
  if (!events.empty()) {
    listener.publish(std::move(events));
    std::lock_guard lock(mutex);
    end_phase(StepPhase::publish);
    spare = listener.spare_events();
  }
  if (end_by && book.empty()) finished = true;
}

void Engine::State::follow_watchers() {
  if (feed.watched() == recording) return;
  recording = !recording;
  scheduler.record_changes(recording);
}

void Engine::State::publish_changes() {
  if (!recording) return;
  const size_t budget_before = changes.totals.budget_bytes;
  scheduler.take_changes(changes);
  if (!changes.blocks.empty() || changes.totals.budget_bytes != budget_before) feed.add(changes);
}

void Engine::State::refresh_gauges() {
  const BlockPool& pool = scheduler.kv().pool();
  const size_t block_bytes = std::max<size_t>(1, scheduler.kv().formats().block_bytes(0));
  stats.num_requests_running = scheduler.num_running();
  stats.num_requests_waiting = scheduler.num_waiting();
  for (size_t i = 0; i < num_latency_classes; ++i) {
    stats.classes[i].num_running = scheduler.num_running(static_cast<LatencyClass>(i));
    stats.classes[i].num_waiting = scheduler.num_waiting(static_cast<LatencyClass>(i));
  }
  stats.kv_budget_bytes = pool.budget_bytes();
  stats.kv_bytes_per_token = static_cast<double>(block_bytes) / config.block_size_tokens;
  // A full reservation counts as held: nobody else can have it.
  const size_t reserved = config.kv_reserve == KvReserve::full ? scheduler.promised_bytes() : 0;
  stats.kv_held_bytes = pool.held_bytes() + reserved;
  stats.kv_cached_bytes = pool.cached_bytes();
  stats.kv_occupied_bytes = pool.occupied_bytes();
  const CacheTotals totals = scheduler.cache_totals();
  stats.kv_pinned_bytes = totals.pinned_bytes;
  stats.kv_formats = totals.formats;
  stats.kv_unused_bytes = scheduler.unused_bytes() + reserved;
  stats.num_blocks_total = static_cast<int64_t>(pool.budget_bytes() / block_bytes);
  stats.num_blocks_held = static_cast<int64_t>((stats.kv_held_bytes + block_bytes - 1) / block_bytes);
  stats.num_blocks_cached = static_cast<int64_t>(stats.kv_cached_bytes / block_bytes);
  const SchedulerCounters& counters = scheduler.counters();
  stats.num_preemptions = counters.num_preemptions;
  stats.prompt_tokens = counters.prompt_tokens;
  stats.prompt_tokens_cached = counters.prompt_tokens_cached;
  stats.prompt_tokens_recomputed = counters.tokens_recomputed;
  stats.prefix_cache_queries = counters.prefix_cache_queries;
  stats.prefix_cache_hits = counters.prefix_cache_hits;
  stats.prefix_requests = counters.prefix_requests;
  stats.prefix_request_hits = counters.prefix_request_hits;
  stats.prefix_waits = counters.prefix_waits;
  stats.prompt_tokens_computed = counters.prompt_tokens_computed;
  if (const LowerTier* host = scheduler.kv().host()) {
    stats.ladder.host_budget_bytes = host->pool().budget_bytes();
    stats.ladder.host_used_bytes = host->pool().cached_bytes();
  }
  if (const DiskPlanner* disk = scheduler.kv().disk()) {
    stats.ladder.disk_budget_bytes = disk->tier().pool().budget_bytes();
    stats.ladder.disk_used_bytes = disk->tier().pool().cached_bytes() + disk->tier().pool().held_bytes();
    stats.ladder.disk = disk->counters();
  }
  stats.ladder.num_blocks_dropped = scheduler.kv().num_dropped_blocks();
  stats.ladder.tokens_fetched = counters.tokens_fetched;
  stats.num_blocks_evicted = pool.num_evicted();
  stats.num_blocks_evicted_unused = pool.num_evicted_unused();
}

// --- The public face.

Engine::Engine(EngineConfig config, std::unique_ptr<Executor> executor, const Clock& clock, EventListener& listener,
               StepTrace* trace, std::unique_ptr<KvAuditor> auditor)
    : state_(std::make_unique<State>(std::move(config), std::move(executor), clock, listener, trace,
                                     std::move(auditor))) {}

Engine::~Engine() {
  shutdown(std::chrono::milliseconds(0));
  if (state_->thread.joinable()) {
    state_->inbox.stop();
    state_->thread.join();
  }
  while (!finished()) step_once();
}

void Engine::start() {
  TM_CHECK(!state_->thread.joinable(), "an engine is started once");
  state_->thread = std::thread([state = state_.get()] {
    while (!state->inbox.stopped()) {
      if (!state->pass()) state->inbox.wait();
    }
  });
}

bool Engine::step_once() {
  return state_->pass();
}

std::variant<RequestId, Refusal> Engine::submit(Request request) {
  if (std::optional<Refusal> refusal = state_->check(request)) {
    state_->inbox.count_refusal(refusal->kind);
    return *std::move(refusal);
  }
  return state_->inbox.submit(state_->make_live(std::move(request)));
}

void Engine::cancel(RequestId request) {
  state_->inbox.cancel(request);
}

void Engine::finish_choice(RequestId request, int32_t choice, int32_t num_tokens) {
  state_->inbox.finish({request, choice, num_tokens});
}

void Engine::shutdown(std::chrono::milliseconds limit) {
  state_->inbox.shutdown(state_->clock.now() + bounded(limit));
}

bool Engine::finished() const {
  return state_->finished;
}

std::optional<std::string> Engine::resize_cache(size_t budget_bytes) {
  const EngineConfig& config = state_->config;
  size_t least = 0;
  for (const BlockGroup& group : config.groups) least += group.tail_bytes + group.sealed_bytes;
  const size_t most = std::max(config.kv_budget_bytes, config.kv_largest_budget_bytes);
  if (budget_bytes < least || budget_bytes > most) {
    return fmt::format("a KV cache of {} bytes is not between {} and {}", budget_bytes, least, most);
  }
  state_->inbox.resize(budget_bytes);
  return std::nullopt;
}

CacheMap Engine::cache_map() const {
  std::lock_guard lock(state_->mutex);
  return state_->scheduler.cache_map();
}

const EngineConfig& Engine::config() const {
  return state_->config;
}

CacheFeed& Engine::cache_feed() {
  return state_->feed;
}

EngineStats Engine::stats() const {
  EngineStats copy;
  {
    std::lock_guard lock(state_->mutex);
    copy = state_->stats;
  }
  copy.num_queued_tokens = state_->inbox.num_queued_tokens();
  copy.refused = state_->inbox.refused();
  return copy;
}

bool Engine::stuck() const {
  const int64_t began = state_->pass_began;
  if (began == 0) return false;
  const Clock::Time since{Clock::Time::duration(began)};
  return state_->clock.now() - since > state_->config.watchdog;
}

void Engine::check_integrity() const {
  std::lock_guard lock(state_->mutex);
  state_->scheduler.check_integrity();
}

}  // namespace tidemill
