#include "runtime/kv_formats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace tidemill {
namespace {

TEST(KvFormatRank, OrdersAllFormatsByWhatTheyKeep) {
  std::set<int32_t> ranks;
  for (const KvFormat format : all_kv_formats) ranks.insert(kv_format_rank(format));
  EXPECT_EQ(ranks.size(), std::size(all_kv_formats));
  for (const KvFormat wide : all_kv_formats) {
    for (const KvFormat narrow : all_kv_formats) {
      if (code_bits(wide) > code_bits(narrow)) {
        EXPECT_GT(kv_format_rank(wide), kv_format_rank(narrow));
      }
    }
  }
  // A cache is as true as the lesser of its halves.
  EXPECT_EQ(kv_format_rank({.sealed = {KvFormat::int8, KvFormat::int4}}), kv_format_rank(KvFormat::int4));
}

TEST(BetterKvFormats, AreTheUsualOnesRaised) {
  const KvFormats usual{.sealed = {KvFormat::int8, KvFormat::int4}, .skipped_layers = {0}, .rotate = true};
  const KvFormats int8 = raised_to(usual, KvFormat::int8);
  EXPECT_EQ(int8.sealed, KvBlockFormat(KvFormat::int8));
  EXPECT_TRUE(int8.rotate) << "keys are what they were";
  EXPECT_EQ(int8.skipped_layers, usual.skipped_layers);
  const KvFormats fp16 = raised_to(usual, KvFormat::fp16);
  EXPECT_EQ(fp16.sealed, KvBlockFormat(KvFormat::fp16));
  EXPECT_FALSE(fp16.rotate);
  EXPECT_TRUE(fp16.skipped_layers.empty());
  // The very cache of a server that has it as its own, so that answers are the same.
  EXPECT_EQ(kv_format_key(fp16, 32), kv_format_key({.sealed = KvFormat::fp16}, 32));
  EXPECT_EQ(kv_format_key(raised_to(usual, KvFormat::nvfp4), 32), kv_format_key(usual, 32));
}

TEST(BetterKvFormats, AscendAndAreOfferedOnce) {
  const KvFormat wanted[] = {KvFormat::fp32, KvFormat::int8, KvFormat::fp16, KvFormat::int8};
  const auto offered = [&wanted](const KvFormats& usual) {
    std::vector<std::string> texts;
    for (const KvFormats& each : better_formats(usual, wanted)) texts.push_back(kv_formats_text(each));
    return texts;
  };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(offered({.sealed = KvFormat::int4}), (Texts{"int8", "fp16", "fp32"}));
  EXPECT_EQ(offered({.sealed = KvFormat::int8}), (Texts{"fp16", "fp32"}));
  EXPECT_EQ(offered({.sealed = {KvFormat::fp16, KvFormat::int4}}), (Texts{"fp16 keys, int8 values", "fp16", "fp32"}));
  EXPECT_EQ(offered({.sealed = KvFormat::fp32}), Texts{});
}

}  // namespace
}  // namespace tidemill
