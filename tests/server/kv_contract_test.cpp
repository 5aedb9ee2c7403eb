#include "server/kv_contract.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tidemill {
namespace {

using ::testing::HasSubstr;

KvContract int8_cache(std::optional<KvFidelity> fidelity) {
  return {.formats = "int8",
          .fidelity = fidelity,
          .least_bits = 8,
          .bits_by_format = {{"fp32", 32}, {"fp16", 16}, {"int8", 8}, {"fp8_e4m3", 8}, {"int4", 4}}};
}

// The sentence of the refusal; "" where there is none.
std::string refusal(const Json& body, const KvContract& contract) {
  Fields fields(body);
  read_kv_contract(fields, contract);
  return fields.failed() ? fields.error()->message : "";
}

TEST(KvContractTest, WhatTheCacheKeepsIsAccepted) {
  const KvContract high = int8_cache(KvFidelity::high);
  for (const char* level : {"high", "balanced", "compact"}) EXPECT_EQ(refusal({{"kv_fidelity", level}}, high), "");
  for (const char* format : {"auto", "int8", "fp8_e4m3", "int4"})
    EXPECT_EQ(refusal({{"kv_cache_dtype", format}}, high), "");
  EXPECT_EQ(refusal({{"kv_fidelity", "high"}, {"kv_cache_dtype", "int4"}}, high), "");
  EXPECT_EQ(refusal(Json::object(), high), "");
}

TEST(KvContractTest, WhatItDoesNotKeepIsRefusedByName) {
  const KvContract high = int8_cache(KvFidelity::high);
  EXPECT_THAT(refusal({{"kv_fidelity", "exact"}}, high), HasSubstr("in int8, is high"));
  EXPECT_THAT(refusal({{"kv_cache_dtype", "fp16"}}, high), HasSubstr("16 bits"));
  // The stricter of the two counts.
  EXPECT_NE(refusal({{"kv_fidelity", "compact"}, {"kv_cache_dtype", "fp16"}}, high), "");
  EXPECT_NE(refusal({{"kv_fidelity", "exact"}, {"kv_cache_dtype", "int4"}}, high), "");
}

TEST(KvContractTest, NothingIsPromisedThatWasNotMeasured) {
  EXPECT_THAT(refusal({{"kv_fidelity", "compact"}}, int8_cache(std::nullopt)), HasSubstr("not measured"));
  EXPECT_EQ(refusal({{"kv_cache_dtype", "int8"}}, int8_cache(std::nullopt)), "");
}

TEST(KvContractTest, OtherWordsAreRefused) {
  const KvContract high = int8_cache(KvFidelity::high);
  EXPECT_THAT(refusal({{"kv_fidelity", "best"}}, high), HasSubstr("exact, high, balanced or compact"));
  EXPECT_THAT(refusal({{"kv_cache_dtype", "int7"}}, high), HasSubstr("auto, fp32, fp16, int8"));
  EXPECT_NE(refusal({{"kv_fidelity", 3}}, high), "");
}

TEST(KvContractTest, TheReplySaysWhatWasUsed) {
  const Json asked = {{"kv_fidelity", "high"}};
  Fields fields(asked);
  EXPECT_TRUE(read_kv_contract(fields, int8_cache(KvFidelity::high)));
  const Json nothing = Json::object();
  Fields none(nothing);
  EXPECT_FALSE(read_kv_contract(none, int8_cache(KvFidelity::high)));
  EXPECT_EQ(kv_cache_json(int8_cache(KvFidelity::high)), (Json{{"formats", "int8"}, {"fidelity", "high"}}));
  EXPECT_TRUE(kv_cache_json(int8_cache(std::nullopt))["fidelity"].is_null());
}

}  // namespace
}  // namespace tidemill
