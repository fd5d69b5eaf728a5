// SPDX-License-Identifier: MIT
/**
 * SECTION:element-soapysrc
 * @title: soapysrc
 * @short_description: samples of a radio, by SoapySDR
 * @see_also: gpumapsink, gpumapupload
 *
 * soapysrc receives with any radio that SoapySDR knows. Its driver writes the samples straight into the buffers of
 * downstream: with #GstGpumapSink or #GstGpumapUpload behind it these are GPU memory. Samples come in the radio's
 * native format; where downstream takes others alone, the driver converts. Several channels are interleaved.
 *
 * ## Example launch lines
 *
 * |[
 * gst-launch-1.0 soapysrc device=driver=rtlsdr rate=2400000 frequency=100e6 gain=auto ! gpumapsink \
 *   gpumapsrc ! gpumapkernel kernel=spectrum params=size=4096,average=100,db=1 ! application/x-spectrum ! \
 *   filesink location=spectrum.f32
 * ]| Spectra around 100 MHz, 4096 bins each.
 *
 * Since: 0.1
 */

#include <fmt/format.h>
#include <gst/base/gstpushsrc.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpumap/error.hpp"
#include "gst/gst_error.hpp"
#include "gst/property_table.hpp"
#include "gst/ptr.hpp"
#include "gst/radio/radio.hpp"
#include "gst/radio/radio_metas.hpp"

GST_DEBUG_CATEGORY_STATIC(soapy_src_debug);
#define GST_CAT_DEFAULT soapy_src_debug

using gpumap::Error;
using gpumap::ErrorCode;
using gpumap::gst::caps_of;
using gpumap::gst::format_of;
using gpumap::gst::OnRadioLost;
using gpumap::gst::Ptr;
using gpumap::gst::Radio;
using gpumap::gst::RadioClock;
using gpumap::gst::RadioFormat;
using gpumap::gst::RadioRead;
using gpumap::gst::RadioSettings;
using gpumap::gst::SampleTimes;

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// A read of the driver's ends this often, so that the element can stop.
constexpr auto read_slice = 50ms;
/// Behind a read without a sample, before the driver is asked again.
constexpr auto empty_pause = 1ms;
/// Between two warnings of overflows.
constexpr auto warning_pause = 5s;
/// Between two tries to open a radio that is gone.
constexpr auto reopen_pause = 500ms;
/// A buffer's length by default; and the least part of a frame that it is, where downstream puts buffers together: one
/// that lies across two frames is copied.
constexpr double default_seconds = 0.01;
constexpr std::size_t buffers_of_frame = 16;

struct Counts {
  guint64 samples = 0, buffers = 0, overflows = 0, corrupt = 0, jumps = 0, lost_samples = 0, reopened = 0;
};

struct SoapyState {
  // Under the object's lock.
  RadioSettings settings;
  Counts counts;
  double rate = 0.0, frequency = 0.0, bandwidth = 0.0, full_scale = 0.0;
  double buffer_seconds = default_seconds;
  guint buffer_samples = 0;  ///< the property, as it was at the start
  std::string name, format;
  Ptr<GstCaps> caps;  ///< null: no radio is open

  std::atomic<bool> changed{false};  ///< a property that the radio has to be told
  std::atomic<bool> restart{false};  ///< the pipeline was paused: what the driver kept meanwhile is old
  // Waits of the streaming thread.
  std::mutex mutex;
  std::condition_variable woken;
  bool unlocked = false;
  bool playing = false;
  std::thread::id pausing;  ///< the thread that takes the element to PAUSED

  // Of the streaming thread, and of start() and stop() while there is none.
  RadioSettings used;
  std::unique_ptr<Radio> radio;
  const RadioFormat* chosen = nullptr;
  std::size_t gathered_bytes = 0;  ///< of the frames that downstream makes; 0: each buffer is one
  bool retuned = false;            ///< since the start: caps have no frequency any more
  bool hole = true;                ///< before the next sample
  SampleTimes times;
  RadioClock clock;
  Clock::time_point read_at;  ///< when the last samples came
  std::optional<Clock::time_point> warned;
  guint64 warned_overflows = 0;
};

struct GstSoapySrc {
  GstPushSrc base;
  SoapyState* state;
};
struct GstSoapySrcClass {
  GstPushSrcClass base;
};

}  // namespace

G_DEFINE_TYPE(GstSoapySrc, gst_soapy_src, GST_TYPE_PUSH_SRC)
GST_ELEMENT_REGISTER_DEFINE(soapysrc, "soapysrc", GST_RANK_NONE,
                            (gpumap::gst::register_radio_metas(), gst_soapy_src_get_type()))

namespace {

SoapyState& state_of(gpointer object) {
  return *reinterpret_cast<GstSoapySrc*>(object)->state;
}

class ObjectLock {
 public:
  explicit ObjectLock(gpointer object) : object_(GST_OBJECT_CAST(object)) { GST_OBJECT_LOCK(object_); }
  ~ObjectLock() { GST_OBJECT_UNLOCK(object_); }
  ObjectLock(const ObjectLock&) = delete;
  ObjectLock& operator=(const ObjectLock&) = delete;

 private:
  GstObject* object_;
};

/// True where the element is to stop, or to pause, meanwhile.
bool pause(SoapyState& state, std::chrono::milliseconds time) {
  std::unique_lock lock(state.mutex);
  return state.woken.wait_for(lock, time, [&] { return state.unlocked || !state.playing; });
}

/// Caps are decided in PAUSED, too.
bool is_unlocked(SoapyState& state) {
  const std::lock_guard lock(state.mutex);
  return state.unlocked;
}

bool is_interrupted(SoapyState& state) {
  const std::lock_guard lock(state.mutex);
  return state.unlocked || !state.playing;
}

/// False: the streaming thread is to leave. At a pause it stays, and waits here: a thread that left would be ended by
/// GstBaseSrc, perhaps when the element plays again already, and nothing would start it anew.
bool wait_until_playing(SoapyState& state) {
  std::unique_lock lock(state.mutex);
  state.woken.wait(lock, [&] { return state.unlocked || state.playing; });
  return !state.unlocked;
}

GstCaps* get_caps(GstBaseSrc* base, GstCaps* filter) {
  Ptr<GstCaps> made;
  {
    const ObjectLock lock(base);
    if (state_of(base).caps) made.reset(gst_caps_ref(state_of(base).caps.get()));
  }
  if (!made) made.reset(gst_pad_get_pad_template_caps(GST_BASE_SRC_PAD(base)));
  return filter == nullptr ? made.release() : gst_caps_intersect_full(filter, made.get(), GST_CAPS_INTERSECT_FIRST);
}

/// Bytes of a sample of all channels.
std::size_t frame_bytes(const SoapyState& state) {
  return state.chosen->bytes * state.radio->channels();
}

std::size_t buffer_samples(const SoapyState& state) {
  if (state.used.buffer_samples != 0) return state.used.buffer_samples;
  const auto usual =
      std::max<std::size_t>(static_cast<std::size_t>(std::lround(state.radio->rate() * default_seconds)), 1);
  const std::size_t bytes = frame_bytes(state), frame = state.gathered_bytes / bytes;
  if (frame == 0) return usual;
  // A frame of so many buffers, and no rest, where there is such a number. Memory begins at multiples of 8 bytes.
  const std::size_t least = std::max(buffers_of_frame, (frame + usual - 1) / usual);
  for (std::size_t count = least; count < 4 * least; ++count) {
    if (frame % count == 0 && frame / count * bytes % 8 == 0) return frame / count;
  }
  return std::max<std::size_t>(frame / least, 1);
}

/// What others may ask for at any time.
void note_radio(GstSoapySrc* self) {
  SoapyState& state = *self->state;
  Ptr<GstCaps> caps = caps_of(*state.radio, !state.retuned && state.radio->frequency() != 0.0);
  const ObjectLock lock(self);
  state.caps = std::move(caps);
  state.rate = state.radio->rate();
  state.frequency = state.radio->frequency();
  state.bandwidth = state.radio->bandwidth();
  state.full_scale = state.radio->full_scale();
  state.name = state.radio->name();
  state.buffer_samples = state.used.buffer_samples;
}

RadioSettings settings_of(GstSoapySrc* self) {
  const ObjectLock lock(self);
  return self->state->settings;
}

void tell_rate(GstSoapySrc* self) {
  const SoapyState& state = *self->state;
  const double asked = state.used.rate, given = state.radio->rate();
  if (given > G_MAXINT) {
    throw Error(ErrorCode::not_supported, fmt::format("{} has {} samples/s", state.radio->name(), given),
                fmt::format("caps tell {} at most: choose a lower rate", G_MAXINT));
  }
  if (asked == 0.0 || std::abs(asked - given) < 0.5) return;
  gpumap::gst::post_warning(GST_ELEMENT_CAST(self), Error(ErrorCode::invalid,
                                                          fmt::format("rate={} was asked for, and {} gives {}", asked,
                                                                      state.radio->name(), given),
                                                          "caps and times follow what it gives: set rate to that"));
}

void open_radio(GstSoapySrc* self) {
  SoapyState& state = *self->state;
  state.changed = false;  // before they are read
  state.used = settings_of(self);
  state.radio = std::make_unique<Radio>(state.used);
  state.clock.forget();
  state.hole = true;
  note_radio(self);
  GST_DEBUG_OBJECT(self, "opened %s: %f samples/s at %f Hz", state.radio->name().c_str(), state.radio->rate(),
                   state.radio->frequency());
}

gboolean stop(GstBaseSrc* base) {
  state_of(base).radio.reset();
  const ObjectLock lock(base);
  state_of(base).caps.reset();
  state_of(base).rate = 0.0;
  state_of(base).buffer_seconds = default_seconds;
  return TRUE;
}

gboolean start(GstBaseSrc* base) {
  auto* self = reinterpret_cast<GstSoapySrc*>(base);
  SoapyState& state = *self->state;
  gpumap::gst::forget_errors(GST_ELEMENT_CAST(base));
  try {
    state.retuned = false;
    state.restart = false;
    state.chosen = nullptr;
    state.gathered_bytes = 0;
    state.times.begin();
    state.warned.reset();
    state.warned_overflows = 0;
    {
      const ObjectLock lock(self);
      state.counts = {};
    }
    open_radio(self);
    if (!state.radio->refused().empty()) throw Error(state.radio->refused().front());
    tell_rate(self);
    return TRUE;
  } catch (const std::exception& error) {
    gpumap::gst::post_error(GST_ELEMENT_CAST(base), error);
    stop(base);
    return FALSE;
  }
}

gboolean set_caps(GstBaseSrc* base, GstCaps* caps) {
  SoapyState& state = state_of(base);
  if (state.radio == nullptr) return TRUE;  // it is gone; when it is back, caps are decided anew
  try {
    const RadioFormat* const format = format_of(*state.radio, caps);
    if (format == nullptr) return FALSE;
    state.radio->open_stream(*format, state.used.stream_arguments);
    state.chosen = format;
    const std::size_t bytes = buffer_samples(state) * frame_bytes(state);
    if (bytes > G_MAXINT) {
      throw Error(ErrorCode::invalid, fmt::format("a buffer would have {} bytes, {} is the most", bytes, G_MAXINT),
                  "set buffer-samples to fewer");
    }
    gst_base_src_set_blocksize(base, static_cast<guint>(bytes));
    const ObjectLock lock(base);
    state.format = format->soapy;
    return TRUE;
  } catch (const std::exception& error) {
    gpumap::gst::post_error_once(GST_ELEMENT_CAST(base), error);
    return FALSE;
  }
}

gboolean negotiate(GstBaseSrc* base) {
  if (GST_BASE_SRC_CLASS(gst_soapy_src_parent_class)->negotiate(base) != 0) return TRUE;
  if (is_unlocked(state_of(base)) || gpumap::gst::has_posted_error(GST_ELEMENT_CAST(base))) return FALSE;
  const Ptr<GstCaps> given(get_caps(base, nullptr));
  const Ptr<gchar> text(gst_caps_to_string(given.get()));
  gpumap::gst::post_error_once(
      GST_ELEMENT_CAST(base),
      Error(ErrorCode::invalid, fmt::format("what follows takes nothing of what the radio gives, {}", text.get()),
            "set the properties rate, format and channels, and leave caps behind soapysrc out"));
  return FALSE;
}

/// What downstream says of the frames that it makes of buffers: these are parts of them.
void note_gathering(GstSoapySrc* self, GstQuery* query) {
  SoapyState& state = *self->state;
  guint64 bytes = 0;
  gst_structure_get_uint64(gst_query_get_structure(query), gpumap::gst::gathered_bytes_field, &bytes);
  state.gathered_bytes = bytes;
  if (state.radio == nullptr || state.chosen == nullptr) return;
  const double seconds = static_cast<double>(buffer_samples(state)) / state.radio->rate();
  {
    const ObjectLock lock(self);
    if (std::exchange(state.buffer_seconds, seconds) == seconds) return;
  }
  gst_element_post_message(GST_ELEMENT_CAST(self), gst_message_new_latency(GST_OBJECT_CAST(self)));
}

gboolean decide_allocation(GstBaseSrc* base, GstQuery* query) {
  gpumap::gst::make_pools_hold(query, gst_base_src_get_blocksize(base));
  note_gathering(reinterpret_cast<GstSoapySrc*>(base), query);
  return GST_BASE_SRC_CLASS(gst_soapy_src_parent_class)->decide_allocation(base, query);
}

void warn_of(GstSoapySrc* self, const std::vector<Error>& refused) {
  for (const Error& one : refused) gpumap::gst::post_warning(GST_ELEMENT_CAST(self), one);
}

/// Tell the radio what was set. False: caps could not follow.
bool follow_properties(GstSoapySrc* self) {
  SoapyState& state = *self->state;
  if (!state.changed.exchange(false)) return true;
  const double rate = state.radio->rate(), frequency = state.radio->frequency();
  RadioSettings now = settings_of(self);
  now.buffer_samples = state.used.buffer_samples;  // which are of the start
  state.used = std::move(now);
  const bool streamed = state.radio->is_streaming();
  const double asked = state.used.rate;
  warn_of(self, state.radio->change(state.used));
  const bool first_retune = state.radio->frequency() != frequency && !state.retuned;
  state.retuned = state.retuned || (first_retune && streamed);
  note_radio(self);
  GST_DEBUG_OBJECT(self, "now %f samples/s at %f Hz", state.radio->rate(), state.radio->frequency());
  const bool other_rate = state.radio->rate() != rate;
  if (other_rate || (streamed && asked != 0.0 && std::abs(asked - rate) >= 0.5)) tell_rate(self);
  if (other_rate) {
    state.hole = true;
    state.clock.forget();
    gst_element_post_message(GST_ELEMENT_CAST(self), gst_message_new_latency(GST_OBJECT_CAST(self)));
  }
  return (!other_rate && !first_retune) || gst_base_src_negotiate(GST_BASE_SRC_CAST(self)) != 0;
}

void warn_of_overflows(GstSoapySrc* self) {
  SoapyState& state = *self->state;
  const auto now = Clock::now();
  if (state.warned && now - *state.warned < warning_pause) return;
  guint64 all = 0;
  {
    const ObjectLock lock(self);
    all = state.counts.overflows + state.counts.corrupt + state.counts.jumps;
  }
  gpumap::gst::post_warning(
      GST_ELEMENT_CAST(self),
      Error(ErrorCode::io,
            fmt::format("{} lost samples {} times, {} since the start: the computer did not take them in time",
                        state.radio->name(), all - state.warned_overflows, all),
            "lower the rate, let gpumapsink drop frames (leaky=oldest), or give it more slots"),
      GST_RESOURCE_ERROR_READ);
  state.warned = now;
  state.warned_overflows = all;
}

void note_hole(GstSoapySrc* self, guint64 Counts::*count) {
  self->state->hole = true;
  {
    const ObjectLock lock(self);
    ++(self->state->counts.*count);
  }
  warn_of_overflows(self);
}

/// What is known of a buffer beside its bytes.
struct Filled {
  std::size_t samples = 0;
  bool behind_hole = false;
  std::optional<double> radio_ns;  ///< the radio's clock at its first sample
  std::optional<double> hole_ns;   ///< how long the hole before it was, by the radio's clock
};

/// What samples that come behind `filled.samples` say of the radio's clock, and of a hole before them.
void compare_clock(GstSoapySrc* self, const RadioRead& got, Filled& filled) {
  SoapyState& state = *self->state;
  const double sample_ns = 1e9 / state.radio->rate();
  const bool first = filled.samples == 0;
  const bool at_hole = first && state.hole;
  const auto now = Clock::now();
  const std::chrono::duration<double, std::nano> waited = now - std::exchange(state.read_at, now);
  const RadioClock::Seen seen =
      state.clock.next(got.ns, static_cast<double>(got.samples) * sample_ns, sample_ns, at_hole, waited.count());
  if (seen.jumped) note_hole(self, &Counts::jumps);
  if (first) filled.radio_ns = seen.begins;
  if (seen.hole) {
    filled.hole_ns = seen.hole;
    const ObjectLock lock(self);
    state.counts.lost_samples += static_cast<guint64>(std::llround(std::max(*seen.hole, 0.0) / sample_ns));
  }
  filled.behind_hole = filled.behind_hole || at_hole || seen.jumped;
  state.hole = false;
}

/// Samples into `to` until there are `wanted`, or a hole. Empty: the thread is interrupted.
std::optional<Filled> fill(GstSoapySrc* self, std::byte* to, std::size_t wanted) {
  SoapyState& state = *self->state;
  const std::size_t bytes = frame_bytes(state);
  auto last = Clock::now();
  Filled filled;
  while (filled.samples < wanted) {
    if (is_interrupted(state)) return std::nullopt;
    const RadioRead got = state.radio->read(to + filled.samples * bytes, wanted - filled.samples, read_slice);
    switch (got.kind) {
      case RadioRead::Kind::samples:
        last = Clock::now();
        compare_clock(self, got, filled);
        filled.samples += got.samples;
        if (!got.hole_follows) continue;
        note_hole(self, &Counts::overflows);
        return filled;
      case RadioRead::Kind::overflow:
      case RadioRead::Kind::corrupt:
        last = Clock::now();
        note_hole(self, got.kind == RadioRead::Kind::overflow ? &Counts::overflows : &Counts::corrupt);
        if (filled.samples != 0) return filled;
        if (pause(state, empty_pause)) return std::nullopt;
        continue;
      case RadioRead::Kind::nothing:
        if (pause(state, empty_pause)) return std::nullopt;  // Airspy's driver returns at once where the radio is gone
        break;
    }
    if (state.used.timeout_ms != 0 && Clock::now() - last > std::chrono::milliseconds(state.used.timeout_ms)) {
      throw Error(ErrorCode::io, fmt::format("{} gave no sample for {} ms", state.radio->name(), state.used.timeout_ms),
                  "look whether it is still there, or set another timeout");
    }
  }
  return filled;
}

void stamp(GstSoapySrc* self, GstBuffer* buffer, const Filled& filled) {
  SoapyState& state = *self->state;
  static GstStaticCaps clock_caps = GST_STATIC_CAPS("timestamp/x-radio");
  const double length = static_cast<double>(filled.samples) * 1e9 / state.radio->rate();
  const Ptr<GstClock> clock(gst_element_get_clock(GST_ELEMENT_CAST(self)));
  if (clock) {
    const GstClockTime now = gst_clock_get_time(clock.get());
    const GstClockTime begun = gst_element_get_base_time(GST_ELEMENT_CAST(self));
    GST_BUFFER_PTS(buffer) =
        state.times.next(now > begun ? now - begun : 0, length, filled.behind_hole, filled.hole_ns);
  }
  GST_BUFFER_DURATION(buffer) = static_cast<GstClockTime>(std::llround(length));
  if (filled.behind_hole) GST_BUFFER_FLAG_SET(buffer, GST_BUFFER_FLAG_DISCONT);
  if (filled.radio_ns && *filled.radio_ns >= 0.0) {
    const Ptr<GstCaps> caps(gst_static_caps_get(&clock_caps));
    gst_buffer_add_reference_timestamp_meta(buffer, caps.get(), static_cast<GstClockTime>(*filled.radio_ns),
                                            GST_BUFFER_DURATION(buffer));
  }
  std::optional<double> tuned;
  if (state.radio->frequency() != 0.0) tuned = state.radio->frequency();
  gpumap::gst::add_radio(buffer, {.center_frequency = tuned, .gain = state.radio->gain()});
  const ObjectLock lock(self);
  GST_BUFFER_OFFSET(buffer) = state.counts.samples;
  state.counts.samples += filled.samples;
  ++state.counts.buffers;
  GST_BUFFER_OFFSET_END(buffer) = state.counts.samples;
}

/// Empty: the thread is interrupted.
std::optional<GstFlowReturn> next_buffer(GstSoapySrc* self, GstBuffer** out) {
  SoapyState& state = *self->state;
  auto* base = GST_BASE_SRC_CAST(self);
  if (state.restart.exchange(false)) state.radio->stop_stream();
  if (!follow_properties(self)) {
    if (is_unlocked(state)) return std::nullopt;
    return GST_FLOW_NOT_NEGOTIATED;
  }
  if (!state.radio->is_streaming()) {
    state.radio->start_stream();
    state.hole = true;
    state.clock.forget();  // how long it stood has nothing to do with the pipeline's time
  }
  const std::size_t bytes = frame_bytes(state), wanted = buffer_samples(state);
  GstBuffer* taken = nullptr;
  const GstFlowReturn flow =
      GST_BASE_SRC_GET_CLASS(base)->alloc(base, GST_BUFFER_OFFSET_NONE, static_cast<guint>(wanted * bytes), &taken);
  if (flow != GST_FLOW_OK) return flow;
  Ptr<GstBuffer> buffer(taken);
  std::optional<Filled> filled;
  {
    GstMapInfo map;
    if (gst_buffer_map(buffer.get(), &map, GST_MAP_WRITE) == 0) {
      throw Error(ErrorCode::no_memory,
                  fmt::format("a buffer of {} bytes of downstream cannot be written", wanted * bytes));
    }
    const auto unmap = [&](GstBuffer* mapped) { gst_buffer_unmap(mapped, &map); };
    const std::unique_ptr<GstBuffer, decltype(unmap)> mapped(buffer.get(), unmap);
    filled = fill(self, reinterpret_cast<std::byte*>(map.data), std::min<std::size_t>(wanted, map.size / bytes));
  }
  if (!filled) {
    state.radio->stop_stream();
    return std::nullopt;
  }
  gst_buffer_set_size(buffer.get(), static_cast<gssize>(filled->samples * bytes));
  stamp(self, buffer.get(), *filled);
  *out = buffer.release();
  return GST_FLOW_OK;
}

void lose_radio(GstSoapySrc* self, const Error& lost) {
  self->state->radio.reset();  // the driver may let nobody in beside it
  gpumap::gst::post_warning(GST_ELEMENT_CAST(self),
                            Error(ErrorCode::io, lost.cause(), "waiting until the radio is back: plug it in again"),
                            GST_RESOURCE_ERROR_READ);
}

/// Where the radio is gone, wait until it is back. Empty: the thread is interrupted.
std::optional<GstFlowReturn> wait_for_radio(GstSoapySrc* self) {
  SoapyState& state = *self->state;
  std::string reason;
  while (state.radio == nullptr) {
    if (pause(state, reopen_pause)) return std::nullopt;
    try {
      open_radio(self);
      // Caps may have been decided while it was gone.
      const Ptr<GstCaps> caps(gst_pad_get_current_caps(GST_BASE_SRC_PAD(self)));
      const RadioFormat* const wanted = caps ? format_of(*state.radio, caps.get()) : nullptr;
      if (wanted != nullptr) state.chosen = wanted;
      state.radio->open_stream(*state.chosen, state.used.stream_arguments);
    } catch (const std::exception& error) {
      state.radio.reset();
      // Once, for as long as nothing else is in the way.
      if (std::exchange(reason, error.what()) == error.what()) continue;
      gpumap::gst::post_warning(
          GST_ELEMENT_CAST(self),
          Error(ErrorCode::io, fmt::format("the radio cannot be opened again, which is tried every {} ms: {}",
                                           reopen_pause.count(), error.what())),
          GST_RESOURCE_ERROR_OPEN_READ);
    }
  }
  warn_of(self, state.radio->refused());  // it may have been refused before, too
  {
    const ObjectLock lock(self);
    ++state.counts.reopened;
  }
  GstStructure* told =
      gst_structure_new("soapysrc-reopened", "radio", G_TYPE_STRING, state.radio->name().c_str(), nullptr);
  gst_element_post_message(GST_ELEMENT_CAST(self), gst_message_new_element(GST_OBJECT_CAST(self), told));
  return gst_base_src_negotiate(GST_BASE_SRC_CAST(self)) != 0 ? GST_FLOW_OK : GST_FLOW_NOT_NEGOTIATED;
}

GstFlowReturn create(GstPushSrc* push, GstBuffer** out) {
  auto* self = reinterpret_cast<GstSoapySrc*>(push);
  SoapyState& state = *self->state;
  while (wait_until_playing(state)) {
    try {
      auto flow = state.radio == nullptr ? wait_for_radio(self) : GST_FLOW_OK;
      if (flow == GST_FLOW_OK) flow = next_buffer(self, out);
      if (flow) return *flow;
    } catch (const std::exception& error) {
      const auto* ours = dynamic_cast<const Error*>(&error);
      if (ours != nullptr && ours->code() == ErrorCode::io && state.used.on_lost == OnRadioLost::wait) {
        lose_radio(self, *ours);
        continue;
      }
      gpumap::gst::post_error(GST_ELEMENT_CAST(push), error);
      return GST_FLOW_ERROR;
    }
  }
  return GST_FLOW_FLUSHING;
}

gboolean unlock(GstBaseSrc* base) {
  SoapyState& state = state_of(base);
  state.restart = true;
  const std::lock_guard lock(state.mutex);
  // Some versions of GstBaseSrc call this to pause, and unlock_stop() then, or never.
  if (state.pausing != std::this_thread::get_id()) state.unlocked = true;
  state.woken.notify_all();
  return TRUE;
}

gboolean unlock_stop(GstBaseSrc* base) {
  SoapyState& state = state_of(base);
  const std::lock_guard lock(state.mutex);
  state.unlocked = false;
  state.woken.notify_all();
  return TRUE;
}

void set_playing(SoapyState& state, bool playing, std::thread::id pausing) {
  const std::lock_guard lock(state.mutex);
  state.playing = playing;
  state.pausing = pausing;
  state.woken.notify_all();
}

GstStateChangeReturn change_state(GstElement* element, GstStateChange transition) {
  SoapyState& state = state_of(element);
  const bool pauses = transition == GST_STATE_CHANGE_PLAYING_TO_PAUSED;
  if (pauses) set_playing(state, false, std::this_thread::get_id());
  if (transition == GST_STATE_CHANGE_PAUSED_TO_PLAYING) set_playing(state, true, {});
  const GstStateChangeReturn result = GST_ELEMENT_CLASS(gst_soapy_src_parent_class)->change_state(element, transition);
  if (!pauses) return result;
  set_playing(state, false, {});
  state.restart = true;  // the next buffer is asked for when the pipeline plays again
  return result;
}

/// From the application, to the element itself. GstBaseSrc would seek all the same, and start its thread anew.
gboolean send_event(GstElement* element, GstEvent* event) {
  if (GST_EVENT_TYPE(event) != GST_EVENT_SEEK) {
    return GST_ELEMENT_CLASS(gst_soapy_src_parent_class)->send_event(element, event);
  }
  gst_event_unref(event);
  return FALSE;
}

gboolean query(GstBaseSrc* base, GstQuery* query) {
  if (GST_QUERY_TYPE(query) != GST_QUERY_LATENCY) {
    return GST_BASE_SRC_CLASS(gst_soapy_src_parent_class)->query(base, query);
  }
  const SoapyState& state = state_of(base);
  const ObjectLock lock(base);
  if (state.rate <= 0.0) return FALSE;
  // The first sample of a buffer waits for the last one. How much a driver keeps it does not say.
  const guint samples = state.buffer_samples;
  const double seconds = samples != 0 ? samples / state.rate : state.buffer_seconds;
  gst_query_set_latency(query, TRUE, static_cast<GstClockTime>(seconds * GST_SECOND), GST_CLOCK_TIME_NONE);
  return TRUE;
}

GstStructure* stats(GObject* object) {
  const SoapyState& state = state_of(object);
  const ObjectLock lock(object);
  const Counts& of = state.counts;
  return gst_structure_new("soapysrc-stats", "radio", G_TYPE_STRING, state.name.c_str(), "format", G_TYPE_STRING,
                           state.format.c_str(), "full-scale", G_TYPE_DOUBLE, state.full_scale, "rate", G_TYPE_DOUBLE,
                           state.rate, "frequency", G_TYPE_DOUBLE, state.frequency, "bandwidth", G_TYPE_DOUBLE,
                           state.bandwidth, "samples", G_TYPE_UINT64, of.samples, "buffers", G_TYPE_UINT64, of.buffers,
                           "overflows", G_TYPE_UINT64, of.overflows, "corrupt", G_TYPE_UINT64, of.corrupt, "jumps",
                           G_TYPE_UINT64, of.jumps, "lost-samples", G_TYPE_UINT64, of.lost_samples, "reopened",
                           G_TYPE_UINT64, of.reopened, nullptr);
}

std::vector<gpumap::gst::Property> properties() {
  auto all = gpumap::gst::radio_properties([](GObject* object) -> RadioSettings& { return state_of(object).settings; },
                                           [](GObject* object) { state_of(object).changed = true; });
  all.push_back(gpumap::gst::statistics(
      "radio, format and full-scale (what its largest sample is), rate, frequency and bandwidth as the radio has "
      "them; samples and buffers; overflows that the driver reported, corrupt: data that it threw away, jumps of "
      "the radio's clock; lost-samples by that clock; reopened: how often the radio came back",
      stats));
  return all;
}

void finalize(GObject* object) {
  delete reinterpret_cast<GstSoapySrc*>(object)->state;
  G_OBJECT_CLASS(gst_soapy_src_parent_class)->finalize(object);
}

}  // namespace

static void gst_soapy_src_class_init(GstSoapySrcClass* klass) {
  GST_DEBUG_CATEGORY_INIT(soapy_src_debug, "soapysrc", 0, "samples of a radio");
  G_OBJECT_CLASS(klass)->finalize = finalize;
  GST_ELEMENT_CLASS(klass)->change_state = change_state;
  GST_ELEMENT_CLASS(klass)->send_event = send_event;
  auto* base = GST_BASE_SRC_CLASS(klass);
  base->get_caps = get_caps;
  base->set_caps = set_caps;
  base->negotiate = negotiate;
  base->decide_allocation = decide_allocation;
  base->start = start;
  base->stop = stop;
  base->unlock = unlock;
  base->unlock_stop = unlock_stop;
  base->query = query;
  GST_PUSH_SRC_CLASS(klass)->create = create;
  gpumap::gst::install_properties(G_OBJECT_CLASS(klass), properties());

  const Ptr<GstCaps> caps(gpumap::gst::radio_caps());
  gst_element_class_add_pad_template(GST_ELEMENT_CLASS(klass),
                                     gst_pad_template_new("src", GST_PAD_SRC, GST_PAD_ALWAYS, caps.get()));
  gst_element_class_set_static_metadata(GST_ELEMENT_CLASS(klass), "Radio source", "Source/Radio",
                                        "Samples of a radio, by SoapySDR, straight into downstream's memory",
                                        "The gpumap authors");
}

static void gst_soapy_src_init(GstSoapySrc* self) {
  self->state = new SoapyState;
  gst_base_src_set_live(GST_BASE_SRC_CAST(self), TRUE);
  gst_base_src_set_format(GST_BASE_SRC_CAST(self), GST_FORMAT_TIME);
}
