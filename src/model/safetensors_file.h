// Reads safetensors files: one file, or the shards that an index names.
//
// Nothing the file says is believed before it is checked: the header's length against the file and a limit, its JSON as
// a stream (no tree is built, nesting is bounded, names appear once), and each tensor's offsets against its shape, its
// type and the data section. Types other than F32, F16 and BF16 are refused by name. An Error is one sentence that
// names the file and the tensor or byte offset. Format: the safetensors README (u64 length, JSON header, data).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/weight_file.h"

namespace tidemill {

struct SafetensorsLimits {
  static constexpr uint64_t header_bytes = 100'000'000;  // as the reference implementation
  static constexpr uint64_t index_bytes = 100'000'000;
  static constexpr size_t string_bytes = size_t{16} << 20;  // a name, or a text in __metadata__
  static constexpr size_t tensors = 262144;
  static constexpr size_t dimensions = 8;
  static constexpr size_t shards = 10000;
};

struct SafetensorsPart {
  std::vector<TensorInfo> tensors;  // in the order of the header; offsets from the start of the file
};

// `file` is the whole part; only its head is read.
Result<SafetensorsPart> parse_safetensors(std::span<const std::byte> file, uint32_t shard = 0);

// Whether the first bytes can be those of a safetensors file: a length, then an object's opening brace.
bool looks_like_safetensors(std::span<const std::byte> file);

// The "weight_map" of an index. A name that is not a plain file name ending in ".safetensors" (a path, "..", an empty
// one) is an Error.
struct SafetensorsIndex {
  std::vector<std::string> files;    // distinct, sorted
  std::vector<std::string> tensors;  // that the files hold together
};
Result<SafetensorsIndex> parse_safetensors_index(std::string_view json);

Result<std::unique_ptr<WeightFile>> open_safetensors(const std::filesystem::path& path);
// The shards named by the index file, which lie beside it. A missing one is named, as is a tensor that the index
// promises and no shard holds.
Result<std::unique_ptr<WeightFile>> open_safetensors_index(const std::filesystem::path& index);

}  // namespace tidemill
