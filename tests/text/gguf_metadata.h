// A small reader of GGUF metadata for tests: trusts its file. The real one is model/gguf_file, which text/ may not use.
#pragma once

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/metadata.h"

namespace tidemill::testing {

class GgufMetadata {
 public:
  static Metadata read(const std::filesystem::path& path) {
    GgufMetadata reader(path);
    Metadata metadata;
    reader.number<uint64_t>();  // magic and version
    reader.number<uint64_t>();  // tensors
    const auto num_keys = reader.number<uint64_t>();
    for (uint64_t i = 0; i < num_keys; ++i) {
      std::string key = reader.string();
      const auto type = reader.number<uint32_t>();
      metadata.set(std::move(key), type == 9 ? Metadata::Value(reader.array()) : reader.scalar(type));
    }
    return metadata;
  }

 private:
  explicit GgufMetadata(const std::filesystem::path& path) : in_(path, std::ios::binary) {}

  template <typename T>
  T number() {
    T value{};
    in_.read(reinterpret_cast<char*>(&value), sizeof(value));
    return value;
  }

  std::string string() {
    std::string text(number<uint64_t>(), '\0');
    in_.read(text.data(), static_cast<std::streamsize>(text.size()));
    return text;
  }

  int64_t integer(uint32_t type) {
    switch (type) {
      case 0:
        return number<uint8_t>();
      case 1:
        return number<int8_t>();
      case 2:
        return number<uint16_t>();
      case 3:
        return number<int16_t>();
      case 4:
        return number<uint32_t>();
      case 5:
        return number<int32_t>();
      case 7:
        return number<uint8_t>() != 0;
      default:
        return number<int64_t>();
    }
  }

  Metadata::Value scalar(uint32_t type) {
    if (type == 8) return string();
    if (type == 6) return static_cast<double>(number<float>());
    if (type == 12) return number<double>();
    if (type == 7) return integer(type) != 0;
    return integer(type);
  }

  Metadata::Array array() {
    static const char* const names[] = {"u8",   "i8",  "u16", "i16", "u32", "i32", "f32",
                                        "bool", "str", "arr", "u64", "i64", "f64"};
    const auto type = number<uint32_t>();
    const auto count = number<uint64_t>();
    Metadata::Array array{names[type], {}};
    if (type == 8) {
      auto& items = array.values.emplace<std::vector<std::string>>();
      for (uint64_t i = 0; i < count; ++i) items.push_back(string());
    } else if (type == 6 || type == 12) {
      auto& items = array.values.emplace<std::vector<double>>();
      for (uint64_t i = 0; i < count; ++i) items.push_back(type == 6 ? number<float>() : number<double>());
    } else {
      auto& items = array.values.emplace<std::vector<int64_t>>();
      for (uint64_t i = 0; i < count; ++i) items.push_back(integer(type));
    }
    return array;
  }

  std::ifstream in_;
};

}  // namespace tidemill::testing
