// Norms, rotary embedding, and the way of keys and values into their block. Include after an instruction set's simd.h.
#pragma once

#include "compute/cpu/generic/math.h"
#include "compute/cpu/kernels.h"

namespace tidemill::TM_ISA {
namespace {

using cpu::NormRow;
using cpu::StoreRow;

inline void normalize_in_place(float* x, int n, const float* weight, float epsilon) {
  const F inverse = f_set(inverse_rms(x, n, epsilon));
  for (int i = 0; i < n; i += 16) {
    const int rest = n - i < 16 ? n - i : 16;
    f_store_n(x + i, f_mul(f_mul(f_load_n(x + i, rest), inverse), f_load_n(weight + i, rest)), rest);
  }
}

inline void rotate_head(float* head, const StoreRow& args) {
  const int half = args.rotary_dim / 2;
  if (args.interleaved) {
    for (int i = 0; i < half; ++i) {
      const float a = head[2 * i], b = head[2 * i + 1];
      head[2 * i] = a * args.cos[i] - b * args.sin[i];
      head[2 * i + 1] = b * args.cos[i] + a * args.sin[i];
    }
    return;
  }
  int i = 0;
  for (; i + 16 <= half; i += 16) {
    const F a = f_load(head + i), b = f_load(head + half + i);
    const F c = f_load(args.cos + i), s = f_load(args.sin + i);
    f_store(head + i, f_sub(f_mul(a, c), f_mul(b, s)));
    f_store(head + half + i, f_add(f_mul(b, c), f_mul(a, s)));
  }
  if (i < half) {
    const int n = half - i;
    const F a = f_load_n(head + i, n), b = f_load_n(head + half + i, n);
    const F c = f_load_n(args.cos + i, n), s = f_load_n(args.sin + i, n);
    f_store_n(head + i, f_sub(f_mul(a, c), f_mul(b, s)), n);
    f_store_n(head + half + i, f_add(f_mul(b, c), f_mul(a, s)), n);
  }
}

inline void prepare_heads(float* heads, int count, const float* weight, float epsilon, const StoreRow& args) {
  if (weight && args.norm_whole_row) normalize_in_place(heads, count * args.head_dim, weight, epsilon);
  for (int h = 0; h < count; ++h) {
    float* head = heads + h * args.head_dim;
    if (weight && !args.norm_whole_row) normalize_in_place(head, args.head_dim, weight, epsilon);
    if (args.rotary_dim > 0) rotate_head(head, args);
  }
}

// What lies in a block of 16-bit floats is finite: infinities would turn into NaN for every later query of the
// sequence, and for those before that share its pass on the matrix unit.
template <typename T>
TM_INLINE F f_storable(F x) {
  if constexpr (sizeof(T) == sizeof(float)) return x;
  const F largest = f_set(__is_same(T, BFloat) ? 0x1.FEp127f : 65504.0f);
  return f_max(f_min(x, largest), f_sub(f_zero(), largest));
}

template <typename T>
void store_keys(const StoreRow& args, const float* keys) {
  T rounded[16];
  const int num_keys = args.num_kv_heads * args.head_dim;
  T* key = reinterpret_cast<T*>(args.keys) + args.slot;
  for (int i = 0; i < num_keys; i += 16) {
    const int n = num_keys - i < 16 ? num_keys - i : 16;
    f_store_as(rounded, f_storable<T>(n == 16 ? f_load(keys + i) : f_load_n(keys + i, n)));
    for (int j = 0; j < n; ++j, key += args.block_size) *key = rounded[j];
  }
}

template <typename T>
void store_values(const StoreRow& args, const float* values) {
  T rounded[16];
  for (int h = 0; h < args.num_kv_heads; ++h) {
    T* to = reinterpret_cast<T*>(args.values) +
            (static_cast<size_t>(h) * args.block_size + args.slot) * static_cast<size_t>(args.value_dim);
    const float* value = values + h * args.value_dim;
    int i = 0;
    for (; i + 16 <= args.value_dim; i += 16) f_store_as(to + i, f_storable<T>(f_load(value + i)));
    if (i == args.value_dim) continue;
    f_store_as(rounded, f_storable<T>(f_load_n(value + i, args.value_dim - i)));
    for (int j = 0; i + j < args.value_dim; ++j) to[i + j] = rounded[j];
  }
}

// Multiplies pieces of `size` (a power of two, at least 8) values by the orthonormal Hadamard matrix.
inline void rotate_by_hadamard(float* x, int count, int size) {
  const float factor = 1.0f / sqrtf(static_cast<float>(size));
  for (float* piece = x; piece < x + count; piece += size) {
    for (int half = 1; half < size; half *= 2) {
      for (int i = 0; i < size; i += 2 * half) {
        for (int j = i; j < i + half; ++j) {
          const float a = piece[j], b = piece[j + half];
          piece[j] = a + b;
          piece[j + half] = a - b;
        }
      }
    }
    for (int i = 0; i < size; ++i) piece[i] *= factor;
  }
}

}  // namespace

void norm_row(const NormRow& args) {
  const float inverse = args.weight ? inverse_rms(args.x, args.width, args.epsilon) : 1.0f;
  for (int i = 0; i < args.width; i += 16) {
    const int n = args.width - i < 16 ? args.width - i : 16;
    F value = f_load_n(args.x + i, n);
    if (args.weight) value = f_mul(f_mul(value, f_set(inverse)), f_load_n(args.weight + i, n));
    value = f_mul(f_set(args.scale), value);
    if (args.accumulate) value = f_add(f_load_n(args.output + i, n), value);
    f_store_n(args.output + i, value, n);
  }
}

void rotate_and_store_row(const StoreRow& args) {
  float* keys = args.qkv + args.num_heads * args.head_dim;
  const float* values = keys + args.num_kv_heads * args.head_dim;
  prepare_heads(args.qkv, args.num_heads, args.query_weight, args.query_epsilon, args);
  prepare_heads(keys, args.num_kv_heads, args.key_weight, args.key_epsilon, args);
  if (args.hadamard > 0) {
    rotate_by_hadamard(args.qkv, (args.num_heads + args.num_kv_heads) * args.head_dim, args.hadamard);
  }
  if (args.key_format == KvFormat::fp32) store_keys<float>(args, keys);
  if (args.key_format == KvFormat::fp16) store_keys<Half>(args, keys);
  if (args.key_format == KvFormat::bf16) store_keys<BFloat>(args, keys);
  if (args.value_format == KvFormat::fp32) store_values<float>(args, values);
  if (args.value_format == KvFormat::fp16) store_values<Half>(args, values);
  if (args.value_format == KvFormat::bf16) store_values<BFloat>(args, values);
}

}  // namespace tidemill::TM_ISA
