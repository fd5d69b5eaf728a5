// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

/// Reads a SigMF recording: gst/radio/SIGMF.md.
GType gst_sigmf_src_get_type();
