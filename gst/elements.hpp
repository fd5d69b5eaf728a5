// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

/// GST_ELEMENT_REGISTER(gpumapkernel, nullptr): one of them alone, in a program that links them in.
GST_ELEMENT_REGISTER_DECLARE(gpumapsink)
GST_ELEMENT_REGISTER_DECLARE(gpumapsrc)
GST_ELEMENT_REGISTER_DECLARE(gpumapkernel)
GST_ELEMENT_REGISTER_DECLARE(gpumapupload)
GST_ELEMENT_REGISTER_DECLARE(gpumapdownload)
GST_ELEMENT_REGISTER_DECLARE(sigmfsink)
GST_ELEMENT_REGISTER_DECLARE(sigmfsrc)

/// Register all elements and the metas: the plugin does it, and a program that links them in.
gboolean gpumap_register_elements(GstPlugin* plugin);
