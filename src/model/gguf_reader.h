// A cursor over the bytes of a GGUF file that never reads past their end. Used by gguf_file.cpp only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "base/result.h"

namespace tidemill {

class GgufReader {
 public:
  explicit GgufReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  uint64_t offset() const { return offset_; }
  uint64_t rest() const { return bytes_.size() - offset_; }

  // `what` names the field for the message: "file ends at byte 24, inside the length of key 3".
  template <typename T>
  Result<T> value(std::string_view what) {
    if (rest() < sizeof(T)) return ends_inside(what);
    T out;
    std::memcpy(&out, bytes_.data() + offset_, sizeof(T));
    offset_ += sizeof(T);
    return out;
  }

  // A view into the file.
  Result<std::string_view> text(uint64_t length, std::string_view what) {
    if (length > rest()) {
      return error("{} at byte {} is said to be {} bytes long, but only {} bytes follow", what, offset_, length,
                   rest());
    }
    std::string_view view(reinterpret_cast<const char*>(bytes_.data() + offset_), length);
    offset_ += length;
    return view;
  }

 private:
  Error ends_inside(std::string_view what) const {
    return error("file ends at byte {}, inside {} (which starts at byte {})", bytes_.size(), what, offset_);
  }

  std::span<const std::byte> bytes_;
  uint64_t offset_ = 0;
};

}  // namespace tidemill
