/* SPDX-License-Identifier: MIT */
#ifndef GST_GPUMAP_H
#define GST_GPUMAP_H

#include <gst/gpumap/gstgpumapmemory.h>

#endif /* GST_GPUMAP_H */
