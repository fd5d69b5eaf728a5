// SPDX-License-Identifier: MIT
#pragma once

// GCC says it by macros, Clang by features.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define GPUMAP_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define GPUMAP_SANITIZED 1
#endif
#endif

namespace gpumap {

/// Built with a sanitizer: slower, and freed memory stays resident in quarantine (LeakSanitizer looks for leaks
/// itself).
#ifdef GPUMAP_SANITIZED
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

}  // namespace gpumap
