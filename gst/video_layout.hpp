// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>
#include <gst/video/video.h>

namespace gpumap::gst {

/// For a downstream that knows no GstVideoMeta: `buffer` (taken) itself where its planes and strides are those of
/// `info`, else a copy (transfer full) in system memory where they are. Throws Error(io) for one that cannot be read.
[[nodiscard]] GstBuffer* in_default_layout(GstBuffer* buffer, const GstVideoInfo& info);

/// True when downstream of `pad`, at these caps, reads GstVideoMeta.
[[nodiscard]] bool peer_reads_video_meta(GstPad* pad, GstCaps* caps);

}  // namespace gpumap::gst
