// Which instruction set's kernels this process runs.
#pragma once

#include <span>
#include <string_view>

#include "base/result.h"
#include "compute/cpu/kernels.h"

namespace tidemill::cpu {

// The tables that this machine and its operating system can run, best first. Scalar, the reference, is always the last.
std::span<const KernelTable* const> available_kernels();

// By name, or the best for "". An Error names the choices that exist here.
Result<const KernelTable*> select_kernels(std::string_view name);

}  // namespace tidemill::cpu
