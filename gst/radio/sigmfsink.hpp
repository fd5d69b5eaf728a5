// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

/// Writes a SigMF recording: gst/radio/SIGMF.md.
GType gst_sigmf_sink_get_type();
