// SPDX-License-Identifier: MIT
#include "gst/src/caps_error.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gst/video/video.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "gst/memory/memory_caps.hpp"
#include "gst/ptr.hpp"

namespace gpumap::gst {

namespace {

// Elements that take everything list a hundred formats: a few tell as much.
constexpr std::size_t longest_value = 120;
constexpr std::size_t max_kinds = 4;

/// Takes it.
std::string text_of(gchar* text) {
  const Ptr<gchar> owned(text);
  return text != nullptr ? text : "";
}

std::string text_of(const GValue* value) {
  std::string text = text_of(gst_value_serialize(value));
  constexpr std::string_view type = "(string)";
  for (std::size_t at = 0; (at = text.find(type, at)) != std::string::npos;) text.erase(at, type.size());
  if (text.size() > longest_value) text = text.substr(0, text.rfind(',', longest_value)) + ", ... }";
  return text;
}

/// A kind of stream that downstream takes: its name, memory that is not offered, and the fields in which `ours`
/// differs.
std::string kind(const GstStructure* takes, const GstCapsFeatures* features, const GstStructure* ours) {
  std::string text = gst_structure_get_name(takes);
  const bool offered_memory = gst_caps_features_is_equal(features, GST_CAPS_FEATURES_MEMORY_SYSTEM_MEMORY) ||
                              gst_caps_features_contains(features, feature_name);
  if (!offered_memory) {
    text += fmt::format("({})", text_of(gst_caps_features_to_string(features)));
  }
  if (!gst_structure_has_name(ours, gst_structure_get_name(takes))) return text;
  for (gint i = 0; i < gst_structure_n_fields(takes); ++i) {
    const gchar* field = gst_structure_nth_field_name(takes, static_cast<guint>(i));
    const GValue* wanted = gst_structure_get_value(takes, field);
    const GValue* offered = gst_structure_get_value(ours, field);
    if (offered != nullptr && !gst_value_intersect(nullptr, offered, wanted)) {
      text += fmt::format(", {}={}", field, text_of(wanted));
    }
  }
  return text;
}

std::vector<std::string> kinds(const GstCaps* takes, const GstStructure* ours) {
  std::vector<std::string> all;
  for (guint i = 0; i < gst_caps_get_size(takes) && all.size() < max_kinds; ++i) {
    std::string one = kind(gst_caps_get_structure(takes, i), gst_caps_get_features(takes, i), ours);
    if (std::find(all.begin(), all.end(), one) == all.end()) all.push_back(std::move(one));
  }
  return all;
}

/// No structure is of our media type, though there are some.
bool taken_media_differ(const GstCaps* takes, const GstStructure* ours) {
  for (guint i = 0; i < gst_caps_get_size(takes); ++i) {
    if (gst_structure_has_name(gst_caps_get_structure(takes, i), gst_structure_get_name(ours))) return false;
  }
  return gst_caps_get_size(takes) != 0;
}

/// Encoded streams carry bytes that tell a reader nothing.
Ptr<GstCaps> without_headers(const GstCaps* caps) {
  GstCaps* copy = gst_caps_copy(caps);
  gst_structure_remove_fields(gst_caps_get_structure(copy, 0), "codec_data", "streamheader", nullptr);
  return Ptr<GstCaps>(copy);
}

}  // namespace

std::string refusal_text(GstPad* pad, const GstCaps* caps, const ElementNames& names) {
  const GstStructure* ours = gst_caps_get_structure(caps, 0);
  const Ptr<GstCaps> takes(gst_pad_peer_query_caps(pad, nullptr));
  const auto taken = kinds(takes.get(), ours);
  const bool is_other_media = taken_media_differ(takes.get(), ours);
  const char* remedy = "the element that makes that (videoconvert, audioconvert, a decoder)";
  if (gst_structure_has_name(ours, "video/x-raw"))
    remedy = is_other_media ? "what makes that of video" : "videoconvert";
  if (gst_structure_has_name(ours, "audio/x-raw"))
    remedy = is_other_media ? "what makes that of audio" : "audioconvert";
  if (gst_structure_has_name(ours, bytes_name)) remedy = "the element that knows the bytes (rawvideoparse, a decoder)";
  std::string advice = fmt::format("put {} before {}", remedy, names.takes);
  // No element of GStreamer's joins single fields to a picture.
  if (has_feature(gst_caps_get_features(caps, 0), GST_CAPS_FEATURE_FORMAT_INTERLACED)) {
    advice = "set upstream to give both fields in one frame (interlace-mode=interleaved)";
  }
  return fmt::format("what follows {} does not take {}; it takes {}: {}", names.gives,
                     text_of(gst_caps_to_string(without_headers(caps).get())),
                     taken.empty() ? "nothing" : fmt::format("{}", fmt::join(taken, "; or ")), advice);
}

}  // namespace gpumap::gst
