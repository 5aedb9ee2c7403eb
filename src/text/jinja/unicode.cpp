#include "text/jinja/unicode.h"

#include <utf8proc.h>

#include <algorithm>

#include "base/utf8.h"

namespace tidemill::jinja {
namespace {

// Characters whose upper or title case is more than one character (SpecialCasing.txt without conditions).
struct SpecialCase {
  int32_t value;
  const char* upper;
  const char* title;
};
constexpr SpecialCase special_cases[] = {{0x00DF, "\u0053\u0053", "\u0053\u0073"},
                                         {0x0149, "\u02BC\u004E", "\u02BC\u004E"},
                                         {0x01F0, "\u004A\u030C", "\u004A\u030C"},
                                         {0x0390, "\u0399\u0308\u0301", "\u0399\u0308\u0301"},
                                         {0x03B0, "\u03A5\u0308\u0301", "\u03A5\u0308\u0301"},
                                         {0x0587, "\u0535\u0552", "\u0535\u0582"},
                                         {0x1E96, "\u0048\u0331", "\u0048\u0331"},
                                         {0x1E97, "\u0054\u0308", "\u0054\u0308"},
                                         {0x1E98, "\u0057\u030A", "\u0057\u030A"},
                                         {0x1E99, "\u0059\u030A", "\u0059\u030A"},
                                         {0x1E9A, "\u0041\u02BE", "\u0041\u02BE"},
                                         {0x1F50, "\u03A5\u0313", "\u03A5\u0313"},
                                         {0x1F52, "\u03A5\u0313\u0300", "\u03A5\u0313\u0300"},
                                         {0x1F54, "\u03A5\u0313\u0301", "\u03A5\u0313\u0301"},
                                         {0x1F56, "\u03A5\u0313\u0342", "\u03A5\u0313\u0342"},
                                         {0x1F80, "\u1F08\u0399", "\u1F88"},
                                         {0x1F81, "\u1F09\u0399", "\u1F89"},
                                         {0x1F82, "\u1F0A\u0399", "\u1F8A"},
                                         {0x1F83, "\u1F0B\u0399", "\u1F8B"},
                                         {0x1F84, "\u1F0C\u0399", "\u1F8C"},
                                         {0x1F85, "\u1F0D\u0399", "\u1F8D"},
                                         {0x1F86, "\u1F0E\u0399", "\u1F8E"},
                                         {0x1F87, "\u1F0F\u0399", "\u1F8F"},
                                         {0x1F88, "\u1F08\u0399", "\u1F88"},
                                         {0x1F89, "\u1F09\u0399", "\u1F89"},
                                         {0x1F8A, "\u1F0A\u0399", "\u1F8A"},
                                         {0x1F8B, "\u1F0B\u0399", "\u1F8B"},
                                         {0x1F8C, "\u1F0C\u0399", "\u1F8C"},
                                         {0x1F8D, "\u1F0D\u0399", "\u1F8D"},
                                         {0x1F8E, "\u1F0E\u0399", "\u1F8E"},
                                         {0x1F8F, "\u1F0F\u0399", "\u1F8F"},
                                         {0x1F90, "\u1F28\u0399", "\u1F98"},
                                         {0x1F91, "\u1F29\u0399", "\u1F99"},
                                         {0x1F92, "\u1F2A\u0399", "\u1F9A"},
                                         {0x1F93, "\u1F2B\u0399", "\u1F9B"},
                                         {0x1F94, "\u1F2C\u0399", "\u1F9C"},
                                         {0x1F95, "\u1F2D\u0399", "\u1F9D"},
                                         {0x1F96, "\u1F2E\u0399", "\u1F9E"},
                                         {0x1F97, "\u1F2F\u0399", "\u1F9F"},
                                         {0x1F98, "\u1F28\u0399", "\u1F98"},
                                         {0x1F99, "\u1F29\u0399", "\u1F99"},
                                         {0x1F9A, "\u1F2A\u0399", "\u1F9A"},
                                         {0x1F9B, "\u1F2B\u0399", "\u1F9B"},
                                         {0x1F9C, "\u1F2C\u0399", "\u1F9C"},
                                         {0x1F9D, "\u1F2D\u0399", "\u1F9D"},
                                         {0x1F9E, "\u1F2E\u0399", "\u1F9E"},
                                         {0x1F9F, "\u1F2F\u0399", "\u1F9F"},
                                         {0x1FA0, "\u1F68\u0399", "\u1FA8"},
                                         {0x1FA1, "\u1F69\u0399", "\u1FA9"},
                                         {0x1FA2, "\u1F6A\u0399", "\u1FAA"},
                                         {0x1FA3, "\u1F6B\u0399", "\u1FAB"},
                                         {0x1FA4, "\u1F6C\u0399", "\u1FAC"},
                                         {0x1FA5, "\u1F6D\u0399", "\u1FAD"},
                                         {0x1FA6, "\u1F6E\u0399", "\u1FAE"},
                                         {0x1FA7, "\u1F6F\u0399", "\u1FAF"},
                                         {0x1FA8, "\u1F68\u0399", "\u1FA8"},
                                         {0x1FA9, "\u1F69\u0399", "\u1FA9"},
                                         {0x1FAA, "\u1F6A\u0399", "\u1FAA"},
                                         {0x1FAB, "\u1F6B\u0399", "\u1FAB"},
                                         {0x1FAC, "\u1F6C\u0399", "\u1FAC"},
                                         {0x1FAD, "\u1F6D\u0399", "\u1FAD"},
                                         {0x1FAE, "\u1F6E\u0399", "\u1FAE"},
                                         {0x1FAF, "\u1F6F\u0399", "\u1FAF"},
                                         {0x1FB2, "\u1FBA\u0399", "\u1FBA\u0345"},
                                         {0x1FB3, "\u0391\u0399", "\u1FBC"},
                                         {0x1FB4, "\u0386\u0399", "\u0386\u0345"},
                                         {0x1FB6, "\u0391\u0342", "\u0391\u0342"},
                                         {0x1FB7, "\u0391\u0342\u0399", "\u0391\u0342\u0345"},
                                         {0x1FBC, "\u0391\u0399", "\u1FBC"},
                                         {0x1FC2, "\u1FCA\u0399", "\u1FCA\u0345"},
                                         {0x1FC3, "\u0397\u0399", "\u1FCC"},
                                         {0x1FC4, "\u0389\u0399", "\u0389\u0345"},
                                         {0x1FC6, "\u0397\u0342", "\u0397\u0342"},
                                         {0x1FC7, "\u0397\u0342\u0399", "\u0397\u0342\u0345"},
                                         {0x1FCC, "\u0397\u0399", "\u1FCC"},
                                         {0x1FD2, "\u0399\u0308\u0300", "\u0399\u0308\u0300"},
                                         {0x1FD3, "\u0399\u0308\u0301", "\u0399\u0308\u0301"},
                                         {0x1FD6, "\u0399\u0342", "\u0399\u0342"},
                                         {0x1FD7, "\u0399\u0308\u0342", "\u0399\u0308\u0342"},
                                         {0x1FE2, "\u03A5\u0308\u0300", "\u03A5\u0308\u0300"},
                                         {0x1FE3, "\u03A5\u0308\u0301", "\u03A5\u0308\u0301"},
                                         {0x1FE4, "\u03A1\u0313", "\u03A1\u0313"},
                                         {0x1FE6, "\u03A5\u0342", "\u03A5\u0342"},
                                         {0x1FE7, "\u03A5\u0308\u0342", "\u03A5\u0308\u0342"},
                                         {0x1FF2, "\u1FFA\u0399", "\u1FFA\u0345"},
                                         {0x1FF3, "\u03A9\u0399", "\u1FFC"},
                                         {0x1FF4, "\u038F\u0399", "\u038F\u0345"},
                                         {0x1FF6, "\u03A9\u0342", "\u03A9\u0342"},
                                         {0x1FF7, "\u03A9\u0342\u0399", "\u03A9\u0342\u0345"},
                                         {0x1FFC, "\u03A9\u0399", "\u1FFC"},
                                         {0xFB00, "\u0046\u0046", "\u0046\u0066"},
                                         {0xFB01, "\u0046\u0049", "\u0046\u0069"},
                                         {0xFB02, "\u0046\u004C", "\u0046\u006C"},
                                         {0xFB03, "\u0046\u0046\u0049", "\u0046\u0066\u0069"},
                                         {0xFB04, "\u0046\u0046\u004C", "\u0046\u0066\u006C"},
                                         {0xFB05, "\u0053\u0054", "\u0053\u0074"},
                                         {0xFB06, "\u0053\u0054", "\u0053\u0074"},
                                         {0xFB13, "\u0544\u0546", "\u0544\u0576"},
                                         {0xFB14, "\u0544\u0535", "\u0544\u0565"},
                                         {0xFB15, "\u0544\u053B", "\u0544\u056B"},
                                         {0xFB16, "\u054E\u0546", "\u054E\u0576"},
                                         {0xFB17, "\u0544\u053D", "\u0544\u056D"}};

const SpecialCase* special_case(int32_t value) {
  if (value < 0x80) return nullptr;
  const auto* found = std::lower_bound(std::begin(special_cases), std::end(special_cases), value,
                                       [](const SpecialCase& row, int32_t key) { return row.value < key; });
  return found != std::end(special_cases) && found->value == value ? found : nullptr;
}

utf8proc_category_t category(int32_t value) {
  return utf8proc_category(value);
}

constexpr int32_t capital_sigma = 0x3A3;
constexpr int32_t final_sigma = 0x3C2;

bool is_case_ignorable(int32_t value) {
  switch (category(value)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return value == '\'' || value == '.' || value == ':' || value == 0xB7 || value == 0x2018 || value == 0x2019;
  }
}

// A capital sigma that ends a word becomes the final form; Python applies this one contextual rule.
bool ends_word(std::string_view bytes, size_t begin, size_t end) {
  size_t before = begin;
  while (before > 0) {
    do --before;
    while (before > 0 && (static_cast<unsigned char>(bytes[before]) & 0xC0) == 0x80);
    const int32_t value = code_point_at(bytes, before).value;
    if (is_case_ignorable(value)) {
      if (before == 0) return false;
      continue;
    }
    if (!is_cased(value)) return false;
    break;
  }
  if (begin == 0) return false;
  for (size_t after = end; after < bytes.size();) {
    const CodePoint point = code_point_at(bytes, after);
    if (!is_case_ignorable(point.value)) return !is_cased(point.value);
    after += point.size_bytes;
  }
  return true;
}

void append_lower_in_word(std::string& out, std::string_view bytes, size_t offset, CodePoint point) {
  if (point.value == capital_sigma && ends_word(bytes, offset, offset + point.size_bytes)) {
    append_utf8(out, final_sigma);
  } else {
    append_lower(out, point.value);
  }
}

template <typename Map>
Text map_code_points(const Text& text, Map map) {
  Text result;
  std::string mapped;
  const std::string_view bytes = text.view();
  for (size_t offset = 0; offset < bytes.size();) {
    const CodePoint point = code_point_at(bytes, offset);
    mapped.clear();
    map(mapped, offset, point);
    result.append(mapped, text.trusted_at(offset));
    offset += point.size_bytes;
  }
  return result;
}

bool is_ascii(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

}  // namespace

CodePoint code_point_at(std::string_view bytes, size_t offset) {
  const Utf8Char c = decode_utf8(bytes, offset);
  if (!c.valid) return {static_cast<unsigned char>(bytes[offset]), 1};
  return {static_cast<int32_t>(c.code_point), c.length_bytes};
}

size_t count_code_points(std::string_view bytes) {
  if (is_ascii(bytes)) return bytes.size();
  size_t count = 0;
  for (size_t offset = 0; offset < bytes.size(); ++count) offset += code_point_at(bytes, offset).size_bytes;
  return count;
}

size_t offset_of_code_point(std::string_view bytes, size_t index) {
  size_t offset = 0;
  for (; index > 0 && offset < bytes.size(); --index) offset += code_point_at(bytes, offset).size_bytes;
  return offset;
}

bool is_space(int32_t value) {
  if (value < 0x80) return (value >= 0x09 && value <= 0x0D) || (value >= 0x1C && value <= 0x20);
  return value == 0x85 || value == 0xA0 || value == 0x1680 || (value >= 0x2000 && value <= 0x200A) || value == 0x2028 ||
         value == 0x2029 || value == 0x202F || value == 0x205F || value == 0x3000;
}

bool is_alphabetic(int32_t value) {
  const auto found = category(value);
  return found >= UTF8PROC_CATEGORY_LU && found <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(int32_t value) {
  return category(value) == UTF8PROC_CATEGORY_ND;
}

bool is_digit(int32_t value) {
  return is_decimal(value) || value == 0xB2 || value == 0xB3 || value == 0xB9 || value == 0x2070 ||
         (value >= 0x2074 && value <= 0x2079) || (value >= 0x2080 && value <= 0x2089) ||
         (value >= 0x2460 && value <= 0x2468);
}

bool is_numeric(int32_t value) {
  const auto found = category(value);
  return is_digit(value) || found == UTF8PROC_CATEGORY_NL || found == UTF8PROC_CATEGORY_NO;
}

bool is_upper(int32_t value) {
  return category(value) == UTF8PROC_CATEGORY_LU;
}
bool is_lower(int32_t value) {
  return category(value) == UTF8PROC_CATEGORY_LL || value == 0xAA || value == 0xBA;
}
bool is_cased(int32_t value) {
  return is_upper(value) || is_lower(value) || category(value) == UTF8PROC_CATEGORY_LT;
}

bool is_printable(int32_t value) {
  switch (category(value)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return value == ' ';
    default:
      return true;
  }
}

bool is_identifier(std::string_view bytes) {
  for (size_t offset = 0; offset < bytes.size();) {
    const CodePoint point = code_point_at(bytes, offset);
    const bool start =
        point.value == '_' || is_alphabetic(point.value) || category(point.value) == UTF8PROC_CATEGORY_NL;
    const bool later = start || is_decimal(point.value) || category(point.value) == UTF8PROC_CATEGORY_MN ||
                       category(point.value) == UTF8PROC_CATEGORY_MC || category(point.value) == UTF8PROC_CATEGORY_PC;
    if (offset == 0 ? !start : !later) return false;
    offset += point.size_bytes;
  }
  return !bytes.empty();
}

void append_upper(std::string& out, int32_t value) {
  if (const SpecialCase* row = special_case(value)) {
    out += row->upper;
  } else {
    append_utf8(out, utf8proc_toupper(value));
  }
}

void append_lower(std::string& out, int32_t value) {
  if (value == 0x130) {
    out += "i\u0307";
  } else {
    append_utf8(out, utf8proc_tolower(value));
  }
}

void append_title(std::string& out, int32_t value) {
  if (const SpecialCase* row = special_case(value)) {
    out += row->title;
  } else {
    append_utf8(out, utf8proc_totitle(value));
  }
}

Text to_upper(const Text& text) {
  return map_code_points(text, [](std::string& out, size_t, CodePoint point) { append_upper(out, point.value); });
}

Text to_lower(const Text& text) {
  return map_code_points(text, [&](std::string& out, size_t offset, CodePoint point) {
    append_lower_in_word(out, text.view(), offset, point);
  });
}

Text to_title(const Text& text) {
  bool in_word = false;
  return map_code_points(text, [&](std::string& out, size_t offset, CodePoint point) {
    if (in_word) {
      append_lower_in_word(out, text.view(), offset, point);
    } else {
      append_title(out, point.value);
    }
    in_word = is_cased(point.value);
  });
}

Text to_capitalized(const Text& text) {
  return map_code_points(text, [&](std::string& out, size_t offset, CodePoint point) {
    if (offset == 0) {
      append_title(out, point.value);
    } else {
      append_lower_in_word(out, text.view(), offset, point);
    }
  });
}

Text swap_case(const Text& text) {
  return map_code_points(text, [&](std::string& out, size_t offset, CodePoint point) {
    if (is_upper(point.value)) {
      append_lower_in_word(out, text.view(), offset, point);
    } else if (is_lower(point.value)) {
      append_upper(out, point.value);
    } else {
      append_utf8(out, point.value);
    }
  });
}

}  // namespace tidemill::jinja
