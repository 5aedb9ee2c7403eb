// Any bytes as a GGUF file: parsed, its configuration read, and both ends of every tensor that was accepted touched.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "base/utf8.h"
#include "model/gguf_file.h"
#include "model/model_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tidemill;
  const auto bytes = std::as_bytes(std::span(data, size));
  auto part = parse_gguf(bytes);
  if (!part) {
    TM_CHECK(is_valid_utf8(part.error().message), "messages are valid UTF-8");
    return 0;
  }
  unsigned touched = 0;
  for (const TensorInfo& tensor : part->tensors) {
    TM_CHECK(static_cast<int64_t>(tensor.size_bytes) == bytes_of_values(tensor.type, tensor.num_values()),
             "an accepted tensor has the size that its shape says");
    touched += static_cast<unsigned>(bytes[tensor.offset_bytes]);
    touched += static_cast<unsigned>(bytes[tensor.offset_bytes + tensor.size_bytes - 1]);
  }
  auto config = read_gguf_config(part->metadata);
  if (!config) TM_CHECK(is_valid_utf8(config.error().message), "messages are valid UTF-8");
  volatile unsigned sink = touched;
  (void)sink;
  return 0;
}
