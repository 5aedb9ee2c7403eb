// Tokenizers from the files of Hugging Face model folders: tokenizer.json and tokenizer_config.json.
#include <algorithm>

#include "base/printable.h"
#include "text/bpe.h"
#include "text/preparation/blanks.h"
#include "text/tokenizer.h"
#include "text/tokenizer_json_pipeline.h"
#include "text/tokenizer_parts.h"
#include "text/unigram.h"

namespace tidemill {
namespace {

using nlohmann::json;

constexpr size_t max_entries = 1 << 26;
constexpr size_t max_holes = 1 << 16;  // ids without an entry

class JsonReader {
 public:
  JsonReader(const json& tokenizer, const json& config)
      : file_{tokenizer, "tokenizer.json"}, config_{config, "tokenizer_config.json"} {}

  Result<std::unique_ptr<Tokenizer>> read() {
    using Step = Result<void> (JsonReader::*)();
    for (const Step step :
         {&JsonReader::read_entries, &JsonReader::read_added, &JsonReader::make_vocabulary, &JsonReader::read_stages,
          &JsonReader::read_model, &JsonReader::read_post_processor, &JsonReader::read_config}) {
      if (auto done = (this->*step)(); !done.ok()) return done.error();
    }
    complete_end_of_generation(*parts_);
    place_added();
    return std::make_unique<Tokenizer>(std::move(parts_));
  }

 private:
  Result<void> read_entries() {
    const json* model = file_.find("model");
    if (!model || !model->is_object()) return error("tokenizer.json: model must be an object");
    model_ = model;
    const JsonPlace place = model_place();
    auto type = place.string("type", place.find("merges") ? "BPE" : "Unigram");
    if (!type.ok()) return type.error();
    type_ = *type;
    if (type_ != "BPE" && type_ != "Unigram") {
      return error("tokenizer.json: model of type '{}' is not supported (known: BPE, Unigram)", printable(type_, 100));
    }
    const json* vocabulary = place.find("vocab");
    if (!vocabulary || vocabulary->empty() || vocabulary->size() > max_entries) {
      return error("{}.vocab must have 1 to {} entries", place.path, max_entries);
    }
    return type_ == "BPE" ? read_bpe_entries(*vocabulary) : read_unigram_entries(*vocabulary);
  }

  Result<void> read_bpe_entries(const json& vocabulary) {
    if (!vocabulary.is_object()) return error("{}.vocab must be an object", model_place().path);
    num_entries_ = vocabulary.size();
    for (const auto& [text, id] : vocabulary.items()) {
      if (auto done = set_entry(text, id); !done.ok()) return done;
    }
    return {};
  }

  Result<void> read_unigram_entries(const json& vocabulary) {
    if (!vocabulary.is_array()) return error("{}.vocab must be an array", model_place().path);
    for (size_t i = 0; i < vocabulary.size(); ++i) {
      const json& entry = vocabulary[i];
      if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number()) {
        return error("{}.vocab[{}] must be a text and a score", model_place().path, i);
      }
      texts_.push_back(entry[0].get<std::string>());
      scores_.push_back(entry[1].get<double>());
    }
    num_entries_ = texts_.size();
    return {};
  }

  Result<void> set_entry(const std::string& text, const json& id) {
    const bool integer = id.is_number_integer();
    const int64_t number = integer ? id.get<int64_t>() : -1;
    if (number < 0 || static_cast<size_t>(number) >= num_entries_ + max_holes) {
      return error("tokenizer.json: the id of '{}' is {}, but there are {} entries", printable(text, 100),
                   integer ? id.dump() : "no integer", num_entries_);
    }
    const auto index = static_cast<size_t>(number);
    if (index >= texts_.size()) texts_.resize(index + 1);
    texts_[index] = text;
    return {};
  }

  Result<void> read_added() {
    auto list = file_.array("added_tokens", false);
    if (!list.ok()) return list.error();
    if (!*list) return {};
    num_entries_ += (*list)->size();
    for (size_t i = 0; i < (*list)->size(); ++i) {
      const JsonPlace place{(**list)[i], "tokenizer.json: added_tokens[" + std::to_string(i) + "]"};
      if (auto done = read_added_token(place); !done.ok()) return done;
    }
    return {};
  }

  Result<void> read_added_token(const JsonPlace& place) {
    auto content = place.string("content");
    auto id = place.index("id");
    if (!content.ok()) return content.error();
    if (!id.ok()) return id.error();
    struct Flag {
      const char* name;
      bool value;
    };
    Flag flags[] = {
        {"special", false}, {"lstrip", false}, {"rstrip", false}, {"single_word", false}, {"normalized", false}};
    for (Flag& flag : flags) {
      auto value = place.boolean(flag.name, false);
      if (!value.ok()) return value.error();
      flag.value = *value;
    }
    if (content->empty()) return {};
    if (auto done = set_entry(*content, place.value["id"]); !done.ok()) return done;
    AddedToken token{*id, *content, flags[0].value, flags[1].value, flags[2].value, flags[3].value};
    token.control |= is_end_of_turn_text(*content);
    // A control token's text is looked for in the text as it came, where it is known who wrote what.
    (flags[4].value && !token.control ? normalized_ : raw_).push_back(std::move(token));
    return {};
  }

  Result<void> make_vocabulary() {
    const json* pre_tokenizer = file_.find("pre_tokenizer");
    const json* decoder = file_.find("decoder");
    const bool byte_level =
        (pre_tokenizer && has_stage(*pre_tokenizer, "ByteLevel")) || (decoder && has_stage(*decoder, "ByteLevel"));
    auto fallback = model_place().boolean("byte_fallback", false);
    if (!fallback.ok()) return fallback.error();
    byte_fallback_ = *fallback;
    std::vector<TokenKind> kinds(texts_.size(), TokenKind::normal);
    for (size_t i = 0; i < texts_.size(); ++i) {
      if (texts_[i].empty()) kinds[i] = TokenKind::unused;
      if (byte_fallback_ && byte_token_value(texts_[i])) kinds[i] = TokenKind::byte;
    }
    for (const auto* list : {&raw_, &normalized_}) {
      for (const AddedToken& token : *list) {
        kinds[static_cast<size_t>(token.id)] = token.control ? TokenKind::control : TokenKind::user_defined;
      }
    }
    parts_->vocabulary = std::make_unique<Vocabulary>(
        texts_, std::move(kinds), byte_level ? TokenSpelling::byte_level : TokenSpelling::sentence_piece);
    return {};
  }

  Result<void> read_stages() {
    struct Stage {
      const char* name;
      Result<void> (*read)(const JsonPlace&, TokenizerParts&);
    };
    for (const auto& [name, read] : {Stage{"normalizer", read_normalizer}, Stage{"pre_tokenizer", read_pre_tokenizer},
                                     Stage{"decoder", read_decoder}}) {
      const json* stage = file_.find(name);
      if (!stage) continue;
      if (auto done = read({*stage, std::string("tokenizer.json: ") + name}, *parts_); !done.ok()) return done;
    }
    return {};
  }

  Result<void> read_model() { return type_ == "BPE" ? read_bpe() : read_unigram(); }

  Result<void> read_bpe() {
    const JsonPlace place = model_place();
    for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      auto affix = place.string(name, "");
      if (!affix.ok()) return affix.error();
      if (!affix->empty()) return error("{}.{} '{}' is not supported", place.path, name, printable(*affix));
    }
    if (const json* dropout = place.find("dropout"); dropout && *dropout != 0.0) {
      return error("{}.dropout is not supported", place.path);
    }
    auto ignore_merges = place.boolean("ignore_merges", false);
    auto fuse_unknown = place.boolean("fuse_unk", false);
    auto unknown = place.string("unk_token", "");
    if (!ignore_merges.ok()) return ignore_merges.error();
    if (!fuse_unknown.ok()) return fuse_unknown.error();
    if (!unknown.ok()) return unknown.error();
    BpeOptions options{*ignore_merges, byte_fallback_, *fuse_unknown, std::nullopt};
    if (!unknown->empty()) options.unknown = parts_->vocabulary->find(*unknown);
    auto merges = read_merges(place);
    if (!merges.ok()) return merges.error();
    // Only without other borders is it worth cutting, and only where the mark itself is a token is it exact.
    const bool marked = parts_->vocabulary->spelling() == TokenSpelling::sentence_piece &&
                        parts_->vocabulary->find(blank_mark) && !*ignore_merges;
    if (marked) parts_->pre_tokenizer.add(blank_mark_split(*parts_->vocabulary));
    parts_->model = std::make_unique<BpeModel>(*parts_->vocabulary, std::move(*merges), options);
    return {};
  }

  Result<MergeTable> read_merges(const JsonPlace& place) {
    auto list = place.array("merges");
    if (!list.ok()) return list.error();
    const std::string key = place.path + ".merges";
    std::vector<MergeRule> rules;
    rules.reserve((*list)->size());
    for (size_t i = 0; i < (*list)->size(); ++i) {
      const json& merge = (**list)[i];
      if (merge.is_string()) {
        auto rule = parse_merge_rule(merge.get_ref<const std::string&>(), i, key);
        if (!rule.ok()) return rule.error();
        rules.push_back(*rule);
      } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
        rules.push_back({merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>()});
      } else {
        return error("{}[{}] must be two texts", key, i);
      }
    }
    return merges_from_rules(*parts_->vocabulary, rules, key);
  }

  Result<void> read_unigram() {
    const JsonPlace place = model_place();
    UnigramOptions options{std::nullopt, byte_fallback_};
    if (place.find("unk_id")) {
      auto id = place.index("unk_id");
      if (!id.ok()) return id.error();
      if (!parts_->vocabulary->contains(*id)) {
        return error("{}.unk_id is {}, but there are {} entries", place.path, *id, parts_->vocabulary->size());
      }
      options.unknown = *id;
    }
    scores_.resize(parts_->vocabulary->size(), 0.0);
    parts_->model = std::make_unique<UnigramModel>(*parts_->vocabulary, scores_, options);
    return {};
  }

  Result<void> read_post_processor() {
    const json* processor = file_.find("post_processor");
    if (!processor) return {};
    const JsonPlace place{*processor, "tokenizer.json: post_processor"};
    auto type = place.string("type");
    if (!type.ok()) return type.error();
    if (*type != "Sequence") return add_processor(place, *type);
    auto list = place.array("processors");
    if (!list.ok()) return list.error();
    for (size_t i = 0; i < (*list)->size(); ++i) {
      const JsonPlace member = place.at((**list)[i], i);
      auto kind = member.string("type");
      if (!kind.ok()) return kind.error();
      if (auto done = add_processor(member, *kind); !done.ok()) return done;
    }
    return {};
  }

  Result<void> add_processor(const JsonPlace& place, const std::string& type) {
    if (type == "ByteLevel") return {};
    if (type == "TemplateProcessing") return add_template(place);
    if (type != "BertProcessing" && type != "RobertaProcessing") {
      return error("{} of type '{}' is not supported", place.path, printable(type, 100));
    }
    for (const char* name : {"cls", "sep"}) {
      auto pair = place.array(name);
      if (!pair.ok()) return pair.error();
      const bool usable = (*pair)->size() == 2 && (**pair)[0].is_string();
      const auto id = usable ? parts_->vocabulary->find((**pair)[0].get_ref<const std::string&>()) : std::nullopt;
      if (!id) return error("{}.{} must name a token of the vocabulary", place.path, name);
      (name == std::string_view("cls") ? parts_->prefix : parts_->suffix).push_back(*id);
    }
    return {};
  }

  Result<void> add_template(const JsonPlace& place) {
    auto items = place.array("single");
    if (!items.ok()) return items.error();
    bool behind_text = false;
    for (size_t i = 0; i < (*items)->size(); ++i) {
      const JsonPlace item{(**items)[i], place.path + ".single[" + std::to_string(i) + "]"};
      if (item.find("Sequence")) {
        behind_text = true;
        continue;
      }
      const json* special = item.find("SpecialToken");
      if (!special) return error("{} must be a Sequence or a SpecialToken", item.path);
      auto name = item.at(*special, "SpecialToken").string("id");
      if (!name.ok()) return name.error();
      const auto id = parts_->vocabulary->find(*name);
      if (!id) {
        return error("{} names '{}', which is no token of the vocabulary", item.path, printable(*name, 100));
      }
      (behind_text ? parts_->suffix : parts_->prefix).push_back(*id);
    }
    return {};
  }

  // "bos_token": a text, or an object with its content.
  Result<std::optional<TokenId>> named_token(const char* name) {
    const json* field = config_.find(name);
    if (!field) return std::optional<TokenId>();
    auto text = field->is_object() ? config_.at(*field, name).string("content") : config_.string(name);
    if (!text.ok()) return text.error();
    return parts_->vocabulary->find(*text);
  }

  Result<void> read_config() {
    auto bos = named_token("bos_token");
    auto eos = named_token("eos_token");
    if (!bos.ok()) return bos.error();
    if (!eos.ok()) return eos.error();
    parts_->bos = *bos;
    parts_->eos = *eos;
    if (!parts_->bos && !parts_->prefix.empty()) parts_->bos = parts_->prefix.front();
    if (!parts_->eos && !parts_->suffix.empty()) parts_->eos = parts_->suffix.back();
    auto add_bos = config_.boolean("add_bos_token", false);
    auto add_eos = config_.boolean("add_eos_token", false);
    auto kind = config_.string("tokenizer_class", "");
    if (!add_bos.ok()) return add_bos.error();
    if (!add_eos.ok()) return add_eos.error();
    if (!kind.ok()) return kind.error();
    // These classes write their own post-processor from the two flags, whatever tokenizer.json says.
    const bool own = kind->starts_with("Llama") || kind->starts_with("CodeLlama") || kind->starts_with("Gemma") ||
                     kind->starts_with("Cohere");
    if (own && config_.find("add_bos_token") && !*add_bos) parts_->prefix.clear();
    if (own && config_.find("add_eos_token") && !*add_eos) parts_->suffix.clear();
    if (*add_bos && parts_->bos && parts_->prefix.empty()) parts_->prefix.push_back(*parts_->bos);
    if (*add_eos && parts_->eos && parts_->suffix.empty()) parts_->suffix.push_back(*parts_->eos);
    return {};
  }

  void place_added() {
    if (parts_->normalizer.empty()) {
      raw_.insert(raw_.end(), normalized_.begin(), normalized_.end());
    } else {
      for (AddedToken& token : normalized_) token.text = parts_->normalizer.apply(token.text);
      std::erase_if(normalized_, [](const AddedToken& token) { return token.text.empty(); });
      parts_->added_normalized = AddedTokens(std::move(normalized_));
    }
    parts_->added = AddedTokens(std::move(raw_));
  }

  JsonPlace model_place() const { return {*model_, "tokenizer.json: model"}; }

  JsonPlace file_;
  JsonPlace config_;
  const json* model_ = nullptr;
  std::string type_;
  size_t num_entries_ = 0;
  std::vector<std::string> texts_;
  std::vector<double> scores_;
  std::vector<AddedToken> raw_;
  std::vector<AddedToken> normalized_;
  bool byte_fallback_ = false;
  std::unique_ptr<TokenizerParts> parts_ = std::make_unique<TokenizerParts>();
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_tokenizer(std::string_view tokenizer_json,
                                                  std::string_view tokenizer_config_json) {
  const json tokenizer = json::parse(tokenizer_json, nullptr, false);
  if (tokenizer.is_discarded()) return error("tokenizer.json is not valid JSON");
  if (!tokenizer.is_object()) return error("tokenizer.json must be an object");
  json config = json::object();
  if (!tokenizer_config_json.empty()) config = json::parse(tokenizer_config_json, nullptr, false);
  if (config.is_discarded()) return error("tokenizer_config.json is not valid JSON");
  if (!config.is_object()) return error("tokenizer_config.json must be an object");
  return JsonReader(tokenizer, config).read();
}

}  // namespace tidemill
