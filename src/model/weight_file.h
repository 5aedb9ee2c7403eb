// What every model file offers, whatever its format: metadata, and named tensors whose bytes are mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mapped_file.h"
#include "base/metadata.h"
#include "base/result.h"
#include "compute/dtype.h"

namespace tidemill {

// One tensor's place. A reader only makes one after checking that the product of the shape does not wrap, that rows
// fill whole blocks of the type, that size_bytes is what type and shape say, and that the range lies in the file.
struct TensorInfo {
  std::string name;
  DType type = DType::f32;
  // Row-major, outermost first: a matrix is [rows, cols], cols contiguous. (GGUF writes the reverse.) A scalar has [].
  std::vector<int64_t> shape;
  uint32_t shard = 0;         // which of the file's parts
  uint64_t offset_bytes = 0;  // from the start of that part
  uint64_t size_bytes = 0;

  int64_t num_values() const;
  // "[384, 64]"
  std::string shape_text() const;
};

// An Error where two tensors of one part share bytes.
Result<void> check_overlap(std::span<const TensorInfo> tensors);

// Tensors in the order of the file, found by name. Names are unique.
class TensorTable {
 public:
  // False, and nothing added, where the name is already there.
  [[nodiscard]] bool add(TensorInfo tensor);
  const TensorInfo* find(std::string_view name) const;
  std::span<const TensorInfo> all() const { return tensors_; }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string, size_t, Hash, std::equal_to<>> index_;
};

// A model file that passed every check of its format; nothing that it says about sizes needs another check.
//
// Immutable after opening; any thread may call. Views stay valid as long as the object lives. GGUF tensors start at
// multiples of at least 8 bytes; safetensors promises no alignment, so values are copied out, never cast in place.
class WeightFile {
 public:
  virtual ~WeightFile() = default;

  // Empty for safetensors, whose configuration is in JSON files of its own (model/model_files.h).
  virtual const Metadata& metadata() const = 0;
  virtual std::span<const TensorInfo> tensors() const = 0;
  // nullptr when absent.
  virtual const TensorInfo* find(std::string_view name) const = 0;
  // The tensor must come from this file's tensors().
  virtual std::span<const std::byte> bytes(const TensorInfo& tensor) const = 0;
  // Says that the tensor will be read soon; gives its mapped memory back after repacking.
  virtual void will_read(const TensorInfo& tensor) const = 0;
  virtual void release(const TensorInfo& tensor) const = 0;
  // "GGUF v3", "safetensors".
  virtual std::string_view format() const = 0;
  virtual uint32_t num_shards() const = 0;
  virtual uint64_t file_bytes() const = 0;  // all parts together
  // A text that changes when the file does: by sizes, times of change and the beginnings of all parts. "" = unknown.
  virtual std::string identity() const { return {}; }
};

// The weight file of every format: mapped parts, and the table of their tensors.
class MappedWeights final : public WeightFile {
 public:
  MappedWeights(std::string format, Metadata metadata) : format_(std::move(format)), metadata_(std::move(metadata)) {}

  // The next part with its tensors, whose shard is num_shards() as it was before. An Error where a name appears twice.
  Result<void> add(MappedFile part, std::vector<TensorInfo> tensors);

  const Metadata& metadata() const override { return metadata_; }
  std::span<const TensorInfo> tensors() const override { return tensors_.all(); }
  const TensorInfo* find(std::string_view name) const override { return tensors_.find(name); }
  std::span<const std::byte> bytes(const TensorInfo& tensor) const override;
  void will_read(const TensorInfo& tensor) const override;
  void release(const TensorInfo& tensor) const override;
  std::string_view format() const override { return format_; }
  uint32_t num_shards() const override { return static_cast<uint32_t>(parts_.size()); }
  uint64_t file_bytes() const override;
  std::string identity() const override;

 private:
  std::string format_;
  Metadata metadata_;
  TensorTable tensors_;
  std::vector<MappedFile> parts_;
};

// The values of a tensor, dequantized, row-major: for norms, biases and factors. An Error names the tensor where it has
// more than limit_values.
Result<std::vector<float>> read_as_f32(const WeightFile& file, const TensorInfo& tensor,
                                       int64_t limit_values = int64_t{1} << 22);

}  // namespace tidemill
