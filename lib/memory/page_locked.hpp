// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string_view>

#include "device/budget.hpp"
#include "gpumap/error.hpp"

namespace gpumap {

/// Count page-locked host memory, of all devices of this process. No driver tells how much there may be, so the count
/// is there for the error's figures and for GPUMAP_PINNED_LIMIT=<bytes>. Throws Error(no_memory).
[[nodiscard]] Budget::Share reserve_page_locked(std::uint64_t bytes);

/// The error for page-locked memory that a driver, named by `who`, does not give: what was asked, what this process
/// holds, the limits and the remedies. The bytes asked have a Share already.
[[nodiscard]] Error page_locked_refused(std::string_view who, std::uint64_t bytes);

}  // namespace gpumap
