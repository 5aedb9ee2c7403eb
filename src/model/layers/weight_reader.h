// Takes a model's weights out of its file by role: found by name, checked against the expected shape, loaded.
//
// Keeps account of what was read, so that a tensor that nobody reads is noticed: it means that the file holds something
// (biases, experts, another norm) that the family does not know of. Lives while loading only; one thread.
// An Error names the tensor, the shape that was expected and the one that was found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/result.h"
#include "compute/backend.h"
#include "model/layers/decoder_spec.h"
#include "model/loader.h"
#include "model/weight_file.h"
#include "model/weight_names.h"

namespace tidemill {

// Rows [first_row, first_row + num_rows) of a matrix tensor [file_rows, cols].
struct MatrixRows {
  WeightRole role;
  int64_t num_rows = 0;
  int64_t first_row = 0;
  int64_t file_rows = 0;                 // 0 = num_rows
  bool more_rows_allowed = false;        // padding at the end that is left out
  std::span<const int32_t> row_order{};  // as WeightPart::row_order; empty = as in the file
};

// The same of a vector tensor [file_size].
struct VectorPart {
  WeightRole role;
  int64_t size = 0;
  std::span<const int32_t> order{};
};

class WeightReader {
 public:
  // All arguments must outlive the reader.
  WeightReader(const WeightFile& file, WeightNaming naming, Backend& backend, const LoadOptions& options);

  bool has(WeightRole role, int32_t layer = 0, WeightKind kind = WeightKind::weight) const;

  // target = [rows of all parts, cols], in the backend's layout.
  Result<void> load_matrix(std::span<const MatrixRows> parts, int64_t cols, int32_t layer, MatrixLayout layout,
                           std::unique_ptr<Matrix>& target);
  // target = the part, plus offset.
  Result<void> load_norm(const VectorPart& part, int32_t layer, float offset, std::unique_ptr<Buffer>& target);
  // target = the parts one after the other; stays nullptr where there is no bias.
  Result<void> load_bias(std::span<const VectorPart> parts, int32_t layer, Bias bias, std::unique_ptr<Buffer>& target);
  Result<std::vector<float>> floats(WeightRole role, int32_t layer, WeightKind kind, int64_t size);

  // An Error names the first tensor that was not read.
  Result<void> check_all_read() const;

  int64_t num_parameters() const { return num_parameters_; }
  size_t weight_bytes() const { return weight_bytes_; }  // as held by the backend

 private:
  Result<const TensorInfo*> find(WeightRole role, int32_t layer, WeightKind kind) const;
  Result<WeightPart> part_of(const MatrixRows& rows, int64_t cols, int32_t layer, std::vector<std::byte>& quantized);
  WeightPart quantize(const WeightPart& part, DType type, std::vector<std::byte>& quantized) const;
  Result<void> load_vector(std::span<const VectorPart> parts, int32_t layer, WeightKind kind, float offset,
                           std::unique_ptr<Buffer>& target);
  void count(const TensorInfo& tensor);

  const WeightFile& file_;
  const WeightNaming naming_;
  Backend& backend_;
  const LoadOptions& options_;
  std::unordered_set<std::string> read_;
  size_t file_bytes_ = 0;
  size_t read_bytes_ = 0;
  size_t weight_bytes_ = 0;
  int64_t num_parameters_ = 0;
};

}  // namespace tidemill
