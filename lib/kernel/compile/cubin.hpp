// SPDX-License-Identifier: MIT
#pragma once

#include "gpumap/kernel.hpp"

namespace gpumap {

/// A driver is handed a cubin's address without its length and reads as far as the headers in it say. Throws
/// Error(compile) where that is beyond the end of `source.code`, or where it is neither a cubin nor a fatbin.
void check_cubin(const KernelSource& source);

}  // namespace gpumap
