// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

/// gpumapkernel: runs a CUDA kernel or a compute shader on each frame.
GType gst_gpumap_kernel_get_type();
