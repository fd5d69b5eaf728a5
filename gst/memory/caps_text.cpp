// SPDX-License-Identifier: MIT
#include "gst/memory/caps_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>
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

/// A kind of stream: its name, memory that is not offered, and the fields in which `other` differs.
std::string kind(const GstStructure* one, const GstCapsFeatures* features, const GstStructure* other) {
  std::string text = gst_structure_get_name(one);
  const bool offered_memory = gst_caps_features_is_equal(features, GST_CAPS_FEATURES_MEMORY_SYSTEM_MEMORY) ||
                              gst_caps_features_contains(features, feature_name);
  if (!offered_memory) {
    text += fmt::format("({})", text_of(gst_caps_features_to_string(features)));
  }
  if (!gst_structure_has_name(other, gst_structure_get_name(one))) return text;
  for (gint i = 0; i < gst_structure_n_fields(one); ++i) {
    const gchar* field = gst_structure_nth_field_name(one, static_cast<guint>(i));
    const GValue* wanted = gst_structure_get_value(one, field);
    const GValue* offered = gst_structure_get_value(other, field);
    if (offered != nullptr && !gst_value_intersect(nullptr, offered, wanted)) {
      text += fmt::format(", {}={}", field, text_of(wanted));
    }
  }
  return text;
}

}  // namespace

std::string kinds_text(const GstCaps* caps, const GstStructure* other) {
  std::vector<std::string> all;
  for (guint i = 0; i < gst_caps_get_size(caps) && all.size() < max_kinds; ++i) {
    std::string one = kind(gst_caps_get_structure(caps, i), gst_caps_get_features(caps, i), other);
    if (std::find(all.begin(), all.end(), one) == all.end()) all.push_back(std::move(one));
  }
  return fmt::format("{}", fmt::join(all, "; or "));
}

}  // namespace gpumap::gst
