// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

/// Register the three elements and the metas: the plugin does it, and a program that links them in.
gboolean gpumap_register_elements(GstPlugin* plugin);
