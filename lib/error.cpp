// SPDX-License-Identifier: MIT
#include "gpumap/error.hpp"

#include <fmt/format.h>

namespace gpumap {

KernelFault::KernelFault(const std::string& kernel, const Error& cause)
    : Error(ErrorCode::device_lost, fmt::format("while running kernel {}: {}", kernel, cause.what())) {}

// Out of line, so that the type information by which these are caught is in the library and nowhere else.
Error::~Error() = default;
KernelFault::~KernelFault() = default;

}  // namespace gpumap
