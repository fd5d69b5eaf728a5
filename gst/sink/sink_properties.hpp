// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <string>
#include <vector>

#include "gst/property_table.hpp"
#include "gst/sink/core.hpp"

namespace gpumap::gst {

/// Of the property leaky, whose numbers are those of WhenFull, and of LinkLeak.
[[nodiscard]] GType leaky_type();
/// Those that gpumapsink and gpumapupload have in common. `threads` and `which_threads`: see add_thread_properties().
[[nodiscard]] std::vector<Property> slot_properties(const PropertiesOf<SinkSettings>& of,
                                                    PropertiesOf<ThreadSettings>::Find threads,
                                                    const std::string& which_threads);
/// Of a gpumapsink.
[[nodiscard]] std::vector<Property> sink_properties();

}  // namespace gpumap::gst
