// SPDX-License-Identifier: MIT
#pragma once

#include <system_error>
#include <thread>
#include <utility>

#include "gpumap/error.hpp"
#include "gpumap/export.hpp"

namespace gpumap {

/// Error(io): the system refused a thread for `purpose`, as in "the link's server".
[[nodiscard]] GPUMAP_API Error no_thread(const char* purpose, const std::error_code& cause);

/// As std::thread, whose error says "Resource temporarily unavailable" and nothing else. Throws no_thread().
template <typename Run>
[[nodiscard]] std::thread start_thread(const char* purpose, Run&& run) {
  try {
    return std::thread(std::forward<Run>(run));
  } catch (const std::system_error& error) {
    throw no_thread(purpose, error.code());
  }
}

}  // namespace gpumap
