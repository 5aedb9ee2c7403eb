// Reads GGUF files, version 2 and 3, in one part or split.
//
// Nothing the file says is believed before it is checked: counts and lengths are compared with the bytes that are left
// before anything is sized by them, and products, sums and padding are checked for overflow. Limits of our own, far
// above what published files hold, bound what a crafted file can make us allocate; each is named in the message that
// refuses. An Error is one sentence that names the file and the key, tensor or byte offset. Format: docs/gguf.md of
// ggml (little-endian; an older or other-endian file is refused as such).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "base/metadata.h"
#include "base/result.h"
#include "model/weight_file.h"

namespace tidemill {

struct GgufLimits {
  static constexpr uint64_t name_bytes = 65535;                  // a key or a tensor name
  static constexpr uint64_t string_bytes = uint64_t{48} << 20;   // all metadata strings together
  static constexpr uint64_t array_elements = uint64_t{1} << 22;  // all arrays together
  static constexpr uint64_t array_strings = uint64_t{1} << 20;   // strings among them: tokens and merges
  static constexpr uint64_t metadata_keys = 65536;
  static constexpr uint64_t tensors = 262144;
  static constexpr uint32_t max_alignment = 65536;
  static constexpr uint32_t dimensions = 4;
};

// The head of one part, parsed from its bytes. Tensor offsets count from the start of `file`.
struct GgufPart {
  uint32_t version = 0;
  Metadata metadata;
  std::vector<TensorInfo> tensors;
  uint64_t data_offset_bytes = 0;
};

// `file` is the whole part; only its head is read. The tensors carry the given shard number.
Result<GgufPart> parse_gguf(std::span<const std::byte> file, uint32_t shard = 0);

bool has_gguf_magic(std::span<const std::byte> file);

// Opens a file, and when it is one part of a split model ("name-00002-of-00005.gguf") all the others beside it. The
// metadata is that of the first part. A file without tensors (a vocabulary) is a valid one.
Result<std::unique_ptr<WeightFile>> open_gguf(const std::filesystem::path& path);

}  // namespace tidemill
