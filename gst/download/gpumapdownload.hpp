// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

/// gpumapdownload: frames in GPU memory go to system memory by DMA.
GType gst_gpumap_download_get_type();
