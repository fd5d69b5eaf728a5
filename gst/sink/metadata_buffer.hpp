// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

namespace gpumap::gst {

/// What belongs to `from` and not to its memory (transfer full): flags, times and metas, and of the metas on memory
/// those that describe it, for the bytes stay as they are. Metas that keep upstream's own memory alive are left behind.
[[nodiscard]] GstBuffer* carrier_of(GstBuffer* from);

}  // namespace gpumap::gst
