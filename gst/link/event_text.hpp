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

#include "gst/channel/channel.hpp"

namespace gpumap::gst {

/// What goes beside the frames from process to process: one byte that says what it is, and text, as GStreamer writes
/// and reads its structures. The reader takes nothing for granted: what is no event of these kinds, with what such an
/// event has, is none.
using LinkText = std::vector<std::byte>;

/// Stream-start, caps, segment, tags, gap, EOS, flushes, latency and those of the application. Empty for others (TOC,
/// segment-done, stream-group-done), and for what GStreamer cannot write as text.
[[nodiscard]] LinkText text_of(GstEvent* event);
/// Whether an enumeration of GStreamer's has this value: what it has not, GStreamer's functions do not take.
[[nodiscard]] bool is_known_value(GType type, gint value);
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

/// What the producer's running time counts from.
[[nodiscard]] LinkText text_of(const Channel::FarTime& time);
/// False for what is none.
[[nodiscard]] bool read_time(std::span<const std::byte> text, Channel::FarTime& time);

/// What a client that comes later needs to know, in this order.
enum class Keeping : std::uint32_t { none, time, stream_start, caps, segment, tags, custom, layout };
/// Keeping::none for what is over once it was said.
[[nodiscard]] Keeping keeping_of(const GstEvent* event);
/// As on a pad, caps and segment hold until others come.
[[nodiscard]] inline bool outlives_stream(Keeping keeping) {
  return keeping != Keeping::tags && keeping != Keeping::custom;
}

}  // namespace gpumap::gst
