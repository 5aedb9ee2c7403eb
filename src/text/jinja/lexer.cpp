#include "text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <optional>

#include "base/utf8.h"
#include "text/jinja/unicode.h"

namespace tidemill::jinja {
namespace {

bool is_ascii_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}
bool is_name_part(char c) {
  return is_name_start(c) || is_ascii_digit(c);
}

std::string with_plain_newlines(std::string_view source) {
  std::string result;
  result.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      result += source[i];
      continue;
    }
    result += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!result.empty() && result.back() == '\n') result.pop_back();
  return result;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : owned_(with_plain_newlines(source)), source_(owned_) {}

  std::vector<Token> run();

 private:
  [[noreturn]] void fail_here(std::string_view what) const { fail("line {} of the chat template: {}", line_, what); }
  bool at(std::string_view expected) const { return source_.substr(position_, expected.size()) == expected; }
  char peek(size_t ahead = 0) const { return position_ + ahead < source_.size() ? source_[position_ + ahead] : '\0'; }
  void advance(size_t count);
  void skip_space();

  size_t find_tag() const;
  std::string_view stripped_before(std::string_view data, char sign, bool is_output) const;
  void add(Token::Kind kind, std::string text) { tokens_.push_back({kind, line_, std::move(text), Value()}); }
  void add_data(std::string_view data, char sign, bool is_output);

  char take_sign();
  void finish_tag(std::string_view close, bool trims_newline);
  void lex_comment();
  bool lex_raw(std::string_view data_before);
  void lex_expression(Token::Kind end_kind, std::string_view close);
  bool at_close(std::string_view close, bool allows_plus) const;
  void lex_token();
  void lex_number();
  void lex_string();
  std::string unescape(std::string_view body) const;
  void lex_operator();

  std::string owned_;
  std::string_view source_;
  size_t position_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // whether what was consumed last ended a line
  std::vector<char> open_brackets_;
  std::vector<Token> tokens_;
};

void Lexer::advance(size_t count) {
  const auto begin = source_.begin() + static_cast<ptrdiff_t>(position_);
  line_ += static_cast<int>(std::count(begin, begin + static_cast<ptrdiff_t>(count), '\n'));
  position_ += count;
  if (count > 0) line_starting_ = source_[position_ - 1] == '\n';
}

void Lexer::skip_space() {
  while (position_ < source_.size()) {
    const CodePoint point = code_point_at(source_, position_);
    if (!is_space(point.value)) return;
    advance(point.size_bytes);
  }
}

size_t Lexer::find_tag() const {
  size_t found = position_;
  while (true) {
    found = source_.find('{', found);
    if (found == std::string_view::npos || found + 1 >= source_.size()) return source_.size();
    const char next = source_[found + 1];
    if (next == '%' || next == '{' || next == '#') return found;
    ++found;
  }
}

std::string_view right_stripped(std::string_view text) {
  while (!text.empty()) {
    size_t last = text.size() - 1;
    while (last > 0 && (static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
    if (!is_space(code_point_at(text, last).value)) break;
    text = text.substr(0, last);
  }
  return text;
}

std::string_view Lexer::stripped_before(std::string_view data, char sign, bool is_output) const {
  if (sign == '-') return right_stripped(data);
  if (sign == '+' || is_output) return data;
  const size_t newline = data.rfind('\n');
  const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
  if (line_begin == 0 && !line_starting_) return data;
  return right_stripped(data.substr(line_begin)).empty() ? data.substr(0, line_begin) : data;
}

void Lexer::add_data(std::string_view data, char sign, bool is_output) {
  const std::string_view kept = stripped_before(data, sign, is_output);
  if (!kept.empty()) add(Token::Kind::data, std::string(kept));
}

char Lexer::take_sign() {
  const char sign = peek();
  if (sign != '-' && sign != '+') return '\0';
  advance(1);
  return sign;
}

// Consumes "%}", "-%}" or "+%}" and the white space that goes with it.
void Lexer::finish_tag(std::string_view close, bool trims_newline) {
  const char sign = take_sign();
  advance(close.size());
  if (sign == '-') {
    skip_space();
  } else if (sign == '\0' && trims_newline && peek() == '\n') {
    advance(1);
  }
}

void Lexer::lex_comment() {
  size_t close = source_.find("#}", position_);
  if (close == std::string_view::npos) fail_here("a comment is not closed");
  if (close > position_ && (source_[close - 1] == '-' || source_[close - 1] == '+')) --close;
  advance(close - position_);
  finish_tag("#}", true);
}

// Handles "{% raw %}...{% endraw %}" if that is what stands here; the tag's text is taken as data.
bool Lexer::lex_raw(std::string_view data_before) {
  const auto keyword_tag = [this](size_t from, std::string_view keyword) -> std::optional<size_t> {
    size_t cursor = from + 2;
    if (cursor < source_.size() && (source_[cursor] == '-' || source_[cursor] == '+')) ++cursor;
    while (cursor < source_.size() && is_space(static_cast<unsigned char>(source_[cursor]))) ++cursor;
    if (source_.substr(cursor, keyword.size()) != keyword) return {};
    cursor += keyword.size();
    while (cursor < source_.size() && is_space(static_cast<unsigned char>(source_[cursor]))) ++cursor;
    const size_t sign = cursor < source_.size() && (source_[cursor] == '-' || source_[cursor] == '+') ? 1 : 0;
    if (source_.substr(cursor + sign, 2) != "%}") return {};
    return cursor;
  };
  const auto begin_tag = keyword_tag(position_, "raw");
  if (!begin_tag) return false;
  const char before_sign = position_ + 2 < source_.size() ? source_[position_ + 2] : '\0';
  add_data(data_before, before_sign, false);
  advance(*begin_tag - position_);
  finish_tag("%}", false);
  for (size_t found = position_;; found += 2) {
    found = source_.find("{%", found);
    if (found == std::string_view::npos) fail_here("a raw block is not closed");
    const auto end_tag = keyword_tag(found, "endraw");
    if (!end_tag) continue;
    const char sign = source_[found + 2];
    add_data(source_.substr(position_, found - position_), sign, false);
    advance(*end_tag - position_);
    finish_tag("%}", true);
    return true;
  }
}

bool Lexer::at_close(std::string_view close, bool allows_plus) const {
  if (!open_brackets_.empty()) return false;
  if (at(close)) return true;
  const bool signed_here = peek() == '-' || (allows_plus && peek() == '+');
  return signed_here && source_.substr(position_ + 1, close.size()) == close;
}

void Lexer::lex_expression(Token::Kind end_kind, std::string_view close) {
  const bool is_tag = end_kind == Token::Kind::tag_end;
  open_brackets_.clear();
  while (true) {
    skip_space();
    if (position_ >= source_.size()) fail_here(fmt::format("the end of the template comes before '{}'", close));
    if (at_close(close, is_tag)) break;
    lex_token();
  }
  add(end_kind, std::string(close));
  finish_tag(close, is_tag);
}

void Lexer::lex_token() {
  const char c = peek();
  if (is_ascii_digit(c)) return lex_number();
  if (c == '\'' || c == '"') return lex_string();
  if (!is_name_start(c)) return lex_operator();
  size_t size = 1;
  while (is_name_part(peek(size))) ++size;
  const std::string_view name = source_.substr(position_, size);
  if (!is_identifier(name)) fail_here(fmt::format("'{}' is not a name", name));
  add(Token::Kind::name, std::string(name));
  advance(size);
}

Value parse_integer(const std::string& digits, int base) {
  Integer value = 0;
  for (const char c : digits) {
    const int digit = is_ascii_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10;
    if (__builtin_mul_overflow(value, Integer{base}, &value) || __builtin_add_overflow(value, Integer{digit}, &value)) {
      fail("the integer {} in the chat template does not fit in 128 bits", digits);
    }
  }
  return Value::integer(value);
}

void Lexer::lex_number() {
  std::string digits;
  const auto take_digits = [&](auto accepts) {
    while (accepts(peek()) || (peek() == '_' && accepts(peek(1)))) {
      if (peek() != '_') digits += peek();
      advance(1);
    }
  };
  const auto hexadecimal = [](char c) { return is_ascii_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f'); };
  Token token{Token::Kind::number, line_, {}, Value()};
  const char prefix = peek() == '0' ? static_cast<char>(peek(1) | 0x20) : '\0';
  const int base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 10;
  if (base != 10) {
    advance(2);
    take_digits([&](char c) { return hexadecimal(c) && (base == 16 || (is_ascii_digit(c) && c < '0' + base)); });
    if (digits.empty()) fail_here("a number has no digits");
    token.number = parse_integer(digits, base);
    tokens_.push_back(std::move(token));
    return;
  }
  const bool after_dot = !tokens_.empty() && tokens_.back().text == ".";
  take_digits(is_ascii_digit);
  bool is_real = false;
  if (!after_dot && peek() == '.' && is_ascii_digit(peek(1))) {
    is_real = true;
    digits += '.';
    advance(1);
    take_digits(is_ascii_digit);
  }
  const size_t sign = peek(1) == '+' || peek(1) == '-' ? 1 : 0;
  if (!after_dot && (peek() | 0x20) == 'e' && is_ascii_digit(peek(1 + sign))) {
    is_real = true;
    digits += source_.substr(position_, 1 + sign);
    advance(1 + sign);
    take_digits(is_ascii_digit);
  }
  token.number = is_real ? Value::real(std::strtod(digits.c_str(), nullptr)) : parse_integer(digits, 10);
  tokens_.push_back(std::move(token));
}

void Lexer::lex_string() {
  const char quote = peek();
  size_t size = 1;
  while (position_ + size < source_.size() && peek(size) != quote) size += peek(size) == '\\' ? 2 : 1;
  if (position_ + size >= source_.size()) fail_here("a string is not closed");
  add(Token::Kind::string, unescape(source_.substr(position_ + 1, size - 1)));
  advance(size + 1);
}

std::string Lexer::unescape(std::string_view body) const {
  static constexpr std::string_view simple_escapes = "\\'\"abfnrtv";
  static constexpr std::string_view meaning = "\\'\"\a\b\f\n\r\t\v";
  std::string result;
  for (size_t i = 0; i < body.size(); ++i) {
    if (body[i] != '\\') {
      result += body[i];
      continue;
    }
    const char escape = body[++i];
    if (escape == '\n') continue;
    if (const size_t simple = simple_escapes.find(escape); simple != std::string_view::npos) {
      result += meaning[simple];
      continue;
    }
    const bool octal = escape >= '0' && escape <= '7';
    const size_t num_digits = escape == 'x' ? 2 : escape == 'u' ? 4 : escape == 'U' ? 8 : octal ? 3 : 0;
    if (escape == 'N') fail_here("a string names a character by \\N, which is not supported");
    if (num_digits == 0) {
      result += '\\';
      result += escape;
      continue;
    }
    const std::string_view digits = body.substr(octal ? i : i + 1, num_digits);
    uint32_t value = 0;
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value, octal ? 8 : 16);
    const size_t used = static_cast<size_t>(parsed.ptr - digits.data());
    if ((!octal && used != num_digits) || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
      fail_here("a string holds a malformed escape");
    }
    append_utf8(result, value);
    i += octal ? used - 1 : used;
  }
  return result;
}

void Lexer::lex_operator() {
  static constexpr std::array<std::string_view, 26> operators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "*",
                                                                 "/",  "%",  "~",  "<",  ">",  "=",  ".", ":", "|",
                                                                 ",",  ";",  "(",  ")",  "[",  "]",  "{", "}"};
  const auto* found = std::find_if(operators.begin(), operators.end(), [this](std::string_view op) { return at(op); });
  if (found == operators.end()) fail_here(fmt::format("unexpected character '{}'", source_.substr(position_, 1)));
  const std::string_view op = *found;
  if (op == "(" || op == "[" || op == "{") {
    open_brackets_.push_back(op == "(" ? ')' : op == "[" ? ']' : '}');
  } else if (op == ")" || op == "]" || op == "}") {
    if (open_brackets_.empty() || open_brackets_.back() != op[0]) fail_here(fmt::format("unexpected '{}'", op));
    open_brackets_.pop_back();
  }
  add(Token::Kind::punctuation, std::string(op));
  advance(op.size());
}

std::vector<Token> Lexer::run() {
  while (position_ < source_.size()) {
    const size_t tag = find_tag();
    const std::string_view data = source_.substr(position_, tag - position_);
    if (tag == source_.size()) {
      add(Token::Kind::data, std::string(data));
      advance(data.size());
      break;
    }
    // The rule for blanks before a tag looks at what ended before this data, so the mark outlives the move.
    const bool line_starting = line_starting_;
    advance(data.size());
    line_starting_ = line_starting;
    const char kind = source_[position_ + 1];
    if (kind == '%' && lex_raw(data)) continue;
    const char sign = position_ + 2 < source_.size() ? source_[position_ + 2] : '\0';
    add_data(data, sign, kind == '{');
    advance(2);
    take_sign();
    if (kind == '#') {
      lex_comment();
    } else if (kind == '{') {
      add(Token::Kind::output_begin, "{{");
      lex_expression(Token::Kind::output_end, "}}");
    } else {
      add(Token::Kind::tag_begin, "{%");
      lex_expression(Token::Kind::tag_end, "%}");
    }
  }
  add(Token::Kind::end, "");
  return std::move(tokens_);
}

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace tidemill::jinja
