// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <optional>
#include <string>

#include "gpumap/kernel_plan.hpp"

namespace gpumap::gst {

/// What the properties of a gpumapkernel say. Written under the object's lock.
struct KernelProperties {
  KernelSettings settings;      ///< counts from the next start on, but for `params`
  bool params_changed = false;  ///< since the last frame
};

/// Read-only, and the element's to answer.
inline constexpr guint kernel_stats_id = 100;

/// Whether the property `id` says which kernel it is.
[[nodiscard]] bool chooses_kernel(guint id) noexcept;
void install_kernel_properties(GObjectClass* object_class);
void set_kernel_property(GObject* object, KernelProperties& properties, guint id, const GValue* value,
                         GParamSpec* spec);
void get_kernel_property(GObject* object, const KernelProperties& properties, guint id, GValue* value,
                         GParamSpec* spec);

}  // namespace gpumap::gst
