// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

namespace gpumap::gst {

/// What gst_buffer_copy_into() takes over of a buffer whose memory stays behind.
inline constexpr auto copy_flags_and_times =
    static_cast<GstBufferCopyFlags>(static_cast<unsigned>(GST_BUFFER_COPY_FLAGS) | GST_BUFFER_COPY_TIMESTAMPS);
/// The same and its metas, none of them shared.
inline constexpr auto copy_all_but_memory = static_cast<GstBufferCopyFlags>(
    static_cast<unsigned>(copy_flags_and_times) | GST_BUFFER_COPY_META | GST_BUFFER_COPY_DEEP);

}  // namespace gpumap::gst
