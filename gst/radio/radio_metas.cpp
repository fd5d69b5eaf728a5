// SPDX-License-Identifier: MIT
#include "gst/radio/radio_metas.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "gst/ptr.hpp"

namespace gpumap::gst {

namespace {

constexpr std::uint64_t most_samples = std::uint64_t{1} << 62U;
constexpr const char* radio_name = "GpumapRadio";
constexpr const char* annotation_name = "SigmfAnnotation";

using Text = std::pair<const char*, std::string SigmfAnnotation::*>;
constexpr Text annotation_texts[] = {{"label", &SigmfAnnotation::label},
                                     {"comment", &SigmfAnnotation::comment},
                                     {"generator", &SigmfAnnotation::generator},
                                     {"uuid", &SigmfAnnotation::uuid}};

GstStructure* add_custom(GstBuffer* buffer, const char* name) {
  return gst_custom_meta_get_structure(gst_buffer_add_custom_meta(buffer, name));
}

void set(GstStructure* fields, const char* name, const std::optional<double>& value) {
  if (value) gst_structure_set(fields, name, G_TYPE_DOUBLE, *value, nullptr);
}
void set(GstStructure* fields, const char* name, const std::optional<std::uint64_t>& value) {
  if (value) gst_structure_set(fields, name, G_TYPE_UINT64, guint64{*value}, nullptr);
}

std::optional<double> number(const GstStructure* fields, const char* name) {
  gdouble value = 0;
  return gst_structure_get_double(fields, name, &value) != 0 ? std::optional(value) : std::nullopt;
}
std::optional<std::uint64_t> whole(const GstStructure* fields, const char* name) {
  guint64 value = 0;
  return gst_structure_get_uint64(fields, name, &value) != 0 ? std::optional<std::uint64_t>(value) : std::nullopt;
}

/// Null: it is none.
const GstStructure* annotation_in(GstMeta* meta) {
  if (gst_meta_info_is_custom(meta->info) == 0) return nullptr;
  auto* const custom = reinterpret_cast<GstCustomMeta*>(meta);
  return gst_custom_meta_has_name(custom, annotation_name) != 0 ? gst_custom_meta_get_structure(custom) : nullptr;
}

GstCaps* unix_caps() {
  static GstCaps* const caps = [] {
    GstCaps* made = gst_caps_new_empty_simple("timestamp/x-unix");
    GST_MINI_OBJECT_FLAG_SET(made, GST_MINI_OBJECT_FLAG_MAY_BE_LEAKED);
    return made;
  }();
  return caps;
}

}  // namespace

std::optional<double> center_frequency_of(const GstStructure* fields) {
  const GValue* value = gst_structure_get_value(fields, center_frequency_field);
  if (value == nullptr) return {};
  // As a person writes it in a line: center-frequency=100000000.
  if (G_VALUE_HOLDS_INT(value)) return g_value_get_int(value);
  if (G_VALUE_HOLDS_INT64(value)) return static_cast<double>(g_value_get_int64(value));
  return number(fields, center_frequency_field);
}

void set_center_frequency(GstStructure* fields, const std::optional<double>& center) {
  gst_structure_remove_field(fields, center_frequency_field);
  set(fields, center_frequency_field, center);
}

GstStructure* samples_of(const char* media, const std::string& format, unsigned numbers, bool complex, gint rate) {
  GstStructure* made =
      gst_structure_new(media, "format", G_TYPE_STRING, format.c_str(), "layout", G_TYPE_STRING, "interleaved",
                        "channels", G_TYPE_INT, static_cast<gint>(numbers), "rate", G_TYPE_INT, rate, nullptr);
  // Else two channels are taken for I and Q.
  if (!complex && numbers > 1) gst_structure_set(made, "complex", G_TYPE_BOOLEAN, FALSE, nullptr);
  // Samples of an antenna stand nowhere in a room.
  if (numbers > 2 && gst_structure_has_name(made, "audio/x-raw") != 0) {
    gst_structure_set(made, "channel-mask", GST_TYPE_BITMASK, guint64{0}, nullptr);
  }
  return made;
}

void make_pools_hold(GstQuery* query, guint bytes) {
  for (guint i = 0; i < gst_query_get_n_allocation_pools(query); ++i) {
    GstBufferPool* pool = nullptr;
    guint size = 0;
    guint least = 0;
    guint most = 0;
    gst_query_parse_nth_allocation_pool(query, i, &pool, &size, &least, &most);
    gst_query_set_nth_allocation_pool(query, i, pool, std::max(size, bytes), least, most);
    gst_clear_object(&pool);
  }
}

GstCaps* sigmf_caps() {
  std::string formats;
  for (const SigmfDatatype& type : sigmf_datatypes) {
    formats += (formats.empty() ? "" : ",") + std::string(type.format);
  }
  return gst_caps_from_string(
      ("audio/x-raw,format={" + formats + "},layout=interleaved,channels=[1,max],rate=[1,max]").c_str());
}

void register_radio_metas() {
  static const gchar* tags[] = {nullptr};
  for (const char* name : {radio_name, annotation_name}) {
    if (gst_meta_get_info(name) == nullptr) gst_meta_register_custom(name, tags, nullptr, nullptr, nullptr);
  }
}

void add_radio(GstBuffer* buffer, const RadioSetting& setting) {
  GstStructure* fields = add_custom(buffer, radio_name);
  set(fields, center_frequency_field, setting.center_frequency);
  set(fields, "gain", setting.gain);
}

RadioSetting radio_of(GstBuffer* buffer) {
  GstCustomMeta* meta = gst_buffer_get_custom_meta(buffer, radio_name);
  if (meta == nullptr) return {};
  const GstStructure* fields = gst_custom_meta_get_structure(meta);
  return {.center_frequency = number(fields, center_frequency_field), .gain = number(fields, "gain")};
}

void retune(GstBuffer* buffer, double center_frequency) {
  GstCustomMeta* meta = gst_buffer_get_custom_meta(buffer, radio_name);
  set_center_frequency(gst_custom_meta_get_structure(meta), center_frequency);
}

void copy_annotations(GstBuffer* to, GstBuffer* from) {
  gpointer state = nullptr;
  while (GstMeta* meta = gst_buffer_iterate_meta(from, &state)) {
    const GstStructure* fields = annotation_in(meta);
    if (fields == nullptr) continue;
    GstStructure* copy = add_custom(to, annotation_name);
    for (gint i = 0; i < gst_structure_n_fields(fields); ++i) {
      const gchar* name = gst_structure_nth_field_name(fields, static_cast<guint>(i));
      gst_structure_set_value(copy, name, gst_structure_get_value(fields, name));
    }
  }
}

void drop_annotations(GstBuffer* buffer) {
  const auto drop = [](GstBuffer* /*buffer*/, GstMeta** meta, gpointer /*user*/) -> gboolean {
    if (annotation_in(*meta) != nullptr) *meta = nullptr;
    return TRUE;
  };
  gst_buffer_foreach_meta(buffer, drop, nullptr);
}

void add_annotation(GstBuffer* buffer, const SigmfAnnotation& annotation, double rate) {
  GstStructure* fields = add_custom(buffer, annotation_name);
  set(fields, "sample-start", std::optional(annotation.sample_start));
  set(fields, "sample-count", annotation.sample_count);
  set(fields, "freq-lower-edge", annotation.freq_lower_edge);
  set(fields, "freq-upper-edge", annotation.freq_upper_edge);
  set(fields, "rate", std::optional(rate));
  for (const auto& [name, member] : annotation_texts) {
    const std::string& text = annotation.*member;
    if (!text.empty()) gst_structure_set(fields, name, G_TYPE_STRING, text.c_str(), nullptr);
  }
}

std::vector<SigmfAnnotation> annotations_of(GstBuffer* buffer, double rate) {
  std::vector<SigmfAnnotation> annotations;
  gpointer state = nullptr;
  while (GstMeta* meta = gst_buffer_iterate_meta(buffer, &state)) {
    const GstStructure* fields = annotation_in(meta);
    if (fields == nullptr) continue;
    SigmfAnnotation annotation;
    annotation.sample_start = whole(fields, "sample-start").value_or(0);
    annotation.sample_count = whole(fields, "sample-count");
    annotation.freq_lower_edge = number(fields, "freq-lower-edge");
    annotation.freq_upper_edge = number(fields, "freq-upper-edge");
    for (const auto& [name, member] : annotation_texts) {
      const gchar* text = gst_structure_get_string(fields, name);
      if (text != nullptr) annotation.*member = text;
    }
    const double counted_at = number(fields, "rate").value_or(rate);
    if (counted_at != rate && counted_at > 0.0) {
      annotation.sample_start = GST_BUFFER_OFFSET_IS_VALID(buffer) ? GST_BUFFER_OFFSET(buffer) : 0;
      if (annotation.sample_count) {
        const double scaled = std::round(static_cast<double>(*annotation.sample_count) * rate / counted_at);
        annotation.sample_count = scaled < 0x1p63 ? static_cast<std::uint64_t>(scaled) : most_samples;
      }
    }
    annotations.push_back(std::move(annotation));
  }
  return annotations;
}

void add_unix_time(GstBuffer* buffer, GstClockTime ns, GstClockTime duration) {
  gst_buffer_add_reference_timestamp_meta(buffer, unix_caps(), ns, duration);
}

void move_reference_times(GstBuffer* buffer, GstClockTimeDiff ns) {
  gpointer state = nullptr;
  while (GstMeta* meta = gst_buffer_iterate_meta_filtered(buffer, &state, GST_REFERENCE_TIMESTAMP_META_API_TYPE)) {
    auto& reference = *reinterpret_cast<GstReferenceTimestampMeta*>(meta);
    const GstClockTime earlier = ns < 0 ? static_cast<GstClockTime>(-ns) : 0;
    reference.timestamp -= std::min(reference.timestamp, earlier);
    reference.timestamp += ns > 0 ? static_cast<GstClockTime>(ns) : 0;
    reference.duration = GST_BUFFER_DURATION(buffer);
  }
}

std::optional<GstClockTime> unix_time_of(GstBuffer* buffer) {
  const GstReferenceTimestampMeta* meta = gst_buffer_get_reference_timestamp_meta(buffer, unix_caps());
  return meta != nullptr ? std::optional(meta->timestamp) : std::nullopt;
}

}  // namespace gpumap::gst
