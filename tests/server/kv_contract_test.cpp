#include "server/kv_contract.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tidemill {
namespace {

using ::testing::HasSubstr;

constexpr int int4 = 1, fp8 = 2, int8 = 3, fp16 = 4, fp32 = 5;

// A cache in int8 that can also keep fp16, and nothing more.
KvContract int8_cache(std::optional<KvFidelity> fidelity) {
  return {.offers = {{"int8", fidelity, int8}, {"fp16", KvFidelity::exact, fp16}},
          .rank_by_format = {{"fp32", fp32}, {"fp16", fp16}, {"int8", int8}, {"fp8_e4m3", fp8}, {"int4", int4}}};
}

// What a request gets; nothing where it is refused or did not ask.
std::optional<KvFormatId> given(const Json& body, const KvContract& contract) {
  Fields fields(body);
  const std::optional<KvGrant> grant = read_kv_contract(fields, contract);
  if (!grant) return std::nullopt;
  EXPECT_FALSE(grant->may_read_reencoded);
  return grant->format;
}

// The sentence of the refusal; "" where there is none.
std::string refusal(const Json& body, const KvContract& contract) {
  Fields fields(body);
  read_kv_contract(fields, contract);
  return fields.failed() ? fields.error()->message : "";
}

TEST(KvContractTest, WhatTheCacheKeepsAnywayIsGivenFirst) {
  const KvContract high = int8_cache(KvFidelity::high);
  for (const char* level : {"high", "balanced", "compact"}) EXPECT_EQ(given({{"kv_fidelity", level}}, high), 0);
  for (const char* format : {"auto", "int8", "fp8_e4m3", "int4"})
    EXPECT_EQ(given({{"kv_cache_dtype", format}}, high), 0) << format;
  EXPECT_EQ(given({{"kv_fidelity", "high"}, {"kv_cache_dtype", "int4"}}, high), 0);
  EXPECT_EQ(given(Json::object(), high), std::nullopt);
  EXPECT_EQ(refusal(Json::object(), high), "");
}

TEST(KvContractTest, MoreIsGivenToWhoAsksForIt) {
  const KvContract high = int8_cache(KvFidelity::high);
  EXPECT_EQ(given({{"kv_fidelity", "exact"}}, high), 1);
  EXPECT_EQ(given({{"kv_cache_dtype", "fp16"}}, high), 1);
  // The stricter of the two counts.
  EXPECT_EQ(given({{"kv_fidelity", "compact"}, {"kv_cache_dtype", "fp16"}}, high), 1);
  EXPECT_EQ(given({{"kv_fidelity", "exact"}, {"kv_cache_dtype", "int4"}}, high), 1);
}

TEST(KvContractTest, WhatNoOfferIsEnoughForIsRefusedByName) {
  const KvContract high = int8_cache(KvFidelity::high);
  EXPECT_THAT(refusal({{"kv_cache_dtype", "fp32"}}, high),
              HasSubstr("kv_cache_dtype is fp32, and the server keeps KV blocks in int8 (high), fp16 (exact)"));
  KvContract alone = high;
  alone.offers.pop_back();
  EXPECT_THAT(refusal({{"kv_fidelity", "exact"}}, alone), HasSubstr("kv_fidelity is exact"));
  EXPECT_THAT(refusal({{"kv_fidelity", "exact"}, {"kv_cache_dtype", "int4"}}, alone),
              HasSubstr("kv_fidelity is exact"));
}

TEST(KvContractTest, NothingIsPromisedThatWasNotMeasured) {
  KvContract unknown = int8_cache(std::nullopt);
  EXPECT_EQ(given({{"kv_fidelity", "compact"}}, unknown), 1);  // what is exact needs no measurement
  EXPECT_EQ(given({{"kv_cache_dtype", "int8"}}, unknown), 0);
  unknown.offers.pop_back();
  EXPECT_THAT(refusal({{"kv_fidelity", "compact"}}, unknown), HasSubstr("int8 (not measured for this model)"));
}

TEST(KvContractTest, WhoAsksForNoMoreMayBeServedFromReencodedBlocks) {
  KvContract contract{.offers = {{"fp16", KvFidelity::exact, fp16}},
                      .reencoded = KvOffer{"int8", KvFidelity::high, int8},
                      .rank_by_format = int8_cache(KvFidelity::high).rank_by_format};
  const auto permits = [&contract](const Json& body) {
    Fields fields(body);
    const std::optional<KvGrant> grant = read_kv_contract(fields, contract);
    return grant && grant->may_read_reencoded;
  };
  EXPECT_TRUE(permits({{"kv_fidelity", "high"}}));
  EXPECT_TRUE(permits({{"kv_cache_dtype", "int4"}}));
  EXPECT_FALSE(permits({{"kv_fidelity", "exact"}}));
  EXPECT_FALSE(permits({{"kv_fidelity", "high"}, {"kv_cache_dtype", "fp16"}}));
  EXPECT_FALSE(permits({{"kv_cache_dtype", "auto"}}));
  EXPECT_FALSE(permits(Json::object()));
  contract.reencoded->fidelity.reset();  // never measured
  EXPECT_FALSE(permits({{"kv_fidelity", "compact"}}));
  EXPECT_TRUE(permits({{"kv_cache_dtype", "int8"}}));
}

TEST(KvContractTest, OtherWordsAreRefused) {
  const KvContract high = int8_cache(KvFidelity::high);
  EXPECT_THAT(refusal({{"kv_fidelity", "best"}}, high), HasSubstr("exact, high, balanced or compact"));
  EXPECT_THAT(refusal({{"kv_cache_dtype", "int7"}}, high), HasSubstr("auto, fp32, fp16, int8"));
  EXPECT_NE(refusal({{"kv_fidelity", 3}}, high), "");
}

TEST(KvContractTest, TheReplySaysWhatWasUsed) {
  EXPECT_EQ(kv_cache_json(int8_cache(KvFidelity::high), 0), (Json{{"formats", "int8"}, {"fidelity", "high"}}));
  EXPECT_EQ(kv_cache_json(int8_cache(KvFidelity::high), 1), (Json{{"formats", "fp16"}, {"fidelity", "exact"}}));
  EXPECT_TRUE(kv_cache_json(int8_cache(std::nullopt), 0)["fidelity"].is_null());
  KvContract reencoding = int8_cache(KvFidelity::high);
  reencoding.reencoded = KvOffer{"int4", KvFidelity::balanced, 0};
  EXPECT_FALSE(kv_cache_json(reencoding, 0).contains("reencoded"));
  EXPECT_EQ(kv_cache_json(reencoding, 0, 96)["reencoded"],
            (Json{{"formats", "int4"}, {"fidelity", "balanced"}, {"tokens", 96}}));
}

}  // namespace
}  // namespace tidemill
