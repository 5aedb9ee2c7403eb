#include "base/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <utility>

#include "test_data.h"

namespace tidemill {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class MappedFileTest : public ::testing::Test {
 protected:
  std::filesystem::path write(const std::string& name, const std::string& bytes) { return folder_.write(name, bytes); }

  testing::TemporaryFolder folder_;
};

TEST_F(MappedFileTest, BytesOutliveMovesAndRelease) {
  std::string bytes(3 << 20, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7);
  auto opened = MappedFile::open(write("data.bin", bytes));
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  MappedFile file = *std::move(opened);
  EXPECT_EQ(file.name(), "data.bin");
  EXPECT_EQ(file.size_bytes(), bytes.size());
  MappedFile moved = std::move(file);
  file = std::move(moved);
  auto equal = [&] {
    return std::equal(bytes.begin(), bytes.end(), reinterpret_cast<const char*>(file.bytes().data()));
  };
  EXPECT_TRUE(equal());
  file.will_read(100, bytes.size());
  file.release(5000, 1 << 20);
  file.release(0, ~uint64_t{0});
  file.release(~uint64_t{0}, 10);
  EXPECT_TRUE(equal());
}

TEST_F(MappedFileTest, EmptyFile) {
  auto file = MappedFile::open(write("empty", ""));
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(file->bytes().empty());
  file->release(0, 1);
}

TEST_F(MappedFileTest, RefusalsNameTheFileWithoutItsFolder) {
  const auto named = [&](const std::string& name) {
    return AllOf(HasSubstr(name), Not(HasSubstr(folder_.path().string())));
  };
  EXPECT_THAT(MappedFile::open(folder_.path() / "absent").error().message, named("absent: cannot be opened"));
  ASSERT_EQ(::mkfifo((folder_.path() / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(MappedFile::open(folder_.path() / "pipe").error().message, named("pipe: is not a regular file"));
  std::filesystem::create_directory(folder_.path() / "inner");
  EXPECT_THAT(MappedFile::open(folder_.path() / "inner").error().message, named("inner: is not a regular file"));
}

}  // namespace
}  // namespace tidemill
