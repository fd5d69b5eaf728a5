// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "gst/channel/event_text.hpp"

namespace gpumap::gst {

/// The metas of one frame, for a process that has other memory and may have another GStreamer. The first GstVideoMeta,
/// which seldom changes, crosses as VideoLayout.
struct MetaText {
  LinkText text;          ///< empty: there are none
  unsigned left_out = 0;  ///< metas that cannot be written, or for which no room is left
};
/// Further GstVideoMetas and those with flags or an id, audio, reference timestamps, crops, regions of interest, time
/// codes, custom metas, tensors and analytics (analytics_text.hpp); from GStreamer 1.24 on others that can be
/// serialised, too. At most `most` bytes.
[[nodiscard]] MetaText text_of_metas(GstBuffer* buffer, std::size_t most);

/// Add the metas that a peer wrote of a frame of `bytes` to `carrier`, which is writable and has no memory. Invalid
/// metas, and metas that are not registered in this process, are left out. False: some of the text was invalid, or
/// impossible for the frame.
[[nodiscard]] bool add_metas(GstBuffer* carrier, std::span<const std::byte> text, std::uint64_t bytes, NewNames& names);

}  // namespace gpumap::gst
