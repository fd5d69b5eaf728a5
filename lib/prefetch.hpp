// SPDX-License-Identifier: MIT
#pragma once

namespace gpumap {

/// Fetch a line for writing, so that the store, or the locked operation, that follows does not wait for all of its way.
inline void prefetch_to_write(const void* line) noexcept {
#if defined(__x86_64__)
  // The builtin gives this only where the compiler may assume the instruction; without it, it would fetch a shared
  // copy. Processors that lack it take it for a no-op.
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

inline void prefetch_to_read(const void* line) noexcept {
  __builtin_prefetch(line);
}

}  // namespace gpumap
