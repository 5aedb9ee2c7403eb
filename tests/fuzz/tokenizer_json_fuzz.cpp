// Any bytes as a tokenizer.json, and as the tokenizer_config.json beside a small one that is right.
#include <cstdint>
#include <string_view>

#include "tokenizer_check.h"

namespace {

constexpr std::string_view small_tokenizer = R"({
  "added_tokens": [{"id": 3, "content": "<s>", "special": true}, {"id": 4, "content": "</s>", "special": true}],
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
  "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  tidemill::check_tokenizer(tidemill::make_tokenizer(text, ""));
  tidemill::check_tokenizer(tidemill::make_tokenizer(small_tokenizer, text));
  return 0;
}
