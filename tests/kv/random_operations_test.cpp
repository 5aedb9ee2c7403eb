// Random operations on pool, tables and prefix cache, counted anew by an independent model after every one.
//
// TIDEMILL_RANDOM_OPERATIONS sets how many; the figure in docs/kv-sharing.md is of 10 million.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>

#include "kv/block_table.h"
#include "kv/prefix_cache.h"

namespace tidemill {
namespace {

constexpr int32_t block_size = 4;
constexpr size_t largest = 4000;
constexpr HashKey hash_key{7};

int64_t num_operations() {
  const char* given = std::getenv("TIDEMILL_RANDOM_OPERATIONS");
  return given != nullptr ? std::atoll(given) : 30'000;
}

struct Chain {
  std::vector<TokenId> tokens;
  std::vector<BlockHash> hashes;
};

// Prompts that share beginnings: every one is a path in a small tree.
Chain chain_of(int32_t name) {
  Chain chain;
  BlockHash parent;
  for (int32_t block = 0; block < 6; ++block) {
    const int32_t branch = name >> (5 - block);
    for (int32_t i = 0; i < block_size; ++i) chain.tokens.push_back(branch * 100 + i);
    parent = block_hash(hash_key, parent, std::span(chain.tokens).last(block_size));
    chain.hashes.push_back(parent);
  }
  return chain;
}

class Operations {
 public:
  Operations(EvictionPolicy policy, uint32_t seed)
      : random_(seed), pool_(largest / 2, {70, 100, 40}, policy), cache_(pool_, block_size, {0, 6}) {
    pool_.allow_budgets_up_to(largest);
    for (int32_t name = 0; name < 24; ++name) chains_.push_back(chain_of(name));
  }

  void run(int64_t num) {
    for (int64_t i = 0; i < num && !testing::Test::HasFailure(); ++i) {
      one();
      check();
    }
    for (Holder& holder : holders_) holder.tables.clear();
    holders_.clear();
    check();
    EXPECT_EQ(pool_.held_bytes(), 0u);
  }

  // That the run did what it is for.
  void expect_busy() const {
    EXPECT_GT(num_hits_, 0);
    EXPECT_GT(num_refused_, 0);
    EXPECT_GT(num_shrunk_, 0);
    EXPECT_GT(pool_.num_evicted(), 0u);
  }

 private:
  struct Holder {
    std::vector<BlockTable> tables;  // [2]
    size_t chain = 0;
  };

  uint32_t below(size_t limit) { return static_cast<uint32_t>(random_() % limit); }

  void one() {
    const uint32_t what = below(20);
    if (what < 5 || holders_.empty()) return begin();
    Holder& holder = holders_[below(holders_.size())];
    if (what < 9) return grow(holder);
    if (what < 13) return end(&holder - holders_.data());
    if (what < 14) return fork(holder);
    if (what < 15) return holder.tables[1].drop_leading(std::min(holder.tables[1].end_block(), int32_t(below(6))));
    if (what < 16) return forget(holder);
    if (what < 17) return pool_.set_budget(largest / 4 + below(largest - largest / 4));
    shrink();
  }

  // A sequence takes what it finds.
  void begin() {
    if (holders_.size() > 12) return end(0);
    Holder holder;
    holder.chain = below(chains_.size());
    const Chain& chain = chains_[holder.chain];
    const int32_t num_hit = cache_.match(chain.hashes, chain.tokens);
    num_hits_ += num_hit > 0;
    for (int32_t group = 0; group < 2; ++group) {
      BlockTable table(pool_, cache_.first_needed(group, num_hit));
      for (int32_t block = table.first_block(); block < num_hit; ++block) {
        const auto place = cache_.find(chain.hashes[block], block_tokens(chain, block), group);
        ASSERT_TRUE(place);
        pool_.share(*place);
        pool_.note_use(*place, static_cast<uint8_t>(below(3)), static_cast<int32_t>(below(5000)), true);
        table.append(*place);
      }
      holder.tables.push_back(std::move(table));
    }
    holders_.push_back(std::move(holder));
  }

  static std::span<const TokenId> block_tokens(const Chain& chain, int32_t block) {
    return std::span(chain.tokens).subspan(static_cast<size_t>(block) * block_size, block_size);
  }

  // One more block in each group, entered; in group 0 by way of a tail of another class.
  void grow(Holder& holder) {
    const Chain& chain = chains_[holder.chain];
    for (int32_t group = 0; group < 2; ++group) {
      BlockTable& table = holder.tables[group];
      const int32_t block = table.end_block();
      if (block >= static_cast<int32_t>(chain.hashes.size())) return;
      if (group == 0 && below(2) == 0) {
        const auto tail = take(2);
        if (!tail) return;
        table.append(*tail);
        if (below(3) == 0) return drop_tail(table);
        const auto sealed = take(0);
        if (!sealed) return drop_tail(table);
        table.replace(block, *sealed);
      } else {
        const auto place = take(static_cast<uint8_t>(group));
        if (!place) return;
        table.append(*place);
      }
      cache_.insert(chain.hashes[block], block_tokens(chain, block), group, table.place(block), below(3));
    }
  }

  void drop_tail(BlockTable& table) { table = table.share(table.end_block() - 1); }

  std::optional<BlockPlace> take(uint8_t size_class) {
    dropped_.clear();
    const size_t bytes = pool_.class_bytes(size_class);
    const bool room = pool_.held_bytes() + bytes <= pool_.budget_bytes();
    const auto place = pool_.allocate(size_class, dropped_);
    EXPECT_EQ(place.has_value(), room) << "an allocation fails exactly when held blocks fill the budget";
    num_refused_ += !room;
    return place;
  }

  void end(size_t index) {
    for (BlockTable& table : holders_[index].tables) table.clear();
    holders_.erase(holders_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  void fork(const Holder& holder) {
    if (holders_.size() > 12) return;
    Holder child;
    child.chain = holder.chain;
    for (const BlockTable& table : holder.tables) {
      const auto length = static_cast<uint32_t>(table.num_blocks());
      child.tables.push_back(table.share(table.first_block() + static_cast<int32_t>(below(length + 1))));
    }
    holders_.push_back(std::move(child));
  }

  void forget(const Holder& holder) {
    const BlockTable& table = holder.tables[below(2)];
    if (table.num_blocks() > 0) cache_.forget(table.places()[below(table.places().size())]);
  }

  void shrink() {
    dropped_.clear();
    const size_t before = pool_.occupied_bytes();
    const size_t beyond = before - std::min(before, pool_.budget_bytes());
    const size_t wanted = 1 + below(600);
    pool_.shrink(wanted, dropped_);
    const size_t given = before - pool_.occupied_bytes();
    EXPECT_EQ(given == 0, dropped_.empty());
    EXPECT_LT(given, wanted + 100);
    EXPECT_LT(given, beyond + 100);
    num_shrunk_ += given > 0;
    if (pool_.can_shrink()) {
      EXPECT_GE(given, wanted);
    }
  }

  void check() {
    pool_.check_integrity();
    cache_.check_integrity();
    counted_.clear();
    for (const Holder& holder : holders_) {
      for (const BlockTable& table : holder.tables) {
        for (BlockPlace place : table.places()) ++counted_[(uint64_t{place.size_class} << 32) | place.slot];
      }
    }
    size_t held_bytes = 0;
    for (const auto& [id, num] : counted_) {
      const BlockPlace place{static_cast<uint32_t>(id), static_cast<uint8_t>(id >> 32)};
      ASSERT_EQ(pool_.num_references(place), num);
      held_bytes += pool_.class_bytes(place.size_class);
    }
    ASSERT_EQ(pool_.held_bytes(), held_bytes);
    ASSERT_EQ(pool_.num_held_blocks(), static_cast<int64_t>(counted_.size()));
  }

  std::mt19937 random_;
  BlockPool pool_;
  PrefixCache cache_;
  std::vector<Chain> chains_;
  std::vector<Holder> holders_;
  std::vector<BlockPlace> dropped_;
  std::map<uint64_t, int32_t> counted_;
  int64_t num_hits_ = 0, num_refused_ = 0, num_shrunk_ = 0;
};

class RandomOperationsOnBlocks : public testing::TestWithParam<EvictionPolicy> {};

TEST_P(RandomOperationsOnBlocks, KeepEveryCount) {
  Operations operations(GetParam(), 1 + static_cast<uint32_t>(GetParam()));
  operations.run(num_operations() / 3 + 1);
  operations.expect_busy();
}

INSTANTIATE_TEST_SUITE_P(Policies, RandomOperationsOnBlocks,
                         testing::Values(EvictionPolicy::fifo, EvictionPolicy::lru, EvictionPolicy::heuristic),
                         [](const auto& each) {
                           return std::string(eviction_policy_names[static_cast<size_t>(each.param)]);
                         });

}  // namespace
}  // namespace tidemill
