// Text to tokens and back, for byte-level BPE, SentencePiece BPE and unigram vocabularies.
//
// Encoding: control tokens and added tokens are cut out of the text first; what is left is normalized, cut into words,
// and each word becomes tokens. A Tokenizer is immutable; every method is const and safe from any thread. Encoding is
// linear in the text (n log n inside one word) and needs memory of a small multiple of it. Nothing recurses.
//
// Input that is not valid UTF-8 is read as if U+FFFD stood for each ill-formed part. Ids outside the vocabulary have
// no text, and decode to nothing.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/metadata.h"
#include "base/result.h"
#include "base/token.h"

namespace tidemill {

struct TokenizerParts;

struct EncodeOptions {
  bool add_special = true;     // BOS and EOS as the model's metadata or post-processor says
  bool parse_special = false;  // control-token texts in the input become control tokens
};

struct TextSegment {
  std::string_view text;
  bool trusted;  // written by the template: control-token texts in it become control tokens
};

class Tokenizer {
 public:
  explicit Tokenizer(std::unique_ptr<const TokenizerParts> parts);
  ~Tokenizer();

  // A BOS that add_special would add is left out when the text itself (parsed) begins with it: there is one, not two.
  std::vector<TokenId> encode(std::string_view text, EncodeOptions options = {}) const;

  // The prompt as a template wrote it, in order. A control token is found only where its whole text is trusted, be it
  // over several segments; options.parse_special is not looked at. Segments are no borders for anything else: where
  // untrusted parts hold no control-token text, the result is that of encoding the whole text with parse_special.
  std::vector<TokenId> encode_segments(std::span<const TextSegment> segments, EncodeOptions options = {}) const;

  // Valid UTF-8: one U+FFFD for each ill-formed part of the tokens' bytes. skip_special leaves control tokens out.
  // SentencePiece's rule: where the model puts a blank in front of every text, the first blank is taken off again.
  std::string decode(std::span<const TokenId> tokens, bool skip_special = true) const;

  size_t vocab_size() const;
  std::string token_bytes(TokenId token) const;  // what it stands for in decoded text; may be part of a character
  std::string_view token_bytes_view(TokenId token) const;  // the same, valid as long as the tokenizer
  std::string token_text(TokenId token) const;             // the vocabulary's spelling
  std::optional<TokenId> find(std::string_view token_text) const;

  bool is_control(TokenId token) const;
  // Ascending. EOS, end of turn and end of message as the model file says, and the control tokens known by their text.
  const std::vector<TokenId>& end_of_generation_ids() const;
  std::optional<TokenId> bos() const;
  std::optional<TokenId> eos() const;
  bool adds_bos() const;
  bool strips_leading_blank() const;

 private:
  std::unique_ptr<const TokenizerParts> parts_;
};

// From the keys tokenizer.ggml.* of a GGUF file. Errors name the key and what is wrong with it; a kind or pre-tokenizer
// that is not supported is refused by name. Keys that the kind of tokenizer does not use are not looked at; a warning
// says so where their type is wrong.
Result<std::unique_ptr<Tokenizer>> make_tokenizer(const Metadata& gguf_metadata,
                                                  std::vector<std::string>* warnings = nullptr);

// From the texts of tokenizer.json and tokenizer_config.json (may be empty) of a model folder.
Result<std::unique_ptr<Tokenizer>> make_tokenizer(std::string_view tokenizer_json,
                                                  std::string_view tokenizer_config_json);

}  // namespace tidemill
