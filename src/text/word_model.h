// Turns one word into tokens; implemented by BpeModel and UnigramModel.
//
// Immutable, safe from any thread; scratch memory belongs to the caller and is reused between words.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/token.h"

namespace tidemill {

class WordModel {
 public:
  // One thread's buffers; created by the model that uses them.
  struct Scratch {
    virtual ~Scratch() = default;
  };

  virtual ~WordModel() = default;
  virtual std::unique_ptr<Scratch> make_scratch() const = 0;
  // Appends the tokens of `word` (normalized, valid UTF-8, in the model's spelling of blanks).
  virtual void encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& tokens) const = 0;
};

}  // namespace tidemill
