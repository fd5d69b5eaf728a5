// SPDX-License-Identifier: MIT
#pragma once

#include <glib-object.h>

#include <optional>

#include "gpumap/memory.hpp"

namespace gpumap::gst {

/// The enumeration of the `transport` property: auto, which is no transport in the library, and the library's own.
[[nodiscard]] GType transport_type();
[[nodiscard]] gint to_enum(const std::optional<Transport>& transport);
[[nodiscard]] std::optional<Transport> transport_from_enum(gint value);

}  // namespace gpumap::gst
