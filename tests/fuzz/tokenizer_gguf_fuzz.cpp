// Any bytes as a GGUF file, and a tokenizer from the metadata of those that parse.
#include <cstddef>
#include <cstdint>
#include <span>

#include "model/gguf_file.h"
#include "tokenizer_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto part = tidemill::parse_gguf(std::as_bytes(std::span(data, size)));
  if (!part) return 0;
  std::vector<std::string> warnings;
  tidemill::check_tokenizer(tidemill::make_tokenizer(part->metadata, &warnings));
  for (const std::string& warning : warnings) TM_CHECK(tidemill::is_valid_utf8(warning), "warnings are valid UTF-8");
  return 0;
}
