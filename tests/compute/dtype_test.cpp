#include "compute/dtype.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <utility>

namespace tidemill {
namespace {

using ::testing::HasSubstr;

TEST(DType, GgufIdsGiveTheTypeOfThatName) {
  const std::pair<uint32_t, DType> rows[] = {
      {0, DType::f32},   {1, DType::f16},   {2, DType::q4_0},    {3, DType::q4_1},  {6, DType::q5_0},
      {7, DType::q5_1},  {8, DType::q8_0},  {10, DType::q2_k},   {11, DType::q3_k}, {12, DType::q4_k},
      {13, DType::q5_k}, {14, DType::q6_k}, {20, DType::iq4_nl}, {30, DType::bf16}, {39, DType::mxfp4}};
  for (auto [id, type] : rows) {
    auto found = dtype_from_gguf(id);
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(*found, type) << dtype_name(type);
  }
}

TEST(DType, OtherGgufTypesAreRefusedByName) {
  EXPECT_THAT(dtype_from_gguf(17).error().message, HasSubstr("IQ2_XS "));
  EXPECT_THAT(dtype_from_gguf(24).error().message, HasSubstr("I8 "));
  EXPECT_THAT(dtype_from_gguf(40).error().message, HasSubstr("NVFP4"));
  for (uint32_t id : {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u}) {
    EXPECT_THAT(dtype_from_gguf(id).error().message, HasSubstr("retired")) << id;
  }
  EXPECT_THAT(dtype_from_gguf(9999).error().message, HasSubstr("9999"));
  EXPECT_FALSE(dtype_from_gguf(0xFFFFFFFF).ok());
}

TEST(DType, SafetensorsNames) {
  EXPECT_EQ(*dtype_from_safetensors("BF16"), DType::bf16);
  EXPECT_THAT(dtype_from_safetensors("F8_E4M3").error().message, HasSubstr("F8_E4M3"));
  EXPECT_THAT(dtype_from_safetensors("F99").error().message, HasSubstr("'F99' is unknown"));
  EXPECT_FALSE(dtype_from_safetensors("f32").ok());
}

TEST(DType, BytesOfValues) {
  EXPECT_EQ(bytes_of_values(DType::q4_k, 512), 288);
  EXPECT_EQ(bytes_of_values(DType::q8_0, 33), std::nullopt);
  EXPECT_EQ(bytes_of_values(DType::f32, -1), std::nullopt);
  EXPECT_EQ(bytes_of_values(DType::f32, 0), 0);
  EXPECT_EQ(bytes_of_values(DType::f32, (int64_t{1} << 62) - 1), std::nullopt);
  constexpr int64_t most = std::numeric_limits<int64_t>::max() / 32 * 32;
  EXPECT_EQ(bytes_of_values(DType::q4_0, most), most / 32 * 18);
  EXPECT_EQ(bytes_of_values(DType::q8_0, most), std::nullopt);
}

}  // namespace
}  // namespace tidemill
