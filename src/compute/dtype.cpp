#include "compute/dtype.h"

#include <array>

#include "base/printable.h"

namespace tidemill {
namespace {

struct Format {
  const char* name;
  int16_t values;
  int16_t bytes;
};

constexpr std::array<Format, num_dtypes> formats = {{
    {"F32", 1, 4},
    {"F16", 1, 2},
    {"BF16", 1, 2},
    {"Q4_0", 32, 2 + 16},
    {"Q4_1", 32, 2 + 2 + 16},
    {"Q5_0", 32, 2 + 4 + 16},
    {"Q5_1", 32, 2 + 2 + 4 + 16},
    {"Q8_0", 32, 2 + 32},
    {"Q2_K", 256, 16 + 64 + 2 + 2},
    {"Q3_K", 256, 32 + 64 + 12 + 2},
    {"Q4_K", 256, 2 + 2 + 12 + 128},
    {"Q5_K", 256, 2 + 2 + 12 + 32 + 128},
    {"Q6_K", 256, 128 + 64 + 16 + 2},
    {"IQ4_NL", 32, 2 + 16},
    {"MXFP4", 32, 1 + 16},
}};

const Format& format_of(DType type) {
  return formats[static_cast<size_t>(type)];
}

constexpr std::string_view retired = "retired";

struct GgufType {
  std::string_view name;
  std::optional<DType> type;
};

// Indexed by the id in the file.
constexpr std::array<GgufType, 42> gguf_types = {{
    {"F32", DType::f32},
    {"F16", DType::f16},
    {"Q4_0", DType::q4_0},
    {"Q4_1", DType::q4_1},
    {retired, {}},
    {retired, {}},
    {"Q5_0", DType::q5_0},
    {"Q5_1", DType::q5_1},
    {"Q8_0", DType::q8_0},
    {"Q8_1", {}},
    {"Q2_K", DType::q2_k},
    {"Q3_K", DType::q3_k},
    {"Q4_K", DType::q4_k},
    {"Q5_K", DType::q5_k},
    {"Q6_K", DType::q6_k},
    {"Q8_K", {}},
    {"IQ2_XXS", {}},
    {"IQ2_XS", {}},
    {"IQ3_XXS", {}},
    {"IQ1_S", {}},
    {"IQ4_NL", DType::iq4_nl},
    {"IQ3_S", {}},
    {"IQ2_S", {}},
    {"IQ4_XS", {}},
    {"I8", {}},
    {"I16", {}},
    {"I32", {}},
    {"I64", {}},
    {"F64", {}},
    {"IQ1_M", {}},
    {"BF16", DType::bf16},
    {retired, {}},
    {retired, {}},
    {retired, {}},
    {"TQ1_0", {}},
    {"TQ2_0", {}},
    {retired, {}},
    {retired, {}},
    {retired, {}},
    {"MXFP4", DType::mxfp4},
    {"NVFP4", {}},
    {"Q1_0", {}},
}};

constexpr const char* supported_gguf =
    "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, IQ4_NL and MXFP4 are supported";

// What other programs write into the header; anything else is quoted as found, shortened.
constexpr std::array<std::string_view, 16> safetensors_others = {
    "F64", "I64",  "I32",     "I16",     "I8",      "U64", "U32",     "U16",
    "U8",  "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F4",  "F6_E2M3", "F6_E3M2"};

}  // namespace

const char* dtype_name(DType type) {
  return format_of(type).name;
}

int64_t block_values(DType type) {
  return format_of(type).values;
}

int64_t block_bytes(DType type) {
  return format_of(type).bytes;
}

std::optional<int64_t> bytes_of_values(DType type, int64_t count) {
  if (count < 0 || count % block_values(type) != 0) return std::nullopt;
  int64_t bytes = 0;
  if (__builtin_mul_overflow(count / block_values(type), block_bytes(type), &bytes)) return std::nullopt;
  return bytes;
}

Result<DType> dtype_from_gguf(uint32_t type_id) {
  if (type_id >= gguf_types.size()) return error("data type id {} is unknown; {}", type_id, supported_gguf);
  const GgufType& entry = gguf_types[type_id];
  if (entry.type) return *entry.type;
  if (entry.name == retired) return error("data type id {} is retired; {}", type_id, supported_gguf);
  return error("data type {} is not supported; {}", entry.name, supported_gguf);
}

Result<DType> dtype_from_safetensors(std::string_view name) {
  if (name == "F32") return DType::f32;
  if (name == "F16") return DType::f16;
  if (name == "BF16") return DType::bf16;
  for (std::string_view other : safetensors_others) {
    if (name == other) return error("dtype {} is not supported; F32, F16 and BF16 are", name);
  }
  return error("dtype '{}' is unknown; F32, F16 and BF16 are supported", printable(name, 32));
}

}  // namespace tidemill
