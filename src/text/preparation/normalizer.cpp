#include "text/preparation/normalizer.h"

#include <utf8proc.h>

#include <algorithm>

#include "base/utf8.h"
#include "text/preparation/blanks.h"
#include "text/preparation/character_map.h"

namespace tidemill {
namespace {

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

// utf8proc's own reordering is an insertion sort, quadratic in a long run of marks; a stable sort of each run is not.
void order_marks(std::vector<utf8proc_int32_t>& points) {
  const auto rank = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
  for (auto begin = points.begin(); begin != points.end();) {
    if (rank(*begin) == 0) {
      ++begin;
      continue;
    }
    const auto end = std::find_if(begin, points.end(), [&](utf8proc_int32_t c) { return rank(c) == 0; });
    std::stable_sort(begin, end, [&](utf8proc_int32_t a, utf8proc_int32_t b) { return rank(a) < rank(b); });
    begin = end;
  }
}

std::string normal_form(std::string_view text, UnicodeForm form) {
  if (is_ascii(text)) return std::string(text);
  const bool compatible = form == UnicodeForm::nfkc || form == UnicodeForm::nfkd;
  const bool compose = form == UnicodeForm::nfc || form == UnicodeForm::nfkc;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0));
  std::vector<utf8proc_int32_t> points;
  points.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    utf8proc_int32_t parts[32];
    int boundary = 0;
    const auto count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.code_point), parts, 32, options, &boundary);
    points.insert(points.end(), parts, parts + std::clamp<utf8proc_ssize_t>(count, 0, 32));
    at += c.length_bytes;
  }
  order_marks(points);
  if (compose) {
    const auto count = utf8proc_normalize_utf32(points.data(), static_cast<utf8proc_ssize_t>(points.size()),
                                                static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    points.resize(static_cast<size_t>(std::max<utf8proc_ssize_t>(count, 0)));
  }
  std::string normal;
  normal.reserve(text.size());
  for (const auto point : points) append_utf8(normal, static_cast<char32_t>(point));
  return normal;
}

std::string step(UnicodeForm form, std::string_view text) {
  return normal_form(text, form);
}

std::string step(const ReplaceText& replace, std::string_view text) {
  std::string result;
  result.reserve(text.size() + text.size() / 2);
  size_t done = 0;
  for (size_t at = text.find(replace.from); at != std::string_view::npos; at = text.find(replace.from, done)) {
    result.append(text, done, at - done).append(replace.to);
    done = at + replace.from.size();
  }
  return result.append(text, done);
}

std::string step(const ReplacePattern& replace, std::string_view text) {
  Regex::Search search(*replace.pattern);
  std::string result;
  size_t done = 0, from = 0, begin, end;
  while (from <= text.size() && search.next(text, from, begin, end)) {
    result.append(text, done, begin - done).append(replace.to);
    done = end;
    from = end > begin ? end : end + (end < text.size() ? decode_utf8(text, end).length_bytes : 1);
  }
  return result.append(text, done);
}

std::string step(const PrependText& prepend, std::string_view text) {
  const bool wanted = !prepend.unless_there || !text.starts_with(prepend.text);
  return wanted ? prepend.text + std::string(text) : std::string(text);
}

std::string step(const StripBlanks& strip, std::string_view text) {
  while (strip.left && !text.empty()) {
    const Utf8Char c = decode_utf8(text, 0);
    if (!is_blank(c.code_point)) break;
    text.remove_prefix(c.length_bytes);
  }
  while (strip.right && !text.empty()) {
    size_t last = text.size() - 1;
    while (last > 0 && (text[last] & 0xC0) == 0x80) --last;
    if (!is_blank(decode_utf8(text, last).code_point)) break;
    text = text.substr(0, last);
  }
  return std::string(text);
}

std::string step(const MergeBlanks&, std::string_view text) {
  std::string merged;
  merged.reserve(text.size());
  for (const char c : text) {
    if (c != ' ' || (!merged.empty() && merged.back() != ' ')) merged.push_back(c);
  }
  if (!merged.empty() && merged.back() == ' ') merged.pop_back();
  return merged;
}

template <typename Keep>
std::string each_character(std::string_view text, Keep keep) {
  std::string result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    keep(c.code_point, result);
    at += c.length_bytes;
  }
  return result;
}

std::string step(const Lowercase&, std::string_view text) {
  return each_character(text, [](char32_t c, std::string& result) {
    append_utf8(result, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    if (c == 0x130) append_utf8(result, 0x307);  // the one lower-case form of two characters: i and a dot
  });
}

std::string step(const StripAccents&, std::string_view text) {
  return each_character(text, [](char32_t c, std::string& result) {
    if (utf8proc_category(static_cast<utf8proc_int32_t>(c)) != UTF8PROC_CATEGORY_MN) append_utf8(result, c);
  });
}

std::string step(const MapCharacters& map, std::string_view text) {
  return map.map->apply(text);
}

}  // namespace

std::string Normalizer::apply(std::string_view text) const {
  std::string result(text);
  for (const NormalizerStep& each : steps_) {
    result = std::visit([&](const auto& s) { return step(s, result); }, each);
  }
  return result;
}

}  // namespace tidemill
