// The tiny random models with float32 reference logits: tests/golden holds three, the data folder all of them.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/token.h"
#include "model/memory_weights.h"
#include "model/model_config.h"
#include "model/model_files.h"
#include "model/weight_names.h"
#include "test_data.h"

namespace tidemill::testing {

inline std::optional<std::filesystem::path> tiny_model_folder(const std::string& name) {
  for (const auto& folder : {data_path("tiny-models/" + name), golden_path("tiny-models/" + name)}) {
    if (std::filesystem::exists(folder / "reference.json")) return folder;
  }
  return std::nullopt;
}

struct Reference {
  std::vector<TokenId> prompt;
  std::vector<float> logits;  // [prompt, vocab]
  std::vector<TokenId> greedy;
  std::vector<double> margins;  // of the greedy steps
};

inline Reference read_reference(const std::filesystem::path& folder) {
  const auto json = nlohmann::json::parse(read_file(folder / "reference.json"));
  Reference reference;
  reference.prompt = json["prompt_ids"].get<std::vector<TokenId>>();
  reference.greedy = json["greedy_ids"].get<std::vector<TokenId>>();
  reference.margins = json["greedy_margin"].get<std::vector<double>>();
  for (const auto& row : json["logits"]) {
    for (const auto& value : row) reference.logits.push_back(value.get<float>());
  }
  return reference;
}

struct TinyModel {
  std::unique_ptr<WeightFile> weights;
  ModelConfig config;
};

enum class TinyFormat { safetensors, gguf, gguf_names };

// Copies a hub model's tensors under the names that GGUF gives them, as a converter would: for families whose rows keep
// their order. Norm weights of Gemma get their 1.
inline std::unique_ptr<WeightFile> with_gguf_names(const WeightFile& file, int32_t num_layers, bool post_norms,
                                                   bool norms_lack_one) {
  auto copy = MemoryWeights::copy_of(file);
  const WeightNaming naming = post_norms ? WeightNaming::hub_post_norms : WeightNaming::hub;
  for (int role = 0; role < num_weight_roles; ++role) {
    for (int32_t layer = 0; layer < num_layers; ++layer) {
      for (WeightKind kind : {WeightKind::weight, WeightKind::bias}) {
        const std::string from = weight_name(naming, static_cast<WeightRole>(role), layer, kind);
        if (from.empty() || copy->find(from) == nullptr) continue;
        if (norms_lack_one && copy->find(from)->shape.size() == 1) {
          std::vector<float> values = copy->floats(from);
          for (float& value : values) value += 1.0f;
          copy->set_floats(from, values);
        }
        copy->rename(from, weight_name(WeightNaming::gguf, static_cast<WeightRole>(role), layer, kind));
      }
    }
  }
  return copy;
}

inline Result<TinyModel> open_tiny(const std::filesystem::path& folder, TinyFormat format) {
  TinyModel tiny;
  Result<ModelFiles> hub = open_model_files(folder / "model.safetensors");
  if (!hub) return hub.error();
  Result<ModelConfig> hub_config = read_model_config(*hub);
  if (!hub_config) return hub_config.error();
  tiny.config = *hub_config;
  if (format == TinyFormat::safetensors) {
    tiny.weights = std::move(hub->weights);
    return tiny;
  }
  tiny.config.source = ConfigSource::gguf;
  if (format == TinyFormat::gguf_names) {
    const bool is_gemma = tiny.config.family.starts_with("gemma");
    tiny.weights = with_gguf_names(*hub->weights, tiny.config.num_layers, is_gemma, is_gemma);
    return tiny;
  }
  Result<ModelFiles> gguf = open_model_files(folder / "model.gguf");
  if (!gguf) return gguf.error();
  Result<ModelConfig> config = read_model_config(*gguf);
  if (!config) return config.error();
  // The converter writes neither Mistral's window, nor Gemma 3's score scale and the place of its full layers where
  // they are not the published models': these come from config.json.
  const std::string name = folder.filename().string();
  if (name != "mistral-window" && name != "gemma3") tiny.config = *config;
  tiny.weights = std::move(gguf->weights);
  return tiny;
}

}  // namespace tidemill::testing
