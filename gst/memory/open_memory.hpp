// SPDX-License-Identifier: MIT
#pragma once

#include "gst/gpumap/gstgpumapallocator-private.h"

namespace gpumap::gst {

/// Have `klass`, whose memories are FrameMemory, do what <gst/gpumap/gpumap.h> promises to others.
void open_memory(GstGpumapAllocatorClass* klass);

}  // namespace gpumap::gst
