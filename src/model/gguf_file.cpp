#include "model/gguf_file.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "base/mapped_file.h"
#include "base/printable.h"
#include "model/gguf_reader.h"

namespace tidemill {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF values are copied as they are");

constexpr uint32_t default_alignment = 32;
constexpr uint64_t int64_limit = std::numeric_limits<int64_t>::max();

enum class ValueType : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };
constexpr uint32_t num_value_types = 13;

struct ValueFormat {
  const char* name;
  uint64_t smallest_bytes;
};

constexpr ValueFormat value_formats[num_value_types] = {{"u8", 1},  {"i8", 1},  {"u16", 2},  {"i16", 2}, {"u32", 4},
                                                        {"i32", 4}, {"f32", 4}, {"bool", 1}, {"str", 8}, {"array", 12},
                                                        {"u64", 8}, {"i64", 8}, {"f64", 8}};

const ValueFormat& format_of(ValueType type) {
  return value_formats[static_cast<uint32_t>(type)];
}

// What the strings and arrays of one file may still take.
struct Budget {
  uint64_t string_bytes = GgufLimits::string_bytes;
  uint64_t array_elements = GgufLimits::array_elements;
  uint64_t array_strings = GgufLimits::array_strings;
};

// One GGUF part from front to back; parse() is the only entry.
class Parser {
 public:
  Parser(std::span<const std::byte> file, uint32_t shard) : file_(file), reader_(file), shard_(shard) {}

  Result<GgufPart> parse() {
    if (auto done = header(); !done) return done.error();
    for (uint64_t i = 0; i < num_keys_; ++i) {
      if (auto done = key_value(i); !done) return done.error();
    }
    for (uint64_t i = 0; i < num_tensors_; ++i) {
      if (auto done = tensor_entry(i); !done) return done.error();
    }
    if (auto done = place_tensors(); !done) return done.error();
    return std::move(part_);
  }

 private:
  Result<void> header() {
    if (!has_gguf_magic(file_)) return error("is not a GGUF file: it does not begin with the four bytes 'GGUF'");
    (void)reader_.value<uint32_t>("the magic");
    auto version = reader_.value<uint32_t>("the version");
    if (!version) return version.error();
    if (auto swapped = __builtin_bswap32(*version); swapped >= 1 && swapped <= 3) {
      return error("GGUF version at byte 4 is {:#x}: the file is big-endian, only little-endian files are supported",
                   *version);
    }
    if (*version != 2 && *version != 3) {
      return error("GGUF version at byte 4 is {}, but only versions 2 and 3 are supported", *version);
    }
    part_.version = *version;
    auto num_tensors = reader_.value<uint64_t>("the number of tensors");
    if (!num_tensors) return num_tensors.error();
    auto num_keys = reader_.value<uint64_t>("the number of metadata keys");
    if (!num_keys) return num_keys.error();
    num_tensors_ = *num_tensors;
    num_keys_ = *num_keys;
    return check_counts();
  }

  Result<void> check_counts() {
    // The smallest entries: an empty name, a type and one byte; an empty name and one dimension.
    constexpr uint64_t smallest_key = 8 + 4 + 1, smallest_tensor = 8 + 4 + 8 + 4 + 8;
    if (num_keys_ > GgufLimits::metadata_keys) {
      return error("number of metadata keys at byte 16 is {}, above the limit of {}", num_keys_,
                   GgufLimits::metadata_keys);
    }
    if (num_tensors_ > GgufLimits::tensors) {
      return error("number of tensors at byte 8 is {}, above the limit of {}", num_tensors_, GgufLimits::tensors);
    }
    if (const uint64_t needed = num_keys_ * smallest_key + num_tensors_ * smallest_tensor; needed > reader_.rest()) {
      return error("header announces {} metadata keys and {} tensors, which take at least {} bytes, but only {} follow",
                   num_keys_, num_tensors_, needed, reader_.rest());
    }
    return {};
  }

  Result<std::string> name(std::string_view what) {
    auto length = reader_.value<uint64_t>(what);
    if (!length) return length.error();
    if (*length > GgufLimits::name_bytes && *length <= reader_.rest()) {
      return error("{} at byte {} is {} bytes long, above the limit of {}", what, reader_.offset(), *length,
                   GgufLimits::name_bytes);
    }
    auto text = reader_.text(*length, what);
    if (!text) return text.error();
    return std::string(*text);
  }

  Result<void> key_value(uint64_t index) {
    auto key = name(fmt::format("the name of metadata key {}", index));
    if (!key) return key.error();
    const std::string shown = printable(*key);
    if (part_.metadata.has(*key)) return error("metadata key '{}' appears twice", shown);
    auto type_id = reader_.value<uint32_t>(fmt::format("the type of metadata key '{}'", shown));
    if (!type_id) return type_id.error();
    if (*type_id >= num_value_types) {
      return error("metadata key '{}' has value type {}, but types end at {}", shown, *type_id, num_value_types - 1);
    }
    const auto type = static_cast<ValueType>(*type_id);
    if (*key == "general.alignment") {
      if (auto checked = check_alignment(type); !checked) return checked.error();
    }
    auto value = type == ValueType::array ? array(shown) : scalar(type, shown);
    if (!value) return value.error();
    part_.metadata.set(*std::move(key), *std::move(value));
    return {};
  }

  // Looks at the value without consuming it: every later offset depends on it, so its exact type is asked for.
  Result<void> check_alignment(ValueType type) {
    if (type != ValueType::u32) {
      return error("metadata key 'general.alignment' must be u32, but is {}", format_of(type).name);
    }
    GgufReader ahead = reader_;
    auto value = ahead.value<uint32_t>("the value of metadata key 'general.alignment'");
    if (!value) return value.error();
    if (!std::has_single_bit(*value) || *value < 8 || *value > GgufLimits::max_alignment) {
      return error("metadata key 'general.alignment' is {}, but must be a power of two from 8 to {}", *value,
                   GgufLimits::max_alignment);
    }
    alignment_ = *value;
    return {};
  }

  template <typename Raw, typename As>
  Result<Metadata::Value> simple(const std::string& key) {
    // The message is only made when it is needed: arrays come through here element by element.
    if (reader_.rest() < sizeof(Raw)) {
      return reader_.value<Raw>(fmt::format("the value of metadata key '{}'", key)).error();
    }
    return Metadata::Value(static_cast<As>(*reader_.value<Raw>("")));
  }

  Result<Metadata::Value> scalar(ValueType type, const std::string& key) {
    switch (type) {
      case ValueType::u8:
        return simple<uint8_t, int64_t>(key);
      case ValueType::i8:
        return simple<int8_t, int64_t>(key);
      case ValueType::u16:
        return simple<uint16_t, int64_t>(key);
      case ValueType::i16:
        return simple<int16_t, int64_t>(key);
      case ValueType::u32:
        return simple<uint32_t, int64_t>(key);
      case ValueType::i32:
        return simple<int32_t, int64_t>(key);
      case ValueType::i64:
        return simple<int64_t, int64_t>(key);
      case ValueType::f32:
        return simple<float, double>(key);
      case ValueType::f64:
        return simple<double, double>(key);
      case ValueType::u64:
        return unsigned_64(key);
      case ValueType::boolean:
        return boolean(key);
      default:
        break;
    }
    auto text = string(key);
    if (!text) return text.error();
    return Metadata::Value(*std::move(text));
  }

  Result<Metadata::Value> unsigned_64(const std::string& key) {
    auto value = simple<uint64_t, uint64_t>(key);
    if (!value) return value.error();
    const uint64_t raw = std::get<uint64_t>(*value);
    if (raw > int64_limit) return value;
    return Metadata::Value(static_cast<int64_t>(raw));
  }

  Result<Metadata::Value> boolean(const std::string& key) {
    auto raw = reader_.value<uint8_t>(fmt::format("the value of metadata key '{}'", key));
    if (!raw) return raw.error();
    if (*raw > 1) return error("metadata key '{}' is a boolean with value {}, but must be 0 or 1", key, *raw);
    return Metadata::Value(*raw == 1);
  }

  Result<std::string> string(const std::string& key) {
    // As above: a vocabulary has hundreds of thousands of strings.
    if (reader_.rest() < 8) {
      return reader_.value<uint64_t>(fmt::format("a string of metadata key '{}'", key)).error();
    }
    const uint64_t length = *reader_.value<uint64_t>("");
    if (length > reader_.rest()) {
      return reader_.text(length, fmt::format("a string of metadata key '{}'", key)).error();
    }
    if (length > budget_.string_bytes) {
      return error("metadata key '{}' makes the strings exceed {} bytes, the limit for one file", key,
                   GgufLimits::string_bytes);
    }
    budget_.string_bytes -= length;
    return std::string(*reader_.text(length, ""));
  }

  Result<Metadata::Value> array(const std::string& key) {
    auto type_id = reader_.value<uint32_t>(fmt::format("the element type of metadata key '{}'", key));
    if (!type_id) return type_id.error();
    if (*type_id >= num_value_types) {
      return error("metadata key '{}' is an array of value type {}, but types end at {}", key, *type_id,
                   num_value_types - 1);
    }
    const auto type = static_cast<ValueType>(*type_id);
    if (type == ValueType::array) return error("metadata key '{}' is an array of arrays, which is not supported", key);
    auto count = reader_.value<uint64_t>(fmt::format("the length of metadata key '{}'", key));
    if (!count) return count.error();
    if (*count > reader_.rest() / format_of(type).smallest_bytes) {
      return error("metadata key '{}' is said to hold {} elements of type {}, but only {} bytes follow", key, *count,
                   format_of(type).name, reader_.rest());
    }
    if (*count > budget_.array_elements) {
      return error("metadata key '{}' makes the arrays exceed {} elements, the limit for one file", key,
                   GgufLimits::array_elements);
    }
    budget_.array_elements -= *count;
    if (type == ValueType::string) {
      if (*count > budget_.array_strings) {
        return error("metadata key '{}' makes the arrays exceed {} strings, the limit for one file", key,
                     GgufLimits::array_strings);
      }
      budget_.array_strings -= *count;
    }
    return elements(type, *count, key);
  }

  Result<Metadata::Value> elements(ValueType type, uint64_t count, const std::string& key) {
    Metadata::Array array;
    array.element_type = format_of(type).name;
    Result<void> filled;
    if (type == ValueType::string) {
      array.values = std::vector<std::string>();
      filled = fill<std::string>(array, count, [&] { return string(key); });
    } else if (type == ValueType::f32 || type == ValueType::f64) {
      filled = fill_scalars<double>(array, type, count, key);
    } else {
      filled = fill_scalars<int64_t>(array, type, count, key);
    }
    if (!filled) return filled.error();
    return Metadata::Value(std::move(array));
  }

  template <typename T>
  Result<void> fill_scalars(Metadata::Array& array, ValueType type, uint64_t count, const std::string& key) {
    return fill<T>(array, count, [&]() -> Result<T> {
      auto value = scalar(type, key);
      if (!value) return value.error();
      if (auto* flag = std::get_if<bool>(&*value)) return static_cast<T>(*flag);
      if (auto* item = std::get_if<T>(&*value)) return *item;
      return error("metadata key '{}' holds an element above the limit 2^63-1", key);
    });
  }

  template <typename T, typename Next>
  Result<void> fill(Metadata::Array& array, uint64_t count, Next next) {
    std::vector<T> values;
    values.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
      auto value = next();
      if (!value) return value.error();
      values.push_back(*std::move(value));
    }
    array.values = std::move(values);
    return {};
  }

  Result<void> tensor_entry(uint64_t index) {
    auto tensor_name = name(fmt::format("the name of tensor {}", index));
    if (!tensor_name) return tensor_name.error();
    const std::string shown = printable(*tensor_name);
    TensorInfo tensor;
    tensor.shard = shard_;
    if (auto done = dimensions(tensor, shown); !done) return done.error();
    auto type_id = reader_.value<uint32_t>(fmt::format("the data type of tensor '{}'", shown));
    if (!type_id) return type_id.error();
    auto type = dtype_from_gguf(*type_id);
    if (!type) return error("tensor '{}': {}", shown, type.error().message);
    tensor.type = *type;
    auto offset = reader_.value<uint64_t>(fmt::format("the offset of tensor '{}'", shown));
    if (!offset) return offset.error();
    tensor.offset_bytes = *offset;
    tensor.name = *std::move(tensor_name);
    if (auto done = size(tensor, shown); !done) return done.error();
    part_.tensors.push_back(std::move(tensor));
    return {};
  }

  Result<void> dimensions(TensorInfo& tensor, const std::string& shown) {
    const std::string what = fmt::format("the dimensions of tensor '{}'", shown);
    auto count = reader_.value<uint32_t>(what);
    if (!count) return count.error();
    if (*count < 1 || *count > GgufLimits::dimensions) {
      return error("tensor '{}' has {} dimensions, but must have 1 to {}", shown, *count, GgufLimits::dimensions);
    }
    tensor.shape.resize(*count);
    for (uint32_t i = 0; i < *count; ++i) {
      auto dim = reader_.value<uint64_t>(what);
      if (!dim) return dim.error();
      if (*dim == 0 || *dim > int64_limit) {
        return error("dimension {} of tensor '{}' is {}, but must be 1 to 2^63-1", i, shown, *dim);
      }
      tensor.shape[*count - 1 - i] = static_cast<int64_t>(*dim);
    }
    return {};
  }

  static Result<void> size(TensorInfo& tensor, const std::string& shown) {
    if (tensor.shape.back() % block_values(tensor.type) != 0) {
      return error("tensor '{}' has rows of {} values, which is not a multiple of {}, the block of {}", shown,
                   tensor.shape.back(), block_values(tensor.type), dtype_name(tensor.type));
    }
    int64_t count = 1;
    for (int64_t dim : tensor.shape) {
      if (__builtin_mul_overflow(count, dim, &count)) {
        return error("tensor '{}' has shape {}, whose product exceeds 2^63-1", shown, tensor.shape_text());
      }
    }
    auto bytes = bytes_of_values(tensor.type, count);
    if (!bytes) {
      return error("tensor '{}' has shape {}, whose size in bytes as {} exceeds 2^63-1", shown, tensor.shape_text(),
                   dtype_name(tensor.type));
    }
    tensor.size_bytes = static_cast<uint64_t>(*bytes);
    return {};
  }

  // Turns offsets into the data section into offsets into the file, each range inside it and apart from the others.
  Result<void> place_tensors() {
    const uint64_t padded = (reader_.offset() + alignment_ - 1) / alignment_ * alignment_;
    part_.data_offset_bytes = std::min<uint64_t>(padded, file_.size());
    const uint64_t data_bytes = file_.size() - part_.data_offset_bytes;
    for (TensorInfo& tensor : part_.tensors) {
      if (tensor.offset_bytes % alignment_ != 0) {
        return error("tensor '{}' has offset {}, which is not a multiple of the alignment {}", printable(tensor.name),
                     tensor.offset_bytes, alignment_);
      }
      if (tensor.offset_bytes > data_bytes || tensor.size_bytes > data_bytes - tensor.offset_bytes) {
        return error("tensor '{}' takes {} bytes at offset {}, but the data section, from byte {}, has {} bytes",
                     printable(tensor.name), tensor.size_bytes, tensor.offset_bytes, part_.data_offset_bytes,
                     data_bytes);
      }
      tensor.offset_bytes += part_.data_offset_bytes;
    }
    return check_overlap(part_.tensors);
  }

  std::span<const std::byte> file_;
  GgufReader reader_;
  uint32_t shard_;
  uint64_t num_tensors_ = 0;
  uint64_t num_keys_ = 0;
  uint64_t alignment_ = default_alignment;
  Budget budget_;
  GgufPart part_;
};

}  // namespace

bool has_gguf_magic(std::span<const std::byte> file) {
  return file.size() >= 4 && std::memcmp(file.data(), "GGUF", 4) == 0;
}

Result<GgufPart> parse_gguf(std::span<const std::byte> file, uint32_t shard) {
  return Parser(file, shard).parse();
}

}  // namespace tidemill
