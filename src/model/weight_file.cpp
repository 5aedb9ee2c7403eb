#include "model/weight_file.h"

#include <algorithm>

#include "base/checksum.h"
#include "base/printable.h"
#include "compute/dequantize.h"

namespace tidemill {

int64_t TensorInfo::num_values() const {
  // Beside a 0 the others may be anything, so that their product could wrap.
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  int64_t count = 1;
  for (int64_t dim : shape) count *= dim;
  return count;
}

std::string TensorInfo::shape_text() const {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

bool TensorTable::add(TensorInfo tensor) {
  if (!index_.emplace(tensor.name, tensors_.size()).second) return false;
  tensors_.push_back(std::move(tensor));
  return true;
}

const TensorInfo* TensorTable::find(std::string_view name) const {
  auto it = index_.find(name);
  return it == index_.end() ? nullptr : &tensors_[it->second];
}

Result<void> check_overlap(std::span<const TensorInfo> tensors) {
  std::vector<const TensorInfo*> sorted;
  sorted.reserve(tensors.size());
  for (const TensorInfo& tensor : tensors) {
    if (tensor.size_bytes > 0) sorted.push_back(&tensor);
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const TensorInfo* a, const TensorInfo* b) { return a->offset_bytes < b->offset_bytes; });
  for (size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i - 1]->offset_bytes + sorted[i - 1]->size_bytes > sorted[i]->offset_bytes) {
      return error("tensors '{}' and '{}' overlap at byte {}", printable(sorted[i - 1]->name),
                   printable(sorted[i]->name), sorted[i]->offset_bytes);
    }
  }
  return {};
}

Result<void> MappedWeights::add(MappedFile part, std::vector<TensorInfo> tensors) {
  for (TensorInfo& tensor : tensors) {
    const std::string shown = printable(tensor.name);
    if (!tensors_.add(std::move(tensor))) return error("{}: tensor '{}' appears twice", part.name(), shown);
  }
  parts_.push_back(std::move(part));
  return {};
}

std::span<const std::byte> MappedWeights::bytes(const TensorInfo& tensor) const {
  return parts_[tensor.shard].bytes().subspan(tensor.offset_bytes, tensor.size_bytes);
}

void MappedWeights::will_read(const TensorInfo& tensor) const {
  parts_[tensor.shard].will_read(tensor.offset_bytes, tensor.size_bytes);
}

void MappedWeights::release(const TensorInfo& tensor) const {
  parts_[tensor.shard].release(tensor.offset_bytes, tensor.size_bytes);
}

std::string MappedWeights::identity() const {
  constexpr size_t looked_at_bytes = size_t{1} << 20;
  std::string text = format_;
  for (const MappedFile& part : parts_) {
    const auto begin = part.bytes().first(std::min<size_t>(looked_at_bytes, part.size_bytes()));
    text += fmt::format(" {}:{}:{:016x}", part.size_bytes(), part.changed_ns(), checksum_of(begin));
  }
  return text;
}

uint64_t MappedWeights::file_bytes() const {
  uint64_t sum = 0;
  for (const MappedFile& part : parts_) sum += part.size_bytes();
  return sum;
}

Result<std::vector<float>> read_as_f32(const WeightFile& file, const TensorInfo& tensor, int64_t limit_values) {
  const int64_t count = tensor.num_values();
  if (count > limit_values) {
    return error("tensor '{}' has {} values, more than the limit of {} for one of its kind", printable(tensor.name),
                 count, limit_values);
  }
  std::vector<float> values(static_cast<size_t>(count));
  dequantize_row(tensor.type, file.bytes(tensor).data(), values.data(), count);
  return values;
}

}  // namespace tidemill
