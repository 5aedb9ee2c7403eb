#include <algorithm>
#include <cmath>

#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace tidemill::jinja {
namespace {

class JsonPrinter {
 public:
  JsonPrinter(Runtime& runtime, const JsonStyle& style) : runtime_(runtime), style_(style) {}

  void write(const Value& value, int level);
  Text take() { return std::move(out_); }

 private:
  void literal(std::string_view bytes) { append_checked(runtime_, out_, bytes, true); }
  void write_string(const Text& text);
  void write_real(double value);
  void write_key(const Value& key);
  void write_dict(const Dict& dict, int level);
  void write_list(const std::vector<Value>& items, int level);
  void break_line(int level);
  void separate(bool first, int level);

  Runtime& runtime_;
  const JsonStyle& style_;
  Text out_;
};

void JsonPrinter::write(const Value& value, int level) {
  runtime_.charge_steps(1);
  const Runtime::Level guard(runtime_);
  switch (value.kind()) {
    case Value::Kind::none:
      return literal("null");
    case Value::Kind::boolean:
      return literal(value.as_boolean() ? "true" : "false");
    case Value::Kind::integer:
      return literal(integer_to_string(value.as_integral()));
    case Value::Kind::real:
      return write_real(value.as_real());
    case Value::Kind::string:
      return write_string(value.as_text());
    case Value::Kind::dict:
      return write_dict(value.as_dict(), level);
    case Value::Kind::sequence:
      if (value.as_sequence().flavor <= Sequence::Flavor::tuple) return write_list(value.as_sequence().items, level);
      break;
    default:
      break;
  }
  fail("an object of type {} has no JSON form", value.type_name());
}

void JsonPrinter::write_real(double value) {
  if (std::isnan(value)) return literal("NaN");
  if (std::isinf(value)) return literal(value > 0 ? "Infinity" : "-Infinity");
  literal(real_to_string(value));
}

void append_escape(std::string& out, int32_t value) {
  if (value >= 0x10000) {
    append_escape(out, 0xD800 + ((value - 0x10000) >> 10));
    append_escape(out, 0xDC00 + ((value - 0x10000) & 0x3FF));
    return;
  }
  out += fmt::format("\\u{:04x}", value);
}

void JsonPrinter::write_string(const Text& text) {
  static constexpr std::string_view with_short_names = "\"\\\n\r\t\f\b";
  static constexpr std::string_view short_names = "\"\\nrtfb";
  literal("\"");
  text.for_each_run([&](std::string_view run, bool trusted) {
    std::string escaped;
    escaped.reserve(run.size());
    for (size_t offset = 0; offset < run.size();) {
      const CodePoint point = code_point_at(run, offset);
      const char first = run[offset];
      if (const size_t found = with_short_names.find(first); found != std::string_view::npos) {
        escaped += {'\\', short_names[found]};
      } else if (point.value < 0x20 || (style_.ensure_ascii && point.value >= 0x7F)) {
        if (point.value == 0x7F) {
          escaped += first;
        } else {
          append_escape(escaped, point.value);
        }
      } else {
        escaped += run.substr(offset, point.size_bytes);
      }
      offset += point.size_bytes;
    }
    append_checked(runtime_, out_, escaped, trusted);
  });
  literal("\"");
}

void JsonPrinter::break_line(int level) {
  if (!style_.indent) return;
  literal("\n");
  for (int i = 0; i < level; ++i) append_checked(runtime_, out_, *style_.indent);
}

void JsonPrinter::separate(bool first, int level) {
  if (!first) append_checked(runtime_, out_, style_.item_separator);
  break_line(level);
}

void JsonPrinter::write_key(const Value& key) {
  if (key.is_string()) return write_string(key.as_text());
  if (!key.is_none() && !key.is_number()) fail("JSON keys must be strings, not {}", key.type_name());
  literal("\"");
  write(key, 0);
  literal("\"");
}

void JsonPrinter::write_dict(const Dict& dict, int level) {
  if (dict.size() == 0) return literal("{}");
  literal("{");
  std::vector<const Dict::Entry*> entries;
  for (const Dict::Entry& entry : dict.entries()) entries.push_back(&entry);
  if (style_.sort_keys) {
    std::stable_sort(entries.begin(), entries.end(), [this](const Dict::Entry* a, const Dict::Entry* b) {
      return is_less(runtime_, a->first, b->first);
    });
  }
  for (const Dict::Entry* entry : entries) {
    separate(entry == entries.front(), level + 1);
    write_key(entry->first);
    append_checked(runtime_, out_, style_.key_separator);
    write(entry->second, level + 1);
  }
  break_line(level);
  literal("}");
}

void JsonPrinter::write_list(const std::vector<Value>& items, int level) {
  if (items.empty()) return literal("[]");
  literal("[");
  for (size_t i = 0; i < items.size(); ++i) {
    separate(i == 0, level + 1);
    write(items[i], level + 1);
  }
  break_line(level);
  literal("]");
}

}  // namespace

Text to_json(Runtime& runtime, const Value& value, const JsonStyle& style) {
  JsonPrinter printer(runtime, style);
  printer.write(value, 0);
  return printer.take();
}

}  // namespace tidemill::jinja
