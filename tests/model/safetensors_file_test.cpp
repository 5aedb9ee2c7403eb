#include "model/safetensors_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <string>

#include "gguf_writer.h"
#include "test_data.h"

namespace tidemill {
namespace {

using ::testing::AllOf;
using testing::as_span;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Matcher;
using testing::raw;

std::string file_of(const std::string& header, const std::string& data = "") {
  return raw<uint64_t>(header.size()) + header + data;
}

void expect_refused(const std::string& bytes, const Matcher<std::string>& message) {
  const auto start = std::chrono::steady_clock::now();
  auto parsed = parse_safetensors(as_span(bytes));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
  ASSERT_FALSE(parsed.ok()) << "accepted " << bytes.substr(8, 100);
  EXPECT_THAT(parsed.error().message, message);
}

std::string tensor(const std::string& fields, size_t data_bytes = 8) {
  return file_of("{\"t\":{" + fields + "}}", std::string(data_bytes, '\0'));
}

TEST(SafetensorsFile, TensorsScalarsAndEmptyOnesLoad) {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"m":{"dtype":"F16","shape":[2,3],"data_offsets":[0,12]},)"
      R"("s":{"shape":[],"data_offsets":[12,16],"dtype":"F32"},)"
      R"("e":{"dtype":"BF16","shape":[4611686018427387904,4,0],"data_offsets":[16,16]}})";
  auto part = parse_safetensors(as_span(file_of(header + "     ", std::string(16, 'x'))), 3);
  ASSERT_TRUE(part.ok()) << part.error().message;
  ASSERT_EQ(part->tensors.size(), 3u);
  const TensorInfo &matrix = part->tensors[0], &scalar = part->tensors[1], &empty = part->tensors[2];
  EXPECT_EQ(matrix.name, "m");
  EXPECT_EQ(matrix.type, DType::f16);
  EXPECT_THAT(matrix.shape, ElementsAre(2, 3));
  EXPECT_EQ(matrix.offset_bytes, 8 + header.size() + 5);
  EXPECT_EQ(matrix.size_bytes, 12u);
  EXPECT_EQ(matrix.shard, 3u);
  EXPECT_THAT(scalar.shape, IsEmpty());
  EXPECT_EQ(scalar.num_values(), 1);
  EXPECT_EQ(empty.num_values(), 0);
  EXPECT_EQ(empty.size_bytes, 0u);
  EXPECT_TRUE(parse_safetensors(as_span(file_of("{}"))).ok());
}

TEST(SafetensorsFile, HeaderLengthIsNotBelieved) {
  expect_refused("1234567", HasSubstr("7 bytes"));
  expect_refused("", HasSubstr("0 bytes"));
  expect_refused(raw(~uint64_t{0}), AllOf(HasSubstr("18446744073709551615"), HasSubstr("only 0 follow")));
  expect_refused(raw<uint64_t>(8), HasSubstr("only 0 follow"));
  expect_refused(raw<uint64_t>(10) + "{}", HasSubstr("10 bytes long, but only 2"));
  expect_refused(raw<uint64_t>(0), HasSubstr("must begin with '{'"));
  expect_refused(raw<uint64_t>(0) + "{}", HasSubstr("must begin with '{'"));
  const std::string whole = tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])");
  EXPECT_TRUE(parse_safetensors(as_span(whole)).ok());
  for (size_t cut = 0; cut < whole.size(); ++cut) {
    EXPECT_FALSE(parse_safetensors(as_span(whole).first(cut)).ok()) << cut;
  }
}

TEST(SafetensorsFile, LimitOfTheHeaderIsNamed) {
  std::string bytes = raw<uint64_t>(SafetensorsLimits::header_bytes + 1);
  bytes.resize(8 + SafetensorsLimits::header_bytes + 1, ' ');
  expect_refused(bytes, AllOf(HasSubstr("100000001"), HasSubstr("limit of 100000000")));
}

TEST(SafetensorsFile, JsonThatIsNoHeaderIsRefused) {
  expect_refused(file_of("[]"), HasSubstr("must begin with '{'"));
  expect_refused(file_of("{"), HasSubstr("not valid JSON"));
  expect_refused(file_of(" {}"), HasSubstr("must begin with '{'"));
  expect_refused(file_of("\xFF\xFE"), HasSubstr("\\xFF\\xFE"));
  expect_refused(file_of("{}x"), HasSubstr("not valid JSON"));
  expect_refused(file_of("{\"a\xFF\":1}"), HasSubstr("not valid JSON"));
  std::string deep, list;
  for (int i = 0; i < 100000; ++i) deep += "{\"a\":";
  expect_refused(file_of(deep), HasSubstr("'a'"));
  expect_refused(file_of("{\"a\":" + std::string(100000, '[')), HasSubstr("must be an object, but is a list"));
  expect_refused(file_of(R"({"__metadata__":{"n":1}})"), AllOf(HasSubstr("__metadata__"), HasSubstr("'n'")));
  expect_refused(file_of(R"({"__metadata__":{"n":{}}})"), HasSubstr("__metadata__"));
  expect_refused(file_of(R"({"__metadata__":7})"), HasSubstr("__metadata__"));
  expect_refused(file_of(R"({"t":null})"), HasSubstr("'t' must be an object, but is null"));
  expect_refused(file_of("{\"" + std::string((16 << 20) + 2, 'x') + "\":1}"), HasSubstr("16777216"));
}

TEST(SafetensorsFile, ShapesAndOffsetsMustAgree) {
  const auto named = HasSubstr("'t'");
  expect_refused(file_of(R"({"t":{"dtype":"F32","shape":[1000,1000],"data_offsets":[0,4]}})", "1234"),
                 AllOf(named, HasSubstr("4 bytes"), HasSubstr("4000000")));
  expect_refused(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[8,4])"), AllOf(named, HasSubstr("[8, 4]")));
  expect_refused(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,9])"), AllOf(named, HasSubstr("8 bytes")));
  expect_refused(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[-1,3])"), AllOf(named, HasSubstr("-1")));
  expect_refused(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4.5])"), AllOf(named, HasSubstr("4.5")));
  expect_refused(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0])"), AllOf(named, HasSubstr("must have two")));
  expect_refused(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4,4])"), AllOf(named, HasSubstr("than two")));
  expect_refused(tensor(R"("dtype":"F32","shape":[1],"data_offsets":"04")"), AllOf(named, HasSubstr("data_offsets")));
  expect_refused(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[[0,4]])"), named);
  expect_refused(tensor(R"("dtype":"F32","shape":[1])"), AllOf(named, HasSubstr("no data_offsets")));
  expect_refused(tensor(R"("dtype":"F32","data_offsets":[0,4])"), AllOf(named, HasSubstr("no shape")));
  expect_refused(tensor(R"("shape":[1],"data_offsets":[0,4])"), AllOf(named, HasSubstr("no dtype")));
  expect_refused(tensor(R"("dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0])"), named);
  expect_refused(tensor(R"("dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0])"), named);
  expect_refused(tensor(R"("dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,0])"), named);
  expect_refused(tensor(R"("dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,0])"), named);
  expect_refused(tensor(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"), AllOf(named, HasSubstr("-2")));
  expect_refused(tensor(R"("dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4])"), HasSubstr("8 dim"));
  expect_refused(tensor(R"("dtype":"F99","shape":[1],"data_offsets":[0,4])"), AllOf(named, HasSubstr("F99")));
  expect_refused(tensor(R"("dtype":"I32","shape":[1],"data_offsets":[0,4])"), AllOf(named, HasSubstr("I32")));
  expect_refused(tensor(R"("dtype":7,"shape":[1],"data_offsets":[0,4])"), AllOf(named, HasSubstr("dtype")));
  expect_refused(tensor(R"("dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4])"), HasSubstr("twice"));
  expect_refused(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4],"more":1)"), HasSubstr("'more'"));
}

TEST(SafetensorsFile, TensorsAreApartAndNamedOnce) {
  auto two = [](const std::string& first, const std::string& second, const std::string& name) {
    return file_of("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":" + first + "},\"" + name +
                       "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":" + second + "}}",
                   "12345678");
  };
  EXPECT_TRUE(parse_safetensors(as_span(two("[4,8]", "[0,4]", "b"))).ok());
  expect_refused(two("[0,4]", "[2,6]", "b"), AllOf(HasSubstr("overlap"), HasSubstr("'a'"), HasSubstr("'b'")));
  expect_refused(two("[0,4]", "[4,8]", "a"), HasSubstr("'a' appears twice"));
}

TEST(SafetensorsIndex, NamesStayInTheFolder) {
  auto index = parse_safetensors_index(
      R"({"metadata":{"total_size":8,"x":[{"y":1}]},"weight_map":{"a":"m-2.safetensors","b":"m-1.safetensors","c":"m-2.safetensors"}})");
  ASSERT_TRUE(index.ok()) << index.error().message;
  EXPECT_THAT(index->files, ElementsAre("m-1.safetensors", "m-2.safetensors"));
  EXPECT_THAT(index->tensors, ElementsAre("a", "b", "c"));
  for (const char* name : {"../m.safetensors", "/etc/m.safetensors", "a\\\\m.safetensors", "", "..", ".m.safetensors",
                           "m.bin", "m\\u0000.safetensors", "d/m.safetensors"}) {
    auto bad = parse_safetensors_index(std::string(R"({"weight_map":{"a":")") + name + "\"}}");
    ASSERT_FALSE(bad.ok()) << name;
    EXPECT_THAT(bad.error().message, HasSubstr("'a'")) << name;
  }
}

TEST(SafetensorsIndex, OtherJsonIsRefused) {
  for (const char* text : {"", "[]", "{", "7", "{}", R"({"weight_map":{}})", R"({"weight_map":["a.safetensors"]})",
                           R"({"weight_map":"a.safetensors"})", R"({"weight_map":{"a":{"b":"c.safetensors"}}})",
                           R"({"weight_map":{"a":["c.safetensors"]}})", R"({"weight_map":{"a":7}})",
                           R"(["weight_map","a.safetensors"])"}) {
    EXPECT_FALSE(parse_safetensors_index(text).ok()) << text;
  }
  EXPECT_FALSE(parse_safetensors_index(std::string(100000, '[')).ok());
  EXPECT_FALSE(parse_safetensors_index("{\"metadata\":" + std::string(100000, '[')).ok());
}

// A model of two shards with one tensor each.
struct Shards {
  testing::TemporaryFolder folder;
  std::string map = R"({"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}})";

  Shards() {
    folder.write("m-1.safetensors", file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "AAAA"));
    folder.write("m-2.safetensors", file_of(R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "BBBB"));
  }
  Result<std::unique_ptr<WeightFile>> open() {
    return open_safetensors_index(folder.write("model.safetensors.index.json", map));
  }
};

TEST(SafetensorsIndex, ShardsOpenTogether) {
  Shards shards;
  auto file = shards.open();
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ((*file)->num_shards(), 2u);
  EXPECT_EQ((*file)->format(), "safetensors");
  const TensorInfo* second = (*file)->find("b");
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(std::memcmp((*file)->bytes(*second).data(), "BBBB", 4), 0);
}

TEST(SafetensorsIndex, WhatIsMissingIsNamed) {
  Shards shards;
  shards.map = R"({"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors","c":"m-2.safetensors"}})";
  EXPECT_THAT(shards.open().error().message, HasSubstr("tensor 'c'"));
  shards.map = R"({"weight_map":{"a":"m-1.safetensors","b":"m-3.safetensors"}})";
  EXPECT_THAT(shards.open().error().message, AllOf(HasSubstr("m-3.safetensors"), HasSubstr("missing")));
  shards.map = R"({"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}})";
  shards.folder.write("m-2.safetensors", file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "BBBB"));
  EXPECT_THAT(shards.open().error().message, AllOf(HasSubstr("m-2.safetensors"), HasSubstr("'a' appears twice")));
}

TEST(SafetensorsFile, PublishedFiles) {
  TM_NEEDS_DATA("tiny-safetensors");
  auto floats = open_safetensors(testing::data_path("tiny-safetensors/tensor-3d-float32.safetensors"));
  ASSERT_TRUE(floats.ok()) << floats.error().message;
  ASSERT_EQ((*floats)->tensors().size(), 1u);
  EXPECT_EQ((*floats)->tensors()[0].shape.size(), 3u);
  auto integers = open_safetensors(testing::data_path("tiny-safetensors/tensor-1d-int32.safetensors"));
  EXPECT_THAT(integers.error().message, AllOf(HasSubstr("tensor-1d-int32.safetensors"), HasSubstr("I32")));
  auto doubles = open_safetensors(testing::data_path("tiny-safetensors/tensor-2d-float64.safetensors"));
  EXPECT_THAT(doubles.error().message, HasSubstr("F64"));
}

}  // namespace
}  // namespace tidemill
