// SPDX-License-Identifier: MIT
/**
 * SECTION:element-sigmfsrc
 * @title: sigmfsrc
 * @short_description: reads a SigMF recording
 * @see_also: gpumapupload, gpumapkernel
 *
 * sigmfsrc reads the samples of a SigMF recording into the buffers that downstream offers. Before gpumapupload or
 * gpumapsink these are GPU memory, and no other copy is made. Caps say the format, the rate and, where it is the same
 * throughout, the centre frequency. Buffers end where a capture does. They carry the capture's time as
 * GstReferenceTimestampMeta with the caps timestamp/x-unix, its frequency as GpumapRadio and, where annotations begin,
 * these as SigmfAnnotation. The recording can be sought by time and by sample (GST_FORMAT_DEFAULT).
 *
 * ## Example launch lines
 *
 * |[
 * gst-launch-1.0 sigmfsrc location=examples/recording/tone.sigmf-meta ! gpumapupload ! \
 *   gpumapkernel kernel=spectrum params="size=1024" ! application/x-spectrum ! filesink location=tone.f32
 * ]| Power spectra of a recording.
 *
 * Since: 0.1
 */
#include "gst/elements.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <gst/base/gstbasesrc.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "gpumap/error.hpp"
#include "gst/gst_error.hpp"
#include "gst/property_table.hpp"
#include "gst/ptr.hpp"
#include "gst/radio/radio_metas.hpp"
#include "gst/radio/sigmf_metadata.hpp"

GST_DEBUG_CATEGORY_STATIC(sigmf_src_debug);
#define GST_CAT_DEFAULT sigmf_src_debug

using gpumap::Error;
using gpumap::ErrorCode;
using gpumap::gst::Ptr;
using gpumap::gst::SigmfAnnotation;
using gpumap::gst::SigmfCapture;
using gpumap::gst::SigmfLayout;
using gpumap::gst::SigmfMetadata;
using gpumap::gst::SigmfSection;

namespace {

constexpr std::uint64_t most_block_bytes = std::uint64_t{1} << 30U;

struct Settings {
  std::string location;
  guint64 block_samples = 65536;
};

/// Closes a descriptor.
struct File {
  int descriptor = -1;
  File() = default;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (descriptor >= 0) close(descriptor);
  }
};

/// One recording that is open.
struct Recording {
  SigmfMetadata metadata;
  SigmfLayout layout;
  std::string data_path;
  File file, metadata_file;
  std::uint64_t samples = 0;   ///< of the layout, fewer once the file turns out to be shorter
  std::uint64_t position = 0;  ///< the next sample
  bool sought = true;          ///< nothing was read from `position` on yet
  std::size_t annotation = 0;  ///< the next one that begins

  [[nodiscard]] const SigmfCapture* capture_of(const SigmfSection& section) const {
    return section.capture ? &metadata.captures[*section.capture] : nullptr;
  }
};

struct SrcState {
  Settings settings;
  std::unique_ptr<Recording> recording;  ///< between start and stop; written under the object's lock
};

struct GstSigmfSrc {
  GstBaseSrc base;
  SrcState* state;
};
struct GstSigmfSrcClass {
  GstBaseSrcClass base;
};

}  // namespace

G_DEFINE_TYPE(GstSigmfSrc, gst_sigmf_src, GST_TYPE_BASE_SRC)

namespace {

SrcState& state_of(gpointer object) {
  return *reinterpret_cast<GstSigmfSrc*>(object)->state;
}

std::string data_path_of(const std::string& base, const SigmfMetadata& metadata) {
  if (metadata.dataset.empty()) return base + ".sigmf-data";
  const std::size_t slash = base.rfind('/');
  return base.substr(0, slash == std::string::npos ? 0 : slash + 1) + metadata.dataset;
}

/// Throws Error.
void open_recording(Recording& recording, const std::string& location) {
  if (location.empty()) {
    throw Error(ErrorCode::not_found, "no location is set", "set location to the .sigmf-meta of a recording");
  }
  const std::string base = gpumap::gst::sigmf_base(location);
  recording.metadata = gpumap::gst::read_sigmf(base + ".sigmf-meta");
  recording.metadata_file.descriptor = open((base + ".sigmf-meta").c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  recording.data_path = data_path_of(base, recording.metadata);
  recording.file.descriptor = open(recording.data_path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (recording.file.descriptor < 0) {
    const int problem = errno;
    if (problem == ENOENT && recording.metadata.metadata_only) {
      throw Error(ErrorCode::not_found,
                  fmt::format("{}.sigmf-meta has core:metadata_only: it comes without samples", base),
                  "give a recording that has some");
    }
    throw Error(problem == ENOENT ? ErrorCode::not_found : ErrorCode::open_read,
                fmt::format("{}: {}", recording.data_path, std::strerror(problem)),
                "the samples belong beside the metadata");
  }
  struct stat found {};
  if (fstat(recording.file.descriptor, &found) != 0 || !S_ISREG(found.st_mode)) {
    throw Error(ErrorCode::open_read, recording.data_path + " is no ordinary file", "give the samples in one");
  }
  recording.layout =
      gpumap::gst::lay_out(recording.metadata, static_cast<std::uint64_t>(found.st_size), recording.data_path);
  recording.samples = recording.layout.samples;
  // A sigmfsink replaces nothing that is locked. Where that fails, its recording is being written.
  for (const File* const one : {&recording.file, &recording.metadata_file}) {
    (void)flock(one->descriptor, LOCK_SH | LOCK_NB);
  }
  (void)posix_fadvise(recording.file.descriptor, 0, 0, POSIX_FADV_SEQUENTIAL);
}

/// What plays all the same.
void warn(GstElement* element, const Recording& recording) {
  const SigmfLayout& layout = recording.layout;
  if (layout.cut_bytes != 0) {
    gpumap::gst::post_warning(
        element,
        Error(ErrorCode::open_read,
              fmt::format("{} ends within a sample: {} bytes behind sample {} of {} bytes each are left out",
                          recording.data_path, layout.cut_bytes, layout.samples, recording.metadata.frame_bytes()),
              "see whether core:datatype, core:num_channels and core:trailing_bytes are right"));
  }
  if (layout.late_capture) {
    gpumap::gst::post_warning(
        element, Error(ErrorCode::open_read,
                       fmt::format("capture {} begins at sample {}, and {} ends before sample {}", *layout.late_capture,
                                   recording.metadata.captures[*layout.late_capture].sample_start, recording.data_path,
                                   recording.metadata.offset + layout.samples),
                       "it is cut off, or the metadata is of another recording"));
  }
  if (const double rate = recording.metadata.sample_rate; rate != std::round(rate)) {
    gpumap::gst::post_info(
        element, GST_STREAM_ERROR, GST_STREAM_ERROR_FORMAT,
        fmt::format("core:sample_rate is {}: caps say {}, times keep to the exact rate", rate, std::llround(rate)));
  }
}

/// Of all captures; empty where they differ, or do not say it.
std::optional<double> constant_frequency(const SigmfMetadata& metadata) {
  const std::optional<double> first = metadata.captures.front().frequency;
  const bool same = metadata.captures.front().sample_start == metadata.offset &&
                    std::all_of(metadata.captures.begin(), metadata.captures.end(),
                                [&](const SigmfCapture& one) { return one.frequency == first; });
  return same ? first : std::nullopt;
}

GstCaps* caps_of(const SigmfMetadata& metadata) {
  GstCaps* caps = gst_caps_new_full(
      gpumap::gst::samples_of("audio/x-raw", std::string(metadata.datatype.format), metadata.numbers(),
                              metadata.complex, static_cast<gint>(std::lround(metadata.sample_rate))),
      nullptr);
  if (const auto frequency = constant_frequency(metadata)) {
    gst_caps_set_simple(caps, gpumap::gst::center_frequency_field, G_TYPE_DOUBLE, *frequency, nullptr);
  }
  return caps;
}

GstCaps* get_caps(GstBaseSrc* base, GstCaps* filter) {
  GST_OBJECT_LOCK(base);
  const auto& recording = state_of(base).recording;
  Ptr<GstCaps> caps(recording ? caps_of(recording->metadata) : nullptr);
  GST_OBJECT_UNLOCK(base);
  if (!caps) caps.reset(gst_pad_get_pad_template_caps(GST_BASE_SRC_PAD(base)));
  return filter == nullptr ? caps.release() : gst_caps_intersect_full(filter, caps.get(), GST_CAPS_INTERSECT_FIRST);
}

/// The recording's, of GStreamer's names.
GstTagList* tags_of(const SigmfMetadata& metadata) {
  GstTagList* tags = gst_tag_list_new_empty();
  const std::pair<const char*, const std::string&> texts[] = {
      {GST_TAG_DESCRIPTION, metadata.description}, {GST_TAG_ARTIST, metadata.author},
      {GST_TAG_LICENSE_URI, metadata.license},     {GST_TAG_DEVICE_MODEL, metadata.hardware},
      {GST_TAG_ENCODER, metadata.recorder},
  };
  for (const auto& [tag, text] : texts) {
    if (!text.empty()) gst_tag_list_add(tags, GST_TAG_MERGE_REPLACE, tag, text.c_str(), nullptr);
  }
  const auto& datetime = metadata.captures.front().datetime;
  if (datetime) {
    GstDateTime* time = gst_date_time_new_from_unix_epoch_utc(static_cast<gint64>(*datetime / GST_SECOND));
    if (time != nullptr) {
      gst_tag_list_add(tags, GST_TAG_MERGE_REPLACE, GST_TAG_DATE_TIME, time, nullptr);
      gst_date_time_unref(time);
    }
  }
  return tags;
}

gboolean start(GstBaseSrc* base) {
  SrcState& state = state_of(base);
  try {
    GST_OBJECT_LOCK(base);
    const std::string location = state.settings.location;
    GST_OBJECT_UNLOCK(base);
    auto opened = std::make_unique<Recording>();
    open_recording(*opened, location);
    warn(GST_ELEMENT_CAST(base), *opened);
    Ptr<GstTagList> tags(tags_of(opened->metadata));
    const GstClockTime duration = opened->metadata.time_of(opened->samples);
    GST_OBJECT_LOCK(base);
    state.recording = std::move(opened);
    base->segment.duration = duration;
    GST_OBJECT_UNLOCK(base);
    if (!gst_tag_list_is_empty(tags.get())) {
      gst_element_send_event(GST_ELEMENT_CAST(base), gst_event_new_tag(tags.release()));
    }
    return TRUE;
  } catch (const std::exception& error) {
    gpumap::gst::post_error(GST_ELEMENT_CAST(base), error);
    return FALSE;
  }
}

gboolean stop(GstBaseSrc* base) {
  GST_OBJECT_LOCK(base);
  state_of(base).recording.reset();
  GST_OBJECT_UNLOCK(base);
  return TRUE;
}

/// Samples of a buffer, at most.
std::uint64_t block_of(GstBaseSrc* base) {
  GST_OBJECT_LOCK(base);
  const SrcState& state = state_of(base);
  const std::uint64_t most =
      std::min(most_block_bytes / state.recording->metadata.frame_bytes(), state.recording->layout.samples);
  const std::uint64_t block = std::clamp<std::uint64_t>(state.settings.block_samples, 1, most);
  GST_OBJECT_UNLOCK(base);
  return block;
}

gboolean decide_allocation(GstBaseSrc* base, GstQuery* query) {
  const std::uint64_t frame = state_of(base).recording->metadata.frame_bytes();
  gpumap::gst::make_pools_hold(query, static_cast<guint>(block_of(base) * frame));
  return GST_BASE_SRC_CLASS(gst_sigmf_src_parent_class)->decide_allocation(base, query);
}

/// Bytes that were read; fewer than `bytes` at the end of the file. Throws Error(open_read).
std::uint64_t read_into(const Recording& recording, std::uint64_t offset, std::byte* to, std::uint64_t bytes) {
  std::uint64_t done = 0;
  while (done < bytes) {
    const ssize_t got = pread(recording.file.descriptor, to + done, bytes - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      const int problem = errno;
      throw Error(
          ErrorCode::open_read,
          fmt::format("{} cannot be read at byte {}: {}", recording.data_path, offset + done, std::strerror(problem)),
          "see to the disk");
    }
    if (got == 0) break;
    done += static_cast<std::uint64_t>(got);
  }
  return done;
}

/// Those that begin in the buffer, and in the first one after a seek those that are under way.
void add_annotations(Recording& recording, GstBuffer* buffer, std::uint64_t first, std::uint64_t count) {
  const auto& annotations = recording.metadata.annotations;
  const std::uint64_t begin = first + recording.metadata.offset;
  const auto next_of = [&](std::uint64_t sample) {
    const auto found =
        std::lower_bound(annotations.begin(), annotations.end(), sample,
                         [](const SigmfAnnotation& one, std::uint64_t at) { return one.sample_start < at; });
    return static_cast<std::size_t>(found - annotations.begin());
  };
  if (recording.sought) {
    recording.annotation = next_of(begin);
    for (std::size_t i = 0; i < recording.annotation; ++i) {
      const SigmfAnnotation& one = annotations[i];
      if (one.sample_count && *one.sample_count > begin - one.sample_start)
        gpumap::gst::add_annotation(buffer, one, recording.metadata.sample_rate);
    }
  }
  const std::size_t end = next_of(begin + count);
  for (; recording.annotation < end; ++recording.annotation) {
    gpumap::gst::add_annotation(buffer, annotations[recording.annotation], recording.metadata.sample_rate);
  }
}

/// The band moves, or time jumps: samples before and behind do not belong together.
bool is_discontinuity(const Recording& recording, const SigmfSection& section) {
  if (section.first == 0) return false;
  const SigmfCapture* before = recording.capture_of(recording.layout.section_of(section.first - 1));
  const SigmfCapture* behind = recording.capture_of(section);
  if (before == nullptr || behind == nullptr || before == behind) return before != behind;
  // Times are often written in microseconds.
  const std::uint64_t allowed = std::max<std::uint64_t>(recording.metadata.time_of(1), GST_USECOND);
  return !recording.metadata.continues(*before, *behind, allowed);
}

void describe(Recording& recording, const SigmfSection& section, GstBuffer* buffer, std::uint64_t count) {
  const std::uint64_t first = recording.position;
  GST_BUFFER_OFFSET(buffer) = first + recording.metadata.offset;
  GST_BUFFER_OFFSET_END(buffer) = first + count + recording.metadata.offset;
  GST_BUFFER_PTS(buffer) = recording.metadata.time_of(first);
  GST_BUFFER_DURATION(buffer) = recording.metadata.time_of(first + count) - GST_BUFFER_PTS(buffer);
  if (recording.sought || (first == section.first && is_discontinuity(recording, section))) {
    GST_BUFFER_FLAG_SET(buffer, GST_BUFFER_FLAG_DISCONT);
  }
  if (const SigmfCapture* capture = recording.capture_of(section)) {
    if (const auto time = recording.metadata.datetime_of(*capture, first + recording.metadata.offset)) {
      gpumap::gst::add_unix_time(buffer, *time, GST_BUFFER_DURATION(buffer));
    }
    if (capture->frequency || capture->gain) {
      gpumap::gst::add_radio(buffer, {.center_frequency = capture->frequency, .gain = capture->gain});
    }
  }
  add_annotations(recording, buffer, first, count);
}

/// The next block (transfer full), of whole samples of one capture; empty at the end. Throws Error.
GstFlowReturn read_block(GstBaseSrc* base, Recording& recording, std::uint64_t block, GstBuffer** out) {
  const guint64 stop = base->segment.stop;
  const std::uint64_t end = GST_CLOCK_TIME_IS_VALID(stop)
                                ? std::min(recording.samples, recording.metadata.samples_in(stop))
                                : recording.samples;
  if (recording.position >= end) return GST_FLOW_EOS;
  const SigmfSection& section = recording.layout.section_of(recording.position);
  const std::uint64_t frame = recording.metadata.frame_bytes();
  const std::uint64_t into = recording.position - section.first;
  std::uint64_t count = std::min({block, end - recording.position, section.count - into});
  GstBuffer* made = nullptr;
  const GstFlowReturn flow = GST_BASE_SRC_CLASS(gst_sigmf_src_parent_class)
                                 ->alloc(base, recording.position * frame, static_cast<guint>(count * frame), &made);
  if (flow != GST_FLOW_OK) return flow;
  Ptr<GstBuffer> buffer(made);
  GstMapInfo map;
  if (gst_buffer_get_size(buffer.get()) < frame || !gst_buffer_map(buffer.get(), &map, GST_MAP_WRITE)) {
    throw Error(ErrorCode::io, fmt::format("downstream's buffer of {} bytes cannot be written", count * frame),
                "look for an error of its own");
  }
  // The pool's buffers are of another size where block-samples has changed since.
  count = std::min<std::uint64_t>(count, map.size / frame);
  std::uint64_t got = 0;
  try {
    got = read_into(recording, section.offset + into * frame, reinterpret_cast<std::byte*>(map.data), count * frame);
  } catch (...) {
    gst_buffer_unmap(buffer.get(), &map);
    throw;
  }
  gst_buffer_unmap(buffer.get(), &map);
  if (got < count * frame) {
    count = got / frame;
    GST_OBJECT_LOCK(base);  // queries read it
    recording.samples = recording.position + count;
    GST_OBJECT_UNLOCK(base);
    gpumap::gst::post_warning(
        GST_ELEMENT_CAST(base),
        Error(ErrorCode::open_read, fmt::format("{} has become shorter while it was read: it ends at sample {}",
                                                recording.data_path, recording.metadata.offset + recording.samples)));
    if (count == 0) return GST_FLOW_EOS;
  }
  gst_buffer_set_size(buffer.get(), static_cast<gssize>(count * frame));
  describe(recording, section, buffer.get(), count);
  recording.position += count;
  recording.sought = false;
  *out = buffer.release();
  return GST_FLOW_OK;
}

GstFlowReturn create(GstBaseSrc* base, guint64 /*offset*/, guint /*size*/, GstBuffer** out) {
  SrcState& state = state_of(base);
  Recording& recording = *state.recording;  // there while the streaming thread runs
  try {
    return read_block(base, recording, block_of(base), out);
  } catch (const std::exception& error) {
    gpumap::gst::post_error(GST_ELEMENT_CAST(base), error);
    return GST_FLOW_ERROR;
  }
}

gboolean is_seekable(GstBaseSrc* /*base*/) {
  return TRUE;
}

/// Refused before anything is flushed for it: GstBaseSrc would not send the segment again.
bool is_backwards(GstEvent* event) {
  gdouble rate = 1.0;
  if (GST_EVENT_TYPE(event) == GST_EVENT_SEEK) {
    gst_event_parse_seek(event, &rate, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr);
  }
  return rate < 0.0;
}

/// From downstream.
gboolean event(GstBaseSrc* base, GstEvent* event) {
  return is_backwards(event) ? FALSE : GST_BASE_SRC_CLASS(gst_sigmf_src_parent_class)->event(base, event);
}

/// From the application, to the element itself.
gboolean send_event(GstElement* element, GstEvent* event) {
  if (!is_backwards(event)) return GST_ELEMENT_CLASS(gst_sigmf_src_parent_class)->send_event(element, event);
  gst_event_unref(event);
  return FALSE;
}

gboolean do_seek(GstBaseSrc* base, GstSegment* segment) {
  GST_OBJECT_LOCK(base);  // stop() may be called meanwhile
  const auto& recording = state_of(base).recording;
  if (recording) {
    recording->position = std::min(recording->metadata.samples_in(segment->position), recording->samples);
    recording->sought = true;
    segment->duration = recording->metadata.time_of(recording->samples);  // a seek by samples has none
  }
  GST_OBJECT_UNLOCK(base);
  return static_cast<gboolean>(recording != nullptr);
}

/// Between time, samples (DEFAULT) and bytes of samples; empty: not known, or beyond what a query can say.
std::optional<std::uint64_t> converted(const Recording& recording, GstFormat from, std::uint64_t value, GstFormat to) {
  constexpr std::uint64_t most = G_MAXINT64;
  const std::uint64_t frame = recording.metadata.frame_bytes();
  std::uint64_t sample = value;
  if (from == GST_FORMAT_TIME) {
    sample = recording.metadata.samples_in(value);
  } else if (from == GST_FORMAT_BYTES) {
    sample = value / frame;
  } else if (from != GST_FORMAT_DEFAULT) {
    return {};
  }
  std::optional<std::uint64_t> result;
  if (to == GST_FORMAT_DEFAULT) result = sample;
  if (to == GST_FORMAT_TIME) result = recording.metadata.time_of(sample);
  if (to == GST_FORMAT_BYTES && sample <= most / frame) result = sample * frame;
  return result && *result <= most ? result : std::nullopt;
}

bool answer(GstQuery* query, const Recording& recording) {
  GstFormat format = GST_FORMAT_UNDEFINED;
  switch (GST_QUERY_TYPE(query)) {
    case GST_QUERY_CONVERT: {
      GstFormat to = GST_FORMAT_UNDEFINED;
      gint64 value = 0;
      gst_query_parse_convert(query, &format, &value, &to, nullptr);
      if (value < 0) return false;
      const auto result = converted(recording, format, static_cast<std::uint64_t>(value), to);
      if (result) gst_query_set_convert(query, format, value, to, static_cast<gint64>(*result));
      return result.has_value();
    }
    case GST_QUERY_DURATION: {
      gst_query_parse_duration(query, &format, nullptr);
      const auto duration = converted(recording, GST_FORMAT_DEFAULT, recording.samples, format);
      if (duration) gst_query_set_duration(query, format, static_cast<gint64>(*duration));
      return duration.has_value();
    }
    case GST_QUERY_SEEKING: {
      gst_query_parse_seeking(query, &format, nullptr, nullptr, nullptr);
      const auto duration = converted(recording, GST_FORMAT_DEFAULT, recording.samples, format);
      if (duration) gst_query_set_seeking(query, format, TRUE, 0, static_cast<gint64>(*duration));
      return duration.has_value();
    }
    default:
      return false;
  }
}

gboolean query(GstBaseSrc* base, GstQuery* query) {
  GST_OBJECT_LOCK(base);
  const auto& recording = state_of(base).recording;
  const bool answered = recording && answer(query, *recording);
  GST_OBJECT_UNLOCK(base);
  return answered ? TRUE : GST_BASE_SRC_CLASS(gst_sigmf_src_parent_class)->query(base, query);
}

void finalize(GObject* object) {
  delete reinterpret_cast<GstSigmfSrc*>(object)->state;
  G_OBJECT_CLASS(gst_sigmf_src_parent_class)->finalize(object);
}

}  // namespace

static void gst_sigmf_src_class_init(GstSigmfSrcClass* klass) {
  GST_DEBUG_CATEGORY_INIT(sigmf_src_debug, "sigmfsrc", 0, "SigMF source");
  G_OBJECT_CLASS(klass)->finalize = finalize;
  GST_ELEMENT_CLASS(klass)->send_event = send_event;
  klass->base.get_caps = get_caps;
  klass->base.start = start;
  klass->base.stop = stop;
  klass->base.decide_allocation = decide_allocation;
  klass->base.create = create;
  klass->base.is_seekable = is_seekable;
  klass->base.event = event;
  klass->base.do_seek = do_seek;
  klass->base.query = query;
  const gpumap::gst::PropertiesOf<Settings> of(
      [](GObject* element) -> Settings& { return state_of(element).settings; });
  gpumap::gst::install_properties(
      G_OBJECT_CLASS(klass),
      {of.optional_text("location", "The recording's .sigmf-meta", &Settings::location),
       of.number("block-samples", "Samples of all channels in a buffer, at most; a capture ends one earlier",
                 &Settings::block_samples, 1)});
  const Ptr<GstCaps> caps(gpumap::gst::sigmf_caps());
  gst_element_class_add_pad_template(GST_ELEMENT_CLASS(klass),
                                     gst_pad_template_new("src", GST_PAD_SRC, GST_PAD_ALWAYS, caps.get()));
  gst_element_class_set_static_metadata(GST_ELEMENT_CLASS(klass), "SigMF source", "Source/File",
                                        "Reads the samples of a SigMF recording straight into downstream's memory",
                                        "The gpumap authors");
}

static void gst_sigmf_src_init(GstSigmfSrc* self) {
  self->state = new SrcState;
  gst_base_src_set_format(GST_BASE_SRC_CAST(self), GST_FORMAT_TIME);
}
