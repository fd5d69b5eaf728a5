// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <string>

#include "gpumap/error.hpp"

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

/// What `call` throws, an Error of that code.
template <typename Call>
std::string error_of(ErrorCode code, Call call) {
  try {
    static_cast<void>(call());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "no error";
}
/// What it throws for what is wrong in its arguments.
template <typename Call>
std::string error_of(Call call) {
  return error_of(ErrorCode::invalid, call);
}

}  // namespace gpumap

namespace gpumap::test {

/// For waits of queues that no test cancels.
inline constinit const std::atomic<bool> never{false};

/// While it lives, this process gets no thread: each would have a stack that no memory holds.
class NoThreads {
 public:
  NoThreads() {
    pthread_attr_t huge;
    pthread_getattr_default_np(&before_);
    pthread_getattr_default_np(&huge);
    pthread_attr_setstacksize(&huge, std::size_t{1} << 62U);
    pthread_setattr_default_np(&huge);
    pthread_attr_destroy(&huge);
  }
  ~NoThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_{};
};

}  // namespace gpumap::test
