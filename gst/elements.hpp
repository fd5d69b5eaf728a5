// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

/// gpumapsink: upstream writes into GPU memory, or its frames are copied there once.
GType gst_gpumap_sink_get_type();
/// gpumapsrc: gives the frames of a gpumapsink to a GPU pipeline, in the slots where they were written.
GType gst_gpumap_src_get_type();
/// gpumapkernel: runs a CUDA kernel or a compute shader on each frame.
GType gst_gpumap_kernel_get_type();
/// gpumapupload: upstream writes into GPU memory, and the frames go on in the same streaming thread.
GType gst_gpumap_upload_get_type();
/// gpumapdownload: frames in GPU memory go to system memory by DMA.
GType gst_gpumap_download_get_type();
/// Writes a SigMF recording: gst/radio/SIGMF.md.
GType gst_sigmf_sink_get_type();
/// Reads a SigMF recording: gst/radio/SIGMF.md.
GType gst_sigmf_src_get_type();

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
