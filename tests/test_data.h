// Where tests find the public data files, and how they say that a folder is absent.
#pragma once

#include <gtest/gtest.h>

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

}  // namespace tidemill::testing

#define TM_NEEDS_DATA(relative)                                           \
  if (!std::filesystem::exists(::tidemill::testing::data_path(relative))) \
  GTEST_SKIP() << "needs " << ::tidemill::testing::data_path(relative).string() << ", which is absent"
