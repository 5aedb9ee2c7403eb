#include "text/jinja/print.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "text/chat_template.h"
#include "text/jinja/builtins/callables.h"
#include "text/jinja/unicode.h"

namespace tidemill::jinja {
namespace {

class Repr {
 public:
  Repr(Runtime& runtime, Text& out) : runtime_(runtime), out_(out) {}

  void write(const Value& value) {
    runtime_.charge_steps(1);
    const Runtime::Level level(runtime_);
    switch (value.kind()) {
      case Value::Kind::none:
        return literal("None");
      case Value::Kind::undefined:
        return literal("Undefined");
      case Value::Kind::boolean:
        return literal(value.as_boolean() ? "True" : "False");
      case Value::Kind::integer:
        return literal(integer_to_string(value.as_integral()));
      case Value::Kind::real:
        return literal(real_to_string(value.as_real()));
      case Value::Kind::string:
        return write_string(value.as_string());
      case Value::Kind::sequence:
        return write_sequence(value.as_sequence());
      case Value::Kind::dict:
        return write_entries(value.as_dict().entries());
      case Value::Kind::object:
        return write_object(value);
    }
  }

 private:
  void literal(std::string_view bytes) { append_checked(runtime_, out_, bytes, true); }

  void write_items(const std::vector<Value>& items) {
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) literal(", ");
      write(items[i]);
    }
  }

  void write_entries(const std::vector<Dict::Entry>& entries) {
    literal("{");
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) literal(", ");
      write(entries[i].first);
      literal(": ");
      write(entries[i].second);
    }
    literal("}");
  }

  void write_sequence(const Sequence& sequence);
  void write_object(const Value& value);
  void write_string(const String& string);

  Runtime& runtime_;
  Text& out_;
};

void Repr::write_sequence(const Sequence& sequence) {
  const auto& items = sequence.items;
  switch (sequence.flavor) {
    case Sequence::Flavor::tuple:
      literal("(");
      write_items(items);
      return literal(items.size() == 1 ? ",)" : ")");
    case Sequence::Flavor::range: {
      const Integer first = items.empty() ? 0 : items[0].as_integral();
      const Integer step = items.size() < 2 ? 1 : items[1].as_integral() - first;
      literal("range(" + integer_to_string(first) + ", " +
              integer_to_string(first + step * static_cast<Integer>(items.size())));
      if (step != 1) literal(", " + integer_to_string(step));
      return literal(")");
    }
    case Sequence::Flavor::list:
      literal("[");
      write_items(items);
      return literal("]");
    default:
      literal(std::string(Value::sequence({}, sequence.flavor).type_name()) + "([");
      write_items(items);
      return literal("])");
  }
}

void Repr::write_object(const Value& value) {
  if (const auto* space = value.as<Namespace>()) {
    literal("<Namespace ");
    write_entries(space->attributes.entries());
    return literal(">");
  }
  literal(fmt::format("<{}>", value.type_name()));
}

void Repr::write_string(const String& string) {
  const std::string_view bytes = string.text.view();
  const bool has_single = bytes.find('\'') != std::string_view::npos;
  const char quote = has_single && bytes.find('"') == std::string_view::npos ? '"' : '\'';
  if (string.markup) literal("Markup(");
  literal(std::string_view(&quote, 1));
  for (size_t offset = 0; offset < bytes.size();) {
    const CodePoint point = code_point_at(bytes, offset);
    std::string escaped;
    if (point.value == quote || point.value == '\\') {
      escaped = {'\\', static_cast<char>(point.value)};
    } else if (point.value == '\n') {
      escaped = "\\n";
    } else if (point.value == '\r') {
      escaped = "\\r";
    } else if (point.value == '\t') {
      escaped = "\\t";
    } else if (is_printable(point.value)) {
      escaped = bytes.substr(offset, point.size_bytes);
    } else if (point.value < 0x100) {
      escaped = fmt::format("\\x{:02x}", point.value);
    } else if (point.value < 0x10000) {
      escaped = fmt::format("\\u{:04x}", point.value);
    } else {
      escaped = fmt::format("\\U{:08x}", point.value);
    }
    append_checked(runtime_, out_, escaped, string.text.trusted_at(offset));
    offset += point.size_bytes;
  }
  literal(std::string_view(&quote, 1));
  if (string.markup) literal(")");
}

}  // namespace

void append_checked(Runtime& runtime, Text& out, std::string_view bytes, bool trusted) {
  if (bytes.size() > static_cast<size_t>(runtime.options().max_output_bytes) - out.size()) {
    fail("the chat template makes a string of more than {} bytes", runtime.options().max_output_bytes);
  }
  out.append(bytes, trusted);
}

void append_checked(Runtime& runtime, Text& out, const Text& more) {
  if (more.size() > static_cast<size_t>(runtime.options().max_output_bytes) - out.size()) {
    fail("the chat template makes a string of more than {} bytes", runtime.options().max_output_bytes);
  }
  out.append(more);
}

Value make_string(Runtime& runtime, Text text, bool markup) {
  runtime.charge_bytes(text.size() + sizeof(String));
  runtime.charge_steps(static_cast<int64_t>(text.size() / 64));
  return Value::string(std::move(text), markup);
}

std::string integer_to_string(Integer value) {
  return fmt::format("{}", value);
}

std::string real_to_string(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  // "d.ddde[+-]xx" with the fewest digits that read back as the same number.
  std::string scientific;
  for (int precision = 0; precision <= 16; ++precision) {
    scientific = fmt::format("{:.{}e}", value, precision);
    if (std::strtod(scientific.c_str(), nullptr) == value) break;
  }
  const size_t mark = scientific.find('e');
  const int exponent = std::stoi(scientific.substr(mark + 1));
  if (exponent < -4 || exponent >= 16) return scientific;
  const int num_digits = static_cast<int>(std::count_if(scientific.begin(), scientific.begin() + static_cast<int>(mark),
                                                        [](char c) { return c >= '0' && c <= '9'; }));
  return fmt::format("{:.{}f}", value, std::max(1, num_digits - 1 - exponent));
}

Text to_repr(Runtime& runtime, const Value& value) {
  Text out;
  Repr(runtime, out).write(value);
  return out;
}

Text to_text(Runtime& runtime, const Value& value) {
  if (value.is_string()) return value.as_text();
  if (value.is_undefined()) return {};
  return to_repr(runtime, value);
}

}  // namespace tidemill::jinja
