#include "bench/machine_limits.h"

#include <immintrin.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>

#include "base/check.h"

namespace tidemill {
namespace {

using std::chrono::steady_clock;

// Enough chains to hide the latency of every instruction below on any core of today.
constexpr int num_chains = 12;
constexpr int64_t steps_per_call = 200'000;
constexpr int num_tiles = 4;  // accumulators of the matrix unit; two more hold the factors

// Loops over the chains are unrolled, so that the sums stay in registers, and the compiler is not told that all start
// with zero: chains that it knows to be equal it computes once. Each loop returns something of its sums, so that none
// of them can be left out.

__attribute__((target("avx512f,avx512vnni"))) int32_t dot_int8_avx512(int64_t steps) {
  __m512i sums[num_chains];
#pragma GCC unroll 12
  for (__m512i& sum : sums) {
    sum = _mm512_setzero_si512();
    asm volatile("" : "+v"(sum));
  }
  __m512i x = _mm512_set1_epi8(3), y = _mm512_set1_epi8(2);
  for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 12
    for (__m512i& sum : sums) sum = _mm512_dpbusd_epi32(sum, x, y);
    asm volatile("" : "+v"(x), "+v"(y));
  }
  __m512i all = sums[0];
#pragma GCC unroll 12
  for (int i = 1; i < num_chains; ++i) all = _mm512_add_epi32(all, sums[i]);
  return _mm512_cvtsi512_si32(all);
}

// Products of bytes summed in pairs, pairs summed in pairs: what AVX2 has for it.
__attribute__((target("avx2"))) int32_t dot_int8_avx2(int64_t steps) {
  __m256i sums[num_chains];
#pragma GCC unroll 12
  for (__m256i& sum : sums) {
    sum = _mm256_setzero_si256();
    asm volatile("" : "+x"(sum));
  }
  __m256i x = _mm256_set1_epi8(3), y = _mm256_set1_epi8(2);
  const __m256i ones = _mm256_set1_epi16(1);
  for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 12
    for (__m256i& sum : sums) sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(x, y), ones));
    asm volatile("" : "+x"(x), "+x"(y));
  }
  __m256i all = sums[0];
#pragma GCC unroll 12
  for (int i = 1; i < num_chains; ++i) all = _mm256_add_epi32(all, sums[i]);
  return _mm256_cvtsi256_si32(all);
}

__attribute__((target("avx512f,avx512bf16"))) float dot_bf16_avx512(int64_t steps) {
  __m512 sums[num_chains];
#pragma GCC unroll 12
  for (__m512& sum : sums) {
    sum = _mm512_setzero_ps();
    asm volatile("" : "+v"(sum));
  }
  // 1.0 and about 5e-10, so that no sum overflows and none is denormal.
  const __m512i one = _mm512_set1_epi16(0x3F80), small = _mm512_set1_epi16(0x3000);
  __m512bh x, y;
  std::memcpy(&x, &one, sizeof(x));
  std::memcpy(&y, &small, sizeof(y));
  for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 12
    for (__m512& sum : sums) sum = _mm512_dpbf16_ps(sum, x, y);
    asm volatile("" : "+v"(x), "+v"(y));
  }
  __m512 all = sums[0];
#pragma GCC unroll 12
  for (int i = 1; i < num_chains; ++i) all = _mm512_add_ps(all, sums[i]);
  return _mm512_cvtss_f32(all);
}

__attribute__((target("avx512f"))) float fma_avx512(int64_t steps) {
  __m512 sums[num_chains];
#pragma GCC unroll 12
  for (__m512& sum : sums) {
    sum = _mm512_setzero_ps();
    asm volatile("" : "+v"(sum));
  }
  __m512 x = _mm512_set1_ps(1e-9f), y = _mm512_set1_ps(1.0f);
  for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 12
    for (__m512& sum : sums) sum = _mm512_fmadd_ps(x, y, sum);
    asm volatile("" : "+v"(x), "+v"(y));
  }
  __m512 all = sums[0];
#pragma GCC unroll 12
  for (int i = 1; i < num_chains; ++i) all = _mm512_add_ps(all, sums[i]);
  return _mm512_cvtss_f32(all);
}

__attribute__((target("avx2,fma"))) float fma_avx2(int64_t steps) {
  __m256 sums[num_chains];
#pragma GCC unroll 12
  for (__m256& sum : sums) {
    sum = _mm256_setzero_ps();
    asm volatile("" : "+x"(sum));
  }
  __m256 x = _mm256_set1_ps(1e-9f), y = _mm256_set1_ps(1.0f);
  for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 12
    for (__m256& sum : sums) sum = _mm256_fmadd_ps(x, y, sum);
    asm volatile("" : "+x"(x), "+x"(y));
  }
  __m256 all = sums[0];
#pragma GCC unroll 12
  for (int i = 1; i < num_chains; ++i) all = _mm256_add_ps(all, sums[i]);
  return _mm256_cvtss_f32(all);
}

// Layout of LDTILECFG's operand (Intel SDM, volume 1, 18.2): eight tiles of 16 rows by 64 bytes.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  std::array<uint8_t, 14> reserved{};
  std::array<uint16_t, 16> row_bytes{};
  std::array<uint8_t, 16> rows{};
};
static_assert(sizeof(TileConfig) == 64);

TileConfig full_tiles() {
  TileConfig config;
  for (size_t i = 0; i < 8; ++i) {
    config.row_bytes[i] = 64;
    config.rows[i] = 16;
  }
  return config;
}

__attribute__((target("amx-tile,amx-int8"))) void matrix_int8(int64_t steps) {
  const TileConfig config = full_tiles();
  asm volatile("" : : "r"(&config) : "memory");  // the intrinsic says that it reads eight bytes of it
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  for (int64_t i = 0; i < steps; ++i) {
    _tile_dpbssd(0, 4, 5);
    _tile_dpbssd(1, 4, 5);
    _tile_dpbssd(2, 4, 5);
    _tile_dpbssd(3, 4, 5);
  }
  _tile_release();
}

__attribute__((target("amx-tile,amx-bf16"))) void matrix_bf16(int64_t steps) {
  const TileConfig config = full_tiles();
  asm volatile("" : : "r"(&config) : "memory");  // the intrinsic says that it reads eight bytes of it
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  for (int64_t i = 0; i < steps; ++i) {
    _tile_dpbf16ps(0, 4, 5);
    _tile_dpbf16ps(1, 4, 5);
    _tile_dpbf16ps(2, 4, 5);
    _tile_dpbf16ps(3, 4, 5);
  }
  _tile_release();
}

__attribute__((target("avx2"))) uint64_t read_avx2(const std::byte* data, size_t bytes) {
  __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
  for (size_t at = 0; at + 128 <= bytes; at += 128) {
    const auto* place = reinterpret_cast<const __m256i*>(data + at);
    a = _mm256_xor_si256(a, _mm256_loadu_si256(place));
    b = _mm256_xor_si256(b, _mm256_loadu_si256(place + 1));
    c = _mm256_xor_si256(c, _mm256_loadu_si256(place + 2));
    d = _mm256_xor_si256(d, _mm256_loadu_si256(place + 3));
  }
  return static_cast<uint64_t>(
      _mm256_extract_epi64(_mm256_xor_si256(_mm256_xor_si256(a, b), _mm256_xor_si256(c, d)), 0));
}

uint64_t read_words(const std::byte* data, size_t bytes) {
  uint64_t sum = 0;
  for (size_t at = 0; at + 8 <= bytes; at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, data + at, 8);
    sum ^= word;
  }
  return sum;
}

// The matrix unit's registers are granted to a process that asks the system for them.
bool matrix_unit_granted() {
  constexpr long request_permission = 0x1023, tile_data = 18;
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

// The processor's answer about leaf 7: __builtin_cpu_supports of this compiler does not know the matrix unit.
uint32_t leaf7_edx() {
  uint32_t a = 7, b = 0, c = 0, d = 0;
  asm volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  return d;
}

// Memory in large pages where the system has them to give, as models' weights are.
class LargeBuffer {
 public:
  explicit LargeBuffer(size_t bytes) : size_((bytes + large_page - 1) / large_page * large_page) {
    void* place = mmap(nullptr, size_ + large_page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TM_CHECK(place != MAP_FAILED, "the system has memory to measure");
    mapping_ = static_cast<std::byte*>(place);
    const auto address = reinterpret_cast<uintptr_t>(place);
    data_ = mapping_ + ((address + large_page - 1) / large_page * large_page - address);
    madvise(data_, size_, MADV_HUGEPAGE);
    std::memset(data_, 1, size_);
  }
  ~LargeBuffer() { munmap(mapping_, size_ + large_page); }
  LargeBuffer(const LargeBuffer&) = delete;
  LargeBuffer& operator=(const LargeBuffer&) = delete;
  const std::byte* data() const { return data_; }

 private:
  static constexpr size_t large_page = size_t{2} << 20;
  size_t size_;
  std::byte *mapping_ = nullptr, *data_ = nullptr;
};

// The shortest time that `work` takes on all threads at once.
template <typename Work>
double best_seconds(ThreadPool& pool, double limit_s, Work&& work) {
  double best = 1e9;
  const steady_clock::time_point start = steady_clock::now();
  do {
    const steady_clock::time_point before = steady_clock::now();
    pool.run(work);
    best = std::min(best, std::chrono::duration<double>(steady_clock::now() - before).count());
  } while (std::chrono::duration<double>(steady_clock::now() - start).count() < limit_s);
  return best;
}

// Where what was computed ends up: nobody reads it, and the compiler cannot know.
template <typename T>
void keep(T value) {
  asm volatile("" : : "r"(value) : "memory");
}

double tera_macs(ThreadPool& pool, double limit_s, double macs_per_step, int64_t steps, void (*loop)(int64_t)) {
  const double seconds = best_seconds(pool, limit_s, [&](int32_t) { loop(steps); });
  return macs_per_step * static_cast<double>(steps) * pool.size() / seconds / 1e12;
}

}  // namespace

MachineLimits measure_arithmetic(ThreadPool& pool, double seconds) {
  MachineLimits limits;
  const bool avx512 = __builtin_cpu_supports("avx512f") != 0, avx2 = __builtin_cpu_supports("avx2") != 0;
  constexpr uint32_t bf16_tiles = 1u << 22, tiles = 1u << 24, int8_tiles = 1u << 25;
  if ((leaf7_edx() & tiles) != 0 && matrix_unit_granted()) {
    constexpr double macs = 16.0 * 16 * num_tiles;
    if ((leaf7_edx() & int8_tiles) != 0) {
      limits.int8_matrix = tera_macs(pool, seconds, macs * 64, steps_per_call / 10, matrix_int8);
    }
    if ((leaf7_edx() & bf16_tiles) != 0) {
      limits.bf16_matrix = tera_macs(pool, seconds, macs * 32, steps_per_call / 10, matrix_bf16);
    }
  }
  if (avx512 && __builtin_cpu_supports("avx512vnni")) {
    limits.int8_dot = tera_macs(pool, seconds, 64.0 * num_chains, steps_per_call,
                                [](int64_t steps) { keep(dot_int8_avx512(steps)); });
  } else if (avx2) {
    limits.int8_dot =
        tera_macs(pool, seconds, 32.0 * num_chains, steps_per_call, [](int64_t steps) { keep(dot_int8_avx2(steps)); });
  }
  if (avx512 && __builtin_cpu_supports("avx512bf16")) {
    limits.bf16_dot = tera_macs(pool, seconds, 32.0 * num_chains, steps_per_call,
                                [](int64_t steps) { keep(dot_bf16_avx512(steps) > 0); });
  }
  if (avx512) {
    limits.fp32_fma =
        tera_macs(pool, seconds, 16.0 * num_chains, steps_per_call, [](int64_t steps) { keep(fma_avx512(steps) > 0); });
  } else if (avx2 && __builtin_cpu_supports("fma")) {
    limits.fp32_fma =
        tera_macs(pool, seconds, 8.0 * num_chains, steps_per_call, [](int64_t steps) { keep(fma_avx2(steps) > 0); });
  }
  return limits;
}

double measure_memory_read(ThreadPool& pool, size_t bytes, double seconds) {
  TM_CHECK(bytes > 0, "there is something to read");
  const LargeBuffer buffer(bytes);
  const bool avx2 = __builtin_cpu_supports("avx2") != 0;
  const size_t part = bytes / static_cast<size_t>(pool.size());
  const double best = best_seconds(pool, seconds, [&](int32_t worker) {
    const std::byte* begin = buffer.data() + part * static_cast<size_t>(worker);
    keep(avx2 ? read_avx2(begin, part) : read_words(begin, part));
  });
  return static_cast<double>(part * static_cast<size_t>(pool.size())) / best / 1e9;
}

}  // namespace tidemill
