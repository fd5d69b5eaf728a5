// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

/// gpumapsrc: gives the frames of a gpumapsink to a GPU pipeline, in the slots where they were written.
GType gst_gpumap_src_get_type();
