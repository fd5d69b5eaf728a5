// SPDX-License-Identifier: MIT
// Metas of frames by their number, and what a frame's metas say as text.
#pragma once

#include <gst/audio/audio.h>
#include <gst/video/video.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "pipeline.hpp"

namespace gpumap::gst::test {

inline constexpr const char* custom_name = "GpumapLinkTestMeta";
/// Some elements keep what they know of a frame in a meta of their own: it stays in its process.
inline constexpr const char* private_name = "GpumapLinkTestPrivate";

inline void register_metas() {
  static const gchar* tags[] = {nullptr};
  static const auto* const custom = gst_meta_register_custom(custom_name, tags, nullptr, nullptr, nullptr);
  static const auto* const hidden = gst_meta_register(
      gst_meta_api_type_register("GpumapLinkTestPrivateAPI", tags), private_name, sizeof(GstMeta),
      [](GstMeta*, gpointer, GstBuffer*) -> gboolean { return TRUE; }, nullptr,
      [](GstBuffer*, GstMeta*, GstBuffer*, GQuark, gpointer) -> gboolean { return TRUE; });
  ASSERT_NE(custom, nullptr);
  ASSERT_NE(hidden, nullptr);
}

/// Those of frame `n`: every third has none.
inline void give_metas(GstBuffer* buffer, std::uint64_t n) {
  const auto small = static_cast<guint>(n % 20);
  if (n % 3 == 0) return;
  for (const char* const clock : {"timestamp/x-unix", "timestamp/x-ntp,mine=(string)\"a, b\""}) {
    gst_buffer_add_reference_timestamp_meta(buffer, new_caps(clock).get(), 1718000000000000000 + n,
                                            n % 2 == 0 ? n : GST_CLOCK_TIME_NONE);
  }
  GstVideoCropMeta* crop = gst_buffer_add_video_crop_meta(buffer);
  crop->x = small;
  crop->y = 2 * small;
  crop->width = 7;
  crop->height = 9 + small;
  for (guint region = 0; region < small; ++region) {
    auto* roi = gst_buffer_add_video_region_of_interest_meta(buffer, region % 2 == 0 ? "face" : "käse", region, small,
                                                             30, 40 + small);
    roi->id = static_cast<gint>(n);
    roi->parent_id = -static_cast<gint>(region);
    for (guint param = 0; param < region % 3; ++param) {
      gst_video_region_of_interest_meta_add_param(
          roi, gst_structure_new("detection", "score", G_TYPE_DOUBLE, 1.0 / (small + 1), "label", G_TYPE_STRING,
                                 "a [b] {c} <d>", nullptr));
    }
  }
  GDateTime* jam = g_date_time_new_from_iso8601("2026-02-03T04:05:06.789012+05:30", nullptr);
  const GstVideoTimeCodeFlags flags =
      n % 2 == 0 ? GST_VIDEO_TIME_CODE_FLAGS_NONE : GST_VIDEO_TIME_CODE_FLAGS_INTERLACED;
  GstVideoTimeCode* code = gst_video_time_code_new(25, 1, n % 5 == 0 ? nullptr : jam, flags, 23, small, 59, small, 1);
  gst_buffer_add_video_time_code_meta(buffer, code);
  gst_video_time_code_free(code);
  g_date_time_unref(jam);
  GstStructure* structure = gst_custom_meta_get_structure(gst_buffer_add_custom_meta(buffer, custom_name));
  gst_structure_set(structure, "n", G_TYPE_UINT64, n, "text", G_TYPE_STRING, "x, y=(int){ 1 }", nullptr);
}

inline std::string taken(gchar* text) {
  std::string copy = text != nullptr ? text : "none";
  g_free(text);
  return copy;
}

inline std::string text_of_meta(GstMeta* meta) {
  const GType api = meta->info->api;
  std::string text = g_type_name(meta->info->type);
  const auto add = [&](const auto&... values) { ((text += " " + std::to_string(values)), ...); };
  if (api == GST_REFERENCE_TIMESTAMP_META_API_TYPE) {
    const auto& one = *reinterpret_cast<GstReferenceTimestampMeta*>(meta);
    add(one.timestamp, one.duration);
    text += taken(gst_caps_to_string(one.reference));
  } else if (api == GST_VIDEO_CROP_META_API_TYPE) {
    const auto& one = *reinterpret_cast<GstVideoCropMeta*>(meta);
    add(one.x, one.y, one.width, one.height);
  } else if (api == GST_VIDEO_REGION_OF_INTEREST_META_API_TYPE) {
    const auto& one = *reinterpret_cast<GstVideoRegionOfInterestMeta*>(meta);
    add(one.x, one.y, one.w, one.h, one.id, one.parent_id);
    text += one.roi_type != 0 ? g_quark_to_string(one.roi_type) : "";
    for (GList* param = one.params; param != nullptr; param = param->next) {
      text += taken(gst_structure_to_string(static_cast<GstStructure*>(param->data)));
    }
  } else if (api == GST_VIDEO_TIME_CODE_META_API_TYPE) {
    const GstVideoTimeCode& one = reinterpret_cast<GstVideoTimeCodeMeta*>(meta)->tc;
    GDateTime* const jam = one.config.latest_daily_jam;
    add(one.config.fps_n, one.config.fps_d, static_cast<int>(one.config.flags), one.hours, one.minutes, one.seconds,
        one.frames, one.field_count);
    text += jam != nullptr ? taken(g_date_time_format_iso8601(jam)) : "";
  } else if (api == GST_AUDIO_META_API_TYPE) {
    const auto& one = *reinterpret_cast<GstAudioMeta*>(meta);
    add(static_cast<int>(GST_AUDIO_INFO_FORMAT(&one.info)), one.info.rate, one.info.channels,
        static_cast<int>(one.info.layout), static_cast<int>(one.info.flags), one.samples);
    for (int channel = 0; channel < one.info.channels; ++channel) {
      if (channel < 64) add(static_cast<int>(one.info.position[channel]));
      if (one.info.layout == GST_AUDIO_LAYOUT_NON_INTERLEAVED) add(one.offsets[channel]);
    }
  } else if (gst_meta_info_is_custom(meta->info) != 0) {
    text += taken(gst_structure_to_string(gst_custom_meta_get_structure(reinterpret_cast<GstCustomMeta*>(meta))));
  }
  return text;
}

inline std::string metas_of(GstBuffer* buffer) {
  std::vector<std::string> lines;
  gpointer state = nullptr;
  while (GstMeta* meta = gst_buffer_iterate_meta(buffer, &state)) lines.push_back(text_of_meta(meta) + "\n");
  std::sort(lines.begin(), lines.end());
  std::string text;
  for (const std::string& line : lines) text += line;
  return text;
}
inline std::string metas_of_frame(std::uint64_t n) {
  const Buffer wanted(gst_buffer_new());
  give_metas(wanted.get(), n);
  return metas_of(wanted.get());
}

/// Of `channels` planes in any order, with a gap behind each.
inline Buffer planar_audio(int channels, std::size_t samples, std::uint64_t seed) {
  constexpr std::size_t gap = 24;
  const std::size_t plane = samples * sizeof(float);
  Buffer buffer = new_buffer(random_data(static_cast<std::size_t>(channels) * (plane + gap), seed), 0);
  GstAudioInfo info;
  gst_audio_info_set_format(&info, GST_AUDIO_FORMAT_F32LE, 48000, channels, nullptr);
  info.layout = GST_AUDIO_LAYOUT_NON_INTERLEAVED;
  std::vector<gsize> offsets;
  for (int channel = 0; channel < channels; ++channel) {
    offsets.push_back(static_cast<std::size_t>(channels - 1 - channel) * (plane + gap));
  }
  gst_buffer_add_audio_meta(buffer.get(), &info, samples, offsets.data());
  return buffer;
}

}  // namespace gpumap::gst::test
