// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>

#include "gpumap/export.hpp"

namespace gpumap {

class Device;

/// For how long what ends waits for its work on the device: 0.3 s where some was given up, for others' may never run
/// then, and nothing is freed anyway; else patience_at_end.
[[nodiscard]] GPUMAP_API std::chrono::milliseconds patience_of_ends(const Device& device) noexcept;

}  // namespace gpumap
