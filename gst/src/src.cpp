// SPDX-License-Identifier: MIT
/**
 * SECTION:element-gpumapsrc
 * @title: gpumapsrc
 * @short_description: gives the frames of a gpumapsink to a GPU pipeline
 * @see_also: gpumapsink, gpumapkernel
 *
 * gpumapsrc hands on the frames that a gpumapsink of the same #GstGpumapSrc:channel has in GPU memory. A buffer of it
 * is the slot that was written, under the caps feature memory:GPUMap; an element that does not know that feature gets
 * ordinary memory. Caps, segments, tags, gaps, metas and EOS come across with the frames, in their order.
 *
 * With #GstGpumapSrc:socket-path the gpumapsink is in another process: `gpumapsink socket-path=/tmp/camera` there,
 * `gpumapsrc socket-path=/tmp/camera` here, whichever starts first. The slots are the same memory in both. What becomes
 * of the stream when that process dies, #GstGpumapSrc:on-lost says.
 *
 * ## Example launch lines
 *
 * |[
 * gst-launch-1.0 videotestsrc num-buffers=100 ! video/x-raw,format=NV12 ! gpumapsink \
 *   gpumapsrc ! "video/x-raw(memory:GPUMap)" ! gpumapkernel kernel=checksum ! fakesink
 * ]| Frames that stay in GPU memory, and a kernel that reads each byte of them.
 *
 * |[
 * gst-launch-1.0 videotestsrc num-buffers=100 is-live=true ! video/x-raw,format=NV12,framerate=120/1 ! \
 *   gpumapsink busy-poll=200 \
 *   gpumapsrc busy-poll=200 is-live=true ! gpumapkernel kernel=checksum ! fakesink
 * ]| The shortest way from the CPU to a kernel: both sides spin for 200 us before they sleep.
 *
 * Since: 0.1
 */
#include "gst/elements.hpp"

#include <fmt/format.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "gst/channel/access.hpp"
#include "gst/channel/alarm.hpp"
#include "gst/channel/ends.hpp"
#include "gst/channel/inlet.hpp"
#include "gst/channel/pipeline_state.hpp"
#include "gst/gst_error.hpp"
#include "gst/property_table.hpp"
#include "gst/sink/sink_element.hpp"
#include "gst/src/src_stream.hpp"

GST_DEBUG_CATEGORY_EXTERN(gpumap_src_debug);
#define GST_CAT_DEFAULT gpumap_src_debug

using gpumap::gst::PropertiesOf;
using gpumap::gst::Property;
using gpumap::gst::SrcSettings;
using gpumap::gst::SrcStream;

namespace {

struct SrcState {
  SrcState(GstElement* element, GstPad* pad) : stream(element, pad) {}
  SrcSettings settings;
  SrcStream stream;
  gpumap::gst::Alarm no_sink;                 ///< no gpumapsink has come
  std::unique_ptr<gpumap::gst::Inlet> inlet;  ///< with socket-path, from PAUSED on
  std::atomic<bool> refusal_told{false};      ///< of a stop in the link's thread, since the start
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

std::vector<Property> src_properties() {
  using Settings = SrcSettings;
  const PropertiesOf<Settings> of([](GObject* src) -> Settings& { return state_of(src).settings; });
  std::vector<Property> table{
      of.text("channel", "Name of the gpumapsink's channel", &Settings::channel),
      of.number("timeout", "Milliseconds without a frame before an error is posted (0: wait for ever)",
                &Settings::timeout_ms),
      of.flag("is-live", "Act as a live source: no frames while PAUSED", &Settings::is_live),
      of.number("busy-poll", "Microseconds to spin for a frame before sleeping", &Settings::busy_poll_us, 0, 1000000),
      of.flag("do-timestamp", "Stamp each frame with the running time at which it is taken from the ring",
              &Settings::do_timestamp),
      of.number("num-buffers", "Frames to give before EOS (-1: no end)", &Settings::num_buffers, -1),
      of.text("socket-path",
              "Connect to the gpumapsink of another process at this Unix socket, instead of one of this process by its "
              "channel",
              &Settings::socket_path),
      of.text(
          "allowed-users",
          "With socket-path: users whose gpumapsinks are believed beside those of the own one, names or numbers with "
          "commas between them",
          &Settings::allowed_users),
      of.choice("on-lost", "With socket-path: what to do where a gpumapsink went without EOS", &Settings::on_lost,
                gpumap::gst::on_lost_type()),
      of.choice(
          "leaky",
          "With socket-path: which frames to miss where this element is too slow (no: none, the gpumapsink waits)",
          &Settings::leak, gpumap::gst::leaky_type()),
      gpumap::gst::statistics(
          "frames, bytes; kept-slots: those that downstream holds now; host-copies: frames that it got in host memory "
          "because it keeps so many, or because of leaky; gpu-copies: those that were copied within the GPU, into CUDA "
          "memory; latency of frames that gpumapsink follows (stamps=true)",
          [](GObject* src) { return state_of(src).stream.stats(); }),
  };
  gpumap::gst::add_thread_properties(
      table, [](GObject* src) -> gpumap::gst::ThreadSettings& { return state_of(src).settings.threads; },
      "the streaming thread and, with socket-path, of the link's");
  return table;
}

gboolean activate_mode(GstPad* /*pad*/, GstObject* parent, GstPadMode mode, gboolean active) {
  if (mode != GST_PAD_MODE_PUSH) return FALSE;
  return static_cast<gboolean>(state_of(parent).stream.activate(active != 0));
}

gboolean src_event(GstPad* pad, GstObject* parent, GstEvent* event) {
  SrcStream& stream = state_of(parent).stream;
  switch (GST_EVENT_TYPE(event)) {
    case GST_EVENT_LATENCY:
      return gst_pad_event_default(pad, parent, event);
    case GST_EVENT_RECONFIGURE:
      stream.relinked();
      // The pad notes it by itself; upstream of the sink may give other caps, too.
      (void)stream.send_upstream(event);
      return TRUE;
    default:  // seeks, QoS, navigation: for the elements that made the frames
      return static_cast<gboolean>(stream.send_upstream(event));
  }
}

gboolean src_query(GstPad* pad, GstObject* parent, GstQuery* query) {
  SrcState& state = state_of(parent);
  GST_OBJECT_LOCK(parent);
  const SrcSettings settings = state.settings;
  GST_OBJECT_UNLOCK(parent);
  return gpumap::gst::answer_src_query(state.stream, settings, pad, query);
}

/// What the application sends downstream through its pipeline, EOS above all, reaches every source.
gboolean send_event(GstElement* element, GstEvent* event) {
  const bool downstream = (gst_event_type_get_flags(GST_EVENT_TYPE(event)) & GST_EVENT_TYPE_DOWNSTREAM) != 0;
  if (downstream) return static_cast<gboolean>(state_of(element).stream.send_downstream(event));
  return GST_ELEMENT_CLASS(gst_gpumap_src_parent_class)->send_event(element, event);
}

gboolean post_message(GstElement* element, GstMessage* message) {
  GstStreamStatusType status{};
  if (GST_MESSAGE_TYPE(message) == GST_MESSAGE_STREAM_STATUS) {
    gst_message_parse_stream_status(message, &status, nullptr);
    if (status == GST_STREAM_STATUS_TYPE_LEAVE) state_of(element).stream.leave_thread();
  }
  return GST_ELEMENT_CLASS(gst_gpumap_src_parent_class)->post_message(element, message);
}

void start(GstElement* element, SrcState& state, const SrcSettings& settings) {
  const gpumap::ThreadSchedule schedule = gpumap::gst::try_schedule(element, settings.threads);
  state.stream.start(settings);
  if (settings.socket_path.empty()) {
    gpumap::gst::warn_of_idle_properties(element, {"allowed-users", "on-lost", "leaky"});
    state.no_sink.set(gpumap::gst::patience_for_peer, element,
                      [](GstElement* src) { state_of(src).stream.tell_if_alone(); });
    return;
  }
  try {
    state.inlet = std::make_unique<gpumap::gst::Inlet>(
        element, gpumap::gst::Channel::open(settings.channel),
        gpumap::gst::InletSettings{settings.socket_path, settings.on_lost, settings.leak, settings.busy_poll_us,
                                   gpumap::gst::users_of(settings.allowed_users), schedule});
  } catch (...) {
    state.stream.stop();
    throw;
  }
}

void stop(SrcState& state) {
  state.no_sink.stop();
  state.inlet.reset();
  state.stream.stop();
}

GstStateChangeReturn change_state(GstElement* element, GstStateChange transition) {
  SrcState& state = state_of(element);
  GST_OBJECT_LOCK(element);
  SrcSettings settings = state.settings;
  GST_OBJECT_UNLOCK(element);
  // A channel of its own, which nobody else finds: others of this process may connect to the same socket.
  if (!settings.socket_path.empty()) {
    settings.channel = fmt::format("{} {}", settings.socket_path, static_cast<const void*>(element));
  }
  if (transition == GST_STATE_CHANGE_NULL_TO_READY) state.stream.announce(settings.channel);
  if (transition == GST_STATE_CHANGE_READY_TO_PAUSED) {
    state.refusal_told = false;
    gpumap::gst::mend_states_at_start(element);
    try {
      start(element, state, settings);
    } catch (const std::exception& error) {
      gpumap::gst::post_error(element, error);
      return GST_STATE_CHANGE_FAILURE;
    }
  }
  if (transition == GST_STATE_CHANGE_PAUSED_TO_PLAYING) state.stream.set_playing(true);
  if (transition == GST_STATE_CHANGE_PLAYING_TO_PAUSED) state.stream.set_playing(false);

  // As GStreamer refuses it to a streaming thread.
  if (transition == GST_STATE_CHANGE_PAUSED_TO_READY && state.inlet && state.inlet->runs_here()) {
    // Once: the handler of this message may try again.
    if (!state.refusal_told.exchange(true)) {
      gpumap::gst::post_warning(
          element,
          gpumap::Error(
              gpumap::ErrorCode::busy,
              "gpumapsrc goes on: a handler of a message stops it in the link's thread, which would wait for itself",
              "stop it in another thread, as by gst_element_call_async()"));
    }
    return GST_STATE_CHANGE_FAILURE;
  }
  const GstStateChangeReturn result = GST_ELEMENT_CLASS(gst_gpumap_src_parent_class)->change_state(element, transition);
  if (result == GST_STATE_CHANGE_FAILURE) {
    if (transition == GST_STATE_CHANGE_READY_TO_PAUSED) stop(state);
    return result;
  }

  if (transition == GST_STATE_CHANGE_PAUSED_TO_READY) stop(state);
  if (transition == GST_STATE_CHANGE_READY_TO_NULL) state.stream.withdraw();
  const bool to_paused =
      transition == GST_STATE_CHANGE_READY_TO_PAUSED || transition == GST_STATE_CHANGE_PLAYING_TO_PAUSED;
  return state.stream.is_live() && to_paused ? GST_STATE_CHANGE_NO_PREROLL : result;
}

void finalize(GObject* object) {
  gpumap::gst::forget_end(GST_ELEMENT_CAST(object));
  delete self_of(object)->state;
  G_OBJECT_CLASS(gst_gpumap_src_parent_class)->finalize(object);
}

}  // namespace

static void gst_gpumap_src_class_init(GstGpumapSrcClass* klass) {
  auto* object_class = G_OBJECT_CLASS(klass);
  object_class->finalize = finalize;
  GST_ELEMENT_CLASS(klass)->change_state = change_state;
  GST_ELEMENT_CLASS(klass)->send_event = send_event;
  GST_ELEMENT_CLASS(klass)->post_message = post_message;

  gpumap::gst::install_properties(object_class, src_properties());

  static GstStaticPadTemplate pad_template =
      GST_STATIC_PAD_TEMPLATE("src", GST_PAD_SRC, GST_PAD_ALWAYS, GST_STATIC_CAPS_ANY);
  gst_element_class_add_static_pad_template(GST_ELEMENT_CLASS(klass), &pad_template);
  gst_element_class_set_static_metadata(GST_ELEMENT_CLASS(klass), "GPU map source", "Source/Hardware",
                                        "Gives the frames of a gpumapsink, in GPU memory, to a GPU pipeline",
                                        "The gpumap authors");
}

static void gst_gpumap_src_init(GstGpumapSrc* self) {
  self->pad = gst_pad_new_from_template(gst_element_class_get_pad_template(GST_ELEMENT_GET_CLASS(self), "src"), "src");
  self->state = new SrcState(GST_ELEMENT_CAST(self), self->pad);
  gst_pad_set_activatemode_function(self->pad, activate_mode);
  gst_pad_set_event_function(self->pad, src_event);
  gst_pad_set_query_function(self->pad, src_query);
  gst_pad_use_fixed_caps(self->pad);
  gst_element_add_pad(GST_ELEMENT_CAST(self), self->pad);
  GST_OBJECT_FLAG_SET(self, GST_ELEMENT_FLAG_SOURCE);
  gpumap::gst::know_end(gpumap::gst::End::src, GST_ELEMENT_CAST(self));
}
