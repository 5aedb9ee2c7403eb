// The header of a safetensors file, and the index of a model in shards: JSON read as a stream of events.
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>

#include "base/printable.h"
#include "model/safetensors_file.h"

namespace tidemill {
namespace {

static_assert(std::endian::native == std::endian::little, "the length is copied as it is");

using nlohmann::json;

// Events in the form that the JSON library calls; every one that is not expected is refused. A refusal returns false,
// which ends the parse, with the reason in `failure`.
class Events : public json::json_sax_t {
 public:
  std::optional<Error> failure;

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(json::number_integer_t value) override { return unexpected(std::to_string(value)); }
  bool number_unsigned(json::number_unsigned_t value) override { return unexpected(std::to_string(value)); }
  bool number_float(json::number_float_t, const std::string& text) override { return unexpected(text); }
  bool string(std::string& text) override { return unexpected(fmt::format("'{}'", printable(text, 40))); }
  bool binary(json::binary_t&) override { return unexpected("bytes"); }
  bool start_object(size_t) override { return unexpected("an object"); }
  bool end_object() override { return true; }
  bool start_array(size_t) override { return unexpected("a list"); }
  bool end_array() override { return true; }
  bool parse_error(size_t position, const std::string&, const json::exception&) override {
    return refuse(error("is not valid JSON at its byte {}", position));
  }

 protected:
  bool refuse(Error reason) {
    if (!failure) failure = std::move(reason);
    return false;
  }
  virtual bool unexpected(const std::string& found) = 0;
};

// {"__metadata__": {text: text}, name: {"dtype": text, "shape": [n...], "data_offsets": [begin, end]}, ...}
class HeaderEvents final : public Events {
 public:
  HeaderEvents(uint64_t data_offset, uint64_t data_bytes, uint32_t shard)
      : data_offset_(data_offset), data_bytes_(data_bytes), shard_(shard) {}

  SafetensorsPart part;

  bool start_object(size_t) override {
    if (place_ == Place::start) return go(Place::top);
    if (place_ == Place::tensor_name) return go(Place::tensor);
    if (place_ == Place::metadata_name) return go(Place::metadata);
    return unexpected("an object");
  }

  bool end_object() override {
    if (place_ == Place::metadata) return go(Place::top);
    if (place_ == Place::tensor) return finish_tensor() && go(Place::top);
    return go(Place::end);
  }

  bool key(std::string& text) override {
    if (place_ == Place::top) return tensor_key(text);
    if (place_ == Place::metadata) {
      field_ = text;
      return go(Place::metadata_value);
    }
    return field_key(text);
  }

  bool string(std::string& text) override {
    if (place_ == Place::metadata_value) return go(Place::metadata);
    if (place_ != Place::dtype) return unexpected(fmt::format("'{}'", printable(text, 40)));
    auto type = dtype_from_safetensors(text);
    if (!type) return refuse(error("tensor '{}': {}", shown(), type.error().message));
    tensor_.type = *type;
    return go(Place::tensor);
  }

  bool start_array(size_t) override {
    if (place_ == Place::shape) return go(Place::dimension);
    if (place_ == Place::offsets) return go(Place::offset);
    return unexpected("a list");
  }

  bool end_array() override { return go(Place::tensor); }

  bool number_integer(json::number_integer_t value) override { return unexpected(std::to_string(value)); }

  bool number_unsigned(json::number_unsigned_t value) override {
    if (place_ == Place::dimension) return dimension(value);
    if (place_ != Place::offset) return unexpected(std::to_string(value));
    if (num_offsets_ == 2) return refuse(error("tensor '{}' has more than two data_offsets", shown()));
    offsets_[num_offsets_++] = value;
    return true;
  }

 private:
  enum class Place {
    start,
    top,
    tensor_name,
    tensor,
    dtype,
    shape,
    dimension,
    offsets,
    offset,
    metadata_name,
    metadata,
    metadata_value,
    end
  };

  bool go(Place place) {
    place_ = place;
    return true;
  }

  std::string shown() const { return printable(tensor_.name); }

  bool unexpected(const std::string& found) override {
    switch (place_) {
      case Place::start:
        return refuse(error("must be a JSON object, but is {}", found));
      case Place::tensor_name:
        return refuse(error("tensor '{}' must be an object, but is {}", shown(), found));
      case Place::metadata_name:
        return refuse(error("__metadata__ must be an object, but is {}", found));
      case Place::metadata_value:
        return refuse(error("__metadata__ key '{}' must be a string, but is {}", printable(field_), found));
      case Place::dimension:
        return refuse(error("tensor '{}' has {} in its shape, which must hold sizes below 2^63", shown(), found));
      case Place::offset:
        return refuse(error("tensor '{}' has {} in data_offsets, which must hold whole numbers", shown(), found));
      default:
        return refuse(error("tensor '{}' has {} as its {}", shown(), found, printable(field_)));
    }
  }

  bool tensor_key(const std::string& text) {
    if (text == "__metadata__") {
      if (std::exchange(has_metadata_, true)) return refuse(error("key '__metadata__' appears twice"));
      return go(Place::metadata_name);
    }
    tensor_ = TensorInfo{};
    tensor_.name = text;
    tensor_.shard = shard_;
    has_type_ = has_shape_ = has_offsets_ = false;
    num_offsets_ = 0;
    if (!names_.insert(text).second) return refuse(error("tensor '{}' appears twice", shown()));
    if (names_.size() > SafetensorsLimits::tensors) {
      return refuse(error("more than {} tensors, the limit", SafetensorsLimits::tensors));
    }
    return go(Place::tensor_name);
  }

  bool field_key(const std::string& text) {
    field_ = text;
    if (text == "dtype") return first(has_type_) && go(Place::dtype);
    if (text == "shape") return first(has_shape_) && go(Place::shape);
    if (text == "data_offsets") return first(has_offsets_) && go(Place::offsets);
    return refuse(error("tensor '{}' has the unknown field '{}'", shown(), printable(text)));
  }

  bool first(bool& seen) {
    if (std::exchange(seen, true)) return refuse(error("tensor '{}' has '{}' twice", shown(), field_));
    return true;
  }

  bool dimension(uint64_t value) {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return unexpected(std::to_string(value));
    if (tensor_.shape.size() == SafetensorsLimits::dimensions) {
      return refuse(error("tensor '{}' has more than {} dimensions", shown(), SafetensorsLimits::dimensions));
    }
    tensor_.shape.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool finish_tensor() {
    for (auto [present, name] :
         {std::pair(has_type_, "dtype"), std::pair(has_shape_, "shape"), std::pair(has_offsets_, "data_offsets")}) {
      if (!present) return refuse(error("tensor '{}' has no {}", shown(), name));
    }
    if (num_offsets_ != 2) {
      return refuse(error("tensor '{}' has {} data_offsets, but must have two", shown(), num_offsets_));
    }
    const uint64_t begin = offsets_[0], end = offsets_[1];
    if (begin > end || end > data_bytes_) {
      return refuse(error("tensor '{}' has data_offsets [{}, {}], but must lie in order within the {} bytes of data",
                          shown(), begin, end, data_bytes_));
    }
    if (!check_size(end - begin)) return false;
    tensor_.offset_bytes = data_offset_ + begin;
    tensor_.size_bytes = end - begin;
    part.tensors.push_back(std::move(tensor_));
    return true;
  }

  bool check_size(uint64_t found) {
    // With a 0 in the shape the product is 0, whatever the others are.
    int64_t count = 1;
    const bool empty = std::find(tensor_.shape.begin(), tensor_.shape.end(), 0) != tensor_.shape.end();
    for (int64_t dim : tensor_.shape) {
      if (empty) break;
      if (__builtin_mul_overflow(count, dim, &count)) {
        return refuse(error("tensor '{}' has shape {}, whose product exceeds 2^63-1", shown(), tensor_.shape_text()));
      }
    }
    const auto needed = bytes_of_values(tensor_.type, empty ? 0 : count);
    if (!needed || static_cast<uint64_t>(*needed) != found) {
      return refuse(error("tensor '{}' has data_offsets of {} bytes, but shape {} of {} takes {}", shown(), found,
                          tensor_.shape_text(), dtype_name(tensor_.type),
                          needed ? std::to_string(*needed) : "more than 2^63-1"));
    }
    return true;
  }

  uint64_t data_offset_, data_bytes_;
  uint32_t shard_;
  Place place_ = Place::start;
  TensorInfo tensor_;
  std::string field_;
  bool has_type_ = false, has_shape_ = false, has_offsets_ = false, has_metadata_ = false;
  size_t num_offsets_ = 0;
  uint64_t offsets_[2] = {};
  std::unordered_set<std::string> names_;
};

// {"metadata": anything shallow, "weight_map": {tensor: file, ...}}
class IndexEvents final : public Events {
 public:
  std::set<std::string> files;
  std::vector<std::string> tensors;

  bool null() override { return other("null"); }
  bool boolean(bool) override { return other("a boolean"); }
  bool number_integer(json::number_integer_t) override { return other("a number"); }
  bool number_unsigned(json::number_unsigned_t) override { return other("a number"); }
  bool number_float(json::number_float_t, const std::string&) override { return other("a number"); }
  bool start_array(size_t) override { return map_open_ && depth_ <= 2 ? other("a list") : deeper(); }
  bool end_array() override { return --depth_, true; }
  bool start_object(size_t) override { return in_map() ? other("an object") : deeper(); }
  bool end_object() override { return --depth_, true; }
  bool key(std::string& text) override {
    key_ = text;
    if (depth_ == 1) map_open_ = text == "weight_map";
    return true;
  }
  bool string(std::string& text) override {
    if (!in_map()) return other("a string");
    if (tensors.size() == SafetensorsLimits::tensors) {
      return refuse(error("names more than {} tensors, the limit", SafetensorsLimits::tensors));
    }
    tensors.push_back(key_);
    if (files.contains(text)) return true;
    const bool plain = text.size() > 12 && text.size() < 256 && text.ends_with(".safetensors") && text[0] != '.' &&
                       text.find_first_of("/\\") == std::string::npos && text.find('\0') == std::string::npos;
    if (!plain) {
      return refuse(error("weight_map of tensor '{}' names '{}', which is not a plain .safetensors file name",
                          printable(key_), printable(text)));
    }
    if (files.size() == SafetensorsLimits::shards) {
      return refuse(error("names more than {} files, the limit", SafetensorsLimits::shards));
    }
    files.insert(text);
    return true;
  }

 private:
  static constexpr size_t max_depth = 16;

  bool in_map() const { return map_open_ && depth_ == 2; }
  bool other(const std::string& found) {
    if (depth_ == 0) return unexpected(found);
    if (map_open_ && (depth_ == 1 || depth_ == 2)) {
      return refuse(error("weight_map must map tensors to file names, but holds {}", found));
    }
    return true;
  }
  bool deeper() {
    if (++depth_ > max_depth) return refuse(error("is nested deeper than {}", max_depth));
    return true;
  }
  bool unexpected(const std::string& found) override { return refuse(error("must be an object, but is {}", found)); }

  size_t depth_ = 0;
  bool map_open_ = false;
  std::string key_;
};

// The JSON library copies each string whole before it hands it over.
Result<void> check_strings(std::string_view text) {
  size_t begin = std::string_view::npos;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool inside = begin != std::string_view::npos;
    if (inside && text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      begin = inside ? std::string_view::npos : i;
    } else if (inside && i - begin > SafetensorsLimits::string_bytes) {
      return error("string at its byte {} is longer than {} bytes, the limit", begin, SafetensorsLimits::string_bytes);
    }
  }
  return {};
}

}  // namespace

bool looks_like_safetensors(std::span<const std::byte> file) {
  return file.size() >= 10 && static_cast<char>(file[8]) == '{' && file[7] == std::byte{0};
}

Result<SafetensorsPart> parse_safetensors(std::span<const std::byte> file, uint32_t shard) {
  if (file.size() < 8) return error("has {} bytes, but the length of the header alone takes 8", file.size());
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof(length));
  if (length > file.size() - 8) {
    return error("header is said to be {} bytes long, but only {} follow", length, file.size() - 8);
  }
  if (length > SafetensorsLimits::header_bytes) {
    return error("header is {} bytes long, above the limit of {}", length, SafetensorsLimits::header_bytes);
  }
  const std::string_view header(reinterpret_cast<const char*>(file.data()) + 8, length);
  if (!header.starts_with('{')) {
    return error("header must begin with '{{' at byte 8, but begins with '{}'", printable(header.substr(0, 8)));
  }
  if (auto checked = check_strings(header); !checked) return error("header: {}", checked.error().message);
  HeaderEvents events(8 + length, file.size() - 8 - length, shard);
  if (!json::sax_parse(header.begin(), header.end(), &events)) {
    return error("header: {}", events.failure ? events.failure->message : "is not valid JSON");
  }
  if (auto checked = check_overlap(events.part.tensors); !checked) return checked.error();
  return std::move(events.part);
}

Result<SafetensorsIndex> parse_safetensors_index(std::string_view text) {
  if (auto checked = check_strings(text); !checked) return checked.error();
  IndexEvents events;
  if (!json::sax_parse(text.begin(), text.end(), &events)) {
    return events.failure ? *events.failure : error("is not valid JSON");
  }
  if (events.files.empty()) return error("has no weight_map that names files");
  return SafetensorsIndex{{events.files.begin(), events.files.end()}, std::move(events.tensors)};
}

}  // namespace tidemill
