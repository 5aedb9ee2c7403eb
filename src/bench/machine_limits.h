// What this machine can do at this moment: multiply-accumulates and bytes read per second, by all threads together.
//
// Each figure is the best of several short runs of a loop that does nothing else: independent accumulators in registers
// for arithmetic, a stream over a buffer for memory. Kernels are held against them; they are measured beside the
// kernels because clocks and neighbours differ from minute to minute. Instruction sets that the machine lacks are left
// out.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"

namespace tidemill {

struct MachineLimits {
  // Tera multiply-accumulates per second.
  std::optional<double> int8_matrix;  // AMX
  std::optional<double> bf16_matrix;
  std::optional<double> int8_dot;  // AVX-512 VNNI, else AVX2's multiply and add of pairs
  std::optional<double> bf16_dot;  // AVX-512 BF16
  std::optional<double> fp32_fma;  // AVX-512, else AVX2
};

// seconds: how long each figure may take.
MachineLimits measure_arithmetic(ThreadPool& pool, double seconds);
// Gigabytes per second from a buffer of so many bytes, read over and over, a part by each thread.
double measure_memory_read(ThreadPool& pool, size_t bytes, double seconds);

}  // namespace tidemill
