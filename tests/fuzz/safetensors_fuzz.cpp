// Any bytes as a safetensors file, as the index of one in shards, and as a config.json.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/check.h"
#include "base/utf8.h"
#include "model/model_config.h"
#include "model/safetensors_file.h"

namespace {

using namespace tidemill;

template <typename T>
void check_message(const Result<T>& result) {
  if (!result) TM_CHECK(is_valid_utf8(result.error().message), "messages are valid UTF-8");
}

void touch(std::span<const std::byte> bytes, const SafetensorsPart& part) {
  unsigned touched = 0;
  for (const TensorInfo& tensor : part.tensors) {
    TM_CHECK(static_cast<int64_t>(tensor.size_bytes) == bytes_of_values(tensor.type, tensor.num_values()),
             "an accepted tensor has the size that its shape says");
    if (tensor.size_bytes == 0) continue;
    touched += static_cast<unsigned>(bytes[tensor.offset_bytes]);
    touched += static_cast<unsigned>(bytes[tensor.offset_bytes + tensor.size_bytes - 1]);
  }
  volatile unsigned sink = touched;
  (void)sink;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  auto part = parse_safetensors(bytes);
  check_message(part);
  if (part) touch(bytes, *part);

  const std::string_view text(reinterpret_cast<const char*>(data), size);
  auto index = parse_safetensors_index(text);
  check_message(index);
  if (index) {
    for (const std::string& name : index->files) {
      TM_CHECK(name.find('/') == std::string::npos && name != "..", "an index names plain files only");
    }
  }
  check_message(read_json_config(text));
  return 0;
}
