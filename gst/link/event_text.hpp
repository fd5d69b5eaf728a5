// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>
#include <gst/video/video.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gst/channel/channel.hpp"

namespace gpumap::gst {

class NewNames;

/// What goes beside the frames from process to process: one byte that says what it is, and what it says. The reader
/// takes nothing for granted: what is no event of these kinds, with what such an event has, is none.
using LinkText = std::vector<std::byte>;

/// Stream-start, caps, segment, segment-done, tags, gap, EOS, flushes, latency and those of the application. Empty for
/// others (TOC, stream-group-done), and for what cannot be written in max_link_message bytes. A field or tag that
/// cannot be written, or for which no room is left, is left out: `left_out` is how many. Of caps it is none.
[[nodiscard]] LinkText text_of(GstEvent* event, unsigned* left_out = nullptr);
/// Whether events of this type do.
[[nodiscard]] bool crosses(GstEventType type);
/// Whether an enumeration of GStreamer's has this value: what it has not, GStreamer's functions do not take.
[[nodiscard]] bool is_known_value(GType type, gint value);
/// A new event, or null. Of names that this process does not know as many as have room in `names`. `refused`: as
/// take_structure().
[[nodiscard]] GstEvent* event_of(std::span<const std::byte> text, NewNames& names, std::string* refused = nullptr);
/// What it is to be, whatever it says: GST_EVENT_UNKNOWN where it is no event that crosses.
[[nodiscard]] GstEventType type_of_event(std::span<const std::byte> text);

/// How the frames that follow lie in memory, where they say so by GstVideoMeta; nothing: as their caps say.
struct VideoLayout {
  std::uint32_t format = 0;
  std::uint32_t width = 0, height = 0, planes = 0;
  std::uint64_t offset[GST_VIDEO_MAX_PLANES] = {};
  std::int32_t stride[GST_VIDEO_MAX_PLANES] = {};
  bool operator==(const VideoLayout&) const = default;
};
[[nodiscard]] VideoLayout layout_of(const GstVideoMeta& meta);
/// The one that crosses as a layout: the first, which says nothing but where planes and rows lie. Others cross as
/// metas, see text_of_metas(). Null: there is none.
[[nodiscard]] const GstVideoMeta* layout_meta_of(GstBuffer* buffer);
[[nodiscard]] std::optional<VideoLayout> layout_of(GstBuffer* buffer);
/// Whether all planes lie in a frame of `bytes`: rows of any length and direction, tiles in any number.
[[nodiscard]] bool fits(const VideoLayout& layout, std::uint64_t bytes);
[[nodiscard]] LinkText text_of(const std::optional<VideoLayout>& layout);
/// Whether it is to be a layout, whatever it says.
[[nodiscard]] bool says_layout(std::span<const std::byte> text);
/// False for what is none, or of a format that this process does not know.
[[nodiscard]] bool read_layout(std::span<const std::byte> text, std::optional<VideoLayout>& layout);
/// Of a frame of `bytes`. False, and nothing is added, where it does not fit.
[[nodiscard]] bool add_layout(GstBuffer* buffer, const VideoLayout& layout, std::uint64_t bytes);
/// Whether there is such a format, with so many planes.
[[nodiscard]] bool is_sane(const VideoLayout& layout);
/// Precondition: it fits.
GstVideoMeta* add_video_meta(GstBuffer* buffer, const VideoLayout& layout, GstVideoFrameFlags flags);

/// What the producer's running time counts from.
[[nodiscard]] LinkText text_of(const Channel::FarTime& time);
/// False for what is none.
[[nodiscard]] bool read_time(std::span<const std::byte> text, Channel::FarTime& time);

/// What a client that comes later needs to know, in this order.
enum class Keeping : std::uint32_t { none, time, stream_start, caps, segment, tags, custom, layout, end };
/// Keeping::none for what is over once it was said.
[[nodiscard]] Keeping keeping_of(const GstEvent* event);
/// As on a pad, caps and segment hold until others come.
[[nodiscard]] inline bool outlives_stream(Keeping keeping) {
  return keeping != Keeping::tags && keeping != Keeping::custom && keeping != Keeping::end;
}

}  // namespace gpumap::gst
