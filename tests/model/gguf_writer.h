// Writes GGUF bytes for tests, right or wrong in any field: nothing is checked, every count can be overridden.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "test_data.h"

namespace tidemill::testing {

inline std::span<const std::byte> as_span(const std::string& bytes) {
  return std::as_bytes(std::span(bytes.data(), bytes.size()));
}

// GGUF value types by number.
struct Gguf {
  enum : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, str, array, u64, i64, f64 };
};

template <typename T>
std::string raw(T value) {
  std::string out(sizeof(T), '\0');
  std::memcpy(out.data(), &value, sizeof(T));
  return out;
}

// The S(x) of the format: length and bytes.
inline std::string gguf_string(const std::string& text) {
  return raw<uint64_t>(text.size()) + text;
}

inline std::string gguf_strings(const std::vector<std::string>& items) {
  std::string out = raw<uint32_t>(Gguf::str) + raw<uint64_t>(items.size());
  for (const std::string& item : items) out += gguf_string(item);
  return out;
}

template <typename T>
std::string gguf_array(uint32_t type, const std::vector<T>& items) {
  std::string out = raw<uint32_t>(type) + raw<uint64_t>(items.size());
  for (const T& item : items) out += raw(item);
  return out;
}

class GgufWriter {
 public:
  struct Tensor {
    std::string name;
    uint32_t type = 0;
    std::vector<uint64_t> dims;  // as in the file: innermost first
    uint64_t offset = 0;         // into the data section
    std::optional<uint32_t> num_dims = {};
  };

  uint32_t version = 3;
  uint64_t alignment = 32;
  std::vector<std::pair<std::string, std::string>> keys;  // name, and type with value
  std::vector<Tensor> tensors;
  std::string data;

  // Replaces or adds; `value` is the raw bytes behind the type number.
  GgufWriter& set(const std::string& key, uint32_t type, const std::string& value) {
    for (auto& [name, bytes] : keys) {
      if (name == key) return bytes = raw(type) + value, *this;
    }
    keys.emplace_back(key, raw(type) + value);
    return *this;
  }
  GgufWriter& u32(const std::string& key, uint32_t value) { return set(key, Gguf::u32, raw(value)); }
  GgufWriter& f32(const std::string& key, float value) { return set(key, Gguf::f32, raw(value)); }
  GgufWriter& text(const std::string& key, const std::string& value) { return set(key, Gguf::str, gguf_string(value)); }
  GgufWriter& remove(const std::string& key) {
    std::erase_if(keys, [&](const auto& entry) { return entry.first == key; });
    return *this;
  }

  // A float32 tensor of zeros at the end of the data so far.
  GgufWriter& zeros(const std::string& name, std::vector<uint64_t> dims) {
    uint64_t bytes = 4;
    for (uint64_t dim : dims) bytes *= dim;
    tensors.push_back({name, 0, std::move(dims), data.size()});
    data.append((bytes + alignment - 1) / alignment * alignment, '\0');
    return *this;
  }

  std::string head() const {
    std::string out = "GGUF" + raw(version) + raw<uint64_t>(tensors.size()) + raw<uint64_t>(keys.size());
    for (const auto& [key, value] : keys) out += gguf_string(key) + value;
    for (const Tensor& tensor : tensors) {
      out += gguf_string(tensor.name) + raw(tensor.num_dims.value_or(static_cast<uint32_t>(tensor.dims.size())));
      for (uint64_t dim : tensor.dims) out += raw(dim);
      out += raw(tensor.type) + raw(tensor.offset);
    }
    return out;
  }
  std::string bytes() const {
    std::string out = head();
    out.resize((out.size() + alignment - 1) / alignment * alignment, '\0');
    return out + data;
  }
};

// A llama of 2 layers, width 64, 4 heads, 2 KV heads, a vocabulary of 260; complete but for the values, which are 0.
inline GgufWriter tiny_gguf() {
  GgufWriter out;
  out.text("general.architecture", "llama").text("general.name", "tiny-A").u32("llama.block_count", 2);
  out.u32("llama.context_length", 256).u32("llama.embedding_length", 64).u32("llama.feed_forward_length", 96);
  out.u32("llama.attention.head_count", 4).u32("llama.attention.head_count_kv", 2);
  out.f32("llama.attention.layer_norm_rms_epsilon", 1e-6f).f32("llama.rope.freq_base", 10000);
  std::vector<std::string> tokens;
  for (int i = 0; i < 260; ++i) tokens.push_back("t" + std::to_string(i));
  out.text("tokenizer.ggml.model", "gpt2").set("tokenizer.ggml.tokens", Gguf::array, gguf_strings(tokens));
  out.zeros("token_embd.weight", {64, 260}).zeros("output_norm.weight", {64});
  for (int layer = 0; layer < 2; ++layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    out.zeros(prefix + "attn_norm.weight", {64}).zeros(prefix + "attn_q.weight", {64, 64});
    out.zeros(prefix + "attn_k.weight", {64, 32}).zeros(prefix + "attn_v.weight", {64, 32});
    out.zeros(prefix + "attn_output.weight", {64, 64}).zeros(prefix + "ffn_norm.weight", {64});
    out.zeros(prefix + "ffn_gate.weight", {64, 96}).zeros(prefix + "ffn_up.weight", {64, 96});
    out.zeros(prefix + "ffn_down.weight", {96, 64});
  }
  return out;
}

}  // namespace tidemill::testing
