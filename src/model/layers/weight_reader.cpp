#include "model/layers/weight_reader.h"

#include <algorithm>

#include "base/check.h"
#include "base/printable.h"
#include "compute/dequantize.h"

namespace tidemill {
namespace {

bool is_float(DType type) {
  return type == DType::f32 || type == DType::f16 || type == DType::bf16;
}

DType quantized_type(WeightRole role, DType wanted) {
  const bool at_an_end = role == WeightRole::token_embedding || role == WeightRole::output_head;
  return at_an_end ? DType::q8_0 : wanted;
}

}  // namespace

WeightReader::WeightReader(const WeightFile& file, WeightNaming naming, Backend& backend, const LoadOptions& options)
    : file_(file), naming_(naming), backend_(backend), options_(options) {
  for (const TensorInfo& tensor : file.tensors()) file_bytes_ += tensor.size_bytes;
}

bool WeightReader::has(WeightRole role, int32_t layer, WeightKind kind) const {
  const std::string name = weight_name(naming_, role, layer, kind);
  return !name.empty() && file_.find(name) != nullptr;
}

Result<const TensorInfo*> WeightReader::find(WeightRole role, int32_t layer, WeightKind kind) const {
  const std::string name = weight_name(naming_, role, layer, kind);
  TM_CHECK(!name.empty(), "a family asks only for roles that its files name");
  const TensorInfo* tensor = file_.find(name);
  if (tensor == nullptr) return error("tensor {} is missing", name);
  return tensor;
}

void WeightReader::count(const TensorInfo& tensor) {
  if (!read_.insert(tensor.name).second) return;
  num_parameters_ += tensor.num_values();
  read_bytes_ += tensor.size_bytes;
  if (options_.progress) options_.progress(read_bytes_, file_bytes_);
}

Result<void> WeightReader::load_matrix(std::span<const MatrixRows> parts, int64_t cols, int32_t layer,
                                       MatrixLayout layout, std::unique_ptr<Matrix>& target) {
  std::vector<WeightPart> weights;
  std::vector<std::vector<std::byte>> quantized(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    Result<WeightPart> part = part_of(parts[i], cols, layer, quantized[i]);
    if (!part) return part.error();
    weights.push_back(*part);
  }
  Result<std::unique_ptr<Matrix>> matrix = backend_.load_matrix(weights, layout);
  if (!matrix) {
    const std::string name = weight_name(naming_, parts.front().role, layer, WeightKind::weight);
    return error("tensor {} cannot be loaded: {}", name, matrix.error().message);
  }
  for (const MatrixRows& part : parts) {
    const TensorInfo& tensor = **find(part.role, layer, WeightKind::weight);
    count(tensor);
    file_.release(tensor);
  }
  target = std::move(*matrix);
  weight_bytes_ += target->size_bytes();
  return {};
}

Result<WeightPart> WeightReader::part_of(const MatrixRows& rows, int64_t cols, int32_t layer,
                                         std::vector<std::byte>& quantized) {
  Result<const TensorInfo*> found = find(rows.role, layer, WeightKind::weight);
  if (!found) return found.error();
  const TensorInfo& tensor = **found;
  const int64_t file_rows = rows.file_rows > 0 ? rows.file_rows : rows.num_rows;
  const bool fits = tensor.shape.size() == 2 && tensor.shape[1] == cols &&
                    (tensor.shape[0] == file_rows || (rows.more_rows_allowed && tensor.shape[0] > file_rows));
  if (!fits) {
    return error("tensor {} has the shape {}, but the configuration asks for [{}, {}]", tensor.name,
                 tensor.shape_text(), file_rows, cols);
  }
  const std::optional<int64_t> row_bytes = bytes_of_values(tensor.type, cols);
  TM_CHECK(row_bytes.has_value(), "a tensor's rows fill whole blocks");
  if (backend_.wants_weights()) file_.will_read(tensor);
  WeightPart part{.type = tensor.type,
                  .data = file_.bytes(tensor).data() + rows.first_row * *row_bytes,
                  .rows = rows.num_rows,
                  .cols = cols,
                  .row_order = rows.row_order};
  if (options_.quantization && is_float(part.type) && cols % 32 == 0) {
    return quantize(part, quantized_type(rows.role, *options_.quantization), quantized);
  }
  return part;
}

WeightPart WeightReader::quantize(const WeightPart& part, DType type, std::vector<std::byte>& quantized) const {
  const int64_t source_bytes = *bytes_of_values(part.type, part.cols);
  const int64_t row_bytes = *bytes_of_values(type, part.cols);
  quantized.resize(static_cast<size_t>(part.rows * row_bytes));
  std::vector<float> row(static_cast<size_t>(part.cols));
  for (int64_t r = 0; r < part.rows; ++r) {
    dequantize_row(part.type, part.data + r * source_bytes, row.data(), part.cols);
    std::byte* target = quantized.data() + r * row_bytes;
    if (type == DType::q4_0) {
      quantize_row_q4_0(row.data(), target, part.cols);
    } else {
      quantize_row_q8_0(row.data(), target, part.cols);
    }
  }
  WeightPart result = part;
  result.type = type;
  result.data = quantized.data();
  return result;
}

Result<std::vector<float>> WeightReader::floats(WeightRole role, int32_t layer, WeightKind kind, int64_t size) {
  Result<const TensorInfo*> found = find(role, layer, kind);
  if (!found) return found.error();
  const TensorInfo& tensor = **found;
  if (tensor.shape.size() != 1 || tensor.shape[0] != size) {
    return error("tensor {} has the shape {}, but the configuration asks for [{}]", tensor.name, tensor.shape_text(),
                 size);
  }
  Result<std::vector<float>> values = read_as_f32(file_, tensor);
  if (values) count(tensor);
  return values;
}

Result<void> WeightReader::load_norm(const VectorPart& part, int32_t layer, float offset,
                                     std::unique_ptr<Buffer>& target) {
  return load_vector({&part, 1}, layer, WeightKind::weight, offset, target);
}

Result<void> WeightReader::load_bias(std::span<const VectorPart> parts, int32_t layer, Bias bias,
                                     std::unique_ptr<Buffer>& target) {
  const bool present = std::any_of(parts.begin(), parts.end(),
                                   [&](const VectorPart& part) { return has(part.role, layer, WeightKind::bias); });
  if (bias == Bias::none || (bias == Bias::optional && !present)) return {};
  return load_vector(parts, layer, WeightKind::bias, 0.0f, target);
}

Result<void> WeightReader::load_vector(std::span<const VectorPart> parts, int32_t layer, WeightKind kind, float offset,
                                       std::unique_ptr<Buffer>& target) {
  std::vector<float> all;
  for (const VectorPart& part : parts) {
    Result<std::vector<float>> values = floats(part.role, layer, kind, part.size);
    if (!values) return values.error();
    for (int64_t i = 0; i < part.size; ++i) {
      all.push_back((*values)[part.order.empty() ? i : part.order[i]] + offset);
    }
  }
  target = backend_.allocate(all.size());
  std::copy(all.begin(), all.end(), target->data());
  weight_bytes_ += all.size() * sizeof(float);
  return {};
}

Result<void> WeightReader::check_all_read() const {
  for (const TensorInfo& tensor : file_.tensors()) {
    if (read_.contains(tensor.name) || is_ignored_weight(tensor.name)) continue;
    return error("the file holds tensor {}, which this family does not have", printable(tensor.name));
  }
  return {};
}

}  // namespace tidemill
