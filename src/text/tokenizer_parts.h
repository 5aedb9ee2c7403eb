// What a Tokenizer is made of; filled by the readers of GGUF metadata and of tokenizer.json.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "text/added_tokens.h"
#include "text/preparation/normalizer.h"
#include "text/preparation/pre_tokenizer.h"
#include "text/vocabulary.h"
#include "text/word_model.h"

namespace tidemill {

struct TokenizerParts {
  std::unique_ptr<const Vocabulary> vocabulary;
  std::unique_ptr<const WordModel> model;  // refers to the vocabulary
  AddedTokens added;                       // looked for in the text as it came
  AddedTokens added_normalized;            // looked for in normalized text; never control tokens
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;

  std::vector<TokenId> prefix;  // what add_special puts in front
  std::vector<TokenId> suffix;
  std::optional<TokenId> bos;
  std::optional<TokenId> eos;
  std::vector<TokenId> end_of_generation;  // ascending
  bool strips_leading_blank = false;       // decoding takes off the blank that encoding put in front
};

// Adds the control tokens that end a generation by their well-known texts, sorts, and drops doubles.
void complete_end_of_generation(TokenizerParts& parts);

// Entries of these texts end a turn in some published model, whatever their kind in the file: they are control tokens.
bool is_end_of_turn_text(std::string_view text);

// SentencePiece words end before each U+2581 unless a token of the vocabulary crosses that place.
BlankMarkSplit blank_mark_split(const Vocabulary& vocabulary);

}  // namespace tidemill
