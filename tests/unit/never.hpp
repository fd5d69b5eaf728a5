// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>

namespace gpumap::test {

/// For waits of queues that no test cancels.
inline constinit const std::atomic<bool> never{false};

}  // namespace gpumap::test
