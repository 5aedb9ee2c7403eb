#include "text/tokenizer_json_pipeline.h"

#include <openssl/evp.h>

#include "base/printable.h"
#include "text/preparation/blanks.h"
#include "text/preparation/character_map.h"

namespace tidemill {
namespace {

using nlohmann::json;

constexpr size_t deepest_nesting = 8;

Error unsupported(const JsonPlace& place, const std::string& type) {
  return error("{} of type '{}' is not supported", place.path, printable(type, 100));
}

// Calls read(member) for each member of a "Sequence", or for the object itself; `members` is the sequence's field.
template <typename Read>
Result<void> each_stage(const JsonPlace& place, const char* members, Read read, size_t depth = 0) {
  auto type = place.string("type");
  if (!type.ok()) return type.error();
  if (*type != "Sequence") return read(place, *type);
  if (depth == deepest_nesting) return error("{} is nested more than {} deep", place.path, deepest_nesting);
  auto list = place.array(members);
  if (!list.ok()) return list.error();
  for (size_t i = 0; i < (*list)->size(); ++i) {
    if (auto done = each_stage(place.at((**list)[i], i), members, read, depth + 1); !done.ok()) return done;
  }
  return {};
}

// {"String": text} or {"Regex": pattern}.
struct Pattern {
  std::string text;
  bool is_regex;
};

Result<Pattern> read_pattern(const JsonPlace& place) {
  const json* field = place.find("pattern");
  if (!field) return error("{}.pattern is missing", place.path);
  const JsonPlace pattern = place.at(*field, "pattern");
  const bool is_regex = pattern.find("Regex") != nullptr;
  auto text = pattern.string(is_regex ? "Regex" : "String");
  if (!text.ok()) return text.error();
  return Pattern{std::move(*text), is_regex};
}

std::string literal_pattern(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80 && !std::isalnum(byte)) pattern.push_back('\\');
    pattern.push_back(c);
  }
  return pattern;
}

Result<SplitBehavior> read_behavior(const JsonPlace& place, const char* fallback) {
  auto name = place.string("behavior", fallback);
  if (!name.ok()) return name.error();
  if (*name == "Isolated") return SplitBehavior::isolated;
  if (*name == "Removed") return SplitBehavior::removed;
  if (*name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (*name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (*name == "Contiguous") return SplitBehavior::contiguous;
  return error("{}.behavior '{}' is not supported", place.path, printable(*name, 100));
}

Result<std::string> base64(std::string_view text) {
  std::string bytes(text.size() / 4 * 3, '\0');
  const int length =
      text.size() % 4 != 0 || text.size() > 1 << 28
          ? -1
          : EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                            reinterpret_cast<const unsigned char*>(text.data()), static_cast<int>(text.size()));
  if (length < 0) return error("it is not base64");
  bytes.resize(static_cast<size_t>(length) - (text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0));
  return bytes;
}

Result<void> add_precompiled(const JsonPlace& place, Normalizer& normalizer) {
  auto text = place.string("precompiled_charsmap", "");
  if (!text.ok()) return text.error();
  if (text->empty()) return {};
  auto blob = base64(*text);
  auto map = blob.ok() ? CharacterMap::parse(*blob) : Result<CharacterMap>(blob.error());
  if (!map.ok()) return error("{}.precompiled_charsmap: {}", place.path, map.error().message);
  normalizer.add(MapCharacters{std::make_shared<CharacterMap>(std::move(*map))});
  return {};
}

Result<void> add_replace(const JsonPlace& place, Normalizer& normalizer) {
  auto pattern = read_pattern(place);
  if (!pattern.ok()) return pattern.error();
  auto content = place.string("content");
  if (!content.ok()) return content.error();
  if (!pattern->is_regex) {
    if (!pattern->text.empty()) normalizer.add(ReplaceText{std::move(pattern->text), std::move(*content)});
    return {};
  }
  auto regex = Regex::compile(pattern->text);
  if (!regex.ok()) return error("{}: {}", place.path, regex.error().message);
  normalizer.add(ReplacePattern{std::make_shared<Regex>(std::move(*regex)), std::move(*content)});
  return {};
}

Result<void> add_normalizer(const JsonPlace& place, const std::string& type, Normalizer& normalizer) {
  if (type == "NFC") return normalizer.add(UnicodeForm::nfc), Result<void>();
  if (type == "NFD") return normalizer.add(UnicodeForm::nfd), Result<void>();
  if (type == "NFKC") return normalizer.add(UnicodeForm::nfkc), Result<void>();
  if (type == "NFKD") return normalizer.add(UnicodeForm::nfkd), Result<void>();
  if (type == "Lowercase") return normalizer.add(Lowercase{}), Result<void>();
  if (type == "StripAccents") return normalizer.add(StripAccents{}), Result<void>();
  if (type == "Replace") return add_replace(place, normalizer);
  if (type == "Precompiled") return add_precompiled(place, normalizer);
  if (type == "Prepend") {
    auto text = place.string("prepend");
    if (!text.ok()) return text.error();
    normalizer.add(PrependText{.text = std::move(*text), .unless_there = false});
    return {};
  }
  if (type == "Strip") {
    auto left = place.boolean("strip_left", true);
    auto right = place.boolean("strip_right", true);
    if (!left.ok()) return left.error();
    if (!right.ok()) return right.error();
    normalizer.add(StripBlanks{*left, *right});
    return {};
  }
  return unsupported(place, type);
}

Result<void> add_split(const JsonPlace& place, std::string_view pattern, SplitBehavior behavior, bool invert,
                       TokenizerParts& parts) {
  auto stage = make_regex_stage(pattern, behavior, invert);
  if (!stage.ok()) return error("{}: {}", place.path, stage.error().message);
  parts.pre_tokenizer.add(std::move(*stage));
  return {};
}

Result<void> add_byte_level(const JsonPlace& place, TokenizerParts& parts) {
  auto prefix = place.boolean("add_prefix_space", true);
  auto use_regex = place.boolean("use_regex", true);
  if (!prefix.ok()) return prefix.error();
  if (!use_regex.ok()) return use_regex.error();
  if (*prefix) {
    if (!parts.pre_tokenizer.empty()) {
      return error("{}.add_prefix_space is supported in the first pre-tokenizer only", place.path);
    }
    parts.normalizer.add(PrependText{.text = " ", .unless_there = true});
  }
  if (!*use_regex) return {};
  return add_split(place, gpt2_pattern, SplitBehavior::isolated, false, parts);
}

Result<void> add_metaspace(const JsonPlace& place, TokenizerParts& parts) {
  auto replacement = place.string("replacement", std::string(blank_mark));
  auto split = place.boolean("split", true);
  auto old_prefix = place.boolean("add_prefix_space", true);
  if (!replacement.ok()) return replacement.error();
  if (!split.ok()) return split.error();
  if (!old_prefix.ok()) return old_prefix.error();
  auto scheme = place.string("prepend_scheme", *old_prefix ? "always" : "never");
  if (!scheme.ok()) return scheme.error();
  if (*replacement != blank_mark) return error("{}.replacement must be U+2581", place.path);
  MetaspacePieces stage{MetaspacePieces::Prepend::never, *split};
  if (*scheme == "always") {
    stage.prepend = MetaspacePieces::Prepend::always;
  } else if (*scheme == "first") {
    stage.prepend = MetaspacePieces::Prepend::first;
  } else if (*scheme != "never") {
    return error("{}.prepend_scheme '{}' is not supported", place.path, printable(*scheme, 100));
  }
  parts.pre_tokenizer.add(stage);
  return {};
}

Result<void> add_pattern_split(const JsonPlace& place, TokenizerParts& parts) {
  auto pattern = read_pattern(place);
  if (!pattern.ok()) return pattern.error();
  auto behavior = read_behavior(place, "Isolated");
  if (!behavior.ok()) return behavior.error();
  auto invert = place.boolean("invert", false);
  if (!invert.ok()) return invert.error();
  return add_split(place, pattern->is_regex ? pattern->text : literal_pattern(pattern->text), *behavior, *invert,
                   parts);
}

Result<void> add_pre_tokenizer(const JsonPlace& place, const std::string& type, TokenizerParts& parts) {
  if (type == "ByteLevel") return add_byte_level(place, parts);
  if (type == "Metaspace") return add_metaspace(place, parts);
  if (type == "Split") return add_pattern_split(place, parts);
  if (type == "Digits") {
    auto individual = place.boolean("individual_digits", false);
    if (!individual.ok()) return individual.error();
    return add_split(place, *individual ? "\\p{N}" : "\\p{N}+", SplitBehavior::isolated, false, parts);
  }
  if (type == "Punctuation") {
    auto behavior = read_behavior(place, "Isolated");
    if (!behavior.ok()) return behavior.error();
    return add_split(place, R"([\p{P}!-/:-@\[-`{-~])", *behavior, false, parts);
  }
  if (type == "WhitespaceSplit") return add_split(place, "\\s", SplitBehavior::removed, false, parts);
  if (type == "Whitespace") return add_split(place, R"(\w+|[^\w\s]+)", SplitBehavior::removed, true, parts);
  if (type == "CharDelimiterSplit") {
    auto delimiter = place.string("delimiter");
    if (!delimiter.ok()) return delimiter.error();
    return add_split(place, literal_pattern(*delimiter), SplitBehavior::removed, false, parts);
  }
  return unsupported(place, type);
}

Result<void> add_decoder(const JsonPlace& place, const std::string& type, TokenizerParts& parts) {
  if (type == "ByteLevel" || type == "ByteFallback" || type == "Fuse") return {};
  if (type == "Replace") {
    auto pattern = read_pattern(place);
    auto content = place.string("content");
    if (!pattern.ok()) return pattern.error();
    if (!content.ok()) return content.error();
    if (pattern->is_regex || pattern->text != blank_mark || *content != " ") {
      return error("{} replaces something else than U+2581 by a blank, which is not supported", place.path);
    }
    return {};
  }
  if (type == "Strip") {
    auto content = place.string("content", " ");
    auto start = place.find("start") ? place.index("start") : Result<int32_t>(0);
    auto stop = place.find("stop") ? place.index("stop") : Result<int32_t>(0);
    if (!content.ok()) return content.error();
    if (!start.ok()) return start.error();
    if (!stop.ok()) return stop.error();
    if (*content != " " || *start > 1 || *stop != 0) {
      return error("{} strips something else than one blank at the start, which is not supported", place.path);
    }
    parts.strips_leading_blank = *start == 1;
    return {};
  }
  if (type == "Metaspace") {
    auto old_prefix = place.boolean("add_prefix_space", true);
    if (!old_prefix.ok()) return old_prefix.error();
    auto scheme = place.string("prepend_scheme", *old_prefix ? "always" : "never");
    if (!scheme.ok()) return scheme.error();
    parts.strips_leading_blank = *scheme != "never";
    return {};
  }
  return unsupported(place, type);
}

}  // namespace

Result<void> read_normalizer(const JsonPlace& place, TokenizerParts& parts) {
  return each_stage(place, "normalizers", [&](const JsonPlace& stage, const std::string& type) {
    return add_normalizer(stage, type, parts.normalizer);
  });
}

Result<void> read_pre_tokenizer(const JsonPlace& place, TokenizerParts& parts) {
  return each_stage(place, "pretokenizers", [&](const JsonPlace& stage, const std::string& type) {
    return add_pre_tokenizer(stage, type, parts);
  });
}

Result<void> read_decoder(const JsonPlace& place, TokenizerParts& parts) {
  return each_stage(place, "decoders",
                    [&](const JsonPlace& stage, const std::string& type) { return add_decoder(stage, type, parts); });
}

bool has_stage(const json& stage, std::string_view type) {
  if (!stage.is_object()) return false;
  const auto found = stage.find("type");
  if (found != stage.end() && found->is_string() && found->get<std::string_view>() == type) return true;
  for (const char* members : {"pretokenizers", "decoders"}) {
    const auto list = stage.find(members);
    if (list == stage.end() || !list->is_array()) continue;
    for (const json& member : *list) {
      const auto name = member.is_object() ? member.find("type") : member.end();
      if (member.is_object() && name != member.end() && name->is_string() && name->get<std::string_view>() == type) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace tidemill
