#include "compute/cpu/kernel_select.h"

#include <string>
#include <vector>

namespace tidemill::cpu {
namespace {

#define TM_KERNEL_TABLE(isa)                                                                                       \
  {                                                                                                                \
    .name = #isa, .tile_rows = isa::product_tile_rows, .product_panels = isa::product_panels,                      \
    .prepare_row = isa::prepare_row, .norm_row = isa::norm_row, .rotate_and_store_row = isa::rotate_and_store_row, \
    .pack_queries = isa::pack_queries, .attend = isa::attend, .merge = isa::merge, .finish = isa::finish,          \
  }

constexpr KernelTable scalar_table = TM_KERNEL_TABLE(scalar);
constexpr KernelTable avx2_table = TM_KERNEL_TABLE(avx2);
constexpr KernelTable avx512_table = TM_KERNEL_TABLE(avx512);

// These builtins also ask whether the operating system saves the wide registers.
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}

std::vector<const KernelTable*> find_kernels() {
  std::vector<const KernelTable*> tables;
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
