// The text side of a model's files: its tokenizer, its chat template, and how its makers want it sampled.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/token.h"

namespace tidemill {

class ChatTemplate;
class Tokenizer;
struct ModelFiles;

// From tokenizer.json where the folder has one, else from the GGUF's metadata. Warnings are added to `warnings`.
Result<std::unique_ptr<Tokenizer>> tokenizer_of(const ModelFiles& files, std::vector<std::string>* warnings = nullptr);

// The text of the template in the file at `override_path` where that is not empty, else of the model's own; "" where
// there is neither. The Error names the file.
Result<std::string> chat_template_source_of(const ModelFiles& files, const std::string& override_path);

// That text parsed; nullptr where it is empty. The Error says whose template it is.
Result<std::unique_ptr<ChatTemplate>> chat_template_of(const std::string& source, const std::string& override_path);

// What generation_config.json says, or the GGUF's keys general.sampling.*; nullopt where they are silent.
struct GenerationDefaults {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k, max_new_tokens;
  std::vector<TokenId> end_token_ids;  // besides the tokenizer's own
};
Result<GenerationDefaults> generation_defaults_of(const ModelFiles& files);

// A whole file, at most limit_bytes long.
Result<std::string> read_text_file(const std::string& path, uint64_t limit_bytes);

}  // namespace tidemill
