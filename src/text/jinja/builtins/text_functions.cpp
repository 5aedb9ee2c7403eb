#include "text/jinja/builtins/text_functions.h"

#include <algorithm>

#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace tidemill::jinja {
namespace {

size_t previous_code_point(std::string_view bytes, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && end - begin < 4 && (static_cast<unsigned char>(bytes[begin]) & 0xC0) == 0x80) --begin;
  return begin + code_point_at(bytes, begin).size_bytes == end ? begin : end - 1;
}

bool is_stripped(int32_t value, const Text* chars) {
  if (chars == nullptr) return is_space(value);
  for (size_t offset = 0; offset < chars->size();) {
    const CodePoint point = code_point_at(chars->view(), offset);
    if (point.value == value) return true;
    offset += point.size_bytes;
  }
  return false;
}

std::vector<Text> split_on_space(Runtime& runtime, const Text& text, Integer limit) {
  std::vector<Text> parts;
  const std::string_view bytes = text.view();
  size_t offset = 0;
  const auto skip = [&](bool space) {
    while (offset < bytes.size()) {
      const CodePoint point = code_point_at(bytes, offset);
      if (is_space(point.value) != space) return;
      offset += point.size_bytes;
    }
  };
  while (true) {
    skip(true);
    if (offset == bytes.size()) return parts;
    runtime.charge_steps(1);
    if (limit >= 0 && static_cast<Integer>(parts.size()) == limit) {
      parts.push_back(text.slice(offset, bytes.size()));
      return parts;
    }
    const size_t begin = offset;
    skip(false);
    parts.push_back(text.slice(begin, offset));
  }
}

std::vector<Text> rsplit_on_space(Runtime& runtime, const Text& text, Integer limit) {
  std::vector<Text> parts;
  const std::string_view bytes = text.view();
  size_t offset = bytes.size();
  const auto skip_back = [&](bool space) {
    while (offset > 0) {
      const size_t before = previous_code_point(bytes, offset);
      if (is_space(code_point_at(bytes, before).value) != space) return;
      offset = before;
    }
  };
  while (true) {
    skip_back(true);
    if (offset == 0) break;
    runtime.charge_steps(1);
    if (static_cast<Integer>(parts.size()) == limit) {
      parts.push_back(text.slice(0, offset));
      break;
    }
    const size_t end = offset;
    skip_back(false);
    parts.push_back(text.slice(offset, end));
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<Text> split_on(Runtime& runtime, const Text& text, std::string_view separator, Integer limit) {
  std::vector<Text> parts;
  size_t begin = 0;
  while (limit < 0 || static_cast<Integer>(parts.size()) < limit) {
    runtime.charge_steps(1);
    const size_t found = text.view().find(separator, begin);
    if (found == std::string_view::npos) break;
    parts.push_back(text.slice(begin, found));
    begin = found + separator.size();
  }
  parts.push_back(text.slice(begin, text.size()));
  return parts;
}

std::vector<Text> rsplit_on(Runtime& runtime, const Text& text, std::string_view separator, Integer limit) {
  std::vector<Text> parts;
  size_t end = text.size();
  while (static_cast<Integer>(parts.size()) < limit && end >= separator.size()) {
    runtime.charge_steps(1);
    const size_t found = text.view().rfind(separator, end - separator.size());
    if (found == std::string_view::npos) break;
    parts.push_back(text.slice(found + separator.size(), end));
    end = found;
  }
  parts.push_back(text.slice(0, end));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

bool is_line_end(int32_t value) {
  return (value >= 0x0A && value <= 0x0D) || (value >= 0x1C && value <= 0x1E) || value == 0x85 || value == 0x2028 ||
         value == 0x2029;
}

}  // namespace

Text stripped(const Text& text, Sides sides, const Text* chars) {
  const std::string_view bytes = text.view();
  size_t begin = 0;
  size_t end = bytes.size();
  while (sides != Sides::right && begin < end) {
    const CodePoint point = code_point_at(bytes, begin);
    if (!is_stripped(point.value, chars)) break;
    begin += point.size_bytes;
  }
  while (sides != Sides::left && begin < end) {
    const size_t last = previous_code_point(bytes, end);
    if (!is_stripped(code_point_at(bytes, last).value, chars)) break;
    end = last;
  }
  return text.slice(begin, end);
}

std::vector<Text> split_text(Runtime& runtime, const Text& text, const Text* separator, Integer limit,
                             bool from_right) {
  runtime.charge_steps(static_cast<int64_t>(text.size() / 64));
  const bool splits_from_right = from_right && limit >= 0;
  if (separator == nullptr) {
    return splits_from_right ? rsplit_on_space(runtime, text, limit) : split_on_space(runtime, text, limit);
  }
  return splits_from_right ? rsplit_on(runtime, text, separator->view(), limit)
                           : split_on(runtime, text, separator->view(), limit);
}

std::vector<Text> lines_of(Runtime& runtime, const Text& text, bool keep_ends) {
  std::vector<Text> lines;
  const std::string_view bytes = text.view();
  size_t begin = 0;
  for (size_t offset = 0; offset < bytes.size();) {
    const CodePoint point = code_point_at(bytes, offset);
    const size_t line_end = offset;
    offset += point.size_bytes;
    if (!is_line_end(point.value)) continue;
    if (point.value == '\r' && offset < bytes.size() && bytes[offset] == '\n') ++offset;
    runtime.charge_steps(1);
    lines.push_back(text.slice(begin, keep_ends ? offset : line_end));
    begin = offset;
  }
  if (begin < bytes.size()) lines.push_back(text.slice(begin, bytes.size()));
  return lines;
}

Text replaced(Runtime& runtime, const Text& text, std::string_view old_bytes, const Text& new_text, Integer limit) {
  runtime.charge_steps(static_cast<int64_t>(text.size() / 64));
  const std::string_view bytes = text.view();
  Text result;
  size_t copied = 0;
  size_t search = 0;
  for (Integer done = 0; limit < 0 || done < limit; ++done) {
    const size_t found = search > bytes.size() ? std::string_view::npos : bytes.find(old_bytes, search);
    if (found == std::string_view::npos) break;
    runtime.charge_steps(1);
    append_checked(runtime, result, text.slice(copied, found));
    append_checked(runtime, result, new_text);
    copied = found + old_bytes.size();
    search = copied;
    if (old_bytes.empty()) search += found < bytes.size() ? code_point_at(bytes, found).size_bytes : 1;
  }
  append_checked(runtime, result, text.slice(copied, bytes.size()));
  return result;
}

bool has_only_case(Runtime& runtime, const Text& text, bool (*wanted)(int32_t)) {
  runtime.charge_steps(static_cast<int64_t>(text.size() / 16));
  bool found = false;
  for (size_t offset = 0; offset < text.size();) {
    const CodePoint point = code_point_at(text.view(), offset);
    if (is_cased(point.value)) {
      if (!wanted(point.value)) return false;
      found = true;
    }
    offset += point.size_bytes;
  }
  return found;
}

}  // namespace tidemill::jinja
