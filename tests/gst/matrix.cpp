// SPDX-License-Identifier: MIT
#include "matrix.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <mutex>
#include <ostream>

namespace gpumap::gst::test {

namespace {

/// A critical message fails the case that had it, not the whole program, as G_DEBUG=fatal-criticals would.
class Complaints {
 public:
  Complaints() : fatal_(g_log_set_always_fatal(G_LOG_LEVEL_ERROR)), handler_(g_log_set_default_handler(note, this)) {}
  ~Complaints() {
    g_log_set_default_handler(handler_, nullptr);
    g_log_set_always_fatal(fatal_);
  }
  Complaints(const Complaints&) = delete;
  Complaints& operator=(const Complaints&) = delete;

  [[nodiscard]] std::string text() {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  static void note(const gchar* domain, GLogLevelFlags level, const gchar* message, gpointer user) {
    if ((static_cast<unsigned>(level) & (G_LOG_LEVEL_CRITICAL | G_LOG_LEVEL_WARNING)) == 0) return;
    auto* self = static_cast<Complaints*>(user);
    const std::lock_guard lock(self->mutex_);
    if (self->text_.size() < 1000) self->text_ += fmt::format("{}: {}\n", domain != nullptr ? domain : "", message);
  }

  std::mutex mutex_;
  std::string text_;
  GLogLevelFlags fatal_;
  GLogFunc handler_;
};

std::string time_text(GstClockTime time) {
  return GST_CLOCK_TIME_IS_VALID(time) ? fmt::to_string(time) : "none";
}

/// The samples of a picture and nothing else: padding behind rows, and the bytes of half a macropixel that no pixel
/// uses, may hold anything.
Data picture_of(GstVideoFrame& frame) {
  const GstVideoFormatInfo* format = frame.info.finfo;
  Data picture;
  const auto append = [&](const guint8* from, std::size_t bytes) {
    const auto* data = reinterpret_cast<const std::byte*>(from);
    picture.insert(picture.end(), data, data + bytes);
  };
  for (guint component = 0; component < GST_VIDEO_FORMAT_INFO_N_COMPONENTS(format); ++component) {
    const auto width = static_cast<std::size_t>(GST_VIDEO_FRAME_COMP_WIDTH(&frame, component));
    const auto pixel = static_cast<std::size_t>(GST_VIDEO_FRAME_COMP_PSTRIDE(&frame, component));
    const std::size_t bytes =
        (GST_VIDEO_FORMAT_INFO_DEPTH(format, component) + GST_VIDEO_FORMAT_INFO_SHIFT(format, component) + 7) / 8;
    const auto* data = static_cast<const guint8*>(GST_VIDEO_FRAME_COMP_DATA(&frame, component));
    for (gint y = 0; y < GST_VIDEO_FRAME_COMP_HEIGHT(&frame, component); ++y) {
      const guint8* row = data + static_cast<std::ptrdiff_t>(y) * GST_VIDEO_FRAME_COMP_STRIDE(&frame, component);
      if (pixel == 0) {  // v210: six pixels in four words
        append(row, (width + 5) / 6 * 16);
      } else if (pixel == bytes) {
        append(row, width * bytes);
      } else {
        for (std::size_t x = 0; x < width; ++x) append(row + x * pixel, bytes);
      }
    }
  }
  if (GST_VIDEO_FORMAT_INFO_HAS_PALETTE(format)) {
    append(static_cast<const guint8*>(GST_VIDEO_FRAME_PLANE_DATA(&frame, 1)), std::size_t{256} * 4);
  }
  return picture;
}

std::string text_of(gchar* made) {
  std::string text = made;
  g_free(made);
  return text;
}

/// Fields by name: which element filled in which of them first is no one's business.
std::string sorted_text(const GstCaps* caps) {
  const GstStructure* structure = gst_caps_get_structure(caps, 0);
  std::vector<std::string> fields;
  for (gint i = 0; i < gst_structure_n_fields(structure); ++i) {
    const gchar* name = gst_structure_nth_field_name(structure, static_cast<guint>(i));
    fields.push_back(std::string(name) + "=" + text_of(gst_value_serialize(gst_structure_get_value(structure, name))));
  }
  std::sort(fields.begin(), fields.end());
  std::string text = gst_structure_get_name(structure);
  const GstCapsFeatures* features = gst_caps_get_features(caps, 0);
  if (!gst_caps_features_is_equal(features, GST_CAPS_FEATURES_MEMORY_SYSTEM_MEMORY)) {
    text += "(" + text_of(gst_caps_features_to_string(features)) + ")";
  }
  for (const std::string& field : fields) text += ", " + field;
  return text;
}

std::uint64_t content_of(GstBuffer* buffer, const GstCaps* caps) {
  GstVideoInfo info;
  GstVideoFrame frame;
  const GstStructure* structure = caps != nullptr ? gst_caps_get_structure(caps, 0) : nullptr;
  if (structure != nullptr && gst_structure_has_name(structure, "video/x-raw") &&
      gst_video_info_from_caps(&info, caps) != FALSE &&
      gst_video_frame_map(&frame, &info, buffer, GST_MAP_READ) != FALSE) {
    const Data picture = picture_of(frame);
    gst_video_frame_unmap(&frame);
    return checksum_of(picture);
  }
  return checksum_of(data_of(buffer));
}

/// Rows where the caps put them, for sinks such as filesink, which write a buffer as it is.
bool is_tight(GstBuffer* buffer, const GstCaps* caps) {
  GstVideoInfo info;
  const GstVideoMeta* meta = gst_buffer_get_video_meta(buffer);
  if (meta == nullptr || caps == nullptr || gst_video_info_from_caps(&info, caps) == FALSE) return true;
  for (guint plane = 0; plane < meta->n_planes; ++plane) {
    if (meta->stride[plane] != info.stride[plane] || meta->offset[plane] != info.offset[plane]) return false;
  }
  return true;
}

class Recorder {
 public:
  explicit Recorder(Compared compared) : compared_(compared) {}

  void watch(GstElement* out) {
    const Pad pad(gst_element_get_static_pad(out, "sink"));
    const auto types = static_cast<unsigned>(GST_PAD_PROBE_TYPE_BUFFER) | GST_PAD_PROBE_TYPE_BUFFER_LIST |
                       GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM | GST_PAD_PROBE_TYPE_EVENT_FLUSH;
    gst_pad_add_probe(pad.get(), static_cast<GstPadProbeType>(types), note, this, nullptr);
  }
  [[nodiscard]] Record take() {
    const std::lock_guard lock(mutex_);
    return record_;
  }

 private:
  static GstPadProbeReturn note(GstPad* pad, GstPadProbeInfo* info, gpointer user) {
    auto* self = static_cast<Recorder*>(user);
    const std::lock_guard lock(self->mutex_);
    const Caps caps(gst_pad_get_current_caps(pad));
    if ((info->type & GST_PAD_PROBE_TYPE_BUFFER) != 0) {
      self->add(GST_PAD_PROBE_INFO_BUFFER(info), caps.get());
    } else if ((info->type & GST_PAD_PROBE_TYPE_BUFFER_LIST) != 0) {
      GstBufferList* list = GST_PAD_PROBE_INFO_BUFFER_LIST(info);
      for (guint i = 0; i < gst_buffer_list_length(list); ++i) self->add(gst_buffer_list_get(list, i), caps.get());
    } else {
      self->add(GST_PAD_PROBE_INFO_EVENT(info));
    }
    return GST_PAD_PROBE_OK;
  }

  void add(GstBuffer* buffer, const GstCaps* caps) {
    ++record_.frames;
    // Whether memory was changed since a pool gave it says nothing about the frame.
    const unsigned flags = GST_BUFFER_FLAGS(buffer) & ~static_cast<unsigned>(GST_BUFFER_FLAG_TAG_MEMORY);
    std::string line = fmt::format("frame pts={} dts={} duration={} flags={:x}", time_text(GST_BUFFER_PTS(buffer)),
                                   time_text(GST_BUFFER_DTS(buffer)), time_text(GST_BUFFER_DURATION(buffer)), flags);
    if (compared_ != Compared::times) {
      line += fmt::format(" offset={} end={} size={}{}", time_text(GST_BUFFER_OFFSET(buffer)),
                          time_text(GST_BUFFER_OFFSET_END(buffer)), gst_buffer_get_size(buffer),
                          is_tight(buffer, caps) ? "" : " padded");
    }
    if (compared_ == Compared::bytes) line += fmt::format(" content={:016x}", content_of(buffer, caps));
    record_.lines.push_back(line + metas_of(buffer));
  }

  /// All but the two that tell where the bytes lie.
  static std::string metas_of(GstBuffer* buffer) {
    std::vector<std::string> names;
    gpointer state = nullptr;
    while (GstMeta* meta = gst_buffer_iterate_meta(buffer, &state)) {
      if (meta->info->api != GST_VIDEO_META_API_TYPE && meta->info->api != GST_PARENT_BUFFER_META_API_TYPE) {
        names.emplace_back(g_type_name(meta->info->api));
      }
    }
    std::sort(names.begin(), names.end());
    std::string text;
    for (const std::string& name : names) text += " +" + name;
    return text;
  }

  void add(GstEvent* event) {
    std::string line = GST_EVENT_TYPE_NAME(event);
    // Decoders with threads tell the bit rate at one frame or at the next.
    if (GST_EVENT_TYPE(event) == GST_EVENT_TAG && compared_ == Compared::times) return;
    if (GST_EVENT_TYPE(event) == GST_EVENT_SEGMENT) {
      const GstSegment* segment = nullptr;
      gst_event_parse_segment(event, &segment);
      const bool places = segment->format == GST_FORMAT_BYTES;
      if (places && compared_ == Compared::times) {
        record_.lines.push_back(line + " bytes");
        return;
      }
      line += fmt::format(" {} flags={:x} rate={} applied={} base={} offset={} start={} stop={} time={} duration={}",
                          gst_format_get_name(segment->format), static_cast<unsigned>(segment->flags), segment->rate,
                          segment->applied_rate, segment->base, segment->offset, segment->start,
                          time_text(segment->stop), time_text(segment->time), time_text(segment->duration));
    } else if (GST_EVENT_TYPE(event) == GST_EVENT_CAPS) {
      GstCaps* caps = nullptr;
      gst_event_parse_caps(event, &caps);
      // Caps that others replace before a frame came were never anyone's.
      const bool replaces = !record_.lines.empty() && record_.lines.back() == line;
      if (replaces) {
        record_.lines.pop_back();
        record_.caps.pop_back();
      }
      record_.caps.push_back(sorted_text(caps));
      // A muxer's have a header in them, with the date.
      if (compared_ != Compared::bytes) record_.caps.back() = gst_structure_get_name(gst_caps_get_structure(caps, 0));
    } else if (GST_EVENT_TYPE(event) == GST_EVENT_GAP ||
               (GST_EVENT_TYPE(event) == GST_EVENT_TAG && compared_ == Compared::bytes)) {
      line += ' ' + text_of(gst_structure_to_string(gst_event_get_structure(event)));
    }
    record_.lines.push_back(line);
  }

  const Compared compared_;
  std::mutex mutex_;
  Record record_;
};

/// The first line that differs, with the one before it.
std::string difference(const Record& expected, const Record& got) {
  const std::size_t both = std::min(expected.lines.size(), got.lines.size());
  std::size_t at = 0;
  while (at < both && expected.lines[at] == got.lines[at]) ++at;
  const auto line = [at](const Record& record) { return at < record.lines.size() ? record.lines[at] : "(nothing)"; };
  return fmt::format("line {} of {} and {}, behind \"{}\"\n  queue:  {}\n  gpumap: {}", at, expected.lines.size(),
                     got.lines.size(), at > 0 ? expected.lines[at - 1] : "", line(expected), line(got));
}

}  // namespace

std::string play(Pipeline& pipeline) {
  return pipeline.run();
}

Record record_of(const std::string& description, Compared compared, const Act& act) {
  Recorder recorder(compared);  // outlives the pipeline
  Pipeline pipeline(description);
  recorder.watch(pipeline.element("out"));
  const std::string verdict = act(pipeline);
  pipeline.stop();
  Record record = recorder.take();
  record.verdict = verdict;
  return record;
}

std::string with_queue(std::string text) {
  for (std::size_t at = 0; (at = text.find("$MAP", at)) != std::string::npos;) text.replace(at, 4, "queue");
  return text;
}

namespace {

/// GPUMAP_MATRIX, see with_gpumap(); empty where it is not set.
std::string form() {
  const char* set = std::getenv("GPUMAP_MATRIX");
  return set != nullptr ? set : "";
}

}  // namespace

std::string with_gpumap(std::string text, const std::string& options) {
  for (std::size_t at = 0; (at = text.find("$MAP", at)) != std::string::npos;) {
    std::string elements = on_new_channel("gpumapsink $CHANNEL " + options + " gpumapsrc $CHANNEL");
    if (form() == "upload") elements = "gpumapupload " + options;
    if (form() == "download") elements = "gpumapupload " + options + " ! gpumapdownload";
    text.replace(at, 4, elements);
  }
  return text;
}

void expect_same(const Record& expected, const Record& got) {
  EXPECT_EQ(got.verdict, expected.verdict) << got.frames << " frames of " << expected.frames;
  EXPECT_EQ(got.lines == expected.lines, true) << difference(expected, got);
  EXPECT_EQ(got.caps, expected.caps);
}

void expect_same_as_queue(const Case& tried) {
  if (!form().empty() && tried.needs_thread) GTEST_SKIP() << "one thread for two sinks, which wait for each other";
  Complaints complaints;
  const Record expected = record_of(with_queue(tried.pipeline), tried.compared);
  ASSERT_EQ(expected.verdict, "eos") << "without gpumap";
  ASSERT_GT(expected.frames, 0U) << "without gpumap";
  ASSERT_EQ(complaints.text(), "") << "without gpumap";
  expect_same(expected, record_of(with_gpumap(tried.pipeline, tried.options), tried.compared));
  EXPECT_EQ(complaints.text(), "");
}

std::string as_name(const std::string& text) {
  std::string name = text;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char letter) { return std::isalnum(letter) == 0; }, '_');
  return name;
}

std::string case_name(const testing::TestParamInfo<Case>& test) {
  return as_name(test.param.name);
}

void PrintTo(const Case& tried, std::ostream* out) {
  *out << tried.pipeline << " (" << tried.options << ')';
}

}  // namespace gpumap::gst::test
