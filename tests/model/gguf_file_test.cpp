#include "model/gguf_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>

#include "gguf_writer.h"
#include "test_data.h"

namespace tidemill {
namespace {

using ::testing::AllOf;
using testing::as_span;
using ::testing::ElementsAre;
using testing::Gguf;
using testing::gguf_array;
using testing::gguf_string;
using testing::gguf_strings;
using testing::GgufWriter;
using ::testing::HasSubstr;
using ::testing::Matcher;
using testing::raw;
using testing::tiny_gguf;

std::string header(uint64_t num_tensors, uint64_t num_keys, uint32_t version = 3) {
  return "GGUF" + raw(version) + raw(num_tensors) + raw(num_keys);
}

std::string one_key(const std::string& rest) {
  return header(0, 1) + gguf_string("k") + rest;
}

void expect_refused(const std::string& bytes, const Matcher<std::string>& message) {
  const auto start = std::chrono::steady_clock::now();
  auto parsed = parse_gguf(as_span(bytes));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
  ASSERT_FALSE(parsed.ok()) << "accepted";
  EXPECT_THAT(parsed.error().message, message);
}

TEST(GgufFile, TinyModelLoads) {
  auto part = parse_gguf(as_span(tiny_gguf().bytes()), 7);
  ASSERT_TRUE(part.ok()) << part.error().message;
  EXPECT_EQ(part->version, 3u);
  EXPECT_EQ(*part->metadata.integer("llama.block_count"), 2);
  EXPECT_EQ(*part->metadata.string("general.name"), "tiny-A");
  EXPECT_EQ((*part->metadata.array("tokenizer.ggml.tokens"))->size(), 260u);
  ASSERT_EQ(part->tensors.size(), 20u);
  const TensorInfo& embedding = part->tensors[0];
  EXPECT_EQ(embedding.name, "token_embd.weight");
  EXPECT_THAT(embedding.shape, ElementsAre(260, 64)) << "outermost first";
  EXPECT_EQ(embedding.size_bytes, 260u * 64 * 4);
  EXPECT_EQ(embedding.offset_bytes, part->data_offset_bytes);
  EXPECT_EQ(embedding.shard, 7u);
}

TEST(GgufFile, EveryValueTypeIsKept) {
  GgufWriter out;
  out.set("a.u8", Gguf::u8, raw<uint8_t>(200)).set("a.i8", Gguf::i8, raw<int8_t>(-7));
  out.set("a.u16", Gguf::u16, raw<uint16_t>(60000)).set("a.i16", Gguf::i16, raw<int16_t>(-3));
  out.set("a.i32", Gguf::i32, raw<int32_t>(-5)).set("a.i64", Gguf::i64, raw<int64_t>(-1));
  out.set("a.u64", Gguf::u64, raw<uint64_t>(5)).set("a.big", Gguf::u64, raw<uint64_t>(~uint64_t{0}));
  out.set("a.f64", Gguf::f64, raw<double>(0.1)).set("a.yes", Gguf::boolean, raw<uint8_t>(1));
  out.set("a.floats", Gguf::array, gguf_array<float>(Gguf::f32, {1.5f, -2}));
  out.set("a.bytes", Gguf::array, gguf_array<int8_t>(Gguf::i8, {-1, 2}));
  out.set("a.flags", Gguf::array, gguf_array<uint8_t>(Gguf::boolean, {1, 0}));
  out.set("a.none", Gguf::array, gguf_strings({}));
  auto part = parse_gguf(as_span(out.bytes()));
  ASSERT_TRUE(part.ok()) << part.error().message;
  const Metadata& metadata = part->metadata;
  EXPECT_EQ(*metadata.integer("a.u8"), 200);
  EXPECT_EQ(*metadata.integer("a.i8"), -7);
  EXPECT_EQ(*metadata.integer("a.u16"), 60000);
  EXPECT_EQ(*metadata.integer("a.i16"), -3);
  EXPECT_EQ(*metadata.integer("a.i32"), -5);
  EXPECT_EQ(*metadata.integer("a.i64"), -1);
  EXPECT_EQ(*metadata.integer("a.u64"), 5);
  EXPECT_EQ(std::get<uint64_t>(*metadata.find("a.big")), ~uint64_t{0});
  EXPECT_EQ(*metadata.number("a.f64"), 0.1);
  EXPECT_EQ(*metadata.boolean("a.yes"), true);
  const auto* floats = *metadata.array("a.floats");
  EXPECT_EQ(floats->element_type, "f32");
  EXPECT_THAT(std::get<std::vector<double>>(floats->values), ElementsAre(1.5, -2));
  const auto* bytes = *metadata.array("a.bytes");
  EXPECT_EQ(bytes->element_type, "i8");
  EXPECT_THAT(std::get<std::vector<int64_t>>(bytes->values), ElementsAre(-1, 2));
  EXPECT_EQ((*metadata.array("a.flags"))->element_type, "bool");
  EXPECT_EQ((*metadata.array("a.none"))->size(), 0u);
  out.version = 2;
  EXPECT_TRUE(parse_gguf(as_span(out.bytes())).ok());
}

TEST(GgufFile, EveryCutIsRefused) {
  const GgufWriter tiny = tiny_gguf();
  const std::string whole = tiny.bytes();
  std::vector<size_t> cuts;
  for (size_t i = 0; i < 4096; ++i) cuts.push_back(i);
  const size_t data = whole.size() - tiny.data.size();
  for (const auto& tensor : tiny.tensors) cuts.push_back(data + tensor.offset);
  cuts.push_back(tiny.head().size());
  cuts.push_back(whole.size() - 1);
  for (size_t cut : cuts) {
    auto parsed = parse_gguf(as_span(whole).first(cut));
    ASSERT_FALSE(parsed.ok()) << "cut at " << cut;
  }
}

TEST(GgufFile, CountsAndLengthsAreNotBelieved) {
  expect_refused("", HasSubstr("not a GGUF file"));
  expect_refused("GGUF", AllOf(HasSubstr("ends at byte 4"), HasSubstr("version")));
  expect_refused(header(0, uint64_t{1} << 32), HasSubstr("4294967296"));
  expect_refused(header(uint64_t{1} << 61, 0), HasSubstr("2305843009213693952"));
  expect_refused(header(0, 5), HasSubstr("announces 5 metadata keys"));
  expect_refused(header(3, 0), HasSubstr("3 tensors"));
  expect_refused(header(0, 1) + raw<uint64_t>(0x0000FFFFFFFFFFFF), HasSubstr("announces 1 metadata keys"));
  expect_refused(header(0, 1) + raw<uint64_t>(0x0000FFFFFFFFFFFF) + std::string(64, 'x'),
                 AllOf(HasSubstr("metadata key 0"), HasSubstr("281474976710655"), HasSubstr("64 bytes follow")));
  expect_refused(header(0, 1) + raw<uint64_t>(70000) + std::string(80000, 'x'), HasSubstr("limit of 65535"));
  expect_refused(one_key(raw<uint32_t>(Gguf::str) + raw(uint64_t{1} << 63)),
                 AllOf(HasSubstr("'k'"), HasSubstr("9223372036854775808")));
  expect_refused(one_key(raw<uint32_t>(Gguf::array) + raw<uint32_t>(Gguf::u8) + raw(uint64_t{1} << 63)),
                 AllOf(HasSubstr("'k'"), HasSubstr("9223372036854775808 elements")));
  // The count times 8 wraps to 8.
  expect_refused(
      one_key(raw<uint32_t>(Gguf::array) + raw<uint32_t>(Gguf::u64) + raw((uint64_t{1} << 61) + 1) + raw<uint64_t>(0)),
      HasSubstr("'k'"));
}

TEST(GgufFile, VersionsAndValueTypes) {
  expect_refused(header(0, 0, 0), HasSubstr("version at byte 4 is 0"));
  expect_refused(header(0, 0, 1), HasSubstr("only versions 2 and 3"));
  expect_refused(header(0, 0, 4), HasSubstr("version at byte 4 is 4"));
  expect_refused(header(0, 0, 0x03000000), HasSubstr("big-endian"));
  expect_refused(one_key(raw<uint32_t>(13) + raw<uint64_t>(0)), HasSubstr("value type 13"));
  expect_refused(one_key(raw<uint32_t>(Gguf::array) + raw<uint32_t>(99) + raw<uint64_t>(0)), HasSubstr("99"));
  expect_refused(one_key(raw<uint32_t>(Gguf::array) + raw<uint32_t>(Gguf::array) + raw<uint64_t>(1) +
                         raw<uint32_t>(Gguf::u8) + raw<uint64_t>(0)),
                 HasSubstr("array of arrays"));
  expect_refused(one_key(raw<uint32_t>(Gguf::boolean) + raw<uint8_t>(2)), HasSubstr("must be 0 or 1"));
  EXPECT_TRUE(parse_gguf(as_span(header(0, 0))).ok());
}

TEST(GgufFile, NamesAppearOnce) {
  GgufWriter keys;
  keys.u32("a", 1);
  keys.keys.push_back(keys.keys[0]);
  expect_refused(keys.bytes(), HasSubstr("'a' appears twice"));

  testing::TemporaryFolder folder;
  GgufWriter tensors;
  tensors.zeros("t", {16}).zeros("t", {16});
  auto opened = open_gguf(folder.write("m.gguf", tensors.bytes()));
  ASSERT_FALSE(opened.ok());
  EXPECT_THAT(opened.error().message, AllOf(HasSubstr("m.gguf"), HasSubstr("'t' appears twice")));
}

// One tensor entry with 64 bytes of data behind it, unless more is given.
std::string with_tensor(uint32_t type, std::vector<uint64_t> dims, uint64_t offset = 0, size_t data_bytes = 64) {
  GgufWriter out;
  out.tensors.push_back({"t", type, std::move(dims), offset});
  out.data.assign(data_bytes, '\0');
  return out.bytes();
}

TEST(GgufFile, SizesThatWrapAreRefused) {
  const auto named = HasSubstr("'t'");
  EXPECT_TRUE(parse_gguf(as_span(with_tensor(0, {16}))).ok());
  constexpr uint64_t one = 1;
  expect_refused(with_tensor(24, {(one << 63) - 1, 2}), AllOf(named, HasSubstr("I8")));
  expect_refused(with_tensor(0, {(one << 63) - 1, 2}), AllOf(named, HasSubstr("product")));
  expect_refused(with_tensor(0, {one << 20, (one << 42) + 1}, 0, 4 << 20), named);
  expect_refused(with_tensor(0, {(one << 62) - 1}), AllOf(named, HasSubstr("2^63-1")));
  expect_refused(with_tensor(0, {16}, ~uint64_t{0} - 31), AllOf(named, HasSubstr("18446744073709551584")));
  expect_refused(with_tensor(0, {16}, one << 40), AllOf(named, HasSubstr("1099511627776")));
  expect_refused(with_tensor(0, {16}, 0, 63), AllOf(named, HasSubstr("63 bytes")));
  expect_refused(with_tensor(0, {8}, 4), AllOf(named, HasSubstr("multiple of the alignment 32")));

  GgufWriter sum;
  sum.tensors.push_back({"a", 25, {one << 62}, 0});
  sum.tensors.push_back({"b", 25, {one << 62}, one << 63});
  expect_refused(sum.bytes(), HasSubstr("'a'"));
  for (auto& tensor : sum.tensors) tensor.type = 1;
  expect_refused(sum.bytes(), HasSubstr("'a'"));
}

TEST(GgufFile, OverlapIsRefused) {
  GgufWriter out;
  out.tensors.push_back({"a", 0, {16}, 0});
  out.tensors.push_back({"b", 0, {16}, 0});
  out.data.assign(128, '\0');
  expect_refused(out.bytes(), AllOf(HasSubstr("overlap"), HasSubstr("'a'"), HasSubstr("'b'")));
  out.tensors[0].offset = 32;
  expect_refused(out.bytes(), HasSubstr("overlap"));
  out.tensors[0].offset = 64;
  EXPECT_TRUE(parse_gguf(as_span(out.bytes())).ok()) << "the order of the file is not the order of the data";
}

TEST(GgufFile, AlignmentIsChecked) {
  for (uint32_t bad : {0u, 3u, 4u, 0x80000000u}) {
    expect_refused(header(0, 1) + gguf_string("general.alignment") + raw<uint32_t>(Gguf::u32) + raw(bad),
                   AllOf(HasSubstr("general.alignment"), HasSubstr(std::to_string(bad))));
  }
  expect_refused(header(0, 1) + gguf_string("general.alignment") + raw<uint32_t>(Gguf::i32) + raw<int32_t>(32),
                 AllOf(HasSubstr("u32"), HasSubstr("i32")));
  expect_refused(header(0, 1) + gguf_string("general.alignment") + raw<uint32_t>(Gguf::array) +
                     gguf_array<uint32_t>(Gguf::u32, {32}),
                 HasSubstr("array"));
  GgufWriter wide;
  wide.alignment = 64;
  wide.u32("general.alignment", 64).zeros("a", {4}).zeros("b", {4});
  auto part = parse_gguf(as_span(wide.bytes()));
  ASSERT_TRUE(part.ok()) << part.error().message;
  EXPECT_EQ(part->tensors[1].offset_bytes, part->data_offset_bytes + 64);
  EXPECT_EQ(part->data_offset_bytes % 64, 0u);
}

TEST(GgufFile, DimensionsAndTypesAreChecked) {
  for (uint32_t count : {0u, 5u, 0xFFFFFFFFu}) {
    GgufWriter out;
    out.tensors.push_back({"t", 0, {16, 1, 1, 1, 1}, 0, count});
    out.data.assign(64, '\0');
    expect_refused(out.bytes(), AllOf(HasSubstr("'t'"), HasSubstr(std::to_string(count))));
  }
  expect_refused(with_tensor(0, {16, 0}), AllOf(HasSubstr("'t'"), HasSubstr("dimension 1")));
  expect_refused(with_tensor(0, {uint64_t{1} << 63}), HasSubstr("'t'"));
  expect_refused(with_tensor(9999, {16}), AllOf(HasSubstr("'t'"), HasSubstr("9999")));
  for (uint32_t retired : {4u, 5u, 31u, 36u}) {
    expect_refused(with_tensor(retired, {16}), AllOf(HasSubstr("'t'"), HasSubstr("retired")));
  }
  expect_refused(with_tensor(17, {256}), HasSubstr("IQ2_XS"));
  expect_refused(with_tensor(8, {33}), AllOf(HasSubstr("'t'"), HasSubstr("33"), HasSubstr("32")));
  // Whole blocks in all, but not in each row.
  expect_refused(with_tensor(8, {16, 2}), AllOf(HasSubstr("'t'"), HasSubstr("16")));
}

TEST(GgufFile, LimitsOfOurOwnAreNamed) {
  GgufWriter out;
  out.set("k", Gguf::array,
          raw<uint32_t>(Gguf::u8) + raw(GgufLimits::array_elements + 1) +
              std::string(GgufLimits::array_elements + 1, '\0'));
  expect_refused(out.bytes(), AllOf(HasSubstr("'k'"), HasSubstr("4194304")));
  GgufWriter strings;
  strings.set("k", Gguf::array, gguf_strings(std::vector<std::string>(GgufLimits::array_strings + 1)));
  expect_refused(strings.bytes(), AllOf(HasSubstr("'k'"), HasSubstr("1048576 strings")));
  GgufWriter text;
  text.text("k", std::string(GgufLimits::string_bytes + 1, 'x'));
  expect_refused(text.bytes(), AllOf(HasSubstr("'k'"), HasSubstr("50331648")));
}

TEST(GgufFile, LongTokenIsKeptWhole) {
  GgufWriter out;
  out.set("tokenizer.ggml.tokens", Gguf::array, gguf_strings({"a", std::string(70000, 'x')}));
  auto part = parse_gguf(as_span(out.bytes()));
  ASSERT_TRUE(part.ok()) << part.error().message;
  EXPECT_EQ(std::get<std::vector<std::string>>((*part->metadata.array("tokenizer.ggml.tokens"))->values)[1].size(),
            70000u);
}

TEST(GgufFile, MessagesAreCleanText) {
  GgufWriter out;
  out.set("bad\xFF\nkey", 77, "");
  auto parsed = parse_gguf(as_span(out.bytes() + std::string(64, '\0')));
  ASSERT_FALSE(parsed.ok());
  EXPECT_THAT(parsed.error().message, HasSubstr("bad\\xFF\\x0Akey"));
}

// Three parts of one model; what each says of itself can be changed.
struct Split {
  testing::TemporaryFolder folder;
  GgufWriter parts[3];

  Split() {
    for (uint16_t i = 0; i < 3; ++i) {
      parts[i].set("split.no", Gguf::u16, raw<uint16_t>(i)).set("split.count", Gguf::u16, raw<uint16_t>(3));
      parts[i].set("split.tensors.count", Gguf::i32, raw<int32_t>(3));
      parts[i].zeros("t" + std::to_string(i), {16});
      parts[i].data[0] = static_cast<char>('A' + i);
    }
    parts[0].text("general.architecture", "llama");
  }
  Result<std::unique_ptr<WeightFile>> open(int which = 1) {
    for (int i = 0; i < 3; ++i) {
      folder.write(fmt::format("m-0000{}-of-00003.gguf", i + 1), parts[i].bytes());
    }
    return open_gguf(folder.path() / fmt::format("m-0000{}-of-00003.gguf", which));
  }
};

TEST(GgufFile, SplitModelOpensFromAnyPart) {
  Split split;
  for (int which : {1, 2, 3}) {
    auto file = split.open(which);
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ((*file)->num_shards(), 3u);
    EXPECT_EQ((*file)->tensors().size(), 3u);
    EXPECT_EQ(*(*file)->metadata().string("general.architecture"), "llama");
    const TensorInfo* last = (*file)->find("t2");
    ASSERT_NE(last, nullptr);
    EXPECT_EQ(static_cast<char>((*file)->bytes(*last)[0]), 'C');
  }
}

TEST(GgufFile, IncompleteSplitIsRefused) {
  Split split;
  ASSERT_TRUE(split.open().ok());
  std::filesystem::remove(split.folder.path() / "m-00002-of-00003.gguf");
  auto missing = open_gguf(split.folder.path() / "m-00001-of-00003.gguf");
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message, AllOf(HasSubstr("m-00002-of-00003.gguf"), HasSubstr("missing")));

  split.parts[1].set("split.no", Gguf::u16, raw<uint16_t>(2));
  EXPECT_THAT(split.open().error().message, HasSubstr("m-00002-of-00003.gguf"));
  split.parts[1].set("split.no", Gguf::u16, raw<uint16_t>(1));
  split.parts[0].set("split.tensors.count", Gguf::i32, raw<int32_t>(4));
  EXPECT_THAT(split.open().error().message, HasSubstr("split.tensors.count is 4"));
  split.parts[0].set("split.tensors.count", Gguf::i32, raw<int32_t>(3));
  split.parts[2].tensors[0].name = "t0";
  EXPECT_THAT(split.open().error().message, HasSubstr("'t0' appears twice"));

  auto renamed = open_gguf(split.folder.write("other.gguf", split.parts[0].bytes()));
  EXPECT_THAT(renamed.error().message, HasSubstr("-of-00003.gguf"));
}

TEST(GgufFile, WhatIsNotAFileIsRefused) {
  testing::TemporaryFolder folder;
  EXPECT_THAT(open_gguf(folder.path() / "absent.gguf").error().message, HasSubstr("absent.gguf: cannot be opened"));
  EXPECT_FALSE(open_gguf(folder.path()).ok());
  EXPECT_THAT(open_gguf(folder.write("empty.gguf", "")).error().message, HasSubstr("not a GGUF file"));
}

TEST(GgufFile, PublishedVocabulariesLoad) {
  TM_NEEDS_DATA("ggml-vocab");
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(testing::data_path("ggml-vocab"))) {
    if (entry.path().extension() != ".gguf") continue;
    auto file = open_gguf(entry.path());
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_TRUE((*file)->tensors().empty());
    EXPECT_GT((*(*file)->metadata().array("tokenizer.ggml.tokens"))->size(), 10000u);
    ++files;
  }
  EXPECT_EQ(files, 10);
}

TEST(GgufFile, TinyModelsLoad) {
  TM_NEEDS_DATA("tiny-models");
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(testing::data_path("tiny-models"))) {
    if (!std::filesystem::exists(entry.path() / "model.gguf")) continue;
    auto file = open_gguf(entry.path() / "model.gguf");
    ASSERT_TRUE(file.ok()) << file.error().message;
    const TensorInfo* embedding = (*file)->find("token_embd.weight");
    ASSERT_NE(embedding, nullptr);
    EXPECT_THAT(embedding->shape, ElementsAre(384, 64));
    ++files;
  }
  EXPECT_EQ(files, 18);
}

}  // namespace
}  // namespace tidemill
