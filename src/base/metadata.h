// The typed key-value part of a model file, independent of the file's format.
//
// A GGUF file's metadata is read into it by model/gguf_file; text/ builds tokenizers from it without knowing files.
// A plain value: copyable, no views into the file. Lookups by exact key; typed getters answer an Error that names the
// key, the expected type and the found one.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace tidemill {

class Metadata {
 public:
  // Integers of every width become int64 (a u64 above 2^63-1 is kept as uint64), floats become double.
  // element_type is the GGUF value type name ("u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "str", "u64",
  // "i64", "f64"), so that a reader can refuse an array of the wrong element type.
  struct Array {
    std::string element_type;
    std::variant<std::vector<int64_t>, std::vector<double>, std::vector<std::string>> values;
    size_t size() const;
  };
  using Value = std::variant<bool, int64_t, uint64_t, double, std::string, Array>;

  void set(std::string key, Value value) { values_.insert_or_assign(std::move(key), std::move(value)); }
  const Value* find(std::string_view key) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }
  const std::map<std::string, Value, std::less<>>& all() const { return values_; }

  // Absent keys give the fallback; a value of another type gives an Error.
  Result<int64_t> integer(std::string_view key, std::optional<int64_t> fallback = {}) const;
  Result<double> number(std::string_view key, std::optional<double> fallback = {}) const;
  Result<bool> boolean(std::string_view key, std::optional<bool> fallback = {}) const;
  Result<std::string> string(std::string_view key, std::optional<std::string> fallback = {}) const;
  // nullptr when absent; an Error when the key holds something that is not an array.
  Result<const Array*> array(std::string_view key) const;

  static const char* type_name(const Value& value);

 private:
  std::map<std::string, Value, std::less<>> values_;
};

}  // namespace tidemill
