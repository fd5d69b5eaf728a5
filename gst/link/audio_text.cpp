// SPDX-License-Identifier: MIT
#include "gst/link/audio_text.hpp"

#include <algorithm>
#include <vector>

namespace gpumap::gst {
namespace {

struct AudioHead {
  std::int32_t format = 0, rate = 0, channels = 0, layout = 0;
  std::uint64_t samples = 0;
};
constexpr std::int32_t positions = 64;  // that GstAudioInfo has room for
constexpr std::int32_t max_channels = 1024;

bool are_positions(const std::vector<GstAudioChannelPosition>& position) {
  const auto is_none = [](GstAudioChannelPosition one) { return one == GST_AUDIO_CHANNEL_POSITION_NONE; };
  if (std::all_of(position.begin(), position.end(), is_none)) return true;
  if (position.size() == 1 && position[0] == GST_AUDIO_CHANNEL_POSITION_MONO) return true;
  return std::all_of(position.begin(), position.end(), [](auto one) { return one >= 0; }) &&
         gst_audio_check_valid_channel_positions(position.data(), static_cast<gint>(position.size()), FALSE) != 0;
}

/// Each plane lies in the frame, and in no other.
bool fit(std::vector<gsize> offsets, std::uint64_t plane, std::uint64_t bytes) {
  std::sort(offsets.begin(), offsets.end());
  for (std::size_t channel = 0; channel < offsets.size(); ++channel) {
    const std::uint64_t end = channel + 1 < offsets.size() ? offsets[channel + 1] : bytes;
    if (offsets[channel] > end || plane > end - offsets[channel]) return false;
  }
  return true;
}

}  // namespace

bool put_audio(LinkText& text, const GstAudioMeta& meta) {
  const GstAudioInfo& info = meta.info;
  if (info.channels > max_channels) return false;
  put(text, AudioHead{GST_AUDIO_INFO_FORMAT(&info), info.rate, info.channels, info.layout, meta.samples});
  for (int channel = 0; channel < std::min(info.channels, positions); ++channel) {
    put(text, static_cast<std::int32_t>(info.position[channel]));
  }
  for (int channel = 0; info.layout == GST_AUDIO_LAYOUT_NON_INTERLEAVED && channel < info.channels; ++channel) {
    put(text, static_cast<std::uint64_t>(meta.offsets[channel]));
  }
  return true;
}

bool take_audio(GstBuffer* carrier, Reader& text, std::uint64_t bytes) {
  const auto head = text.take<AudioHead>();
  if (head.format <= GST_AUDIO_FORMAT_ENCODED || !is_known_value(GST_TYPE_AUDIO_FORMAT, head.format) ||
      head.rate <= 0 || head.channels <= 0 || head.channels > max_channels || head.layout < 0 || head.layout > 1) {
    return false;
  }
  std::vector<GstAudioChannelPosition> position;
  for (int channel = 0; channel < std::min(head.channels, positions); ++channel) {
    const auto place = text.take<std::int32_t>();
    if (!is_known_value(GST_TYPE_AUDIO_CHANNEL_POSITION, place)) return false;
    position.push_back(static_cast<GstAudioChannelPosition>(place));
  }
  const bool planar = head.layout == GST_AUDIO_LAYOUT_NON_INTERLEAVED;
  std::vector<gsize> offsets;
  for (int channel = 0; planar && channel < head.channels; ++channel) offsets.push_back(text.take<std::uint64_t>());
  if (!text.is_done() || !are_positions(position)) return false;
  GstAudioInfo info;
  gst_audio_info_set_format(&info, static_cast<GstAudioFormat>(head.format), head.rate, head.channels,
                            head.channels <= positions ? position.data() : nullptr);
  info.layout = static_cast<GstAudioLayout>(head.layout);
  const auto sample = static_cast<std::uint64_t>(GST_AUDIO_INFO_WIDTH(&info)) / 8;
  if (head.samples > bytes / sample / static_cast<std::uint64_t>(head.channels)) return false;
  if (planar && !fit(offsets, head.samples * sample, bytes)) return false;
  // GStreamer looks at how much memory there is: it is lent meanwhile. Nobody maps it.
  static gint8 nothing = 0;
  gst_buffer_append_memory(
      carrier, gst_memory_new_wrapped(GST_MEMORY_FLAG_READONLY, &nothing, bytes, 0, bytes, nullptr, nullptr));
  const GstAudioMeta* const made =
      gst_buffer_add_audio_meta(carrier, &info, head.samples, planar ? offsets.data() : nullptr);
  gst_buffer_remove_all_memory(carrier);
  GST_BUFFER_FLAG_UNSET(carrier, GST_BUFFER_FLAG_TAG_MEMORY);
  return made != nullptr;
}

}  // namespace gpumap::gst
