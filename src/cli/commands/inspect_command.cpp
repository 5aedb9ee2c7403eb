// tidemill inspect: what is in a model file.
#include <array>
#include <cstdio>
#include <numeric>

#include "base/printable.h"
#include "cli/commands/command.h"
#include "cli/model_text.h"
#include "cli/options/values.h"
#include "compute/dtype.h"
#include "compute/paged_kv.h"
#include "model/model_files.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tidemill {
namespace {

void line(const char* label, const std::string& text) {
  std::printf("%-14s%s\n", label, text.c_str());
}

// "9", or "9 to 16" where layers differ.
std::string range_text(const std::vector<int32_t>& values) {
  if (values.empty()) return "?";
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return *low == *high ? fmt::format("{}", *low) : fmt::format("{} to {}", *low, *high);
}

void show_weights(const WeightFile& weights) {
  struct PerType {
    size_t num_tensors = 0;
    uint64_t bytes = 0;
  };
  std::array<PerType, num_dtypes> types;
  int64_t num_values = 0;
  for (const TensorInfo& tensor : weights.tensors()) {
    PerType& type = types[static_cast<size_t>(tensor.type)];
    ++type.num_tensors;
    type.bytes += tensor.size_bytes;
    num_values += tensor.num_values();
  }
  line("format", fmt::format("{}, {} file{}, {}", weights.format(), weights.num_shards(),
                             weights.num_shards() == 1 ? "" : "s", bytes_text(weights.file_bytes())));
  line("tensors", fmt::format("{}, {:.1f} million values", weights.tensors().size(), num_values / 1e6));
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i].num_tensors == 0) continue;
    line("", fmt::format("{:<8}{:>6} tensors  {:>10}", dtype_name(static_cast<DType>(i)), types[i].num_tensors,
                         bytes_text(types[i].bytes)));
  }
}

// Bytes of keys and values of one token over all layers, scales and padding included.
double kv_bytes_per_token(const ModelConfig& config, KvBlockFormat format) {
  constexpr int32_t block_size = 32;
  size_t bytes = 0;
  for (const int32_t heads : config.num_kv_heads) {
    const KvShape shape = {heads, config.head_size_k, config.head_size_v, block_size};
    bytes += shape.layer_bytes(format);
  }
  return static_cast<double>(bytes) / block_size;
}

void show_config(const ModelConfig& config) {
  line("family", printable(config.family));
  line("layers", fmt::format("{}, width {}, feed-forward {}", config.num_layers, config.hidden_size,
                             range_text(config.feed_forward_size)));
  line("attention", fmt::format("{} heads, {} KV heads, head size {}", range_text(config.num_heads),
                                range_text(config.num_kv_heads), config.head_size_k));
  if (config.sliding_window) line("", fmt::format("some layers see only the last {} tokens", *config.sliding_window));
  if (config.num_experts) {
    line("experts", fmt::format("{}, of which {} at a time", *config.num_experts, config.num_experts_used.value_or(0)));
  }
  line("context", fmt::format("{} tokens", config.context_length));
  const double per_token = kv_bytes_per_token(config, KvFormat::fp16);
  line("KV cache", fmt::format("{} bytes per token in fp16 ({} for the whole context{})", per_token,
                               bytes_text(static_cast<uint64_t>(per_token * config.context_length)),
                               config.sliding_window ? ", less where layers have windows" : ""));
  line("",
       fmt::format("{} in int8, {} in int8/int4, {} in int4, {} in nvfp4", kv_bytes_per_token(config, KvFormat::int8),
                   kv_bytes_per_token(config, {KvFormat::int8, KvFormat::int4}),
                   kv_bytes_per_token(config, KvFormat::int4), kv_bytes_per_token(config, KvFormat::nvfp4)));
}

std::string token_list(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::string text;
  for (const TokenId id : ids) {
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", printable(tokenizer.token_text(id)), id);
  }
  return text.empty() ? "none" : text;
}

void show_tokenizer(const Tokenizer& tokenizer) {
  line("vocabulary", fmt::format("{} tokens", tokenizer.vocab_size()));
  const std::optional<TokenId> bos = tokenizer.bos();
  line("begins with", bos && tokenizer.adds_bos() ? token_list(tokenizer, {*bos}) : "nothing");
  line("ends with", token_list(tokenizer, tokenizer.end_of_generation_ids()));
}

void show_template(const ModelFiles& files) {
  if (files.chat_template.empty()) return line("template", "none: the model continues texts");
  const Result<std::unique_ptr<ChatTemplate>> parsed = chat_template_of(files.chat_template, "");
  if (!parsed) return line("template", "cannot be used: " + parsed.error().message);
  line("template",
       fmt::format("{} bytes{}{}", files.chat_template.size(), (*parsed)->mentions("tools") ? ", knows tools" : "",
                   (*parsed)->mentions("enable_thinking") ? ", can turn thinking off" : ""));
}

class InspectCommand final : public Command {
 public:
  CommandDescription description() const override { return {"inspect", "Show what is in a model file or folder.", ""}; }

  void add_options(OptionList& options) override {
    options.positional("[PATH]", &positional_path_, "Model file or folder.");
    options.text("--model,-m", &path_, "PATH", "Model file or folder.");
    options.flag("--tensors", &show_tensors_, "List every tensor with its type, shape and bytes.");
    options.flag("--metadata", &show_metadata_, "List every key of a GGUF file.");
  }

  Result<void> check() override {
    if (path_.empty()) path_ = positional_path_;
    if (path_.empty()) return error("inspect needs a model: tidemill inspect PATH");
    return {};
  }

  Result<int> run() override {
    const Result<ModelFiles> files = open_model_files(path_);
    if (!files) return files.error();
    line("name", files->name);
    // A vocabulary alone has no configuration.
    if (!files->weights->tensors().empty()) {
      const Result<ModelConfig> config = read_model_config(*files);
      if (!config) return config.error();
      show_config(*config);
    }
    show_weights(*files->weights);
    const Result<std::unique_ptr<Tokenizer>> tokenizer = tokenizer_of(*files);
    if (!tokenizer) {
      line("tokenizer", "cannot be used: " + tokenizer.error().message);
    } else {
      show_tokenizer(**tokenizer);
      show_template(*files);
    }
    if (show_metadata_) list_metadata(files->weights->metadata());
    if (show_tensors_) list_tensors(*files->weights);
    return 0;
  }

 private:
  static void list_tensors(const WeightFile& weights) {
    std::printf("\n");
    for (const TensorInfo& tensor : weights.tensors()) {
      std::printf("%-7s %-20s %12llu  %s\n", dtype_name(tensor.type), tensor.shape_text().c_str(),
                  static_cast<unsigned long long>(tensor.size_bytes), printable(tensor.name).c_str());
    }
  }

  static std::string value_text(const Metadata::Value& value) {
    if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
    if (const auto* number = std::get_if<int64_t>(&value)) return fmt::format("{}", *number);
    if (const auto* number = std::get_if<uint64_t>(&value)) return fmt::format("{}", *number);
    if (const auto* number = std::get_if<double>(&value)) return fmt::format("{}", *number);
    if (const auto* text = std::get_if<std::string>(&value)) return "\"" + printable(*text) + "\"";
    const Metadata::Array& array = std::get<Metadata::Array>(value);
    return fmt::format("[{} of {}]", array.size(), array.element_type);
  }

  static void list_metadata(const Metadata& metadata) {
    std::printf("\n");
    for (const auto& [key, value] : metadata.all()) {
      std::printf("%s = %s\n", printable(key).c_str(), value_text(value).c_str());
    }
  }

  std::string path_, positional_path_;
  bool show_tensors_ = false;
  bool show_metadata_ = false;
};

}  // namespace

std::unique_ptr<Command> make_inspect_command() {
  return std::make_unique<InspectCommand>();
}

}  // namespace tidemill
