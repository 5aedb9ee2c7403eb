#include "text/preparation/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/printable.h"

namespace tidemill {
namespace {

// Enough for every published pattern over megabytes; a runaway search ends after about a second.
constexpr uint32_t match_limit = 20'000'000;
constexpr uint32_t heap_limit_kib = 64 * 1024;
constexpr size_t pattern_limit_bytes = 1 << 20;
constexpr size_t shown_bytes = 200;

// PCRE2's \s counts U+180E as blank, Oniguruma and Rust do not; its \w leaves marks out, theirs has them. PCRE2 spells
// \uHHHH as \x{HHHH}.
std::string with_exact_classes(std::string_view pattern) {
  static constexpr std::string_view word = "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}";
  std::string exact;
  bool in_class = false;
  for (size_t at = 0; at < pattern.size(); ++at) {
    const char c = pattern[at];
    if (c != '\\' || at + 1 == pattern.size()) {
      if (c == '[' && !in_class) {
        in_class = true;
      } else if (c == ']') {
        in_class = false;
      }
      exact.push_back(c);
      continue;
    }
    const char escaped = pattern[++at];
    if (escaped == 's' || escaped == 'S') {
      exact.append(escaped == 's' ? "\\p{White_Space}" : "\\P{White_Space}");
    } else if (escaped == 'w' && in_class) {
      exact.append(word);
    } else if ((escaped == 'w' || escaped == 'W') && !in_class) {
      exact.append(escaped == 'w' ? "[" : "[^").append(word).append("]");
    } else if (escaped == 'u' && at + 4 < pattern.size()) {
      exact.append("\\x{").append(pattern.substr(at + 1, 4)).append("}");
      at += 4;
    } else {
      exact.append({'\\', escaped});
    }
  }
  return exact;
}

}  // namespace

struct Regex::Compiled {
  pcre2_code* code = nullptr;
  bool jit = false;
  ~Compiled() { pcre2_code_free(code); }
};

Regex::Regex(std::unique_ptr<Compiled> compiled) : compiled_(std::move(compiled)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Result<Regex> Regex::compile(std::string_view pattern) {
  if (pattern.size() > pattern_limit_bytes) {
    return error("regular expression of {} bytes is above the limit of {}", pattern.size(), pattern_limit_bytes);
  }
  // Class intersection is Oniguruma's; PCRE2 would read it as two ampersands and match something else.
  if (pattern.find("&&") != std::string_view::npos) {
    return error("regular expression '{}' uses class intersection (&&), which is not supported",
                 printable(pattern, shown_bytes));
  }
  const std::string exact = with_exact_classes(pattern);
  auto compiled = std::make_unique<Compiled>();
  int code = 0;
  PCRE2_SIZE offset = 0;
  compiled->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(exact.data()), exact.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code, &offset, nullptr);
  if (!compiled->code) {
    PCRE2_UCHAR message[256] = {};
    pcre2_get_error_message(code, message, sizeof(message));
    return error("regular expression '{}' is not usable: {} (near byte {})", printable(pattern, shown_bytes),
                 reinterpret_cast<const char*>(message), offset);
  }
  compiled->jit = pcre2_jit_compile(compiled->code, PCRE2_JIT_COMPLETE) == 0;
  return Regex(std::move(compiled));
}

struct Regex::Search::State {
  const Compiled* compiled;
  pcre2_match_data* data;
  pcre2_match_context* limits;
  bool use_jit;
  ~State() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(limits);
  }
};

Regex::Search::Search(const Regex& regex)
    : state_(new State{regex.compiled_.get(), pcre2_match_data_create_from_pattern(regex.compiled_->code, nullptr),
                       pcre2_match_context_create(nullptr), regex.compiled_->jit}) {
  pcre2_set_match_limit(state_->limits, match_limit);
  pcre2_set_heap_limit(state_->limits, heap_limit_kib);
}

Regex::Search::~Search() = default;

bool Regex::Search::next(std::string_view text, size_t from, size_t& begin, size_t& end) {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  int found = PCRE2_ERROR_JIT_STACKLIMIT;
  if (state_->use_jit) {
    found = pcre2_jit_match(state_->compiled->code, subject, text.size(), from, 0, state_->data, state_->limits);
  }
  // The interpreter keeps its backtracking points on the heap, so it can finish what overflows the small JIT stack.
  if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
    found = pcre2_match(state_->compiled->code, subject, text.size(), from, PCRE2_NO_JIT | PCRE2_NO_UTF_CHECK,
                        state_->data, state_->limits);
  }
  if (found < 0) return false;
  const PCRE2_SIZE* borders = pcre2_get_ovector_pointer(state_->data);
  begin = borders[0];
  end = borders[1];
  return begin <= end;  // \K inside a look-ahead may turn them round
}

}  // namespace tidemill
