// Counts what a test program takes from the heap by operator new. Include in one source of the program: it replaces
// the program's operators, which are then counted on every thread.
//
// Sanitizers bring operators of their own; there nothing is counted, and tests of the count must be skipped.
#pragma once

#include <atomic>
#include <cstdlib>
#include <new>

namespace tidemill::testing {
inline std::atomic<size_t> num_allocations{0};
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool allocations_are_counted = false;
#else
inline constexpr bool allocations_are_counted = true;
#endif
}  // namespace tidemill::testing

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
void* operator new(size_t size) {
  ++tidemill::testing::num_allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
#endif
