#include "model/model_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "model/gguf_file.h"
#include "model/safetensors_file.h"

namespace tidemill {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t small_text_bytes = uint64_t{16} << 20;
constexpr uint64_t tokenizer_bytes = uint64_t{128} << 20;

std::string shown(const fs::path& path) {
  return printable(path.filename().native(), 200);
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// The whole text; an absent file gives an empty one.
Result<std::string> read_text(const fs::path& path, uint64_t limit_bytes) {
  if (!is_there(path)) return std::string();
  auto file = MappedFile::open(path);
  if (!file) return file.error();
  if (file->size_bytes() > limit_bytes) {
    return error("{}: has {} bytes, above the limit of {}", file->name(), file->size_bytes(), limit_bytes);
  }
  const auto bytes = file->bytes();
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!is_valid_utf8(text)) return error("{}: is not valid UTF-8", file->name());
  return text;
}

// chat_template is a text, or a list of {"name", "template"} of which "default" is the chat's.
Result<std::string> template_of(const std::string& tokenizer_config_json) {
  if (tokenizer_config_json.empty()) return std::string();
  auto config = parse_json(tokenizer_config_json);
  if (!config) return error("tokenizer_config.json {}", config.error().message);
  if (!config->is_object()) return error("tokenizer_config.json must hold an object");
  const auto found = config->find("chat_template");
  if (found == config->end() || found->is_null()) return std::string();
  if (found->is_string()) return found->get<std::string>();
  if (found->is_array()) {
    for (const auto& entry : *found) {
      if (entry.is_object() && entry.value("name", nlohmann::json()) == "default" && entry.contains("template") &&
          entry["template"].is_string()) {
        return entry["template"].get<std::string>();
      }
    }
    return error("'chat_template' in tokenizer_config.json is a list without a template named 'default'");
  }
  return error("'chat_template' in tokenizer_config.json must be a string or a list");
}

Result<void> read_texts(const fs::path& folder, ModelFiles& files) {
  const std::tuple<const char*, uint64_t, std::string*> texts[] = {
      {"config.json", small_text_bytes, &files.config_json},
      {"generation_config.json", small_text_bytes, &files.generation_config_json},
      {"tokenizer.json", tokenizer_bytes, &files.tokenizer_json},
      {"tokenizer_config.json", small_text_bytes, &files.tokenizer_config_json},
      {"chat_template.jinja", small_text_bytes, &files.chat_template}};
  for (const auto& [name, limit, target] : texts) {
    auto text = read_text(folder / name, limit);
    if (!text) return text.error();
    *target = *std::move(text);
  }
  if (files.config_json.empty()) return error("config.json: is missing beside the safetensors file, or empty");
  if (files.chat_template.empty()) {
    auto inside = template_of(files.tokenizer_config_json);
    if (!inside) return inside.error();
    files.chat_template = *std::move(inside);
  }
  return {};
}

Result<ModelFiles> open_gguf_model(const fs::path& path) {
  auto weights = open_gguf(path);
  if (!weights) return weights.error();
  ModelFiles files;
  const Metadata& metadata = (*weights)->metadata();
  auto chat_template = metadata.string("tokenizer.chat_template", "");
  if (!chat_template) return error("{}: {}", shown(path), chat_template.error().message);
  files.chat_template = *std::move(chat_template);
  if (!is_valid_utf8(files.chat_template)) {
    return error("{}: metadata key 'tokenizer.chat_template' is not valid UTF-8", shown(path));
  }
  auto name = metadata.string("general.name", "");
  files.name = name && !name->empty() ? printable(*name, 200) : printable(path.stem().native(), 200);
  files.weights = *std::move(weights);
  return files;
}

Result<ModelFiles> with_texts(Result<std::unique_ptr<WeightFile>> weights, const fs::path& folder, std::string name) {
  if (!weights) return weights.error();
  ModelFiles files;
  files.weights = *std::move(weights);
  files.name = name.empty() ? "model" : std::move(name);
  if (auto read = read_texts(folder, files); !read) return read.error();
  return files;
}

// The last part of a path that may end in a slash, or the whole of one that has no parts ("/").
std::string folder_name(const fs::path& folder) {
  std::error_code failed;
  const fs::path canonical = fs::canonical(folder, failed);
  const fs::path& whole = failed ? folder : canonical;
  return printable((whole.has_filename() ? whole.filename() : whole).native(), 200);
}

std::vector<fs::path> files_ending_in(const fs::path& folder, const std::string& ending) {
  std::vector<fs::path> found;
  std::error_code failed;
  for (fs::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed)) {
    if (it->path().extension() == ending) found.push_back(it->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

Result<ModelFiles> open_folder(const fs::path& folder) {
  const std::string name = folder_name(folder);
  const fs::path index = folder / "model.safetensors.index.json", single = folder / "model.safetensors";
  if (is_there(single)) return with_texts(open_safetensors(single), folder, name);
  if (is_there(index)) return with_texts(open_safetensors_index(index), folder, name);
  // Split GGUF models are found by their first part.
  std::vector<fs::path> models;
  for (const fs::path& path : files_ending_in(folder, ".gguf")) {
    const std::string stem = path.stem();
    const size_t of = stem.rfind("-of-");
    if (of == std::string::npos || of < 5 || stem.substr(of - 5, 5) == "00001") models.push_back(path);
  }
  if (models.size() == 1) return open_gguf_model(models.front());
  if (models.size() > 1) {
    return error("{}: holds {} GGUF files, so one of them must be named, such as {}", name, models.size(),
                 shown(models.front()));
  }
  return error("{}: holds neither model.safetensors, nor model.safetensors.index.json, nor a GGUF file", name);
}

}  // namespace

Result<ModelFiles> open_model_files(const fs::path& path) {
  if (!is_there(path)) return error("{}: there is no such file or folder", shown(path));
  if (is_folder(path)) return open_folder(path);
  auto file = MappedFile::open(path);
  if (!file) return file.error();
  if (has_gguf_magic(file->bytes())) return open_gguf_model(path);
  // The name decides no more than which reader explains what is wrong.
  if (looks_like_safetensors(file->bytes()) || path.extension() == ".safetensors") {
    const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
    return with_texts(open_safetensors(path), folder, printable(path.stem().native(), 200));
  }
  return error("{}: is neither a GGUF nor a safetensors file by its first {} bytes", file->name(),
               std::min<uint64_t>(file->size_bytes(), 9));
}

Result<ModelConfig> read_model_config(const ModelFiles& files) {
  if (files.weights->tensors().empty()) return error("the file has no tensors, so it holds a vocabulary at most");
  auto config =
      files.config_json.empty() ? read_gguf_config(files.weights->metadata()) : read_json_config(files.config_json);
  if (!config) return config;
  if (auto checked = check_config_against_weights(*config, *files.weights); !checked) return checked.error();
  return config;
}

}  // namespace tidemill
