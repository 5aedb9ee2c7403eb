#include "cli/model_text.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "model/model_files.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tidemill {
namespace {

constexpr uint64_t max_template_bytes = 1 << 20;
constexpr int64_t max_token_id = INT32_MAX;

std::optional<double> number_in(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return {};
  return found->get<double>();
}

std::optional<int64_t> integer_in(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer()) return {};
  return found->get<int64_t>();
}

void add_token(const nlohmann::json& value, std::vector<TokenId>& ids) {
  if (!value.is_number_integer()) return;
  const int64_t id = value.get<int64_t>();
  if (id >= 0 && id <= max_token_id) ids.push_back(static_cast<TokenId>(id));
}

Result<GenerationDefaults> from_json(const std::string& text) {
  Result<nlohmann::json> parsed = parse_json(text);
  if (!parsed) return error("generation_config.json: {}", parsed.error().message);
  if (!parsed->is_object()) return error("generation_config.json is not an object");
  GenerationDefaults defaults;
  defaults.temperature = number_in(*parsed, "temperature");
  defaults.top_p = number_in(*parsed, "top_p");
  defaults.min_p = number_in(*parsed, "min_p");
  defaults.repetition_penalty = number_in(*parsed, "repetition_penalty");
  defaults.top_k = integer_in(*parsed, "top_k");
  defaults.max_new_tokens = integer_in(*parsed, "max_new_tokens");
  // transformers: without do_sample the sampling values are not used, and the best token is taken.
  const auto do_sample = parsed->find("do_sample");
  if (do_sample != parsed->end() && do_sample->is_boolean() && !do_sample->get<bool>()) defaults.temperature = 0.0;
  if (const auto end = parsed->find("eos_token_id"); end != parsed->end()) {
    add_token(*end, defaults.end_token_ids);
    if (end->is_array()) {
      for (const nlohmann::json& id : *end) add_token(id, defaults.end_token_ids);
    }
  }
  return defaults;
}

Result<GenerationDefaults> from_metadata(const Metadata& metadata) {
  GenerationDefaults defaults;
  const auto read = [&metadata](const char* key, std::optional<double>& target) -> Result<void> {
    if (!metadata.has(key)) return {};
    const Result<double> value = metadata.number(key);
    if (!value) return value.error();
    target = *value;
    return {};
  };
  if (Result<void> done = read("general.sampling.temp", defaults.temperature); !done) return done.error();
  if (Result<void> done = read("general.sampling.top_p", defaults.top_p); !done) return done.error();
  if (Result<void> done = read("general.sampling.min_p", defaults.min_p); !done) return done.error();
  if (Result<void> done = read("general.sampling.penalty_repeat", defaults.repetition_penalty); !done) {
    return done.error();
  }
  if (metadata.has("general.sampling.top_k")) {
    const Result<int64_t> top_k = metadata.integer("general.sampling.top_k");
    if (!top_k) return top_k.error();
    defaults.top_k = *top_k;
  }
  return defaults;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> tokenizer_of(const ModelFiles& files, std::vector<std::string>* warnings) {
  if (!files.tokenizer_json.empty()) return make_tokenizer(files.tokenizer_json, files.tokenizer_config_json);
  return make_tokenizer(files.weights->metadata(), warnings);
}

Result<std::string> chat_template_source_of(const ModelFiles& files, const std::string& override_path) {
  return override_path.empty() ? files.chat_template : read_text_file(override_path, max_template_bytes);
}

Result<std::unique_ptr<ChatTemplate>> chat_template_of(const std::string& source, const std::string& override_path) {
  if (source.empty()) return std::unique_ptr<ChatTemplate>();
  Result<ChatTemplate> parsed = ChatTemplate::parse(source);
  if (!parsed) {
    return error("chat template{}: {}", override_path.empty() ? " of the model" : " " + override_path,
                 parsed.error().message);
  }
  return std::make_unique<ChatTemplate>(*std::move(parsed));
}

Result<GenerationDefaults> generation_defaults_of(const ModelFiles& files) {
  if (!files.generation_config_json.empty()) return from_json(files.generation_config_json);
  return from_metadata(files.weights->metadata());
}

Result<std::string> read_text_file(const std::string& path, uint64_t limit_bytes) {
  std::error_code code;
  if (!std::filesystem::is_regular_file(path, code)) return error("{} is not a file that can be read", path);
  const uintmax_t size = std::filesystem::file_size(path, code);
  if (code) return error("{}: {}", path, code.message());
  if (size > limit_bytes) return error("{} has {} bytes; the limit is {}", path, size, limit_bytes);
  std::ifstream in(path, std::ios::binary);
  std::string text(size, '\0');
  in.read(text.data(), static_cast<std::streamsize>(size));
  if (!in) return error("{} cannot be read", path);
  return text;
}

}  // namespace tidemill
