#include "compute/cpu/kernel_select.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace tidemill::cpu {
namespace {

#define TM_KERNEL_TABLE(isa)                                                                                       \
  {                                                                                                                \
    .name = #isa, .tile_rows = isa::product_tile_rows, .bf16_pairs = false, .product_panels = isa::product_panels, \
    .prepare_row = isa::prepare_row, .norm_row = isa::norm_row, .rotate_and_store_row = isa::rotate_and_store_row, \
    .encode_keys = isa::encode_keys, .encode_values = isa::encode_values, .decode_keys = isa::decode_keys,         \
    .decode_values = isa::decode_values, .attend = isa::attend, .merge = isa::merge, .finish = isa::finish,        \
  }

constexpr KernelTable scalar_table = TM_KERNEL_TABLE(scalar);
constexpr KernelTable avx2_table = TM_KERNEL_TABLE(avx2);
constexpr KernelTable avx512_table = TM_KERNEL_TABLE(avx512);

constexpr KernelTable make_amx_table() {
  KernelTable table = avx512_table;
  table.name = "amx";
  table.tile_rows = amx::product_tile_rows;
  table.bf16_pairs = true;
  table.product_panels = amx::product_panels;
  table.prepare_row = amx::prepare_row;
  table.attend = amx::attend;
  return table;
}
constexpr KernelTable amx_table = make_amx_table();

// These builtins also ask whether the operating system saves the wide registers.
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}

// The matrix unit: the processor has it, and the operating system grants its registers to this process when asked.
// Threads started later have them, too.
bool has_amx() {
#if defined(__linux__) && defined(__x86_64__)
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (!has_avx512() || !__builtin_cpu_supports("avx512bf16")) return false;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  constexpr uint32_t bf16 = 1u << 22, half_vectors = 1u << 23, tiles = 1u << 24;
  if ((d & (bf16 | half_vectors | tiles)) != (bf16 | half_vectors | tiles)) return false;
  constexpr long get_permitted = 0x1022, request_permission = 0x1023, tile_data = 18;
  if (syscall(SYS_arch_prctl, request_permission, tile_data) != 0) return false;
  unsigned long permitted = 0;
  return syscall(SYS_arch_prctl, get_permitted, &permitted) == 0 && (permitted >> tile_data & 1) != 0;
#else
  return false;
#endif
}

std::vector<const KernelTable*> find_kernels() {
  std::vector<const KernelTable*> tables;
  if (has_amx()) tables.push_back(&amx_table);
  if (has_avx512()) tables.push_back(&avx512_table);
  if (has_avx2()) tables.push_back(&avx2_table);
  tables.push_back(&scalar_table);
  return tables;
}

}  // namespace

std::span<const KernelTable* const> available_kernels() {
  static const std::vector<const KernelTable*> tables = find_kernels();
  return tables;
}

Result<const KernelTable*> select_kernels(std::string_view name) {
  std::string names;
  for (const KernelTable* table : available_kernels()) {
    if (name.empty() || name == table->name) return table;
    names += (names.empty() ? "" : ", ") + std::string(table->name);
  }
  return error("kernels \"{}\" do not run here; possible: {}", name, names);
}

}  // namespace tidemill::cpu
