// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

GType gst_gpumap_upload_get_type();
