// SPDX-License-Identifier: MIT
#include "gpumap/error.hpp"

namespace gpumap {

// Out of line, so that the type information by which an Error is caught is in the library and nowhere else.
Error::~Error() = default;

}  // namespace gpumap
