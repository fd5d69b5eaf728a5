// SPDX-License-Identifier: MIT
// Metas whose valid values are known are written and read here, although GStreamer 1.24 and later can serialise some of
// them: GStreamer's readers trust what they read, and 1.22 has none.
#include "gst/channel/meta_text.hpp"

#include <gst/audio/audio.h>
#include <gst/video/video.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "gpumap/link.hpp"
#include "gst/channel/analytics_text.hpp"
#include "gst/channel/structure_bytes.hpp"
#include "gst/ptr.hpp"

namespace gpumap::gst {
namespace {

// The text is a row of records: a kind, the number of bytes that follow, and these bytes.
enum class Kind : std::uint8_t {
  audio = 1,
  reference = 2,
  crop = 3,
  region = 4,
  time_code = 5,
  custom = 6,
  other = 7,
  video = 8,
  tensors = 9,
  relations = 10
};
constexpr std::size_t record_head = 1 + sizeof(std::uint32_t);

struct Place {
  std::uint32_t x = 0, y = 0, width = 0, height = 0;
  /// Sums fit into the int that elements calculate with.
  [[nodiscard]] bool is_sane() const {
    constexpr std::uint64_t most = std::numeric_limits<gint>::max();
    return std::uint64_t{x} + width <= most && std::uint64_t{y} + height <= most;
  }
};

// One pair of functions for each kind. put_…() writes behind the record's head; false: it cannot be written. take_…()
// reads behind the record's head; false: it is invalid.

struct AudioHead {
  std::int32_t format = 0, rate = 0, channels = 0, layout = 0;
  std::uint64_t samples = 0;
};
constexpr std::int32_t positions = 64;  // GstAudioInfo has room for these
constexpr std::int32_t max_channels = 1024;

bool are_positions(const std::vector<GstAudioChannelPosition>& position) {
  const auto is_none = [](GstAudioChannelPosition one) { return one == GST_AUDIO_CHANNEL_POSITION_NONE; };
  if (std::all_of(position.begin(), position.end(), is_none)) return true;
  if (position.size() == 1 && position[0] == GST_AUDIO_CHANNEL_POSITION_MONO) return true;
  return std::all_of(position.begin(), position.end(), [](auto one) { return one >= 0; }) &&
         gst_audio_check_valid_channel_positions(position.data(), static_cast<gint>(position.size()), FALSE) != 0;
}

/// Whether each plane lies in the frame, and no two overlap.
bool fit(std::vector<gsize> offsets, std::uint64_t plane, std::uint64_t bytes) {
  std::sort(offsets.begin(), offsets.end());
  for (std::size_t channel = 0; channel < offsets.size(); ++channel) {
    const std::uint64_t end = channel + 1 < offsets.size() ? offsets[channel + 1] : bytes;
    if (offsets[channel] > end || plane > end - offsets[channel]) return false;
  }
  return true;
}

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

bool take_audio(GstBuffer* carrier, ByteReader& text, std::uint64_t bytes) {
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
  // GStreamer checks how much memory the buffer has, so it gets some meanwhile, which is never mapped.
  static gint8 nothing = 0;
  gst_buffer_append_memory(
      carrier, gst_memory_new_wrapped(GST_MEMORY_FLAG_READONLY, &nothing, bytes, 0, bytes, nullptr, nullptr));
  const GstAudioMeta* const made =
      gst_buffer_add_audio_meta(carrier, &info, head.samples, planar ? offsets.data() : nullptr);
  gst_buffer_remove_all_memory(carrier);
  GST_BUFFER_FLAG_UNSET(carrier, GST_BUFFER_FLAG_TAG_MEMORY);
  return made != nullptr;
}

bool put_reference(LinkText& text, const GstReferenceTimestampMeta& meta, std::size_t most) {
  put(text, std::uint64_t{meta.timestamp});
  put(text, std::uint64_t{meta.duration});
  return put_caps(text, meta.reference, most);
}

bool take_reference(GstBuffer* carrier, ByteReader& text, NewNames& names) {
  const auto timestamp = text.take<std::uint64_t>();
  const auto duration = text.take<std::uint64_t>();
  if (!text.is_whole() || !GST_CLOCK_TIME_IS_VALID(timestamp)) return false;
  const Ptr<GstCaps> caps(take_caps(text, names));
  const bool names_one = caps && gst_caps_get_size(caps.get()) != 0;
  if (names_one) gst_buffer_add_reference_timestamp_meta(carrier, caps.get(), timestamp, duration);
  return names_one;
}

bool take_crop(GstBuffer* carrier, ByteReader& text) {
  const auto place = text.take<Place>();
  if (!text.is_done() || !place.is_sane()) return false;
  GstVideoCropMeta* crop = gst_buffer_add_video_crop_meta(carrier);
  crop->x = place.x;
  crop->y = place.y;
  crop->width = place.width;
  crop->height = place.height;
  return true;
}

struct RegionHead {
  Place place;
  std::int32_t id = 0, parent = 0;
};

/// Returns how many fields and parameters were left out.
unsigned put_region(LinkText& text, const GstVideoRegionOfInterestMeta& meta, std::size_t most) {
  unsigned left_out = 0;
  put(text, RegionHead{{meta.x, meta.y, meta.w, meta.h}, meta.id, meta.parent_id});
  put_text(text, g_quark_to_string(meta.roi_type));
  for (const GList* param = meta.params; param != nullptr; param = param->next) {
    const std::size_t begin = text.size();
    put(text, std::uint32_t{0});
    // The region crosses without parameters for which no room is left.
    left_out += put_structure(text, static_cast<const GstStructure*>(param->data), most);
    if (text.size() > most) {
      text.resize(begin);
      ++left_out;
      continue;
    }
    const auto length = static_cast<std::uint32_t>(text.size() - begin - sizeof(std::uint32_t));
    std::memcpy(&text[begin], &length, sizeof length);
  }
  return left_out;
}

bool take_region(GstBuffer* carrier, ByteReader& text, NewNames& names) {
  const auto head = text.take<RegionHead>();
  const char* type = text.take_text();
  std::vector<std::span<const std::byte>> params;
  while (text.is_whole() && !text.empty()) params.push_back(text.take_bytes(text.take<std::uint32_t>()));
  if (!text.is_done() || !head.place.is_sane() || (*type != '\0' && !names.admit(type))) return false;
  GstVideoRegionOfInterestMeta* region =
      gst_buffer_add_video_region_of_interest_meta_id(carrier, *type != '\0' ? g_quark_from_string(type) : 0,
                                                      head.place.x, head.place.y, head.place.width, head.place.height);
  region->id = head.id;
  region->parent_id = head.parent;
  bool whole = true;
  for (const auto& written : params) {
    ByteReader reader(written);
    Ptr<GstStructure> param(take_structure(reader, names));
    whole = whole && param;
    if (param) gst_video_region_of_interest_meta_add_param(region, param.release());
  }
  return whole;
}

struct VideoHead {
  VideoLayout layout;
  std::uint32_t flags = 0;
  std::int32_t id = 0;
};
static_assert(sizeof(VideoHead) == sizeof(VideoLayout) + 8);

bool put_video(LinkText& text, const GstVideoMeta& meta) {
  put(text, VideoHead{layout_of(meta), static_cast<std::uint32_t>(meta.flags), meta.id});
  return meta.n_planes > 0;
}

bool take_video(GstBuffer* carrier, ByteReader& text, std::uint64_t bytes) {
  constexpr std::uint32_t known_flags = GST_VIDEO_FRAME_FLAG_INTERLACED | GST_VIDEO_FRAME_FLAG_TFF |
                                        GST_VIDEO_FRAME_FLAG_RFF | GST_VIDEO_FRAME_FLAG_ONEFIELD |
                                        GST_VIDEO_FRAME_FLAG_MULTIPLE_VIEW | GST_VIDEO_FRAME_FLAG_FIRST_IN_BUNDLE;
  const auto head = text.take<VideoHead>();
  if (!text.is_done() || !fits(head.layout, bytes)) return false;
  add_video_meta(carrier, head.layout, static_cast<GstVideoFrameFlags>(head.flags & known_flags))->id = head.id;
  return true;
}

struct TimeCodeHead {
  std::uint32_t fps_n = 0, fps_d = 0, flags = 0, hours = 0, minutes = 0, seconds = 0, frames = 0, fields = 0;
};

void put_time_code(LinkText& text, const GstVideoTimeCode& code) {
  const GstVideoTimeCodeConfig& config = code.config;
  put(text, TimeCodeHead{config.fps_n, config.fps_d, config.flags, code.hours, code.minutes, code.seconds, code.frames,
                         code.field_count});
  GDateTime* const jam = config.latest_daily_jam;
  put_and_free(text, jam != nullptr ? g_date_time_format_iso8601(jam) : nullptr);
}

bool take_time_code(GstBuffer* carrier, ByteReader& text) {
  const auto head = text.take<TimeCodeHead>();
  const char* written = text.take_text();
  constexpr std::uint32_t known_flags = GST_VIDEO_TIME_CODE_FLAGS_DROP_FRAME | GST_VIDEO_TIME_CODE_FLAGS_INTERLACED;
  if (!text.is_done() || (head.flags & ~known_flags) != 0) return false;
  const Ptr<GDateTime> jam(*written != '\0' ? g_date_time_new_from_iso8601(written, nullptr) : nullptr);
  constexpr int last_year = 9998;  // GStreamer adds days to it, and no date is behind 9999
  if (jam && g_date_time_get_year(jam.get()) > last_year) return false;
  bool known = *written == '\0' || jam;
  GstVideoTimeCode* code =
      gst_video_time_code_new(head.fps_n, head.fps_d, jam.get(), static_cast<GstVideoTimeCodeFlags>(head.flags),
                              head.hours, head.minutes, head.seconds, head.frames, head.fields);
  known = known && gst_video_time_code_is_valid(code) != 0;
  if (known) gst_buffer_add_video_time_code_meta(carrier, code);
  gst_video_time_code_free(code);
  return known;
}

unsigned put_custom(LinkText& text, GstMeta* meta, std::size_t most) {
  put_text(text, g_type_name(meta->info->type));
  return put_structure(text, gst_custom_meta_get_structure(reinterpret_cast<GstCustomMeta*>(meta)), most);
}

bool take_custom(GstBuffer* carrier, ByteReader& text, NewNames& names) {
  const char* name = text.take_text();
  if (!text.is_whole()) return false;
  const GstMetaInfo* info = gst_meta_get_info(name);
  if (info == nullptr) return true;  // unknown in this process
  const Ptr<GstStructure> structure(take_structure(text, names));
  if (!structure || gst_meta_info_is_custom(info) == 0) return false;
  GstCustomMeta* meta = gst_buffer_add_custom_meta(carrier, name);
  gst_structure_foreach(
      structure.get(),
      [](GQuark field, const GValue* value, gpointer to) -> gboolean {
        gst_structure_id_set_value(static_cast<GstStructure*>(to), field, value);
        return TRUE;
      },
      gst_custom_meta_get_structure(meta));
  return true;
}

#if GST_CHECK_VERSION(1, 24, 0)
bool put_other(LinkText& text, const GstMeta* meta) {
  const Ptr<GByteArray> bytes(g_byte_array_new());
  const bool written = gst_meta_serialize_simple(meta, bytes.get()) != 0;
  const auto* begin = reinterpret_cast<const std::byte*>(bytes->data);
  if (written) text.insert(text.end(), begin, begin + bytes->len);
  return written;
}

bool is_written_by_hand(const GstMetaInfo& info) {
  const GType types[] = {
      GST_AUDIO_META_API_TYPE,      GST_REFERENCE_TIMESTAMP_META_API_TYPE,      GST_VIDEO_META_API_TYPE,
      GST_VIDEO_CROP_META_API_TYPE, GST_VIDEO_REGION_OF_INTEREST_META_API_TYPE, GST_VIDEO_TIME_CODE_META_API_TYPE};
  return gst_meta_info_is_custom(&info) != 0 ||
         std::find(std::begin(types), std::end(types), info.api) != std::end(types);
}

/// Calls the meta's own reader, GStreamer's or an application's. The lengths before its bytes are checked here, because
/// GStreamer adds them without a check of their size.
bool take_other(GstBuffer* carrier, std::span<const std::byte> text) {
  ByteReader head(text);
  const auto total = GUINT32_FROM_LE(head.take<guint32>());
  const auto length = GUINT32_FROM_LE(head.take<guint32>());
  const char* name = head.take_text();
  (void)head.take<std::uint8_t>();  // a version
  if (!head.is_whole() || total != text.size() || length != std::strlen(name)) return false;
  const GstMetaInfo* info = gst_meta_get_info(name);
  if (info == nullptr || info->deserialize_func == nullptr) return true;  // unknown in this process
  guint32 consumed = 0;
  return !is_written_by_hand(*info) &&
         gst_meta_deserialize(carrier, reinterpret_cast<const guint8*>(text.data()), text.size(), &consumed) != nullptr;
}
#else
bool put_other(LinkText& /*text*/, const GstMeta* /*meta*/) {
  return false;
}
bool take_other(GstBuffer* /*carrier*/, std::span<const std::byte> /*text*/) {
  return true;
}
#endif

/// Writes at most `most` bytes, leaving out fields where the meta allows that. False: it does not cross.
bool put_record(LinkText& text, GstMeta* meta, std::size_t most, unsigned& fields_left_out) {
  const GType api = meta->info->api;
  text.resize(record_head);
  const auto head = [&](Kind kind) { text[0] = static_cast<std::byte>(kind); };
  if (api == GST_AUDIO_META_API_TYPE) {
    head(Kind::audio);
    return put_audio(text, *reinterpret_cast<GstAudioMeta*>(meta));
  }
  if (api == GST_REFERENCE_TIMESTAMP_META_API_TYPE) {
    head(Kind::reference);
    return put_reference(text, *reinterpret_cast<GstReferenceTimestampMeta*>(meta), most);
  }
  if (api == GST_VIDEO_META_API_TYPE) {
    head(Kind::video);
    return put_video(text, *reinterpret_cast<GstVideoMeta*>(meta));
  }
  if (api == GST_VIDEO_CROP_META_API_TYPE) {
    head(Kind::crop);
    const auto& crop = *reinterpret_cast<GstVideoCropMeta*>(meta);
    put(text, Place{crop.x, crop.y, crop.width, crop.height});
  } else if (api == GST_VIDEO_REGION_OF_INTEREST_META_API_TYPE) {
    head(Kind::region);
    fields_left_out = put_region(text, *reinterpret_cast<GstVideoRegionOfInterestMeta*>(meta), most);
  } else if (api == GST_VIDEO_TIME_CODE_META_API_TYPE) {
    head(Kind::time_code);
    put_time_code(text, reinterpret_cast<GstVideoTimeCodeMeta*>(meta)->tc);
  } else if (gst_meta_info_is_custom(meta->info) != 0) {
    head(Kind::custom);
    fields_left_out = put_custom(text, meta, most);
  } else if (const GstTensorMeta* const tensors = tensors_in(meta)) {
    head(Kind::tensors);
    return put_tensors(text, *tensors, most);
  } else if (GstAnalyticsRelationMeta* const relations = relations_in(meta)) {
    head(Kind::relations);
    fields_left_out = put_relations(text, relations, most);
  } else {
    head(Kind::other);
    return put_other(text, meta);
  }
  return true;
}

bool take_record(GstBuffer* carrier, Kind kind, std::span<const std::byte> text, std::uint64_t bytes, NewNames& names) {
  ByteReader reader(text);
  switch (kind) {
    case Kind::audio:
      return take_audio(carrier, reader, bytes);
    case Kind::reference:
      return take_reference(carrier, reader, names);
    case Kind::crop:
      return take_crop(carrier, reader);
    case Kind::region:
      return take_region(carrier, reader, names);
    case Kind::time_code:
      return take_time_code(carrier, reader);
    case Kind::custom:
      return take_custom(carrier, reader, names);
    case Kind::other:
      return take_other(carrier, text);
    case Kind::video:
      return take_video(carrier, reader, bytes);
    case Kind::tensors:
      return take_tensors(carrier, reader, names);
    case Kind::relations:
      return take_relations(carrier, reader, names);
  }
  return false;
}

}  // namespace

MetaText text_of_metas(GstBuffer* buffer, std::size_t most) {
  MetaText metas;
  LinkText record;
  const auto* const layout = reinterpret_cast<const GstMeta*>(layout_meta_of(buffer));
  gpointer state = nullptr;
  while (GstMeta* meta = gst_buffer_iterate_meta(buffer, &state)) {
    if (meta == layout) continue;
    record.clear();
    const std::size_t room = most - metas.text.size();
    unsigned fields_left_out = 0;
    const bool written = put_record(record, meta, room, fields_left_out) && record.size() <= room;
    if (!written || fields_left_out > 0) ++metas.left_out;
    if (!written) continue;
    const auto length = static_cast<std::uint32_t>(record.size() - record_head);
    std::memcpy(&record[1], &length, sizeof length);
    metas.text.insert(metas.text.end(), record.begin(), record.end());
  }
  return metas;
}

bool add_metas(GstBuffer* carrier, std::span<const std::byte> text, std::uint64_t bytes, NewNames& names) {
  bool all = true;
  for (ByteReader reader(text); !reader.empty();) {
    const auto kind = reader.take<Kind>();
    const auto record = reader.take_bytes(reader.take<std::uint32_t>());
    if (!reader.is_whole()) return false;
    all = take_record(carrier, kind, record, bytes, names) && all;
  }
  return all;
}

}  // namespace gpumap::gst
