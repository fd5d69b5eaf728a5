// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "gst/property_table.hpp"

namespace gpumap::gst {

/// Of a gpumapkernel.
[[nodiscard]] std::vector<Property> kernel_properties();

}  // namespace gpumap::gst
