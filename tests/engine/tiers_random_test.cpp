// Random operations on everything that keeps account of KV blocks: pool, prefix cache, host tier, disk tier and pins,
// by way of KvAllocator, as the scheduler uses them. An independent model carries out every movement of bytes; after
// each operation it counts all blocks anew in every tier, and reads every row that a sequence may look at.
//
// TIDEMILL_RANDOM_OPERATIONS sets how many; the figure in docs/kv-sharing.md is of 10 million.
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <random>

#include "engine/kv_allocator.h"

namespace tidemill {
namespace {

constexpr int32_t block_size = 4;
constexpr int32_t chain_tokens = 30;
constexpr int32_t num_chains = 12;
constexpr int32_t window = 6;
constexpr size_t least_budget = 1200, largest_budget = 2400;
constexpr int32_t longest_chunk = 9;

int64_t num_operations() {
  const char* given = std::getenv("TIDEMILL_RANDOM_OPERATIONS");
  return given != nullptr ? std::atoll(given) : 150'000;
}

// A full group whose blocks are encoded when full, and a windowed one whose are not; a better format, in which none
// are.
EngineConfig config_of(EvictionPolicy policy) {
  EngineConfig config;
  config.groups = {{.tail_bytes = 100, .sealed_bytes = 40, .same_format = false, .window_tokens = 0},
                   {.tail_bytes = 70, .sealed_bytes = 70, .same_format = true, .window_tokens = window}};
  config.block_size_tokens = block_size;
  config.kv_budget_bytes = config.kv_largest_budget_bytes = largest_budget;
  config.max_model_len_tokens = chain_tokens;
  config.max_num_batched_tokens = longest_chunk;
  config.kv_host_bytes = 500;
  config.kv_disk_bytes = 3200;
  config.kv_disk_class_bytes = {0, 56, 90, 0, 120, 0, 90, 0, 0, 40, 0, 40};
  config.kv_format_key = "usual";
  config.extra_formats = {
      {.groups = {{.tail_bytes = 100, .sealed_bytes = 100, .same_format = true, .window_tokens = 0},
                  {.tail_bytes = 70, .sealed_bytes = 70, .same_format = true, .window_tokens = window}},
       .tail_name = "better",
       .sealed_name = "better",
       .key = "better"},
      // What cold blocks are encoded in anew.
      {.groups = {{.tail_bytes = 100, .sealed_bytes = 20, .same_format = false, .window_tokens = 0},
                  {.tail_bytes = 70, .sealed_bytes = 20, .same_format = false, .window_tokens = window}},
       .tail_name = "again",
       .sealed_name = "again",
       .key = "again"}};
  config.kv_reencode = 2;
  config.eviction = policy;
  config.kv_hash_key = HashKey{9};
  return config;
}

// What lies at one row: which position of which history; 0 = nothing that anybody may read.
using Row = uint32_t;
using Rows = std::array<Row, block_size>;

// The bytes of one tier, by size class and slot.
class Bytes {
 public:
  Rows& at(BlockPlace place) {
    std::deque<Rows>& of_class = rows_[place.size_class];  // references stay good
    if (of_class.size() <= place.slot) of_class.resize(place.slot + 1);
    return of_class[place.slot];
  }

 private:
  std::array<std::deque<Rows>, 12> rows_;
};

class Operations {
 public:
  Operations(EvictionPolicy policy, uint32_t seed) : random_(seed), config_(config_of(policy)) {
    kv_ = std::make_unique<KvAllocator>(config_);
    // Two tenants that must never share, with requests of every class; those of one class in the better format.
    for (int32_t i = 0; i < 6; ++i) {
      LiveRequest& request = requests_.emplace_back();
      request.request.cache_tenant = i % 2 == 0 ? "a" : "b";
      request.request.latency_class = static_cast<LatencyClass>(i / 2);
      request.request.kv_format = i / 2 == 1;
      request.request.may_read_reencoded = i > 0;
      request.root = kv_->root_of(request);
      request.owner = kv_->owner_of(request);
    }
    for (int32_t chain = 0; chain < num_chains; ++chain) {
      for (int32_t i = 0; i < chain_tokens; ++i) tokens_[chain].push_back(branch(chain, i) * 100 + i);
    }
  }

  void run(int64_t num) {
    for (int64_t i = 0; i < num && !testing::Test::HasFailure(); ++i) {
      one();
      check();
      if (i % 4000 == 3999) restart();
    }
    while (!live_.empty()) end(0, true);
    pins_.limit(0);
    drain_disk();
    check();
    EXPECT_EQ(kv_->pool().held_bytes(), 0u);
  }

  // That the run did what it is for.
  void expect_busy(int64_t num) const {
    for (const auto& [what, count] : done_) EXPECT_GT(count, num / 2000) << what;
    EXPECT_EQ(done_.size(), 14u);
    EXPECT_GT(restarts_, 0);
  }

 private:
  struct Live {
    std::unique_ptr<Sequence> sequence;
    int32_t chain = 0;
    bool waits = false;  // for the disk
  };

  uint32_t below(size_t limit) { return static_cast<uint32_t>(random_() % limit); }
  // Chains share their beginnings: every one is a path in a small tree.
  static int32_t branch(int32_t chain, int32_t position) {
    return position < 9 ? chain / 6 : position < 18 ? chain / 3 : chain;
  }
  // The row that a sequence of this chain, tenant and format writes at a position.
  static Row row_of(const Sequence& sequence, int32_t chain, int32_t position) {
    const bool is_a = sequence.request->request.cache_tenant == "a";
    const Row format = sequence.request->request.kv_format;
    const Row part = position < 9 ? 1 : position < 18 ? 2 : 3;
    return 1 + static_cast<Row>(position) +
           32 * (static_cast<Row>(branch(chain, position)) + 16 * (part + 4 * is_a + 8 * format));
  }

  void one() {
    const uint32_t what = below(32);
    if (what < 7 || live_.empty()) return begin();
    const size_t index = below(live_.size());
    if (what < 15) return compute(index);
    if (what < 19) return end(index, below(6) != 0);
    if (what < 20) return fork(index);
    if (what < 26) return end_disk_move();
    if (what < 29) return begin_stores();
    if (what < 30) return resize();
    if (what < 31) return pin(index);
    kv_->set_costs(1, below(4) == 0 ? 1 : 1000);  // seldom is moving dearer than computing
  }

  void begin() {
    if (live_.size() > 9) return end(0, true);
    Live live;
    live.chain = static_cast<int32_t>(below(num_chains));
    live.sequence = std::make_unique<Sequence>();
    Sequence& sequence = *live.sequence;
    sequence.request = &requests_[below(requests_.size())];
    const auto length = static_cast<int32_t>(2 + below(chain_tokens - 4));
    sequence.tokens.assign(tokens_[live.chain].begin(), tokens_[live.chain].begin() + length);
    sequence.num_prompt_tokens = length;
    live_.push_back(std::move(live));
    admit(live_.size() - 1);
  }

  // Takes a new sequence in with what is found; it goes again where there is no room.
  void admit(size_t index) {
    Sequence& sequence = *live_[index].sequence;
    const int32_t num_hit = kv_->match_prefix(sequence);
    live_[index].waits = kv_->load_prefix(sequence, num_hit, kv_->pool().available_bytes() / 2, moves_);
    carry_out();
    if (live_[index].waits) {
      ++done_["waits for the disk"];
      return;
    }
    const size_t needed = kv_->bytes_for_tokens(sequence.num_tokens(), sequence.request->request.kv_format) -
                          kv_->shared_bytes(sequence, num_hit);
    if (needed > kv_->pool().available_bytes()) {
      ++done_["refused"];
      erase(index);
      return;
    }
    const int32_t num_fetched = kv_->adopt_prefix(sequence, num_hit, moves_);
    carry_out();
    if (num_hit > 0) ++done_["hit"];
    if (sequence.num_reencoded_blocks > 0) ++done_["served from what was encoded anew"];
    if (num_fetched > 0) ++done_["fetched from the host tier"];
    if (sequence.num_loads > 0 && num_hit > 0) ++done_["served from the disk"];
  }

  // Some rows more, of the prompt or of what is generated after it.
  void compute(size_t index) {
    Live& live = live_[index];
    Sequence& sequence = *live.sequence;
    if (live.waits) {
      if (kv_->loads_ended(sequence)) admit(index);
      return;
    }
    if (sequence.num_remaining() == 0) {
      if (sequence.num_tokens() == chain_tokens) return end(index, true);
      sequence.tokens.push_back(tokens_[live.chain][sequence.tokens.size()]);
    }
    kv_->trim_windows(sequence);
    const auto most = static_cast<uint32_t>(std::min(longest_chunk, sequence.num_remaining()));
    const int32_t end_position = sequence.num_computed + 1 + static_cast<int32_t>(below(most));
    const size_t needed = kv_->bytes_to_reserve(sequence, end_position);
    const bool room = needed <= kv_->pool().available_bytes();
    const bool reserved = kv_->reserve(sequence, end_position, moves_);
    EXPECT_TRUE(reserved || !room) << "no more is taken than was said";
    carry_out();
    if (!reserved) {  // somebody is preempted
      ++done_["preempted"];
      return end(below(live_.size()), true);
    }
    for (int32_t position = sequence.num_computed; position < end_position; ++position) {
      for (const BlockTable& table : sequence.tables) {
        const BlockPlace place = table.place(position / block_size);
        ASSERT_EQ(kv_->pool().num_references(place), 1) << "only a block of one's own is written";
        pool_.at(place)[position % block_size] = row_of(sequence, live.chain, position);
      }
    }
    sequence.num_computed = end_position;
    kv_->enter_sealed_blocks(sequence);
  }

  void end(size_t index, bool keep) {
    kv_->release(*live_[index].sequence, keep);
    erase(index);
  }
  void erase(size_t index) {
    std::swap(live_[index], live_.back());
    live_.pop_back();
  }

  void fork(size_t index) {
    const Live& parent = live_[index];
    if (parent.waits || parent.sequence->tables.empty() || parent.sequence->num_computed == 0 || live_.size() > 9)
      return;
    const bool room = kv_->bytes_to_fork(*parent.sequence) <= kv_->pool().available_bytes();
    Live child;
    child.chain = parent.chain;
    child.sequence = std::make_unique<Sequence>();
    child.sequence->choice = 1;
    child.sequence->request = parent.sequence->request;
    child.sequence->tokens = parent.sequence->tokens;
    child.sequence->num_prompt_tokens = parent.sequence->num_prompt_tokens;
    child.sequence->hashes = parent.sequence->hashes;
    const bool forked = kv_->fork(*parent.sequence, *child.sequence, moves_);
    EXPECT_TRUE(forked || !room) << "no more is taken than was said";
    carry_out();
    if (!forked) return;
    ++done_["forked"];
    live_.push_back(std::move(child));
  }

  // The disk's thread has got one order further.
  void end_disk_move() {
    if (disk_queue_.empty()) return;
    const DiskMove move = std::move(disk_queue_.front());
    disk_queue_.pop_front();
    if (move.kind == DiskMoveKind::drop) {
      disk_records_.erase(id_of(move.disk));
      return;
    }
    const bool ok = below(16) != 0;
    if (!ok) ++done_["a failed disk"];
    if (!ok) {
      disk_records_.erase(id_of(move.disk));
    } else if (move.kind == DiskMoveKind::store) {
      disk_records_[id_of(move.disk)] = {move, pool_.at(move.memory)};
    } else {
      const auto record = disk_records_.find(id_of(move.disk));
      ASSERT_TRUE(record != disk_records_.end() && record->second.move.hash == move.hash) << "loads what is there";
      pool_.at(move.memory) = record->second.rows;
      ++done_["loaded"];
    }
    kv_->disk()->end({.ok = ok, .bytes = 56, .duration_ns = 1});
  }

  void drain_disk() {
    while (!disk_queue_.empty() && !testing::Test::HasFailure()) end_disk_move();
  }

  void begin_stores() {
    kv_->disk()->begin_stores(below(2) * kv_->pool().available_bytes() / 2);
    carry_out();
  }

  void resize() {
    const size_t budget = least_budget + below(largest_budget - least_budget);
    kv_->set_budget(budget, budget);
    pins_.limit(budget / 4);
    kv_->shrink(1 + below(900), moves_);
    if (!moves_.empty()) ++done_["shrunk"];
    carry_out();
  }

  void pin(size_t index) {
    if (below(3) == 0 && !pins_.empty()) return pins_.give_up_one();
    if (live_[index].sequence->tables.empty() || live_[index].sequence->choice != 0) return;
    Pins::Pin pin = kv_->make_pin(*live_[index].sequence);
    if (pin.tables.empty() || pins_.prolong(pin.last, {})) return;
    if (pins_.bytes() + pin.bytes > kv_->pool().budget_bytes() / 4) return;
    pins_.add(std::move(pin));
    ++done_["pinned"];
  }

  // The program ends and starts again: only the disk's records are left.
  void restart() {
    while (!live_.empty()) end(0, true);
    pins_.limit(0);
    begin_stores();
    drain_disk();
    std::vector<Executor::StoredBlock> stored;
    for (const auto& [id, record] : disk_records_) {
      stored.push_back({record.move.hash, record.move.group, record.move.disk, record.move.tokens, record.move.owner});
    }
    kv_ = std::make_unique<KvAllocator>(config_);
    pool_ = host_ = {};
    kv_->disk()->restore(stored);
    EXPECT_EQ(kv_->disk()->counters().num_restored, stored.size());
    if (!stored.empty()) ++restarts_;
    check();
  }

  static uint64_t id_of(BlockPlace place) { return (uint64_t{place.size_class} << 32) | place.slot; }

  // What the executor does with a plan, in its order.
  void carry_out() {
    for (const BlockMove& move : moves_) {
      switch (move.kind) {
        case MoveKind::copy:
        case MoveKind::seal:
          pool_.at(move.to) = pool_.at(move.from);
          break;
        case MoveKind::reencode:
          pool_.at(move.to) = pool_.at(move.from);
          ++done_["encoded anew"];
          break;
        case MoveKind::drop:
          pool_.at(move.from) = {};
          break;
        case MoveKind::spill:
          host_.at(move.to) = pool_.at(move.from);
          ++done_["spilled to the host tier"];
          break;
        case MoveKind::fetch:
          pool_.at(move.to) = host_.at(move.from);
          break;
        case MoveKind::drop_host:
          host_.at(move.from) = {};
          break;
      }
    }
    moves_.clear();
    for (DiskMove& move : kv_->disk()->orders()) disk_queue_.push_back(std::move(move));
    kv_->disk()->orders().clear();
  }

  void check() {
    holders_.clear();
    for (const Live& live : live_) {
      holders_.push_back(live.sequence.get());
      check_rows(live);
    }
    kv_->check_integrity(holders_, pins_);
    check_totals(kv_->pool(), kv_->pool().budget_bytes());
    check_totals(kv_->host()->pool(), config_.kv_host_bytes);
    check_totals(kv_->disk()->tier().pool(), config_.kv_disk_bytes);
    ASSERT_LE(pins_.bytes(), kv_->pool().budget_bytes() / 4);
    check_host();
  }

  // Every row that the sequence's next one may read is the one that its own history wrote.
  void check_rows(const Live& live) {
    const Sequence& sequence = *live.sequence;
    for (size_t group = 0; group < sequence.tables.size(); ++group) {
      const BlockTable& table = sequence.tables[group];
      for (BlockPlace place : table.places()) {
        const KvFormatId format = kv_->formats().format_of(place.size_class);
        ASSERT_TRUE(format == sequence.request->request.kv_format ||
                    (format == config_.kv_reencode && sequence.request->request.may_read_reencoded));
      }
      const int32_t first = group == 0 ? 0 : std::max(0, sequence.num_computed - window + 1);
      for (int32_t position = first; position < sequence.num_computed; ++position) {
        ASSERT_EQ(pool_.at(table.place(position / block_size))[position % block_size],
                  row_of(sequence, live.chain, position))
            << "group " << group << " position " << position;
      }
    }
  }

  // The blocks of a tier, counted one by one.
  void check_totals(const BlockPool& pool, size_t budget) {
    infos_.clear();
    pool.list(infos_);
    size_t held = 0, cached = 0, idle = 0;
    for (const BlockInfo& info : infos_) {
      size_t& counted = info.state == BlockState::held ? held : info.state == BlockState::cached ? cached : idle;
      counted += pool.class_bytes(info.place.size_class);
    }
    ASSERT_EQ(held, pool.held_bytes());
    ASSERT_EQ(cached, pool.cached_bytes());
    ASSERT_EQ(held + cached + idle, pool.occupied_bytes());
    if (!pool.can_shrink() && held <= budget) {
      ASSERT_LE(pool.occupied_bytes(), budget);
    }
  }

  // Nobody holds anything in the host tier between operations, and what its index names lies there.
  void check_host() {
    const LowerTier& host = *kv_->host();
    ASSERT_EQ(host.pool().held_bytes(), 0u);
    infos_.clear();
    host.pool().list(infos_);
    for (const BlockInfo& info : infos_) {
      const auto content = host.cache().content(info.place);
      ASSERT_EQ(content.has_value(), info.state == BlockState::cached);
      if (!content) continue;
      const Rows& rows = host_.at(info.place);
      for (int32_t i = 0; i < block_size; ++i) {
        // The token says branch and position, as the row does.
        ASSERT_EQ((rows[i] - 1) % 32, static_cast<Row>(content->tokens[i] % 100));
        ASSERT_EQ((rows[i] - 1) / 32 % 16, static_cast<Row>(content->tokens[i] / 100));
      }
    }
  }

  std::mt19937 random_;
  EngineConfig config_;
  std::deque<LiveRequest> requests_;
  std::array<std::vector<TokenId>, num_chains> tokens_;
  std::unique_ptr<KvAllocator> kv_;
  std::vector<Live> live_;
  Pins pins_;
  std::vector<BlockMove> moves_;
  Bytes pool_, host_;
  std::deque<DiskMove> disk_queue_;
  struct Record {
    DiskMove move;
    Rows rows;
  };
  std::map<uint64_t, Record> disk_records_;
  std::vector<const Sequence*> holders_;
  std::vector<BlockInfo> infos_;
  std::map<std::string_view, int64_t> done_;
  int64_t restarts_ = 0;
};

class RandomOperationsOnTiers : public testing::TestWithParam<EvictionPolicy> {};

TEST_P(RandomOperationsOnTiers, KeepEveryCountAndEveryRow) {
  const int64_t num = num_operations() / 3 + 1;
  Operations operations(GetParam(), 17 + static_cast<uint32_t>(GetParam()));
  operations.run(num);
  operations.expect_busy(num);
}

INSTANTIATE_TEST_SUITE_P(Policies, RandomOperationsOnTiers,
                         testing::Values(EvictionPolicy::fifo, EvictionPolicy::lru, EvictionPolicy::heuristic),
                         [](const auto& each) {
                           return std::string(eviction_policy_names[static_cast<size_t>(each.param)]);
                         });

}  // namespace
}  // namespace tidemill
