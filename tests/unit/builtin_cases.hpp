// SPDX-License-Identifier: MIT
//
// The built-in kernels against builtin_reference.hpp: one table of cases, instantiated for each backend that a test
// program is about.
#pragma once

#include "backend_bench.hpp"

namespace gpumap {

class BuiltinTest : public BackendTest {};

}  // namespace gpumap
