// Tokenizers from the metadata of GGUF files (keys tokenizer.ggml.*).
#include <algorithm>

#include "base/printable.h"
#include "text/bpe.h"
#include "text/preparation/blanks.h"
#include "text/preparation/character_map.h"
#include "text/tokenizer.h"
#include "text/tokenizer_parts.h"
#include "text/unigram.h"

namespace tidemill {
namespace {

constexpr std::string_view tokens = "tokenizer.ggml.tokens";
constexpr std::string_view types_key = "tokenizer.ggml.token_type";
constexpr std::string_view scores_key = "tokenizer.ggml.scores";
constexpr std::string_view merges_key = "tokenizer.ggml.merges";
constexpr std::string_view charsmap = "tokenizer.ggml.precompiled_charsmap";
constexpr size_t max_entries = 1 << 26;

std::string key(std::string_view name) {
  return "tokenizer.ggml." + std::string(name);
}

// The elements of an array of one of the given element types; nullptr when the key is absent.
template <typename T>
Result<const std::vector<T>*> elements(const Metadata& metadata, std::string_view key,
                                       std::initializer_list<std::string_view> types) {
  auto array = metadata.array(key);
  if (!array.ok()) return array.error();
  if (!*array) return static_cast<const std::vector<T>*>(nullptr);
  const auto* values = std::get_if<std::vector<T>>(&(*array)->values);
  const std::string& found = (*array)->element_type;
  if (!values || std::find(types.begin(), types.end(), found) == types.end()) {
    return error("metadata key '{}' must be an array of {}, but its elements are {}", key, *types.begin(), found);
  }
  return values;
}

// Reads one file's keys into TokenizerParts, step by step; the first Error ends it.
class GgufReader {
 public:
  GgufReader(const Metadata& metadata, std::vector<std::string>* warnings)
      : metadata_(metadata), warnings_(warnings), parts_(std::make_unique<TokenizerParts>()) {}

  Result<std::unique_ptr<Tokenizer>> read() {
    auto model = metadata_.string(key("model"));
    if (!model.ok()) return model.error();
    if (*model != "gpt2" && *model != "llama" && *model != "t5") {
      return error("tokenizer.ggml.model '{}' is not supported (known: gpt2, llama, t5)", printable(*model, 100));
    }
    const auto spelling = *model == "gpt2" ? TokenSpelling::byte_level : TokenSpelling::sentence_piece;
    if (auto done = read_vocabulary(spelling); !done.ok()) return done.error();
    const auto done = *model == "gpt2" ? read_byte_level() : *model == "llama" ? read_sentencepiece() : read_unigram();
    if (!done.ok()) return done.error();
    if (auto framed = read_special_ids(); !framed.ok()) return framed.error();
    read_added_tokens();
    return std::make_unique<Tokenizer>(std::move(parts_));
  }

 private:
  void warn(std::string message) {
    if (warnings_) warnings_->push_back(std::move(message));
  }

  void warn_unused(std::string_view key) {
    if (metadata_.has(key)) warn(fmt::format("metadata key '{}' is not used by this kind of tokenizer", key));
  }

  Result<void> read_vocabulary(TokenSpelling spelling) {
    auto texts = elements<std::string>(metadata_, tokens, {"str"});
    if (!texts.ok()) return texts.error();
    if (!*texts) return error("metadata key '{}' is missing", tokens);
    if ((*texts)->empty() || (*texts)->size() > max_entries) {
      return error("{} has {} entries; 1 to {} are allowed", tokens, (*texts)->size(), max_entries);
    }
    auto types = elements<int64_t>(metadata_, types_key, {"i32", "u32"});
    if (!types.ok()) return types.error();
    std::vector<TokenKind> kinds((*texts)->size(), TokenKind::normal);
    if (*types) {
      if ((*types)->size() != kinds.size()) {
        return error("{} has {} entries, but the vocabulary has {}", types_key, (*types)->size(), kinds.size());
      }
      for (size_t i = 0; i < kinds.size(); ++i) kinds[i] = kind_of((**types)[i]);
    }
    for (size_t i = 0; i < kinds.size(); ++i) {
      if (is_end_of_turn_text((**texts)[i])) kinds[i] = TokenKind::control;
    }
    parts_->vocabulary = std::make_unique<Vocabulary>(**texts, std::move(kinds), spelling);
    return {};
  }

  static TokenKind kind_of(int64_t type) {
    static constexpr TokenKind kind_of_type[] = {TokenKind::normal,  TokenKind::normal,       TokenKind::unknown,
                                                 TokenKind::control, TokenKind::user_defined, TokenKind::unused,
                                                 TokenKind::byte};
    return type >= 0 && type < 7 ? kind_of_type[type] : TokenKind::normal;
  }

  Result<void> read_byte_level() {
    auto pre = metadata_.string(key("pre"), "");
    if (!pre.ok()) return pre.error();
    if (pre->empty()) {
      warn("metadata key 'tokenizer.ggml.pre' is missing: words are cut as 'default' says, perhaps not as in training");
      *pre = "default";
    }
    auto named = named_pre_tokenizer(printable(*pre, 100));
    if (!named.ok()) return named.error();
    parts_->pre_tokenizer = std::move(named->pre_tokenizer);
    default_adds_bos_ = named->adds_bos;
    auto merges = read_merges();
    if (!merges.ok()) return merges.error();
    BpeOptions options;
    options.ignore_merges = named->ignore_merges;
    parts_->model = std::make_unique<BpeModel>(*parts_->vocabulary, std::move(*merges), options);
    warn_unused(scores_key);
    warn_unused(charsmap);
    return {};
  }

  Result<MergeTable> read_merges() {
    auto lines = elements<std::string>(metadata_, merges_key, {"str"});
    if (!lines.ok()) return lines.error();
    if (!*lines) return error("metadata key '{}' is missing", merges_key);
    std::vector<MergeRule> rules;
    rules.reserve((*lines)->size());
    for (size_t i = 0; i < (*lines)->size(); ++i) {
      auto rule = parse_merge_rule((**lines)[i], i, merges_key);
      if (!rule.ok()) return rule.error();
      rules.push_back(*rule);
    }
    return merges_from_rules(*parts_->vocabulary, rules, merges_key);
  }

  Result<std::vector<double>> read_scores() {
    auto scores = elements<double>(metadata_, scores_key, {"f32", "f64"});
    if (!scores.ok()) return scores.error();
    if (!*scores) return error("metadata key '{}' is missing", scores_key);
    if ((*scores)->size() != parts_->vocabulary->size()) {
      return error("{} has {} entries, but the vocabulary has {}", scores_key, (*scores)->size(),
                   parts_->vocabulary->size());
    }
    const bool ordered = std::none_of((*scores)->begin(), (*scores)->end(), [](double s) { return s != s; });
    if (!ordered) return error("{} holds a value that is not a number", scores_key);
    return **scores;
  }

  Result<void> read_sentencepiece() {
    auto scores = read_scores();
    if (!scores.ok()) return scores.error();
    auto prefix = metadata_.boolean(key("add_space_prefix"), true);
    if (!prefix.ok()) return prefix.error();
    auto unknown = special_id("unknown_token_id");
    if (!unknown.ok()) return unknown.error();
    if (*prefix) parts_->normalizer.add(PrependText{.text = " ", .unless_there = false});
    parts_->normalizer.add(ReplaceText{" ", std::string(blank_mark)});
    parts_->strips_leading_blank = *prefix;
    parts_->pre_tokenizer.add(blank_mark_split(*parts_->vocabulary));
    BpeOptions options;
    options.byte_fallback = true;
    options.unknown = *unknown;
    parts_->model =
        std::make_unique<BpeModel>(*parts_->vocabulary, merges_from_scores(*parts_->vocabulary, *scores), options);
    default_adds_bos_ = true;
    warn_unused(merges_key);
    warn_unused(charsmap);
    return {};
  }

  Result<void> read_unigram() {
    auto scores = read_scores();
    if (!scores.ok()) return scores.error();
    auto prefix = metadata_.boolean(key("add_space_prefix"), true);
    if (!prefix.ok()) return prefix.error();
    auto merge_blanks = metadata_.boolean(key("remove_extra_whitespaces"), false);
    if (!merge_blanks.ok()) return merge_blanks.error();
    auto unknown = special_id("unknown_token_id");
    if (!unknown.ok()) return unknown.error();
    auto table = elements<int64_t>(metadata_, charsmap, {"u8", "i8"});
    if (!table.ok()) return table.error();
    if (*table && !(*table)->empty()) {
      std::string blob;
      for (const int64_t byte : **table) blob.push_back(static_cast<char>(byte));
      auto map = CharacterMap::parse(blob);
      if (!map.ok()) return error("{}: {}", charsmap, map.error().message);
      parts_->normalizer.add(MapCharacters{std::make_shared<CharacterMap>(std::move(*map))});
    }
    if (*merge_blanks) parts_->normalizer.add(MergeBlanks{});
    if (*prefix) parts_->normalizer.add(PrependText{.text = " ", .unless_there = true});
    parts_->normalizer.add(ReplaceText{" ", std::string(blank_mark)});
    parts_->strips_leading_blank = *prefix;
    parts_->model = std::make_unique<UnigramModel>(*parts_->vocabulary, *scores, UnigramOptions{*unknown, false});
    default_adds_eos_ = true;
    warn_unused(merges_key);
    return {};
  }

  // Absent is allowed; an id outside the vocabulary is not.
  Result<std::optional<TokenId>> special_id(std::string_view name) {
    if (!metadata_.has(key(name))) return std::optional<TokenId>();
    auto id = metadata_.integer(key(name));
    if (!id.ok()) return id.error();
    if (*id < 0 || static_cast<uint64_t>(*id) >= parts_->vocabulary->size()) {
      return error("{} is {}, but the vocabulary has {} entries", key(name), *id, parts_->vocabulary->size());
    }
    return std::optional<TokenId>(static_cast<TokenId>(*id));
  }

  Result<void> read_special_ids() {
    for (const char* name : {"bos_token_id", "eos_token_id", "eot_token_id", "eom_token_id"}) {
      auto id = special_id(name);
      if (!id.ok()) return id.error();
      if (!*id) continue;
      const std::string_view which(name);
      if (which == "bos_token_id") parts_->bos = *id;
      if (which == "eos_token_id") parts_->eos = *id;
      if (which == "eot_token_id" || which == "eom_token_id") parts_->end_of_generation.push_back(**id);
    }
    auto add_bos = metadata_.boolean(key("add_bos_token"), default_adds_bos_);
    if (!add_bos.ok()) return add_bos.error();
    auto add_eos = metadata_.boolean(key("add_eos_token"), default_adds_eos_);
    if (!add_eos.ok()) return add_eos.error();
    if (*add_bos && parts_->bos) parts_->prefix.push_back(*parts_->bos);
    if (*add_eos && parts_->eos) parts_->suffix.push_back(*parts_->eos);
    complete_end_of_generation(*parts_);
    return {};
  }

  void read_added_tokens() {
    const Vocabulary& vocabulary = *parts_->vocabulary;
    std::vector<AddedToken> added;
    for (size_t i = 0; i < vocabulary.size(); ++i) {
      const auto id = static_cast<TokenId>(i);
      const TokenKind kind = vocabulary.kind(id);
      const bool control = kind == TokenKind::control || kind == TokenKind::unknown;
      if ((!control && kind != TokenKind::user_defined) || vocabulary.text(id).empty()) continue;
      AddedToken token{id, std::string(vocabulary.text(id))};
      token.control = control;
      added.push_back(std::move(token));
    }
    parts_->added = AddedTokens(std::move(added));
  }

  const Metadata& metadata_;
  std::vector<std::string>* warnings_;
  std::unique_ptr<TokenizerParts> parts_;
  bool default_adds_bos_ = false;
  bool default_adds_eos_ = false;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_tokenizer(const Metadata& gguf_metadata, std::vector<std::string>* warnings) {
  return GgufReader(gguf_metadata, warnings).read();
}

}  // namespace tidemill
