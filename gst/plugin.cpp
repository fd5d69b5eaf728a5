// SPDX-License-Identifier: MIT
#include <gst/gst.h>

#include "gst/elements.hpp"

#define PACKAGE "gpumap"

GST_PLUGIN_DEFINE(GST_VERSION_MAJOR, GST_VERSION_MINOR, gpumap,
                  "Frames written by the CPU straight into GPU memory, and kernels that run on them",
                  gpumap_register_elements, GPUMAP_VERSION, "MIT/X11", GPUMAP_PACKAGE_NAME, GPUMAP_PACKAGE_ORIGIN)
