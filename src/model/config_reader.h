// Typed and bounded look-ups in a model's configuration, whichever kind of file it came from.
//
// Used while a ModelConfig is filled: each call answers with a value that is in its range, and the first thing that is
// wrong is kept and makes the whole reading fail, so that the code that fills needs no check after every line.
// One thread; the source must outlive the reader.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/metadata.h"
#include "base/result.h"

namespace tidemill {

template <typename T>
struct Range {
  T least;
  T most;
};

// Where values come from. nullopt: the key is absent (or null, in JSON). An Error names key, expected and found type.
class ConfigValues {
 public:
  virtual ~ConfigValues() = default;
  virtual Result<std::optional<int64_t>> integer(std::string_view key) const = 0;
  virtual Result<std::optional<double>> number(std::string_view key) const = 0;
  virtual Result<std::optional<bool>> boolean(std::string_view key) const = 0;
  virtual Result<std::optional<std::string>> string(std::string_view key) const = 0;
  // A list; where the key holds one integer or boolean, a list of one.
  virtual Result<std::optional<std::vector<int64_t>>> integers(std::string_view key) const = 0;
  virtual bool is_list(std::string_view key) const = 0;
  // The key as it stands in the file, for messages: "metadata key 'llama.block_count'".
  virtual std::string shown(std::string_view key) const = 0;
};

// Keys are looked up behind a prefix: "llama." + "block_count".
class MetadataValues final : public ConfigValues {
 public:
  MetadataValues(const Metadata& metadata, std::string prefix) : metadata_(metadata), prefix_(std::move(prefix)) {}
  Result<std::optional<int64_t>> integer(std::string_view key) const override;
  Result<std::optional<double>> number(std::string_view key) const override;
  Result<std::optional<bool>> boolean(std::string_view key) const override;
  Result<std::optional<std::string>> string(std::string_view key) const override;
  Result<std::optional<std::vector<int64_t>>> integers(std::string_view key) const override;
  bool is_list(std::string_view key) const override;
  std::string shown(std::string_view key) const override;

 private:
  std::string full(std::string_view key) const { return prefix_ + std::string(key); }
  const Metadata& metadata_;
  std::string prefix_;
};

// The members of one JSON object.
class JsonValues final : public ConfigValues {
 public:
  explicit JsonValues(const nlohmann::json& object) : object_(object) {}
  Result<std::optional<int64_t>> integer(std::string_view key) const override;
  Result<std::optional<double>> number(std::string_view key) const override;
  Result<std::optional<bool>> boolean(std::string_view key) const override;
  Result<std::optional<std::string>> string(std::string_view key) const override;
  Result<std::optional<std::vector<int64_t>>> integers(std::string_view key) const override;
  Result<std::optional<std::vector<double>>> numbers(std::string_view key) const;
  Result<std::optional<std::vector<std::string>>> strings(std::string_view key) const;
  // nullptr where the key is absent, null, or not an object.
  const nlohmann::json* object(std::string_view key) const;
  bool is_list(std::string_view key) const override;
  std::string shown(std::string_view key) const override;

 private:
  const nlohmann::json* member(std::string_view key) const;  // nullptr where absent or null
  const nlohmann::json& object_;
};

class ConfigReader {
 public:
  explicit ConfigReader(const ConfigValues& values) : values_(values) {}

  std::optional<int64_t> integer(std::string_view key, Range<int64_t> range);
  int32_t required(std::string_view key, Range<int64_t> range);
  int32_t integer_or(std::string_view key, Range<int64_t> range, int64_t fallback);
  std::optional<double> number(std::string_view key, Range<double> range);  // NaN is in no range
  std::optional<bool> boolean(std::string_view key) { return take(values_.boolean(key)); }
  std::optional<std::string> string(std::string_view key) { return take(values_.string(key)); }
  // One value for all layers, or a list of num_layers; empty where the key is absent.
  std::vector<int32_t> per_layer(std::string_view key, Range<int64_t> range, int32_t num_layers);

  bool has_failed() const { return failure_.has_value(); }
  void fail(Error failure) {
    if (!failure_) failure_ = std::move(failure);
  }
  // The value, or nullopt after an Error, which is kept.
  template <typename T>
  std::optional<T> take(Result<std::optional<T>> result) {
    if (result.ok()) return *std::move(result);
    fail(result.error());
    return std::nullopt;
  }
  const Error& failure() const { return *failure_; }
  std::string shown(std::string_view key) const { return values_.shown(key); }

 private:
  const ConfigValues& values_;
  std::optional<Error> failure_;
};

}  // namespace tidemill
