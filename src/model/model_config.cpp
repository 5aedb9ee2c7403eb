#include "model/model_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "model/model_config_ranges.h"
#include "model/weight_file.h"

namespace tidemill {
namespace {

void check_heads(const ModelConfig& config, ConfigReader& reader) {
  for (size_t layer = 0; layer < config.num_heads.size(); ++layer) {
    const int32_t heads = config.num_heads[layer], kv_heads = config.num_kv_heads[layer];
    if (kv_heads > heads || heads % kv_heads != 0) {
      reader.fail(
          error("layer {} has {} attention heads and {} heads of keys and values, but the second must divide "
                "the first",
                layer, heads, kv_heads));
      return;
    }
  }
}

void check_longrope(const RopeScaling& scaling, int32_t rope_dimensions, ConfigReader& reader) {
  for (const auto* factors : {&scaling.short_factor, &scaling.long_factor}) {
    if (!factors->empty() && factors->size() != static_cast<size_t>(rope_dimensions / 2)) {
      reader.fail(error("rotation has {} longrope factors, but must have {}, half its {} dimensions", factors->size(),
                        rope_dimensions / 2, rope_dimensions));
    }
  }
}

// Every number n for which the file has a tensor "<prefix>n.", below the limit.
std::vector<bool> layers_present(const WeightFile& file, std::string_view marker, int32_t num_layers) {
  std::vector<bool> present(static_cast<size_t>(num_layers));
  for (const TensorInfo& tensor : file.tensors()) {
    const size_t at = tensor.name.find(marker);
    if (at == std::string::npos) continue;
    int64_t number = 0;
    size_t pos = at + marker.size();
    for (; pos < tensor.name.size() && tensor.name[pos] >= '0' && tensor.name[pos] <= '9' && number < num_layers;
         ++pos) {
      number = number * 10 + (tensor.name[pos] - '0');
    }
    if (pos < tensor.name.size() && tensor.name[pos] == '.' && number < num_layers) present[number] = true;
  }
  return present;
}

const TensorInfo* embedding_table(const ModelConfig& config, const WeightFile& file) {
  if (config.source == ConfigSource::gguf) return file.find("token_embd.weight");
  for (std::string_view name : {"model.embed_tokens.weight", "language_model.model.embed_tokens.weight",
                                "model.language_model.embed_tokens.weight"}) {
    if (const TensorInfo* tensor = file.find(name)) return tensor;
  }
  return nullptr;
}

Result<void> check_embedding(const ModelConfig& config, const WeightFile& file) {
  const TensorInfo* table = embedding_table(config, file);
  if (!table) return error("the token embedding table is missing from the file's {} tensors", file.tensors().size());
  const std::string name = printable(table->name);
  if (table->shape.size() != 2 || table->shape[1] != config.hidden_size) {
    return error("tensor '{}' has shape {}, but must have {} columns, the width of the model", name,
                 table->shape_text(), config.hidden_size);
  }
  const int32_t vocab_size = std::max(config.vocab_size, config.tokenizer_size);
  if (table->shape[0] < vocab_size) {
    return error("tensor '{}' has {} rows, but the vocabulary has {} tokens", name, table->shape[0], vocab_size);
  }
  return {};
}

}  // namespace

const char* rope_scaling_name(RopeScalingKind kind) {
  static constexpr const char* names[] = {"none", "linear", "dynamic", "yarn", "llama3", "longrope"};
  return names[static_cast<size_t>(kind)];
}

int32_t head_size_from_width(const ModelConfig& config, ConfigReader& reader) {
  if (reader.has_failed() || config.num_heads.empty()) return 1;
  const int32_t heads = config.num_heads.front();
  if (config.hidden_size % heads != 0) {
    reader.fail(
        error("the width of the model, {}, is not a multiple of its {} attention heads, and the file does not "
              "say how long a head is",
              config.hidden_size, heads));
    return 1;
  }
  return config.hidden_size / heads;
}

void finish_config(ModelConfig& config, ConfigReader& reader) {
  if (reader.has_failed()) return;
  check_heads(config, reader);
  if (config.rope_dimensions < 2 || config.rope_dimensions % 2 != 0 || config.rope_dimensions > config.head_size_k) {
    reader.fail(
        error("the rotated part of a head has {} dimensions, but must have an even number from 2 to {}, the "
              "length of a head",
              config.rope_dimensions, config.head_size_k));
  }
  check_longrope(config.rope.scaling, config.rope_dimensions, reader);
  if (config.sliding_window == 0) config.sliding_window.reset();
  if (config.attn_logit_softcap == 0.0) config.attn_logit_softcap.reset();
  if (config.final_logit_softcap == 0.0) config.final_logit_softcap.reset();
}

Result<void> check_config_against_weights(const ModelConfig& config, const WeightFile& file) {
  if (auto checked = check_embedding(config, file); !checked) return checked;
  const std::string_view marker = config.source == ConfigSource::gguf ? "blk." : "layers.";
  const std::vector<bool> present = layers_present(file, marker, config.num_layers);
  const auto missing = std::find(present.begin(), present.end(), false);
  if (missing != present.end()) {
    return error("the model has {} layers by its configuration, but the file has no tensor '{}{}.*'", config.num_layers,
                 marker, missing - present.begin());
  }
  return {};
}

}  // namespace tidemill
