// SPDX-License-Identifier: MIT
#pragma once

#include <glib-object.h>

namespace gpumap::gst {

/// The enumeration of the `transport` property: 0 is auto, which is no transport in the library; the library's own
/// follow.
[[nodiscard]] GType transport_type();

}  // namespace gpumap::gst
