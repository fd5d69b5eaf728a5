// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

/// gpumapsink: upstream writes into GPU memory, or its frames are copied there once.
GType gst_gpumap_sink_get_type();
