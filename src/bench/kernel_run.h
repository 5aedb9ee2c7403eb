// The kernels of a backend, each held against what the machine can do at that moment.
//
// Shapes are those of SmolLM2-135M: 30 layers of their own matrices, as a model has them, so that weights come from
// where a model's come from. One pass streams the weights of all layers once, for all rows of the step. A time is the
// best of several passes: other work on the machine only ever makes one slower.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/attention_timing.h"
#include "bench/machine_limits.h"
#include "compute/backend.h"

namespace tidemill {

struct KernelOptions {
  std::vector<DType> types;      // of the layers' weights
  std::vector<int32_t> rows;     // of a product
  std::vector<int32_t> lengths;  // contexts of attention
  KvBlockFormat kv_format;       // fp16, or encoded
  double seconds = 0.3;          // for each figure
  std::function<void(const std::string&)> on_progress;
};

struct ProductFigure {
  std::string matrices;  // "layers", "head"
  DType type = DType::f32;
  int32_t rows = 0;
  double seconds = 0;
  double macs = 0;
  size_t weight_bytes = 0;
  double read_limit_gb_s = 0;  // reading as many bytes
};

struct AttentionFigure {
  bool is_prefill = false;
  AttentionLoad load;
  AttentionTime time;
};

struct KernelFigures {
  MachineLimits limits;
  std::vector<ProductFigure> products;
  std::vector<AttentionFigure> attention;
};

// An Error names a weight type that the backend does not take.
Result<KernelFigures> measure_kernels(Backend& backend, const KernelOptions& options);

// The limits that weights of a type are held against: the vector unit's and the matrix unit's.
struct TypeLimits {
  std::optional<double> vector_tmacs, matrix_tmacs;
};
TypeLimits limits_for(DType type, const MachineLimits& limits);

std::string kernel_tables(const KernelFigures& figures);
nlohmann::ordered_json json_of(const KernelFigures& figures);
// Attention over the length of the context, beside a plain read of its keys and values.
std::string attention_picture(const KernelFigures& figures, const std::string& subtitle);

}  // namespace tidemill
