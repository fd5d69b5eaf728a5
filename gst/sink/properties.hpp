// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include "gst/sink/core.hpp"

namespace gpumap::gst {

/// What the properties of a gpumapsink say. Written under the object's lock.
struct SinkProperties {
  SinkSettings settings;  ///< counts from the next start on
};

/// The property `stats` is not kept here but counted.
inline constexpr guint sink_stats_id = 100;
/// Nor is `num-clients`.
inline constexpr guint sink_clients_id = 101;

/// Of the property leaky, whose numbers are those of WhenFull, and of LinkLeak.
[[nodiscard]] GType leaky_type();
void install_sink_properties(GObjectClass* object_class);
void set_sink_property(GObject* object, SinkProperties& properties, guint id, const GValue* value, GParamSpec* spec);
void get_sink_property(GObject* object, const SinkProperties& properties, guint id, GValue* value, GParamSpec* spec);
/// A copy of the settings, made under the object's lock.
[[nodiscard]] SinkSettings settings_of(GstElement* sink, const SinkProperties& properties);

}  // namespace gpumap::gst
