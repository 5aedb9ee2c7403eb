#include "model/loader.h"

#include "model/families/family.h"
#include "model/families/family_registry.h"

namespace tidemill {

Result<std::unique_ptr<Model>> load_model(const WeightFile& file, const ModelConfig& config, Backend& backend,
                                          const LoadOptions& options) {
  if (options.quantization && *options.quantization != DType::q8_0 && *options.quantization != DType::q4_0) {
    return error("weights can be quantized to Q8_0 or Q4_0, not to {}", dtype_name(*options.quantization));
  }
  Result<const Family*> family = find_family(config.family);
  if (!family) return family.error();
  Result<std::unique_ptr<Model>> model = (*family)->load({file, config, backend, options});
  if (!model) return model;
  const Result<void> kept = backend.end_loading();
  if (!kept && options.warn) options.warn(kept.error().message);
  return model;
}

}  // namespace tidemill
