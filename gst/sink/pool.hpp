// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <memory>

#include "gst/sink/core.hpp"

namespace gpumap::gst {

/// The buffer pool (transfer full) that gpumapsink offers for raw video: each buffer is a slot, with a GstVideoMeta and
/// the alignment that upstream asks for. Buffers that upstream means to read are host memory of the same layout.
[[nodiscard]] GstBufferPool* pool_new(std::shared_ptr<SinkCore> core);

}  // namespace gpumap::gst
