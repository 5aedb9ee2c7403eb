// Opening a GGUF model from the file system: one part, or all parts of a split one.
#include <charconv>
#include <optional>
#include <string>
#include <utility>

#include "base/mapped_file.h"
#include "base/printable.h"
#include "model/gguf_file.h"

namespace tidemill {
namespace {

struct Opened {
  MappedFile file;
  GgufPart part;
};

Result<Opened> open_part(const std::filesystem::path& path, uint32_t shard) {
  auto file = MappedFile::open(path);
  if (!file) return file.error();
  auto part = parse_gguf(file->bytes(), shard);
  if (!part) return error("{}: {}", file->name(), part.error().message);
  return Opened{*std::move(file), *std::move(part)};
}

// "name-00002-of-00005.gguf": everything before the number, and the two numbers.
struct SplitName {
  std::string prefix;
  uint32_t number = 0;  // from 1
  uint32_t count = 0;

  std::string file(uint32_t which) const { return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, which, count); }
};

std::optional<uint32_t> five_digits(std::string_view text) {
  uint32_t value = 0;
  auto [end, failure] = std::from_chars(text.data(), text.data() + 5, value);
  if (failure != std::errc() || end != text.data() + 5) return std::nullopt;
  return value;
}

std::optional<SplitName> split_name(const std::string& name) {
  constexpr size_t tail = sizeof("-00001-of-00002.gguf") - 1;
  if (name.size() <= tail) return std::nullopt;
  const std::string_view end = std::string_view(name).substr(name.size() - tail);
  if (end[0] != '-' || end.substr(6, 4) != "-of-" || end.substr(15) != ".gguf") return std::nullopt;
  auto number = five_digits(end.substr(1)), count = five_digits(end.substr(10));
  if (!number || !count || *number < 1 || *number > *count) return std::nullopt;
  return SplitName{name.substr(0, name.size() - tail), *number, *count};
}

Result<void> check_split(const Opened& part, uint32_t number, uint32_t count) {
  auto found_count = part.part.metadata.integer("split.count", 0);
  if (!found_count) return error("{}: {}", part.file.name(), found_count.error().message);
  auto found_number = part.part.metadata.integer("split.no", 0);
  if (!found_number) return error("{}: {}", part.file.name(), found_number.error().message);
  if (*found_count != count || *found_number != number - 1) {
    return error("{}: is part {} of {} by its name, but part {} of {} by split.no and split.count", part.file.name(),
                 number, count, *found_number == INT64_MAX ? *found_number : *found_number + 1, *found_count);
  }
  return {};
}

// The first part brings the metadata.
std::unique_ptr<MappedWeights> begin_model(GgufPart& first) {
  return std::make_unique<MappedWeights>(first.version == 2 ? "GGUF v2" : "GGUF v3", std::move(first.metadata));
}

Result<void> check_total(const WeightFile& file, std::string_view name) {
  auto total = file.metadata().integer("split.tensors.count", static_cast<int64_t>(file.tensors().size()));
  if (!total) return error("{}: {}", name, total.error().message);
  if (*total != static_cast<int64_t>(file.tensors().size())) {
    return error("{}: split.tensors.count is {}, but the parts hold {} tensors", name, *total, file.tensors().size());
  }
  return {};
}

Result<std::unique_ptr<WeightFile>> open_split(const std::filesystem::path& folder, const SplitName& name) {
  // Looked for before any is opened, so that an incomplete download is named at once.
  for (uint32_t i = 1; i <= name.count; ++i) {
    std::error_code ignored;
    if (!std::filesystem::exists(folder / name.file(i), ignored)) {
      return error("{}: part {} of {} is missing", printable(name.file(i), 200), i, name.count);
    }
  }
  std::unique_ptr<MappedWeights> model;
  for (uint32_t i = 1; i <= name.count; ++i) {
    auto opened = open_part(folder / name.file(i), i - 1);
    if (!opened) return opened.error();
    if (auto checked = check_split(*opened, i, name.count); !checked) return checked.error();
    if (!model) model = begin_model(opened->part);
    if (auto added = model->add(std::move(opened->file), std::move(opened->part.tensors)); !added) return added.error();
  }
  if (auto checked = check_total(*model, printable(name.file(1), 200)); !checked) return checked.error();
  return std::unique_ptr<WeightFile>(std::move(model));
}

}  // namespace

Result<std::unique_ptr<WeightFile>> open_gguf(const std::filesystem::path& path) {
  auto opened = open_part(path, 0);
  if (!opened) return opened.error();
  auto count = opened->part.metadata.integer("split.count", 0);
  if (!count) return error("{}: {}", opened->file.name(), count.error().message);
  if (*count > 1) {
    const auto name = split_name(path.filename().native());
    if (!name || name->count != *count) {
      return error("{}: is one of {} parts, so its name must end in -NNNNN-of-{:05}.gguf", opened->file.name(), *count,
                   *count);
    }
    return open_split(path.parent_path(), *name);
  }
  auto model = begin_model(opened->part);
  if (auto added = model->add(std::move(opened->file), std::move(opened->part.tensors)); !added) return added.error();
  return std::unique_ptr<WeightFile>(std::move(model));
}

}  // namespace tidemill
