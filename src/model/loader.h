// From an opened model file to a model that runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "compute/dtype.h"
#include "model/model.h"

namespace tidemill {

class WeightFile;
struct ModelConfig;

struct LoadOptions {
  // Quantizes float matrices while loading: q8_0 or q4_0. With q4_0 the embedding table and the output head become
  // q8_0, where four bits cost the most. Rows that do not fill blocks of 32 stay as they are.
  std::optional<DType> quantization;
  // The longest sequence that will be served, in tokens; 0 = the trained context length. Rotary scalings that depend on
  // the length (dynamic, longrope) take the one set of frequencies for this length, so that a key never depends on when
  // it was computed.
  int32_t longest_sequence = 0;
  // Called after each matrix with bytes of the file done and in all.
  std::function<void(size_t done, size_t total)> progress;
  // Called with one sentence about what went wrong without harm.
  std::function<void(const std::string& sentence)> warn;
};

// Builds the family's model and repacks all weights onto the backend. Every tensor's shape is checked against the
// configuration before use; each matrix's mapped file range is given back once it is repacked, so nothing is held
// twice, and the file may be closed afterwards. The backend must outlive the model. An Error names the family, the
// tensor or the value at fault.
Result<std::unique_ptr<Model>> load_model(const WeightFile& file, const ModelConfig& config, Backend& backend,
                                          const LoadOptions& options);

}  // namespace tidemill
