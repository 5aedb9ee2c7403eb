// What tests of all folders share: where the data files and the downloaded models are, how a test says that one is
// absent, and folders to write into.
//
// Where everything is present a skipped test is a fault: tools/run_tests counts it as one.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace tidemill::testing {

inline std::filesystem::path data_path(const std::string& relative) {
  return std::filesystem::path(TIDEMILL_DATA) / relative;
}

inline std::filesystem::path golden_path(const std::string& relative) {
  return std::filesystem::path(TIDEMILL_GOLDEN) / relative;
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
}

// A model of models.txt in the model cache; it may be absent.
inline std::filesystem::path cached_model(const std::string& file) {
  const char* cache = std::getenv("TIDEMILL_CACHE");
  const char* home = std::getenv("HOME");
  const auto folder =
      cache ? std::filesystem::path(cache) : std::filesystem::path(home ? home : "") / ".cache/tidemill";
  return folder / file;
}

// A new folder of its own, removed with what is in it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "tidemill-test-XXXXXX").string();  // mkdtemp(3) fills it in
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::filesystem::path write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return path_ / name;
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace tidemill::testing

#define TM_NEEDS_FILE(path) \
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "needs " << (path).string() << ", which is absent"

#define TM_NEEDS_DATA(relative) TM_NEEDS_FILE(::tidemill::testing::data_path(relative))
