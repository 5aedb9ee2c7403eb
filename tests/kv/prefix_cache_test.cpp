#include "kv/prefix_cache.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "kv/block_table.h"

namespace tidemill {
namespace {

constexpr int32_t block_size = 4;
constexpr HashKey key{9};

std::vector<TokenId> tokens_of(int32_t num_blocks, int32_t name = 0) {
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < num_blocks * block_size; ++i) tokens.push_back(name * 1000 + i);
  return tokens;
}

std::vector<BlockHash> hashes_of(const std::vector<TokenId>& tokens, BlockHash parent = {}) {
  std::vector<BlockHash> hashes;
  for (size_t i = 0; i + block_size <= tokens.size(); i += block_size) {
    parent = block_hash(key, parent, std::span(tokens).subspan(i, block_size));
    hashes.push_back(parent);
  }
  return hashes;
}

TEST(BlockHash, PartsAreTaggedAndPrefixedByTheirLength) {
  const auto root = [](std::string_view salt, std::string_view tenant, std::string_view format) {
    const RootPart parts[] = {{HashPart::salt, salt}, {HashPart::tenant, tenant}, {HashPart::format, format}};
    return root_hash(key, parts);
  };
  EXPECT_EQ(root("a", "b", "c"), root("a", "b", "c"));
  EXPECT_FALSE(root("ab", "c", "") == root("a", "bc", ""));
  EXPECT_FALSE(root("a", "", "") == root("", "a", ""));
  EXPECT_FALSE(root("", "", "a") == root("", "a", ""));
  EXPECT_FALSE(root("a", "", "") == root("", "", ""));
  // A salt that spells the encoding of another part.
  std::string imitation = "x";
  imitation.push_back(static_cast<char>(HashPart::tenant));
  imitation.append(std::string("\1\0\0\0\0\0\0\0y", 9));
  EXPECT_FALSE(root(imitation, "", "") == root("x", "y", ""));
  const std::vector<TokenId> tokens = tokens_of(1);
  EXPECT_FALSE(block_hash({1}, {}, tokens) == block_hash({2}, {}, tokens));
  EXPECT_FALSE(block_hash({1}, {1, 0}, tokens) == block_hash({1}, {0, 1}, tokens));
}

class Cache : public testing::Test {
 protected:
  void fill(PrefixCache& cache, BlockTable& table, const std::vector<TokenId>& tokens, int32_t group) {
    const std::vector<BlockHash> hashes = hashes_of(tokens);
    for (size_t block = 0; block < hashes.size(); ++block) {
      const BlockPlace place = *pool.allocate(static_cast<uint8_t>(group), dropped);
      table.append(place);
      cache.insert(hashes[block], std::span(tokens).subspan(block * block_size, block_size), group, place);
    }
  }
  BlockPool pool{2000, {100, 100}};
  std::vector<BlockPlace> dropped;
};

TEST_F(Cache, MatchesTheUnbrokenChain) {
  PrefixCache cache(pool, block_size, {0});
  const std::vector<TokenId> tokens = tokens_of(5);
  {
    BlockTable table(pool);
    fill(cache, table, tokens, 0);
    EXPECT_EQ(cache.match(hashes_of(tokens), tokens), 5);  // also while the owner holds them
    cache.forget(table.place(3));
    EXPECT_EQ(cache.match(hashes_of(tokens), tokens), 3);
    cache.check_integrity();
  }
  EXPECT_EQ(pool.num_cached_blocks(), 4);
  std::vector<TokenId> other = tokens;
  other[5] += 1;
  EXPECT_EQ(cache.match(hashes_of(other), other), 1);
  EXPECT_EQ(cache.match({}, tokens), 0);
}

TEST_F(Cache, ComparesTheTokensNotTheHashAlone) {
  PrefixCache cache(pool, block_size, {0});
  const std::vector<TokenId> tokens = tokens_of(1), other = tokens_of(1, 7);
  const BlockHash same{1, 2};
  const BlockPlace first = *pool.allocate(0, dropped), second = *pool.allocate(0, dropped);
  EXPECT_TRUE(cache.insert(same, tokens, 0, first));
  EXPECT_FALSE(cache.insert(same, other, 0, second));
  EXPECT_FALSE(cache.find(same, other, 0));
  EXPECT_EQ(*cache.find(same, tokens, 0), first);
  EXPECT_EQ(cache.match(std::vector{same}, other), 0);
  pool.release(second);
  EXPECT_EQ(pool.num_cached_blocks(), 0);
}

TEST_F(Cache, TheSecondBlockOfOneContentStaysPrivate) {
  PrefixCache cache(pool, block_size, {0});
  const std::vector<TokenId> tokens = tokens_of(1);
  const BlockPlace first = *pool.allocate(0, dropped), second = *pool.allocate(0, dropped);
  EXPECT_TRUE(cache.insert(hashes_of(tokens)[0], tokens, 0, first));
  EXPECT_FALSE(cache.insert(hashes_of(tokens)[0], tokens, 0, second));
  pool.release(first);
  pool.release(second);
  EXPECT_EQ(pool.num_cached_blocks(), 1);
  cache.check_integrity();
}

TEST_F(Cache, EvictionTakesBlocksOutOfTheIndex) {
  PrefixCache cache(pool, block_size, {0});
  const std::vector<TokenId> tokens = tokens_of(10);
  {
    BlockTable table(pool);
    fill(cache, table, tokens, 0);
  }
  std::vector<BlockPlace> taken;
  for (int32_t expected = 10; expected >= 0; --expected) {
    EXPECT_EQ(cache.match(hashes_of(tokens), tokens), expected);
    while (pool.num_cached_blocks() >= expected && expected > 0) taken.push_back(*pool.allocate(0, dropped));
    cache.check_integrity();
    pool.check_integrity();
  }
}

TEST_F(Cache, WindowedGroupsNeedOnlyTheirWindow) {
  PrefixCache cache(pool, block_size, {0, 6});  // a row reads itself and 5 before it: at most 2 blocks back
  const std::vector<TokenId> tokens = tokens_of(6);
  const std::vector<BlockHash> hashes = hashes_of(tokens);
  BlockTable full(pool), windowed(pool);
  fill(cache, full, tokens, 0);
  fill(cache, windowed, tokens, 1);
  EXPECT_EQ(cache.first_needed(0, 6), 0);
  EXPECT_EQ(cache.first_needed(1, 6), 4);  // position 24 reads from 19
  EXPECT_EQ(cache.first_needed(1, 1), 0);
  for (int32_t block : {0, 1, 2}) cache.forget(windowed.place(block));
  EXPECT_EQ(cache.match(hashes, tokens), 6);
  EXPECT_EQ(cache.match(std::span(hashes).first(5), tokens), 5);
  EXPECT_EQ(cache.match(std::span(hashes).first(4), tokens), 0);
  cache.forget(windowed.place(4));
  EXPECT_EQ(cache.match(hashes, tokens), 0);
  cache.forget(full.place(2));
  EXPECT_EQ(cache.match(hashes, tokens), 0);
}

// Against a plain model: which contents are there, by the events alone.
TEST_F(Cache, RandomChainsAgreeWithAModel) {
  std::mt19937 random(5);
  PrefixCache cache(pool, block_size, {0});
  struct Live {
    std::vector<TokenId> tokens;
    BlockTable table;
    int32_t num_hit;
  };
  std::vector<Live> live;
  int64_t num_hits = 0;
  for (int operation = 0; operation < 5000; ++operation) {
    if (random() % 2 == 0 || live.empty()) {
      std::vector<TokenId> tokens =
          tokens_of(1 + static_cast<int32_t>(random() % 6), static_cast<int32_t>(random() % 5));
      for (size_t i = tokens.size() / 2; i < tokens.size(); ++i) tokens[i] += static_cast<TokenId>(random() % 2) * 100;
      const std::vector<BlockHash> hashes = hashes_of(tokens);
      const int32_t num_hit = cache.match(hashes, tokens);
      Live born{tokens, BlockTable(pool), num_hit};
      for (int32_t block = 0; block < num_hit; ++block) {
        const auto place = cache.find(hashes[block], std::span(tokens).subspan(block * block_size, block_size), 0);
        ASSERT_TRUE(place);
        pool.share(*place);
        born.table.append(*place);
      }
      num_hits += num_hit;
      for (size_t block = num_hit; block < hashes.size(); ++block) {
        const auto place = pool.allocate(0, dropped);
        if (!place) break;
        born.table.append(*place);
        cache.insert(hashes[block], std::span(tokens).subspan(block * block_size, block_size), 0, *place);
      }
      live.push_back(std::move(born));
    } else {
      live.erase(live.begin() + static_cast<ptrdiff_t>(random() % live.size()));
    }
    pool.check_integrity();
    cache.check_integrity();
    for (const Live& each : live) {  // held blocks are never evicted
      for (BlockPlace place : each.table.places()) ASSERT_GT(pool.num_references(place), 0);
    }
  }
  EXPECT_GT(num_hits, 500);
}

}  // namespace
}  // namespace tidemill
