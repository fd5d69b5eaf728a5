// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

/// gpumapupload: upstream writes into GPU memory, and the frames go on in the same streaming thread.
GType gst_gpumap_upload_get_type();
