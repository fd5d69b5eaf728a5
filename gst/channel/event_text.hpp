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

/// A message that crosses beside the frames from process to process: one byte for its kind, then its content. The
/// reader trusts nothing: a message that is not an event of a known kind with the fields of that kind is refused.
using LinkText = std::vector<std::byte>;

/// All that go downstream but a BUFFERSIZE: stream-start, collections and groups of streams, caps, segment, tags,
/// tables of contents, messages of elements and applications for sinks, protection, instant changes of the rate, gap,
/// segment-done, EOS, flushes, latency and an application's events. Empty for others, and for events that cannot be
/// written in max_link_message bytes. A field or tag that cannot be written, or for which no room is left, is left out;
/// `left_out` gets their number. Caps are whole or empty.
[[nodiscard]] LinkText text_of(GstEvent* event, unsigned* left_out = nullptr);
/// Whether events of this type cross.
[[nodiscard]] bool crosses(GstEventType type);
/// Whether elements ask for the name of such an event, which is its structure's: one without crosses in no direction.
[[nodiscard]] bool needs_structure(GstEventType type);
/// Whether it is an application's event that overtakes the frames.
[[nodiscard]] bool is_out_of_band(GstEventType type);
/// Whether an enumeration of GStreamer's has this value. GStreamer's functions do not take other values.
[[nodiscard]] bool is_known_value(GType type, gint value);
/// GStreamer takes any rate but 0. With the smallest ones the next frame is due in more years than its clock can count,
/// and a sink that waits for such a moment does not stop any more.
[[nodiscard]] bool is_playable_rate(gdouble rate);
/// A new event, or null. Names that this process does not know are taken while `names` has room. `refused`: as
/// take_structure().
[[nodiscard]] GstEvent* event_of(std::span<const std::byte> text, NewNames& names, std::string* refused = nullptr);
/// The event's type, without a check of its content. GST_EVENT_UNKNOWN: it is no event that crosses.
[[nodiscard]] GstEventType type_of_event(std::span<const std::byte> text);

/// How the following frames lie in memory, when they have a GstVideoMeta. An empty optional: as their caps say.
struct VideoLayout {
  std::uint32_t format = 0;
  std::uint32_t width = 0, height = 0, planes = 0;
  std::uint64_t offset[GST_VIDEO_MAX_PLANES] = {};
  std::int32_t stride[GST_VIDEO_MAX_PLANES] = {};
  bool operator==(const VideoLayout&) const = default;
};
[[nodiscard]] VideoLayout layout_of(const GstVideoMeta& meta);
/// The meta that crosses as a layout: the first one, if it says only where planes and rows lie. Others cross as metas,
/// see text_of_metas(). Null: there is none.
[[nodiscard]] const GstVideoMeta* layout_meta_of(GstBuffer* buffer);
[[nodiscard]] std::optional<VideoLayout> layout_of(GstBuffer* buffer);
/// Whether all planes lie in a frame of `bytes`. Rows may have any length and direction, tiles any number.
[[nodiscard]] bool fits(const VideoLayout& layout, std::uint64_t bytes);
[[nodiscard]] LinkText text_of(const std::optional<VideoLayout>& layout);
/// Whether the message is a layout, without a check of its content.
[[nodiscard]] bool says_layout(std::span<const std::byte> text);
/// False when it is no layout, or has a format that this process does not know.
[[nodiscard]] bool read_layout(std::span<const std::byte> text, std::optional<VideoLayout>& layout);
/// Adds `layout` to a frame of `bytes`. False, and nothing is added, when it does not fit.
[[nodiscard]] bool add_layout(GstBuffer* buffer, const VideoLayout& layout, std::uint64_t bytes);
/// Whether the format exists and has that number of planes.
[[nodiscard]] bool is_sane(const VideoLayout& layout);
/// Precondition: `layout` fits().
GstVideoMeta* add_video_meta(GstBuffer* buffer, const VideoLayout& layout, GstVideoFrameFlags flags);

/// The time from which the producer's running time counts.
[[nodiscard]] LinkText text_of(const Channel::FarTime& time);
/// False when it is no time.
[[nodiscard]] bool read_time(std::span<const std::byte> text, Channel::FarTime& time);

/// The state that a client which connects later receives, in this order.
enum class Keeping : std::uint32_t {
  none,
  time,
  stream_start,
  caps,
  segment,
  rate,
  tags,
  custom,
  layout,
  group_done,
  end
};
/// Keeping::none for events that hold only when they are sent.
[[nodiscard]] Keeping keeping_of(const GstEvent* event);
/// As on a pad, caps and segment hold until new ones come; an instant rate holds in sinks until a flush resets the
/// time.
[[nodiscard]] inline bool outlives_stream(Keeping keeping) {
  return keeping != Keeping::tags && keeping != Keeping::custom && keeping != Keeping::group_done &&
         keeping != Keeping::end;
}

}  // namespace gpumap::gst
