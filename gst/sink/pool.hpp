// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <memory>

#include "gst/sink/core.hpp"

namespace gpumap::gst {

/// The buffer pool (transfer full) that gpumapsink offers for raw video: each buffer is a slot, with a GstVideoMeta and
/// the alignment that upstream asks for, and rows of `row_bytes` (a power of 2) or a multiple where upstream knows
/// GstVideoMeta. Buffers that upstream means to read are host memory of the same layout.
[[nodiscard]] GstBufferPool* pool_new(std::shared_ptr<SinkCore> core, guint row_bytes);

}  // namespace gpumap::gst
