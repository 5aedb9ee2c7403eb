// Tokens to text while they are being generated: only whole characters leave, each with the token that completes it.
//
// The pieces joined are the text of Tokenizer::decode. Bytes that can no longer become a character give one U+FFFD for
// each maximal ill-formed part and swallow no neighbour; the unfinished character at the very end (finish) gives one
// U+FFFD too, streamed or not. One stream, one thread; the tokenizer must outlive it.
#pragma once

#include <string>

#include "base/token.h"

namespace tidemill {

class Tokenizer;

class Detokenizer {
 public:
  // skip_special leaves control tokens out. The leading blank of a SentencePiece text is taken off where the tokens
  // begin a text; `continues_text` says that they follow a prompt, whose next word keeps its blank.
  Detokenizer(const Tokenizer& tokenizer, bool skip_special, bool continues_text = false);

  // The text that is complete with this token; often empty for a token that is part of a character.
  std::string push(TokenId token);
  // What is left at the end. The detokenizer may not be used afterwards.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_;
  bool strip_next_blank_;
  std::string pending_;  // at most three bytes: the beginning of one character
};

}  // namespace tidemill
