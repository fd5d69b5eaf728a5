// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>
#include <gst/video/video.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace gpumap::gst {

/// What goes beside the frames from process to process: one byte that says what it is, and text, as GStreamer writes
/// and reads its structures. The reader takes nothing for granted: what is no event of these kinds, with what such an
/// event has, is none.
using LinkText = std::vector<std::byte>;

/// Serialized events: stream-start, caps, segment, tags, gap, EOS and those of the application. Empty for others (TOC,
/// segment-done, stream-group-done), and for what GStreamer cannot write as text.
[[nodiscard]] LinkText text_of(GstEvent* event);
/// A new event, or null.
[[nodiscard]] GstEvent* event_of(std::span<const std::byte> text);

/// How the frames that follow lie in memory, where they say so by GstVideoMeta; nothing: as their caps say.
struct VideoLayout {
  std::uint32_t format = 0;
  std::uint32_t width = 0, height = 0, planes = 0;
  std::uint64_t offset[GST_VIDEO_MAX_PLANES] = {};
  std::int32_t stride[GST_VIDEO_MAX_PLANES] = {};
  bool operator==(const VideoLayout&) const = default;
};
[[nodiscard]] std::optional<VideoLayout> layout_of(GstBuffer* buffer);
[[nodiscard]] LinkText text_of(const std::optional<VideoLayout>& layout);
/// False for what is none.
[[nodiscard]] bool read_layout(std::span<const std::byte> text, std::optional<VideoLayout>& layout);
/// Of a frame of `bytes`: nothing where the planes do not lie in them.
void add_layout(GstBuffer* buffer, const VideoLayout& layout, std::uint64_t bytes);

/// What a client that comes later needs to know of it, and in which order: 0 for what is over once it was said.
[[nodiscard]] std::uint32_t keeping_of(const GstEvent* event);
inline constexpr std::uint32_t layout_keeping = 100;

}  // namespace gpumap::gst
