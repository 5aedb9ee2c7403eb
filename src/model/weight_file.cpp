#include "model/weight_file.h"

#include <algorithm>

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
