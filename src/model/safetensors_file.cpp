#include "model/safetensors_file.h"

#include <string>
#include <utility>

#include "base/mapped_file.h"
#include "base/printable.h"

namespace tidemill {
namespace {

std::unique_ptr<MappedWeights> empty_model() {
  return std::make_unique<MappedWeights>("safetensors", Metadata());
}

Result<void> add_part(MappedWeights& model, const std::filesystem::path& path) {
  auto file = MappedFile::open(path);
  if (!file) return file.error();
  auto part = parse_safetensors(file->bytes(), model.num_shards());
  if (!part) return error("{}: {}", file->name(), part.error().message);
  return model.add(*std::move(file), std::move(part->tensors));
}

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
  auto model = empty_model();
  if (auto added = add_part(*model, path); !added) return added.error();
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
  auto model = empty_model();
  for (const std::string& name : index->files) {
    if (auto added = add_part(*model, folder / name); !added) return added.error();
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
