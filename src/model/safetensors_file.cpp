#include "model/safetensors_file.h"

#include <string>
#include <utility>

#include "base/mapped_file.h"
#include "base/printable.h"

namespace tidemill {
namespace {

class SafetensorsFile final : public WeightFile {
 public:
  const Metadata& metadata() const override { return no_metadata_; }
  std::span<const TensorInfo> tensors() const override { return tensors_.all(); }
  const TensorInfo* find(std::string_view name) const override { return tensors_.find(name); }
  std::span<const std::byte> bytes(const TensorInfo& tensor) const override {
    return parts_[tensor.shard].bytes().subspan(tensor.offset_bytes, tensor.size_bytes);
  }
  void will_read(const TensorInfo& tensor) const override {
    parts_[tensor.shard].will_read(tensor.offset_bytes, tensor.size_bytes);
  }
  void release(const TensorInfo& tensor) const override {
    parts_[tensor.shard].release(tensor.offset_bytes, tensor.size_bytes);
  }
  std::string_view format() const override { return "safetensors"; }
  uint32_t num_shards() const override { return static_cast<uint32_t>(parts_.size()); }
  uint64_t file_bytes() const override {
    uint64_t sum = 0;
    for (const MappedFile& part : parts_) sum += part.size_bytes();
    return sum;
  }

  Result<void> add(const std::filesystem::path& path) {
    auto file = MappedFile::open(path);
    if (!file) return file.error();
    auto part = parse_safetensors(file->bytes(), static_cast<uint32_t>(parts_.size()));
    if (!part) return error("{}: {}", file->name(), part.error().message);
    for (TensorInfo& tensor : part->tensors) {
      const std::string shown = printable(tensor.name);
      if (!tensors_.add(std::move(tensor))) return error("{}: tensor '{}' appears twice", file->name(), shown);
    }
    parts_.push_back(*std::move(file));
    return {};
  }

 private:
  Metadata no_metadata_;
  TensorTable tensors_;
  std::vector<MappedFile> parts_;
};

Result<SafetensorsIndex> read_index(const std::filesystem::path& path) {
  auto file = MappedFile::open(path);
  if (!file) return file.error();
  if (file->size_bytes() > SafetensorsLimits::index_bytes) {
    return error("{}: has {} bytes, above the limit of {}", file->name(), file->size_bytes(),
                 SafetensorsLimits::index_bytes);
  }
  const auto bytes = file->bytes();
  auto index = parse_safetensors_index({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!index) return error("{}: {}", file->name(), index.error().message);
  return index;
}

}  // namespace

Result<std::unique_ptr<WeightFile>> open_safetensors(const std::filesystem::path& path) {
  auto model = std::make_unique<SafetensorsFile>();
  if (auto added = model->add(path); !added) return added.error();
  return std::unique_ptr<WeightFile>(std::move(model));
}

Result<std::unique_ptr<WeightFile>> open_safetensors_index(const std::filesystem::path& path) {
  auto index = read_index(path);
  if (!index) return index.error();
  const std::filesystem::path folder = path.parent_path();
  // Looked for before any is opened, so that an incomplete download is named at once.
  for (const std::string& name : index->files) {
    std::error_code ignored;
    if (!std::filesystem::exists(folder / name, ignored)) {
      return error("{}: is missing, one of {} files named by the index", printable(name, 200), index->files.size());
    }
  }
  auto model = std::make_unique<SafetensorsFile>();
  for (const std::string& name : index->files) {
    if (auto added = model->add(folder / name); !added) return added.error();
  }
  for (const std::string& tensor : index->tensors) {
    if (!model->find(tensor)) {
      return error("{}: promises tensor '{}', which none of its {} files holds",
                   printable(path.filename().native(), 200), printable(tensor), index->files.size());
    }
  }
  return std::unique_ptr<WeightFile>(std::move(model));
}

}  // namespace tidemill
