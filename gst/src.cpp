// SPDX-License-Identifier: MIT
#include "src.hpp"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "channel.hpp"
#include "error.hpp"
#include "gpumap/error.hpp"
#include "src_output.hpp"

GST_DEBUG_CATEGORY_STATIC(gpumap_src_debug);
#define GST_CAT_DEFAULT gpumap_src_debug

using gpumap::Clock;
using gpumap::Deadline;
using gpumap::Error;
using gpumap::ErrorCode;
using gpumap::gst::Channel;
using gpumap::gst::SrcOutput;

namespace {

struct SrcState {
  explicit SrcState(GstPad* pad) : output(pad) {}

  std::string channel_name = "default";
  guint timeout_ms = 0;
  guint busy_poll_us = 0;
  bool is_live = false;

  std::shared_ptr<Channel> channel;
  SrcOutput output;
  bool started_stream = false;  ///< stream-start went out (streaming thread)
  GstEvent* segment = nullptr;  ///< as it came from the sink (streaming thread)
  GstClockTimeDiff shift = 0;   ///< running time there minus running time here (streaming thread)
  guint play_count = 0;         ///< of the channel, when `shift` was last computed (streaming thread)
  std::atomic<guint64> frames{0};
  std::atomic<guint64> bytes{0};

  std::mutex mutex;
  std::condition_variable changed;
  bool playing = false;
  bool flushing = true;
};

struct GstGpumapSrc {
  GstElement element;
  GstPad* pad;
  SrcState* state;
};
struct GstGpumapSrcClass {
  GstElementClass base;
};

}  // namespace

G_DEFINE_TYPE(GstGpumapSrc, gst_gpumap_src, GST_TYPE_ELEMENT)

namespace {

GstGpumapSrc* self_of(gpointer object) {
  return reinterpret_cast<GstGpumapSrc*>(object);
}
SrcState& state_of(gpointer object) {
  return *self_of(object)->state;
}

enum { PROP_CHANNEL = 1, PROP_TIMEOUT, PROP_IS_LIVE, PROP_BUSY_POLL, PROP_STATS };

void set_property(GObject* object, guint id, const GValue* value, GParamSpec* spec) {
  SrcState& state = state_of(object);
  GST_OBJECT_LOCK(object);
  switch (id) {
    case PROP_CHANNEL:
      state.channel_name = g_value_get_string(value) != nullptr ? g_value_get_string(value) : "default";
      break;
    case PROP_TIMEOUT:
      state.timeout_ms = g_value_get_uint(value);
      break;
    case PROP_IS_LIVE:
      state.is_live = g_value_get_boolean(value) != 0;
      break;
    case PROP_BUSY_POLL:
      state.busy_poll_us = g_value_get_uint(value);
      break;
    default:
      G_OBJECT_WARN_INVALID_PROPERTY_ID(object, id, spec);
  }
  GST_OBJECT_UNLOCK(object);
}

void get_property(GObject* object, guint id, GValue* value, GParamSpec* spec) {
  SrcState& state = state_of(object);
  GST_OBJECT_LOCK(object);
  switch (id) {
    case PROP_CHANNEL:
      g_value_set_string(value, state.channel_name.c_str());
      break;
    case PROP_TIMEOUT:
      g_value_set_uint(value, state.timeout_ms);
      break;
    case PROP_IS_LIVE:
      g_value_set_boolean(value, static_cast<gboolean>(state.is_live));
      break;
    case PROP_BUSY_POLL:
      g_value_set_uint(value, state.busy_poll_us);
      break;
    case PROP_STATS:
      g_value_take_boxed(value, gst_structure_new("gpumapsrc-stats", "frames", G_TYPE_UINT64, state.frames.load(),
                                                  "bytes", G_TYPE_UINT64, state.bytes.load(), nullptr));
      break;
    default:
      G_OBJECT_WARN_INVALID_PROPERTY_ID(object, id, spec);
  }
  GST_OBJECT_UNLOCK(object);
}

/// Two pipelines have two base times: what is due at a moment on the clock there is due at that moment here.
GstClockTimeDiff running_time_shift(GstGpumapSrc* self) {
  GstElement* sink = self->state->channel->sink();
  if (sink == nullptr) return self->state->shift;
  GstClock* here = gst_element_get_clock(GST_ELEMENT_CAST(self));
  GstClock* there = gst_element_get_clock(sink);
  GstClockTimeDiff shift = 0;
  if (here != nullptr && here == there) {
    shift = GST_CLOCK_DIFF(gst_element_get_base_time(GST_ELEMENT_CAST(self)), gst_element_get_base_time(sink));
  }
  gst_clear_object(&here);
  gst_clear_object(&there);
  gst_object_unref(sink);
  return shift;
}

void push_segment(GstGpumapSrc* self) {
  SrcState& state = *self->state;
  GstSegment segment;
  gst_event_copy_segment(state.segment, &segment);
  const bool moved = state.shift != 0 && segment.format == GST_FORMAT_TIME &&
                     gst_segment_offset_running_time(&segment, GST_FORMAT_TIME, state.shift);
  GstEvent* event = moved ? gst_event_new_segment(&segment) : gst_event_ref(state.segment);
  if (moved) gst_event_set_seqnum(event, gst_event_get_seqnum(state.segment));
  gst_pad_push_event(self->pad, event);
}

/// Base times are known once both sides play, and change when either pauses: look again then.
void follow_base_times(GstGpumapSrc* self) {
  SrcState& state = *self->state;
  const guint count = state.channel->play_count();
  if (count == state.play_count) return;
  state.play_count = count;
  const GstClockTimeDiff shift = running_time_shift(self);
  if (shift == state.shift) return;
  state.shift = shift;
  if (state.segment != nullptr) push_segment(self);
}

void push_stream_start(GstGpumapSrc* self) {
  gchar* id = gst_pad_create_stream_id(self->pad, GST_ELEMENT_CAST(self), nullptr);
  GstEvent* event = gst_event_new_stream_start(id);
  gst_event_set_group_id(event, gst_util_group_id_next());
  g_free(id);
  gst_pad_push_event(self->pad, event);
  self->state->started_stream = true;
}

/// Upstream (filesrc) may name no caps; downstream needs some, and before the segment.
bool name_caps(GstGpumapSrc* self) {
  SrcOutput& output = self->state->output;
  if (output.has_caps()) return true;
  GstCaps* caps = gst_caps_new_empty_simple("application/octet-stream");
  const bool accepted = output.negotiate(caps);
  gst_caps_unref(caps);
  return accepted;
}

/// False: the stream is over.
bool handle_event(GstGpumapSrc* self, GstEvent* event) {
  SrcState& state = *self->state;
  switch (GST_EVENT_TYPE(event)) {
    case GST_EVENT_STREAM_START:
      state.started_stream = true;
      gst_pad_push_event(self->pad, event);
      return true;
    case GST_EVENT_CAPS: {
      GstCaps* caps = nullptr;
      gst_event_parse_caps(event, &caps);
      const bool accepted = state.output.negotiate(caps);
      gst_event_unref(event);
      if (!accepted) {
        GST_ELEMENT_ERROR(self, STREAM, FORMAT,
                          ("what follows gpumapsrc takes these frames neither as memory:GPUMap "
                           "nor as system memory: put a converter in between"),
                          (nullptr));
        state.channel->set_downstream_flow(GST_FLOW_NOT_NEGOTIATED);
      }
      return accepted;
    }
    case GST_EVENT_SEGMENT:
      if (!name_caps(self)) {
        gst_event_unref(event);
        return false;
      }
      gst_event_take(&state.segment, event);
      state.shift = running_time_shift(self);
      push_segment(self);
      return true;
    case GST_EVENT_EOS:
      gst_pad_push_event(self->pad, event);
      return false;
    default:
      gst_pad_push_event(self->pad, event);
      return true;
  }
}

GstFlowReturn push_frame(GstGpumapSrc* self, Channel::Next& next) {
  SrcState& state = *self->state;
  if (gst_pad_check_reconfigure(self->pad) && !state.output.renegotiate()) return GST_FLOW_NOT_NEGOTIATED;
  if (!name_caps(self)) return GST_FLOW_NOT_NEGOTIATED;
  follow_base_times(self);
  const std::uint64_t bytes = next.lease.info().bytes;
  GstBuffer* buffer = state.output.wrap(std::move(next.lease), std::exchange(next.carrier, nullptr));
  state.frames.fetch_add(1, std::memory_order_relaxed);
  state.bytes.fetch_add(bytes, std::memory_order_relaxed);
  return gst_pad_push(self->pad, buffer);
}

void stop_on(GstGpumapSrc* self, GstFlowReturn flow) {
  gst_pad_pause_task(self->pad);
  if (flow == GST_FLOW_FLUSHING) return;
  self->state->channel->set_downstream_flow(flow);
  if (flow == GST_FLOW_EOS) {
    gst_pad_push_event(self->pad, gst_event_new_eos());
  } else if (flow == GST_FLOW_NOT_LINKED || flow < GST_FLOW_EOS) {
    GST_ELEMENT_FLOW_ERROR(self, flow);
    gst_pad_push_event(self->pad, gst_event_new_eos());
  }
}

void loop(gpointer user) {
  GstGpumapSrc* self = self_of(user);
  SrcState& state = *self->state;
  if (state.is_live) {
    std::unique_lock lock(state.mutex);
    state.changed.wait(lock, [&] { return state.playing || state.flushing; });
    if (state.flushing) {
      gst_pad_pause_task(self->pad);
      return;
    }
  }
  try {
    const Deadline deadline =
        state.timeout_ms != 0 ? Clock::now() + std::chrono::milliseconds(state.timeout_ms) : gpumap::no_deadline;
    Channel::Next next = state.channel->next(deadline);
    switch (next.kind) {
      case Channel::Next::Kind::frame: {
        if (!state.started_stream) push_stream_start(self);
        const GstFlowReturn flow = push_frame(self, next);
        if (flow != GST_FLOW_OK) stop_on(self, flow);
        break;
      }
      case Channel::Next::Kind::event:
        if (!handle_event(self, next.event)) gst_pad_pause_task(self->pad);
        break;
      case Channel::Next::Kind::timeout: {
        GstElement* sink = state.channel->sink();
        const bool alone = sink == nullptr;
        gst_clear_object(&sink);
        throw Error(ErrorCode::io,
                    alone ? fmt::format("no gpumapsink on channel \"{}\" for {} ms: start one in this process with the "
                                        "same channel, or raise timeout",
                                        state.channel->name(), state.timeout_ms)
                          : fmt::format("no frame on channel \"{}\" for {} ms: see what feeds its gpumapsink, or raise "
                                        "timeout",
                                        state.channel->name(), state.timeout_ms));
      }
      case Channel::Next::Kind::flushing:
        gst_pad_pause_task(self->pad);
        break;
    }
  } catch (const std::exception& error) {
    gpumap::gst::post_error(GST_ELEMENT_CAST(self), error);
    gst_pad_pause_task(self->pad);
    state.channel->set_downstream_flow(GST_FLOW_ERROR);
    gst_pad_push_event(self->pad, gst_event_new_eos());
  }
}

void set_flushing(SrcState& state, bool flushing) {
  std::shared_ptr<Channel> channel;
  {
    const std::lock_guard lock(state.mutex);
    state.flushing = flushing;
    channel = state.channel;
  }
  state.changed.notify_all();
  if (channel) channel->set_src_flushing(flushing);
}

void set_playing(SrcState& state, bool playing) {
  {
    const std::lock_guard lock(state.mutex);
    state.playing = playing;
  }
  state.changed.notify_all();
  if (playing) state.channel->count_play();
}

/// The channel, for threads other than the streaming one: a state change may let it go at any time.
std::shared_ptr<Channel> channel_of(SrcState& state) {
  const std::lock_guard lock(state.mutex);
  return state.channel;
}

/// The pad at which frames enter the channel, transfer full, or null.
GstPad* far_pad(SrcState& state) {
  const auto channel = channel_of(state);
  GstElement* sink = channel ? channel->sink() : nullptr;
  if (sink == nullptr) return nullptr;
  GstPad* pad = gst_element_get_static_pad(sink, "sink");
  gst_object_unref(sink);
  return pad;
}

/// The sink's flush, in the sink's thread.
void on_flush(GstGpumapSrc* self, GstEvent* event) {
  if (GST_EVENT_TYPE(event) == GST_EVENT_FLUSH_START) {
    gst_pad_push_event(self->pad, event);
    set_flushing(*self->state, true);
    return;
  }
  GST_PAD_STREAM_LOCK(self->pad);
  gst_pad_push_event(self->pad, event);
  if (const auto channel = channel_of(*self->state)) channel->set_downstream_flow(GST_FLOW_OK);
  set_flushing(*self->state, false);
  if (GST_PAD_MODE(self->pad) == GST_PAD_MODE_PUSH) gst_pad_start_task(self->pad, loop, self, nullptr);
  GST_PAD_STREAM_UNLOCK(self->pad);
}

gboolean activate_mode(GstPad* pad, GstObject* parent, GstPadMode mode, gboolean active) {
  if (mode != GST_PAD_MODE_PUSH) return FALSE;
  SrcState& state = state_of(parent);
  if (active) {
    set_flushing(state, false);
    return gst_pad_start_task(pad, loop, parent, nullptr);
  }
  set_flushing(state, true);
  return gst_pad_stop_task(pad);
}

gboolean src_event(GstPad* pad, GstObject* parent, GstEvent* event) {
  if (GST_EVENT_TYPE(event) == GST_EVENT_RECONFIGURE || GST_EVENT_TYPE(event) == GST_EVENT_LATENCY) {
    return gst_pad_event_default(pad, parent, event);
  }
  // Seeks, QoS, navigation: for whoever made the frames. Running times there differ by the shift.
  GstPad* sinkpad = far_pad(state_of(parent));
  if (sinkpad == nullptr) {
    gst_event_unref(event);
    return FALSE;
  }
  const gboolean handled = gst_pad_push_event(sinkpad, event);
  gst_object_unref(sinkpad);
  return handled;
}

gboolean latency(GstGpumapSrc* self, GstQuery* query) {
  GstPad* sinkpad = far_pad(*self->state);
  gboolean live = FALSE;
  GstClockTime min = 0;
  GstClockTime max = GST_CLOCK_TIME_NONE;
  if (sinkpad != nullptr) {
    GstQuery* upstream = gst_query_new_latency();
    if (gst_pad_peer_query(sinkpad, upstream)) gst_query_parse_latency(upstream, &live, &min, &max);
    gst_query_unref(upstream);
    gst_object_unref(sinkpad);
  }
  // The ring adds no delay of its own: a frame can be taken the moment it is published.
  gst_query_set_latency(query, static_cast<gboolean>(live || self->state->is_live), min, max);
  return TRUE;
}

gboolean src_query(GstPad* pad, GstObject* parent, GstQuery* query) {
  GstGpumapSrc* self = self_of(parent);
  switch (GST_QUERY_TYPE(query)) {
    case GST_QUERY_LATENCY:
      return latency(self, query);
    case GST_QUERY_POSITION:
    case GST_QUERY_DURATION:
    case GST_QUERY_SEEKING: {
      GstPad* sinkpad = far_pad(*self->state);
      if (sinkpad == nullptr) return FALSE;
      const gboolean answered = gst_pad_peer_query(sinkpad, query);
      gst_object_unref(sinkpad);
      return answered;
    }
    case GST_QUERY_SCHEDULING:
      gst_query_set_scheduling(query, GST_SCHEDULING_FLAG_SEQUENTIAL, 1, -1, 0);
      gst_query_add_scheduling_mode(query, GST_PAD_MODE_PUSH);
      return TRUE;
    default:
      return gst_pad_query_default(pad, parent, query);
  }
}

void start(GstGpumapSrc* self) {
  SrcState& state = *self->state;
  auto channel = Channel::open(state.channel_name);
  std::string holder;
  if (!channel->attach_src(
          GST_ELEMENT_CAST(self), [self](GstEvent* event) { on_flush(self, event); }, holder)) {
    throw Error(ErrorCode::invalid,
                fmt::format("channel \"{}\" has a gpumapsrc already ({}): put a tee after that one, "
                            "or give each pair a channel name of its own",
                            state.channel_name, holder));
  }
  channel->set_src_spin(std::chrono::microseconds(state.busy_poll_us));
  {
    const std::lock_guard lock(state.mutex);
    state.channel = std::move(channel);
  }
  state.started_stream = false;
  state.shift = 0;
  state.frames = 0;
  state.bytes = 0;
}

GstStateChangeReturn change_state(GstElement* element, GstStateChange transition) {
  GstGpumapSrc* self = self_of(element);
  SrcState& state = *self->state;
  if (transition == GST_STATE_CHANGE_READY_TO_PAUSED) {
    try {
      start(self);
    } catch (const std::exception& error) {
      gpumap::gst::post_error(element, error);
      return GST_STATE_CHANGE_FAILURE;
    }
  }
  if (transition == GST_STATE_CHANGE_PAUSED_TO_PLAYING) set_playing(state, true);
  if (transition == GST_STATE_CHANGE_PLAYING_TO_PAUSED) set_playing(state, false);

  GstStateChangeReturn result = GST_ELEMENT_CLASS(gst_gpumap_src_parent_class)->change_state(element, transition);
  if (result == GST_STATE_CHANGE_FAILURE) return result;

  if (transition == GST_STATE_CHANGE_PAUSED_TO_READY) {
    state.channel->detach_src();
    {
      const std::lock_guard lock(state.mutex);
      state.channel.reset();
    }
    gst_clear_event(&state.segment);
    state.output.reset();
  }
  const bool to_paused =
      transition == GST_STATE_CHANGE_READY_TO_PAUSED || transition == GST_STATE_CHANGE_PLAYING_TO_PAUSED;
  if (state.is_live && to_paused) result = GST_STATE_CHANGE_NO_PREROLL;
  return result;
}

void finalize(GObject* object) {
  delete self_of(object)->state;
  G_OBJECT_CLASS(gst_gpumap_src_parent_class)->finalize(object);
}

}  // namespace

static void gst_gpumap_src_class_init(GstGpumapSrcClass* klass) {
  GST_DEBUG_CATEGORY_INIT(gpumap_src_debug, "gpumapsrc", 0, "gpumap source");
  auto* object_class = G_OBJECT_CLASS(klass);
  object_class->set_property = set_property;
  object_class->get_property = get_property;
  object_class->finalize = finalize;
  GST_ELEMENT_CLASS(klass)->change_state = change_state;

  const auto rw = static_cast<GParamFlags>(G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | GST_PARAM_MUTABLE_READY);
  g_object_class_install_property(
      object_class, PROP_CHANNEL,
      g_param_spec_string("channel", "Channel", "Name of the gpumapsink's channel", "default", rw));
  g_object_class_install_property(
      object_class, PROP_TIMEOUT,
      g_param_spec_uint("timeout", "Timeout", "Milliseconds without a frame that are an error (0: wait for ever)", 0,
                        G_MAXUINT, 0, rw));
  g_object_class_install_property(
      object_class, PROP_IS_LIVE,
      g_param_spec_boolean("is-live", "Is live", "Act as a live source: no frames while PAUSED", FALSE, rw));
  g_object_class_install_property(
      object_class, PROP_BUSY_POLL,
      g_param_spec_uint("busy-poll", "Busy poll", "Microseconds to spin for a frame before sleeping", 0, 1000000, 0,
                        rw));
  g_object_class_install_property(
      object_class, PROP_STATS,
      g_param_spec_boxed("stats", "Statistics", "frames, bytes", GST_TYPE_STRUCTURE,
                         static_cast<GParamFlags>(G_PARAM_READABLE | G_PARAM_STATIC_STRINGS)));

  static GstStaticPadTemplate pad_template =
      GST_STATIC_PAD_TEMPLATE("src", GST_PAD_SRC, GST_PAD_ALWAYS, GST_STATIC_CAPS_ANY);
  gst_element_class_add_static_pad_template(GST_ELEMENT_CLASS(klass), &pad_template);
  gst_element_class_set_static_metadata(GST_ELEMENT_CLASS(klass), "GPU map source", "Source/Hardware",
                                        "Gives the frames of a gpumapsink, in GPU memory, to a GPU pipeline",
                                        "The gpumap authors");
}

static void gst_gpumap_src_init(GstGpumapSrc* self) {
  self->pad = gst_pad_new_from_template(gst_element_class_get_pad_template(GST_ELEMENT_GET_CLASS(self), "src"), "src");
  self->state = new SrcState(self->pad);
  gst_pad_set_activatemode_function(self->pad, activate_mode);
  gst_pad_set_event_function(self->pad, src_event);
  gst_pad_set_query_function(self->pad, src_query);
  gst_pad_use_fixed_caps(self->pad);
  gst_element_add_pad(GST_ELEMENT_CAST(self), self->pad);
  GST_OBJECT_FLAG_SET(self, GST_ELEMENT_FLAG_SOURCE);
}
