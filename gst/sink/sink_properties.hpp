// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <vector>

#include "gst/property_table.hpp"
#include "gst/sink/core.hpp"

namespace gpumap::gst {

/// Of the property leaky, whose numbers are those of WhenFull, and of LinkLeak.
[[nodiscard]] GType leaky_type();
/// Those that gpumapsink and gpumapupload have in common.
[[nodiscard]] std::vector<Property> slot_properties(const PropertiesOf<SinkSettings>& of);
/// Of a gpumapsink.
[[nodiscard]] std::vector<Property> sink_properties();

}  // namespace gpumap::gst
