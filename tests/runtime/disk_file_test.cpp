#include "runtime/disk_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <fstream>

#include "test_data.h"

namespace tidemill {
namespace {

constexpr int32_t block_size = 16;
constexpr size_t payload = 5000;

class DiskFileTest : public ::testing::Test {
 protected:
  DiskFileOptions options() const {
    return {.path = path_,
            .budget_bytes = 1 << 20,
            .identity = "a model",
            .payload_bytes = {payload, 0, 0, 700},
            .groups = {0, 0, 1, 1},
            .block_size_tokens = block_size};
  }
  std::unique_ptr<DiskFile> open() {
    auto file = DiskFile::open(options());
    EXPECT_TRUE(file.ok()) << (file ? "" : file.error().message);
    return file ? *std::move(file) : nullptr;
  }
  std::string refused(DiskFileOptions options) {
    auto file = DiskFile::open(std::move(options));
    EXPECT_FALSE(file.ok());
    return file ? "" : file.error().message;
  }
  static DiskMove move_of(DiskMoveKind kind, uint32_t slot, uint8_t size_class = 0) {
    DiskMove move;
    move.kind = kind;
    move.group = size_class / 2;
    move.disk = {slot, size_class};
    move.hash = {slot, size_class};
    move.owner = slot * 3 + 1;
    for (int32_t i = 0; i < block_size; ++i) move.tokens.push_back(static_cast<TokenId>(slot * 100) + i);
    return move;
  }
  static std::vector<std::byte> bytes_of(uint32_t slot, size_t size) {
    std::vector<std::byte> bytes(size);
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(slot * 7 + i * 3 + i / 256 + 1);
    return bytes;
  }
  static bool ended_well(DiskFile& file) {
    std::vector<DiskEnd> ends;
    while (ends.empty()) {
      file.await(std::chrono::milliseconds(50));
      file.take_ends(ends);
    }
    EXPECT_EQ(ends.size(), 1u);
    return ends.front().ok;
  }
  bool store(DiskFile& file, uint32_t slot, uint8_t size_class = 0) {
    std::vector<std::byte> bytes = bytes_of(slot, size_class == 0 ? payload : 700);
    file.begin(move_of(DiskMoveKind::store, slot, size_class), bytes);
    return ended_well(file);
  }
  bool load(DiskFile& file, uint32_t slot, uint8_t size_class = 0) {
    std::vector<std::byte> bytes(size_class == 0 ? payload : 700);
    file.begin(move_of(DiskMoveKind::load, slot, size_class), bytes);
    const bool ok = ended_well(file);
    if (ok) {
      EXPECT_EQ(bytes, bytes_of(slot, bytes.size()));
    }
    return ok;
  }
  void flip(int64_t at) {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const int byte = file.get();
    file.seekp(at);
    file.put(static_cast<char>(byte ^ 16));
  }

  testing::TemporaryFolder folder_;
  std::filesystem::path path_ = folder_.path() / "kv";
};

TEST_F(DiskFileTest, WhatIsStoredIsLoadedAlsoAfterARestart) {
  HashKey key;
  {
    const auto file = open();
    key = file->hash_key();
    EXPECT_TRUE(file->take_stored_blocks().empty());
    for (uint32_t slot : {0, 1, 7}) EXPECT_TRUE(store(*file, slot));
    EXPECT_TRUE(store(*file, 2, 3));
    EXPECT_TRUE(load(*file, 7));
    EXPECT_FALSE(load(*file, 5)) << "never written";
    file->begin(move_of(DiskMoveKind::drop, 1), {});
    EXPECT_FALSE(load(*file, 1)) << "dropped";
  }
  struct stat status {};
  ASSERT_EQ(::stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  const auto file = open();
  EXPECT_EQ(file->hash_key(), key);
  const auto blocks = file->take_stored_blocks();
  ASSERT_EQ(blocks.size(), 3u);
  for (const auto& block : blocks) {
    const DiskMove move = move_of(DiskMoveKind::load, block.disk.slot, block.disk.size_class);
    EXPECT_EQ(block.hash, move.hash);
    EXPECT_EQ(block.tokens, move.tokens);
    EXPECT_EQ(block.group, block.disk.size_class / 2);
    EXPECT_EQ(block.owner, move.owner);
    EXPECT_TRUE(load(*file, block.disk.slot, block.disk.size_class));
  }
}

TEST_F(DiskFileTest, AFlippedBitAnywhereInARecordIsFound) {
  const size_t record = DiskFile::record_bytes(std::vector{payload}, block_size)[0];
  const std::vector<int64_t> places = {0, 9, 20, 30, 45, 50, 100, 200, 2000, static_cast<int64_t>(payload)};
  {
    const auto file = open();
    for (uint32_t slot = 0; slot < places.size(); ++slot) EXPECT_TRUE(store(*file, slot));
    EXPECT_TRUE(store(*file, static_cast<uint32_t>(places.size())));
  }
  for (size_t slot = 0; slot < places.size(); ++slot) flip(static_cast<int64_t>(4096 + slot * record) + places[slot]);
  const auto file = open();
  EXPECT_LT(file->take_stored_blocks().size(), places.size()) << "headers are checked at once";
  for (uint32_t slot = 0; slot < places.size(); ++slot) EXPECT_FALSE(load(*file, slot)) << "byte " << places[slot];
  EXPECT_TRUE(load(*file, static_cast<uint32_t>(places.size())));
  EXPECT_TRUE(store(*file, 3)) << "the place is good for others";
  EXPECT_TRUE(load(*file, 3));
}

TEST_F(DiskFileTest, AnotherContentAtThePlaceIsNotTaken) {
  const auto file = open();
  EXPECT_TRUE(store(*file, 4));
  std::vector<std::byte> bytes(payload);
  DiskMove other = move_of(DiskMoveKind::load, 4);
  other.tokens[3] += 1;
  file->begin(other, bytes);
  EXPECT_FALSE(ended_well(*file));
}

TEST_F(DiskFileTest, AnotherModelsFileIsBegunAnew) {
  const HashKey key = open()->hash_key();
  {
    const auto file = open();
    EXPECT_TRUE(store(*file, 0));
  }
  DiskFileOptions other = options();
  other.identity = "another model";
  {
    auto file = DiskFile::open(other);
    ASSERT_TRUE(file.ok());
    EXPECT_TRUE((*file)->take_stored_blocks().empty());
    EXPECT_NE((*file)->hash_key(), key);
  }
  const auto file = open();
  EXPECT_TRUE(file->take_stored_blocks().empty());
}

TEST_F(DiskFileTest, WhatIsNotOursIsLeftAlone) {
  folder_.write("kv", "somebody's letters, which must not be lost\n");
  EXPECT_NE(refused(options()).find("not a KV cache file"), std::string::npos);
  std::ifstream in(path_);
  std::string line;
  std::getline(in, line);
  EXPECT_EQ(line, "somebody's letters, which must not be lost");
  DiskFileOptions nowhere = options();
  nowhere.path = folder_.path() / "no" / "such" / "folder";
  EXPECT_NE(refused(nowhere).find("cannot be opened"), std::string::npos);
  nowhere.path = folder_.path();
  refused(nowhere);
}

TEST_F(DiskFileTest, TwoProcessesDoNotShareAFile) {
  const auto file = open();
  EXPECT_NE(refused(options()).find("used by another process"), std::string::npos);
}

TEST_F(DiskFileTest, AFullDiskStopsWritingButNotReading) {
  const auto file = open();
  EXPECT_TRUE(store(*file, 0));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 4096 + 2 * 8192, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  for (uint32_t slot = 10; slot < 14; ++slot) EXPECT_FALSE(store(*file, slot));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_FALSE(store(*file, 1)) << "no more are tried";
  EXPECT_TRUE(load(*file, 0));
}

TEST_F(DiskFileTest, ASmallerBudgetKeepsWhatFits) {
  {
    const auto file = open();
    for (uint32_t slot : {0, 1, 50}) EXPECT_TRUE(store(*file, slot));
  }
  DiskFileOptions small = options();
  small.budget_bytes = 10 * DiskFile::record_bytes(small.payload_bytes, block_size)[0];
  auto file = DiskFile::open(small);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ((*file)->take_stored_blocks().size(), 2u);
}

}  // namespace
}  // namespace tidemill
