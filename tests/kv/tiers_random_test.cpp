// Random operations on pool, prefix cache and a tier below them, together as the engine uses them. After every one the
// counts must add up, every content must be where the index says, and what is held must stay.
//
// TM_OPERATIONS=10000000 runs more of them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <random>
#include <unordered_map>

#include "kv/block_table.h"
#include "kv/lower_tier.h"

namespace tidemill {
namespace {

constexpr int32_t block_size = 4;
constexpr HashKey key{5};

uint64_t id_of(BlockPlace place) {
  return (uint64_t{place.size_class} << 32) | place.slot;
}

// A name of a content; its tokens, and its chain's hash.
struct Content {
  std::vector<TokenId> tokens;
  BlockHash hash;
};

class Machine {
 public:
  Machine(EvictionPolicy policy, size_t num_blocks, size_t num_lower_blocks)
      : pool_(num_blocks * 100, {100, 60}, policy),
        cache_(pool_, block_size, {0}),
        lower_(num_lower_blocks * 100, {100, 60}, policy, block_size, {0}) {
    cache_.on_eviction([this](const BlockHash& hash, std::span<const TokenId> tokens, int32_t group, BlockPlace place) {
      const auto below = lower_.put(hash, tokens, group, place.size_class, pool_.worth(place), dropped_);
      if (below) below_[id_of(*below)] = bytes_.at(id_of(place));
    });
    for (int32_t chain = 0; chain < 6; ++chain) {
      BlockHash parent{};
      for (int32_t block = 0; block < 8; ++block) {
        Content& content = contents_[chain].emplace_back();
        for (int32_t i = 0; i < block_size; ++i)  // chains share their beginnings, two by two
          content.tokens.push_back((block < 3 ? chain / 2 : chain) * 1000 + block * block_size + i);
        content.hash = parent = block_hash(key, parent, content.tokens);
      }
    }
  }

  // A sequence of the first blocks of a chain: what is found is shared or fetched, the rest is written.
  void start(std::mt19937& random) {
    const std::vector<Content>& chain = contents_[random() % 6];
    const size_t num_blocks = 1 + random() % chain.size();
    BlockTable table(pool_);
    bool found = true;
    for (size_t block = 0; block < num_blocks; ++block) {
      const Content& content = chain[block];
      std::optional<BlockPlace> place = found ? cache_.find(content.hash, content.tokens, 0) : std::nullopt;
      if (place) {
        ASSERT_EQ(bytes_.at(id_of(*place)), content.hash) << "the index names another content";
        pool_.share(*place);
        pool_.note_use(*place, static_cast<uint8_t>(random() % 3), static_cast<int32_t>(random() % 20000), true);
      } else {
        place = fetch_or_write(content, found, static_cast<uint8_t>(random() % 2));
        if (!place) break;
      }
      table.append(*place);
    }
    sequences_.push_back(std::move(table));
  }

  void end(std::mt19937& random) {
    if (sequences_.empty()) return;
    const size_t which = random() % sequences_.size();
    std::swap(sequences_[which], sequences_.back());
    if (random() % 8 == 0) {
      for (BlockPlace place : sequences_.back().places()) {
        if (pool_.num_references(place) == 1) cache_.forget(place);
      }
    }
    sequences_.pop_back();
  }

  void check() const {
    pool_.check_integrity();
    cache_.check_integrity();
    lower_.check_integrity();
    int64_t num_references = 0, num_held = 0;
    std::unordered_map<uint64_t, bool> seen;
    for (const BlockTable& table : sequences_) {
      for (BlockPlace place : table.places()) {
        num_references += 1;
        num_held += seen.emplace(id_of(place), true).second;
      }
    }
    ASSERT_EQ(num_held, pool_.num_held_blocks());
    ASSERT_LE(num_held, num_references);
  }
  size_t num_sequences() const { return sequences_.size(); }
  int64_t num_fetched() const { return num_fetched_; }
  int64_t num_shared() const { return num_shared_; }

 private:
  std::optional<BlockPlace> fetch_or_write(const Content& content, bool& found, uint8_t size_class) {
    const auto below = found ? lower_.find(content.hash, content.tokens, 0) : std::nullopt;
    if (below) lower_.hold(*below);
    found = below.has_value();
    const auto place = pool_.allocate(below ? below->size_class : size_class, dropped_);
    if (!place) {
      if (below) lower_.let_go(*below);
      return std::nullopt;
    }
    if (below) {
      EXPECT_EQ(below_.at(id_of(*below)), content.hash) << "the tier names another content";
      ++num_fetched_;
    }
    bytes_[id_of(*place)] = content.hash;
    const BlockWorth worth = below ? lower_.take_out(*below) : BlockWorth{};
    if (cache_.insert(content.hash, content.tokens, 0, *place)) {
      pool_.set_worth(*place, worth);
    } else {
      ++num_shared_;
    }
    return place;
  }

  std::vector<Content> contents_[6];
  BlockPool pool_;
  PrefixCache cache_;
  LowerTier lower_;
  std::deque<BlockTable> sequences_;
  std::unordered_map<uint64_t, BlockHash> bytes_, below_;  // what was written to each place
  std::vector<BlockPlace> dropped_;
  int64_t num_fetched_ = 0, num_shared_ = 0;
};

class TiersRandom : public testing::TestWithParam<EvictionPolicy> {};

TEST_P(TiersRandom, CountsAddUpAfterEveryOperation) {
  const char* given = std::getenv("TM_OPERATIONS");
  const int64_t num_operations = given ? std::atoll(given) : 60000;
  std::mt19937 random(29);
  Machine machine(GetParam(), 14, 9);
  for (int64_t operation = 0; operation < num_operations; ++operation) {
    if (machine.num_sequences() < 6 && random() % 2 == 0) {
      machine.start(random);
    } else {
      machine.end(random);
    }
    machine.check();
    ASSERT_FALSE(testing::Test::HasFailure()) << "after operation " << operation;
  }
  EXPECT_GT(machine.num_fetched(), num_operations / 100);
  EXPECT_GT(machine.num_shared(), 0);
}

INSTANTIATE_TEST_SUITE_P(Policies, TiersRandom,
                         testing::Values(EvictionPolicy::fifo, EvictionPolicy::lru, EvictionPolicy::heuristic),
                         [](const auto& info) {
                           return std::string(eviction_policy_names[static_cast<size_t>(info.param)]);
                         });

}  // namespace
}  // namespace tidemill
