// Everything that belongs to one model on disk, opened: weights, and the texts beside them.
//
// What a path holds is decided by its content, never by its name: a file that begins with "GGUF", a safetensors file,
// or a folder as published on model hubs. Files of a folder are looked up by their fixed names, and shards by plain
// names from the index: no name from a file leads out of the folder. Texts are read whole, up to a limit each, and are
// not yet parsed, but valid UTF-8. An Error is one sentence with the name of the file at fault, without its folder.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/result.h"
#include "model/model_config.h"
#include "model/weight_file.h"

namespace tidemill {

struct ModelFiles {
  std::unique_ptr<WeightFile> weights;
  // Empty for a GGUF, and where the folder has no such file.
  std::string config_json;
  std::string generation_config_json;
  std::string tokenizer_json;
  std::string tokenizer_config_json;
  // From chat_template.jinja, else chat_template of tokenizer_config.json (of a list, the one named "default"), else
  // tokenizer.chat_template of a GGUF; empty where there is none.
  std::string chat_template;
  // general.name of a GGUF; otherwise the file's or folder's name without its ending. Never empty, fit to be printed.
  std::string name;
};

// path: a .gguf file (any part of a split one), a folder, or a .safetensors file, whose folder then has config.json. A
// folder without safetensors that holds exactly one GGUF model opens that one.
Result<ModelFiles> open_model_files(const std::filesystem::path& path);

// The configuration from whichever kind of file it is, checked against the tensors. A file that holds a vocabulary only
// is an Error here, as nothing could run it.
Result<ModelConfig> read_model_config(const ModelFiles& files);

}  // namespace tidemill
