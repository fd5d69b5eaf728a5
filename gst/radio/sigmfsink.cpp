// SPDX-License-Identifier: MIT
/**
 * SECTION:element-sigmfsink
 * @title: sigmfsink
 * @short_description: writes a SigMF recording
 * @see_also: sigmfsrc
 *
 * sigmfsink writes samples to a .sigmf-data and what they are to the .sigmf-meta beside it. A capture begins at a
 * discontinuity, at a new segment, and where the centre frequency, the gain or the time of GpumapRadio and
 * GstReferenceTimestampMeta changes. The metadata is renamed into its place, at the first sample, as the recording
 * grows and at its end: what a crash leaves is a recording of the samples so far.
 *
 * ## Example launch lines
 *
 * |[
 * gst-launch-1.0 sigmfsrc location=examples/recording/tone.sigmf-meta ! gpumapupload ! \
 *   gpumapkernel kernel=ddc params="frequency=12500,rate=32000" ! audio/x-raw ! sigmfsink location=narrow.sigmf-meta
 * ]| A part of a recording's band.
 *
 * Since: 0.1
 */
#include "gst/elements.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <gst/base/gstbasesink.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gpumap/error.hpp"
#include "gst/gst_error.hpp"
#include "gst/property_table.hpp"
#include "gst/ptr.hpp"
#include "gst/radio/radio_metas.hpp"
#include "gst/radio/sigmf_metadata.hpp"

GST_DEBUG_CATEGORY_STATIC(sigmf_sink_debug);
#define GST_CAT_DEFAULT sigmf_sink_debug

using gpumap::Error;
using gpumap::ErrorCode;
using gpumap::gst::Ptr;
using gpumap::gst::SigmfAnnotation;
using gpumap::gst::SigmfCapture;
using gpumap::gst::SigmfMetadata;

namespace {

struct Settings {
  std::string location;
  bool sha512 = false;
};

[[noreturn]] void fail_to_write(const std::string& path, int problem) {
  throw Error(problem == ENOSPC ? ErrorCode::no_memory : ErrorCode::open_write,
              fmt::format("{} cannot be written: {}", path, std::strerror(problem)),
              problem == ENOSPC ? "make room on the disk" : "see to location and its permissions");
}

/// A file that is written from its beginning, once what was there is cleared.
class OutputFile {
 public:
  /// Throws Error.
  explicit OutputFile(std::string path)
      // Without waiting for who reads from a pipe.
      : path_(std::move(path)), descriptor_(open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666)) {
    if (descriptor_ < 0 && errno != ENXIO) fail_to_write(path_, errno);
    struct stat found {};
    const bool is_open = descriptor_ >= 0 && fstat(descriptor_, &found) == 0;
    is_device_ = is_open && !S_ISREG(found.st_mode);
    if (is_open && !S_ISFIFO(found.st_mode)) return;
    if (descriptor_ >= 0) close(descriptor_);
    throw Error(ErrorCode::open_write, path_ + " is a pipe", "set the location of a file");
  }
  ~OutputFile() { close(descriptor_); }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Throws Error where a sigmfsrc has the file, by whatever name: it locks what it reads. File systems without locks
  /// cannot tell.
  void check_unread() const { lock(LOCK_EX); }
  /// From now on others may read it, and may not clear it. Throws Error.
  void clear() const {
    if (is_device_) return;
    // Between the two locks there is none: another sigmfsink may have taken it.
    lock(LOCK_SH);
    if (ftruncate(descriptor_, 0) != 0) fail_to_write(path_, errno);
  }
  /// Throws Error.
  void write(std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t done = ::write(descriptor_, bytes.data(), bytes.size());
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) fail_to_write(path_, errno);
      bytes = bytes.subspan(static_cast<std::size_t>(done));
    }
  }

 private:
  void lock(int kind) const {
    if (is_device_ || flock(descriptor_, kind | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
    throw Error(ErrorCode::busy, path_ + " is being read by sigmfsrc, or written by another sigmfsink",
                "set another location, or end that first");
  }

  std::string path_;
  int descriptor_;
  bool is_device_ = false;  ///< it has no content of its own
};

/// One recording that is written. Of the streaming thread, and of changes of state while there is none.
class Writer {
 public:
  /// Throws Error.
  Writer(const std::string& base, bool hashes) : meta_path_(base + ".sigmf-meta"), data_(base + ".sigmf-data") {
    if (hashes) hash_.reset(g_checksum_new(G_CHECKSUM_SHA512));
  }

  /// Throws Error(not_supported) where samples of another kind have come before.
  void set_caps(const GstCaps* caps);
  void add_tags(const GstTagList* tags);
  /// The next sample does not continue those before.
  void begin_capture() { begins_ = true; }
  /// Throws Error.
  void add(GstBuffer* buffer);
  /// Removes an older recording, once. Called when samples come: a sigmfsrc upstream has opened its recording by then.
  /// Throws Error where somebody reads that.
  void replace_older();
  /// Throws Error.
  void write_metadata();
  [[nodiscard]] bool has_begun() const { return has_begun_; }

 private:
  void note_capture(GstBuffer* buffer);
  void note_annotations(GstBuffer* buffer);
  void write_samples(std::span<const std::byte> bytes);
  void store(std::span<const std::byte> bytes);

  struct FreeChecksum {
    void operator()(GChecksum* one) const noexcept { g_checksum_free(one); }
  };

  std::string meta_path_;
  OutputFile data_;
  std::unique_ptr<GChecksum, FreeChecksum> hash_;  ///< null: not asked for
  SigmfMetadata metadata_{.recorder = "gpumap " GPUMAP_VERSION};
  std::optional<double> caps_frequency_;
  bool has_caps_ = false;
  bool has_begun_ = false;  ///< the files are of this recording
  bool begins_ = true;
  std::uint64_t samples_ = 0;
  std::vector<std::byte> rest_;  ///< the beginning of a sample that ends in the next buffer
  gint64 next_write_ = 0;        ///< of metadata: monotonic microseconds
};

void Writer::replace_older() {
  if (has_begun_) return;
  data_.check_unread();
  if (std::filesystem::exists(meta_path_)) OutputFile(meta_path_).check_unread();
  (void)std::remove(meta_path_.c_str());  // it has other samples
  data_.clear();
  has_begun_ = true;
}

void Writer::set_caps(const GstCaps* caps) {
  const GstStructure* fields = gst_caps_get_structure(caps, 0);
  const gchar* format = gst_structure_get_string(fields, "format");
  gint numbers = 0;
  gint rate = 0;
  gst_structure_get_int(fields, "channels", &numbers);
  gst_structure_get_int(fields, "rate", &rate);
  const auto* const type =
      std::find_if(gpumap::gst::sigmf_datatypes.begin(), gpumap::gst::sigmf_datatypes.end(),
                   [&](const gpumap::gst::SigmfDatatype& one) { return format != nullptr && one.format == format; });
  if (type == gpumap::gst::sigmf_datatypes.end() || numbers < 1 || rate < 1) {
    throw Error(ErrorCode::not_supported, fmt::format("SigMF has no samples of {}", format != nullptr ? format : "?"),
                "convert them, as to S32LE by audioconvert");
  }
  gboolean complex = TRUE;
  gst_structure_get_boolean(fields, "complex", &complex);
  SigmfMetadata next = metadata_;
  next.datatype = *type;
  next.complex = complex != FALSE && numbers % 2 == 0;
  next.channels = static_cast<unsigned>(numbers) / (next.complex ? 2 : 1);
  next.sample_rate = rate;
  const bool same = next.datatype.name == metadata_.datatype.name && next.complex == metadata_.complex &&
                    next.channels == metadata_.channels && next.sample_rate == metadata_.sample_rate;
  if (has_caps_ && samples_ != 0 && !same) {
    throw Error(
        ErrorCode::not_supported,
        fmt::format("format, channels or rate changed behind {} samples, and a recording has one of each", samples_),
        "begin another one, with another location");
  }
  if (!same) rest_.clear();
  metadata_ = std::move(next);
  has_caps_ = true;
  caps_frequency_ = gpumap::gst::center_frequency_of(fields);
}

void Writer::add_tags(const GstTagList* tags) {
  const auto text = [&](const char* tag) {
    gchar* value = nullptr;
    gst_tag_list_get_string(tags, tag, &value);
    const Ptr<gchar> owned(value);
    return std::string(value != nullptr ? value : "");
  };
  const auto take = [&](const char* tag, std::string& into) {
    if (std::string value = text(tag); !value.empty()) into = std::move(value);
  };
  take(GST_TAG_DESCRIPTION, metadata_.description);
  take(GST_TAG_ARTIST, metadata_.author);
  take(GST_TAG_LICENSE, metadata_.license);
  take(GST_TAG_LICENSE_URI, metadata_.license);
  take(GST_TAG_DEVICE_MODEL, metadata_.hardware);
  take(GST_TAG_ENCODER, metadata_.recorder);
  SigmfAnnotation annotation{.sample_start = samples_, .label = text(GST_TAG_TITLE), .comment = text(GST_TAG_COMMENT)};
  if (!annotation.label.empty() || !annotation.comment.empty()) metadata_.annotations.push_back(std::move(annotation));
}

void Writer::note_capture(GstBuffer* buffer) {
  // Times of a host's clock jitter; where samples are missing, buffers are DISCONT.
  constexpr GstClockTime jitter = 10 * GST_MSECOND;
  const SigmfCapture* before = metadata_.captures.empty() ? nullptr : &metadata_.captures.back();
  const gpumap::gst::RadioSetting radio = gpumap::gst::radio_of(buffer);
  SigmfCapture now{.sample_start = samples_, .datetime = gpumap::gst::unix_time_of(buffer)};
  now.frequency = radio.center_frequency ? radio.center_frequency : caps_frequency_;
  now.gain = radio.gain;
  if (before != nullptr) {
    // What a buffer does not tell has not changed.
    if (!now.frequency) now.frequency = before->frequency;
    if (!now.gain) now.gain = before->gain;
    begins_ = begins_ || GST_BUFFER_IS_DISCONT(buffer) || now.gain != before->gain ||
              (now.datetime && !before->datetime) || !metadata_.continues(*before, now, jitter);
  }
  if (!begins_) return;
  rest_.clear();
  if (before != nullptr && before->sample_start == samples_) metadata_.captures.pop_back();
  metadata_.captures.push_back(now);
  begins_ = false;
}

void Writer::note_annotations(GstBuffer* buffer) {
  for (SigmfAnnotation& one : gpumap::gst::annotations_of(buffer, metadata_.sample_rate)) {
    // The buffer's offset is a sample's number, of which the annotation counts from the same begin.
    const std::uint64_t offset = GST_BUFFER_OFFSET_IS_VALID(buffer) ? GST_BUFFER_OFFSET(buffer) : one.sample_start;
    const std::uint64_t late = offset > one.sample_start ? offset - one.sample_start : 0;
    if (one.sample_count) *one.sample_count -= std::min(*one.sample_count, late);
    one.sample_start = samples_ + (one.sample_start > offset ? one.sample_start - offset : 0);
    metadata_.annotations.push_back(std::move(one));
  }
}

void Writer::store(std::span<const std::byte> bytes) {
  data_.write(bytes);
  if (hash_)
    g_checksum_update(hash_.get(), reinterpret_cast<const guchar*>(bytes.data()), static_cast<gssize>(bytes.size()));
  samples_ += bytes.size() / metadata_.frame_bytes();
}

void Writer::write_samples(std::span<const std::byte> bytes) {
  const std::size_t frame = metadata_.frame_bytes();
  if (!rest_.empty()) {
    const std::size_t some = std::min(frame - rest_.size(), bytes.size());
    std::ranges::copy(bytes.first(some), std::back_inserter(rest_));
    bytes = bytes.subspan(some);
    if (rest_.size() < frame) return;
    store(rest_);
    rest_.clear();
  }
  const std::size_t whole = bytes.size() / frame * frame;
  store(bytes.first(whole));
  std::ranges::copy(bytes.subspan(whole), std::back_inserter(rest_));
}

void Writer::add(GstBuffer* buffer) {
  replace_older();
  note_capture(buffer);
  note_annotations(buffer);
  GstMapInfo map;
  if (!gst_buffer_map(buffer, &map, GST_MAP_READ)) {
    throw Error(ErrorCode::io, fmt::format("a buffer of {} bytes cannot be read", gst_buffer_get_size(buffer)),
                "look for an error of the element before");
  }
  try {
    write_samples({reinterpret_cast<const std::byte*>(map.data), map.size});
  } catch (...) {
    gst_buffer_unmap(buffer, &map);
    throw;
  }
  gst_buffer_unmap(buffer, &map);
  if (g_get_monotonic_time() >= next_write_) write_metadata();
}

void Writer::write_metadata() {
  if (!has_caps_) return;
  const gint64 begin = g_get_monotonic_time();
  if (hash_) {
    const std::unique_ptr<GChecksum, FreeChecksum> so_far(g_checksum_copy(hash_.get()));
    metadata_.sha512 = g_checksum_get_string(so_far.get());
  }
  std::stable_sort(metadata_.annotations.begin(), metadata_.annotations.end(),
                   [](const auto& one, const auto& other) { return one.sample_start < other.sample_start; });
  const std::string text = gpumap::gst::to_json(metadata_);
  const std::string fresh = meta_path_ + ".new";
  const OutputFile file(fresh);
  file.clear();
  file.write(std::as_bytes(std::span(text)));
  if (std::rename(fresh.c_str(), meta_path_.c_str()) != 0) fail_to_write(meta_path_, errno);
  // Of a recording with many captures it takes long: a twentieth of the time at most.
  const gint64 end = g_get_monotonic_time();
  next_write_ = end + std::max<gint64>(G_USEC_PER_SEC, 20 * (end - begin));
}

struct SinkState {
  Settings settings;
  std::unique_ptr<Writer> writer;  ///< from PAUSED on
};

struct GstSigmfSink {
  GstBaseSink base;
  SinkState* state;
};
struct GstSigmfSinkClass {
  GstBaseSinkClass base;
};

}  // namespace

G_DEFINE_TYPE(GstSigmfSink, gst_sigmf_sink, GST_TYPE_BASE_SINK)

namespace {

SinkState& state_of(gpointer object) {
  return *reinterpret_cast<GstSigmfSink*>(object)->state;
}

/// False, and an error on the bus, where `act` throws.
template <typename Act>
bool did(GstBaseSink* base, Act act) {
  try {
    act();
    return true;
  } catch (const std::exception& error) {
    gpumap::gst::post_error(GST_ELEMENT_CAST(base), error);
    return false;
  }
}

bool begin(GstBaseSink* base) {
  SinkState& state = state_of(base);
  return did(base, [&] {
    GST_OBJECT_LOCK(base);
    const Settings settings = state.settings;
    GST_OBJECT_UNLOCK(base);
    if (settings.location.empty()) {
      throw Error(ErrorCode::not_found, "no location is set", "set location to the .sigmf-meta that is to be written");
    }
    state.writer = std::make_unique<Writer>(gpumap::gst::sigmf_base(settings.location), settings.sha512);
  });
}

void end(GstBaseSink* base) {
  const std::unique_ptr<Writer> writer = std::move(state_of(base).writer);
  if (writer->has_begun()) (void)did(base, [&] { writer->write_metadata(); });
}

/// GstBaseSink's start() is that of READY, in which location may still be set.
GstStateChangeReturn change_state(GstElement* element, GstStateChange transition) {
  auto* base = GST_BASE_SINK_CAST(element);
  const bool begins = transition == GST_STATE_CHANGE_READY_TO_PAUSED;
  if (begins && !begin(base)) return GST_STATE_CHANGE_FAILURE;
  const GstStateChangeReturn result = GST_ELEMENT_CLASS(gst_sigmf_sink_parent_class)->change_state(element, transition);
  const bool failed = begins && result == GST_STATE_CHANGE_FAILURE;
  if (failed || transition == GST_STATE_CHANGE_PAUSED_TO_READY) end(base);
  return result;
}

gboolean set_caps(GstBaseSink* base, GstCaps* caps) {
  return static_cast<gboolean>(did(base, [&] { state_of(base).writer->set_caps(caps); }));
}

GstFlowReturn render(GstBaseSink* base, GstBuffer* buffer) {
  return did(base, [&] { state_of(base).writer->add(buffer); }) ? GST_FLOW_OK : GST_FLOW_ERROR;
}

gboolean event(GstBaseSink* base, GstEvent* event) {
  Writer& writer = *state_of(base).writer;
  bool fine = true;
  if (GST_EVENT_TYPE(event) == GST_EVENT_SEGMENT) {
    writer.begin_capture();
  } else if (GST_EVENT_TYPE(event) == GST_EVENT_TAG) {
    GstTagList* tags = nullptr;
    gst_event_parse_tag(event, &tags);
    writer.add_tags(tags);
  } else if (GST_EVENT_TYPE(event) == GST_EVENT_EOS) {
    fine = did(base, [&] {
      writer.replace_older();
      writer.write_metadata();
    });
  }
  const gboolean taken = GST_BASE_SINK_CLASS(gst_sigmf_sink_parent_class)->event(base, event);
  return static_cast<gboolean>(fine && taken != FALSE);
}

void finalize(GObject* object) {
  delete reinterpret_cast<GstSigmfSink*>(object)->state;
  G_OBJECT_CLASS(gst_sigmf_sink_parent_class)->finalize(object);
}

}  // namespace

static void gst_sigmf_sink_class_init(GstSigmfSinkClass* klass) {
  GST_DEBUG_CATEGORY_INIT(sigmf_sink_debug, "sigmfsink", 0, "SigMF sink");
  G_OBJECT_CLASS(klass)->finalize = finalize;
  GST_ELEMENT_CLASS(klass)->change_state = change_state;
  klass->base.set_caps = set_caps;
  klass->base.render = render;
  klass->base.event = event;
  const gpumap::gst::PropertiesOf<Settings> of(
      [](GObject* element) -> Settings& { return state_of(element).settings; });
  gpumap::gst::install_properties(
      G_OBJECT_CLASS(klass),
      {of.optional_text("location", "The .sigmf-meta; the samples go beside it", &Settings::location),
       of.flag("sha512", "Write core:sha512 of the samples", &Settings::sha512)});
  gst_element_class_add_pad_template(
      GST_ELEMENT_CLASS(klass),
      gst_pad_template_new("sink", GST_PAD_SINK, GST_PAD_ALWAYS, Ptr<GstCaps>(gpumap::gst::sigmf_caps()).get()));
  gst_element_class_set_static_metadata(GST_ELEMENT_CLASS(klass), "SigMF sink", "Sink/File",
                                        "Writes samples as a SigMF recording", "The gpumap authors");
}

static void gst_sigmf_sink_init(GstSigmfSink* self) {
  self->state = new SinkState;
  gst_base_sink_set_sync(GST_BASE_SINK_CAST(self), FALSE);
  gst_base_sink_set_last_sample_enabled(GST_BASE_SINK_CAST(self), FALSE);  // it would keep a slot
}
