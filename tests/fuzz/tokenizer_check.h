// What must hold of every tokenizer that a file made, however odd the file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/result.h"
#include "base/utf8.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace tidemill {

inline void check_text(const Tokenizer& tokenizer, std::string_view text, EncodeOptions options) {
  const std::vector<TokenId> ids = tokenizer.encode(text, options);
  Detokenizer detokenizer(tokenizer, false);
  std::string streamed;
  for (const TokenId id : ids) {
    TM_CHECK(id >= 0 && static_cast<size_t>(id) < tokenizer.vocab_size(), "ids are inside the vocabulary");
    streamed += detokenizer.push(id);
  }
  streamed += detokenizer.finish();
  TM_CHECK(is_valid_utf8(streamed), "decoded text is valid UTF-8");
  TM_CHECK(streamed == tokenizer.decode(ids, false), "streamed text is the decoded text");
}

inline void check_tokenizer(const Result<std::unique_ptr<Tokenizer>>& tokenizer) {
  if (!tokenizer) {
    TM_CHECK(is_valid_utf8(tokenizer.error().message), "messages are valid UTF-8");
    return;
  }
  for (const std::string_view text :
       {"", "abc ab  a\n\n 12345", "<s>a</s>b<tool> <|a|>", "\xE2\x96\x81 caf\u00e9 \U0001F30A \xFF"}) {
    check_text(**tokenizer, text, {.add_special = false, .parse_special = false});
    check_text(**tokenizer, text, {.add_special = true, .parse_special = true});
  }
}

}  // namespace tidemill
