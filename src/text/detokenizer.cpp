#include "text/detokenizer.h"

#include "base/utf8.h"
#include "text/tokenizer.h"

namespace tidemill {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special, bool continues_text)
    : tokenizer_(tokenizer),
      skip_special_(skip_special),
      strip_next_blank_(tokenizer.strips_leading_blank() && !continues_text) {}

std::string Detokenizer::push(TokenId token) {
  if (skip_special_ && tokenizer_.is_control(token)) return {};
  std::string_view bytes = tokenizer_.token_bytes_view(token);
  if (bytes.empty()) return {};
  if (strip_next_blank_ && bytes.front() == ' ') bytes.remove_prefix(1);
  strip_next_blank_ = false;
  pending_ += bytes;

  size_t whole = 0;  // bytes that further tokens cannot change
  bool valid = true;
  while (whole < pending_.size()) {
    const Utf8Char c = decode_utf8(pending_, whole);
    if (c.reaches_end) break;
    valid &= c.valid;
    whole += c.length_bytes;
  }
  std::string text = pending_.substr(0, whole);
  pending_.erase(0, whole);
  return valid ? text : sanitize_utf8(text);
}

std::string Detokenizer::finish() {
  return sanitize_utf8(pending_);
}

}  // namespace tidemill
