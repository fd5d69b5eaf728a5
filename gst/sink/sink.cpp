// SPDX-License-Identifier: MIT
/**
 * SECTION:element-gpumapsink
 * @title: gpumapsink
 * @short_description: lets upstream write frames straight into GPU memory
 * @see_also: gpumapsrc, gpumapkernel
 *
 * The buffers that gpumapsink hands upstream are GPU memory, mapped through the PCIe BAR: what upstream writes there is
 * on the GPU without a staging copy. An upstream that brings memory of its own costs one copy, by streaming stores.
 * The frames go to the gpumapsrc of the same #GstGpumapSink:channel, in this pipeline or in another one of the process.
 *
 * With #GstGpumapSink:socket-path it serves them to the gpumapsrcs of other processes instead, up to 16 of them:
 * `gpumapsink socket-path=/tmp/camera` here, `gpumapsrc socket-path=/tmp/camera` there. None of them can stop this
 * element by dying; one with leaky=no may by being slow, for #GstGpumapSink:stall-limit at most.
 *
 * Any caps go in: raw video, radio samples as raw audio with two channels, plain bytes.
 *
 * ## Example launch lines
 *
 * |[
 * gst-launch-1.0 videotestsrc num-buffers=1 ! video/x-raw,format=NV12,width=1920,height=1080 ! gpumapsink \
 *   gpumapsrc ! gpumapkernel kernel=convert ! video/x-raw,format=RGBA ! pngenc ! filesink location=frame.png
 * ]| One frame of NV12 to a PNG; the GPU converts the colours.
 *
 * |[
 * gst-launch-1.0 \
 *   videotestsrc num-buffers=100 ! video/x-raw,format=NV12 ! gpumapsink channel=left \
 *   videotestsrc num-buffers=100 pattern=ball ! video/x-raw,format=NV12 ! gpumapsink channel=right leaky=oldest \
 *   gpumapsrc channel=left ! gpumapkernel kernel=checksum ! fakesink \
 *   gpumapsrc channel=right ! gpumapkernel kernel=checksum ! fakesink
 * ]| Two channels at once, each with its own ring. Where the second one is full, a new frame replaces the oldest.
 *
 * Since: 0.1
 */
#include "gst/elements.hpp"

#include <gst/audio/audio.h>
#include <gst/video/video.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <utility>

#include "gpumap/link.hpp"
#include "gpumap/memory.hpp"
#include "gst/channel/access.hpp"
#include "gst/channel/ends.hpp"
#include "gst/channel/event_text.hpp"
#include "gst/channel/frame_origin.hpp"
#include "gst/channel/pipeline_state.hpp"
#include "gst/channel/upstream_requests.hpp"
#include "gst/gst_error.hpp"
#include "gst/memory/memory_caps.hpp"
#include "gst/ptr.hpp"
#include "gst/sink/sink_element.hpp"
#include "gst/sink/sink_frames.hpp"

GST_DEBUG_CATEGORY_EXTERN(gpumap_sink_debug);
#define GST_CAT_DEFAULT gpumap_sink_debug

namespace gpumap::gst {

namespace {

GEnumValue row(Transport transport, const char* meaning) {
  return {static_cast<gint>(transport) + 1, meaning, to_string(transport).data()};
}

/// Of the property `transport`: 0 is auto, which is no transport in the library; the library's own follow.
GType transport_type() {
  static const GType type = [] {
    static const GEnumValue values[] = {
        {0, "bar where the window has room, else pinned", "auto"},
        row(Transport::bar, "The CPU writes into GPU memory"),
        row(Transport::pinned, "The CPU writes into page-locked memory, DMA fetches it"),
        row(Transport::zero_copy, "The CPU writes into page-locked memory, kernels read it there"),
        row(Transport::pageable, "The CPU writes into ordinary memory, the driver copies it"),
        {0, nullptr, nullptr},
    };
    static_assert(std::size(values) == all_transports.size() + 2, "a transport has no row here");
    return g_enum_register_static("GstGpumapTransport", values);
  }();
  return type;
}

}  // namespace

GType leaky_type() {
  static const GType type = [] {
    static const GEnumValue values[] = {
        {static_cast<int>(WhenFull::block), "Wait for a slot", "no"},
        {static_cast<int>(WhenFull::drop_newest), "Drop the new frame", "newest"},
        {static_cast<int>(WhenFull::drop_oldest), "Drop the oldest queued frame", "oldest"},
        {0, nullptr, nullptr},
    };
    return g_enum_register_static("GstGpumapLeaky", values);
  }();
  return type;
}

SinkSettings sink_settings(GstElement* sink) {
  GST_OBJECT_LOCK(sink);
  SinkSettings settings = sink_state(sink).settings;
  GST_OBJECT_UNLOCK(sink);
  if (!settings.socket_path.empty()) {
    settings.channel = "socket " + settings.socket_path;
    // The only memory that another process can have.
    if (!settings.transport) settings.transport = Transport::bar;
  }
  return settings;
}

std::vector<Property> slot_properties(const PropertiesOf<SinkSettings>& of, PropertiesOf<ThreadSettings>::Find threads,
                                      const std::string& which_threads) {
  using Settings = SinkSettings;
  std::vector<Property> table{
      of.text("device", "GPU: auto, an index, a UUID or a PCI address (see gpumap-info)", &Settings::device),
      of.number("slots", "Frames that the ring holds", &Settings::slots, min_slots, max_slots),
      of.number("slot-size", "Bytes of a slot (0: from the caps, or from the frames)", &Settings::slot_bytes, 0,
                G_MAXINT64),
      of.number(
          "gather",
          "Bytes of a frame that smaller buffers are put together to (0: each buffer is a frame); pictures pass as "
          "they are",
          &Settings::gather_bytes, 0, G_MAXINT64),
      of.number("gather-time",
                "With gather: microseconds after which a frame goes on that is not full (0: only an event ends it)",
                &Settings::gather_us, 0, 3600000000),
      of.number("copy-threads", "Threads that copy frames into slots (0: chosen by measuring)", &Settings::copy_threads,
                0, 64),
      of.choice("transport", "How the bytes that upstream writes reach the GPU", &Settings::transport,
                transport_type()),
      of.flag("stamps",
              "Follow the way of every frame: latencies in stats, GpumapLatencyMeta on the frames in GPU memory",
              &Settings::stamps),
      of.number("latency-interval",
                "Milliseconds between element messages gpumap-latency, with the latencies since the start (0: none); "
                "sets stamps",
                &Settings::latency_interval_ms, 0, 3600000),
  };
  add_thread_properties(table, threads, which_threads);
  return table;
}

std::vector<Property> sink_properties() {
  using Settings = SinkSettings;
  const PropertiesOf<Settings> of([](GObject* sink) -> Settings& { return sink_state(sink).settings; });
  std::vector<Property> table = slot_properties(
      of, [](GObject* sink) -> ThreadSettings& { return sink_state(sink).settings.threads; },
      "the threads that copy frames and, with socket-path, of the link's");
  const std::vector<Property> own{
      of.text("channel", "Name under which this sink and one gpumapsrc meet", &Settings::channel),
      of.choice("leaky", "What to do with a frame when the ring is full", &Settings::when_full, leaky_type()),
      of.number("busy-poll", "Microseconds to spin for a slot before sleeping", &Settings::busy_poll_us, 0, 1000000),
      of.number("linger",
                "Milliseconds that the frames of an ended stream wait in GPU memory for a gpumapsrc once this element "
                "has stopped (4294967295: for ever)",
                &Settings::linger_ms),
      of.text("socket-path", "Serve gpumapsrcs of other processes at this Unix socket, instead of one of this process",
              &Settings::socket_path),
      of.text("allowed-users",
              "With socket-path: users that may connect beside the own one, names or numbers with commas between them; "
              "socket-mode must let them, too",
              &Settings::allowed_users),
      of.text("socket-mode", "With socket-path: mode of the socket's file, octal", &Settings::socket_mode),
      of.flag("wait-for-connection",
              "With socket-path: hold frames back while no client is connected, instead of dropping them",
              &Settings::wait_for_connection),
      of.number("stall-limit",
                "With socket-path: milliseconds without a free slot after which the client that keeps the oldest frame "
                "is disconnected (0: it may stop this element for ever, as what follows a queue may)",
                &Settings::stall_limit_ms, 0, 3600000),
      of.choice("upstream-events",
                "With socket-path: whose seeks, QoS and other events go upstream; queries are anybody's",
                &Settings::upstream_events, upstream_events_type()),
      read_only(
          g_param_spec_uint("num-clients", "Num clients", "With socket-path: number of clients that are connected", 0,
                            max_link_clients, 0, G_PARAM_READABLE),
          [](GObject* sink, GValue* value) { g_value_set_uint(value, sink_state(sink).clients); }),
      statistics("frames, zero-copy-frames, copied-frames, bytes-copied, bytes-in-place, gathered-buffers, drops, "
                 "cpu-reads, waits, "
                 "device, transport, "
                 "copy-threads, copy-kernel; with stamps: latency",
                 [](GObject* sink) { return sink_state(sink).core->stats("gpumapsink-stats"); }),
  };
  table.insert(table.end(), own.begin(), own.end());
  return table;
}

}  // namespace gpumap::gst

using gpumap::gst::Channel;
using gpumap::gst::GstGpumapSink;
using gpumap::gst::Outlet;
using gpumap::gst::Ptr;
using gpumap::gst::SinkPreroll;
using gpumap::gst::SinkState;

namespace {

struct GstGpumapSinkClass {
  GstBaseSinkClass base;
};

}  // namespace

G_DEFINE_TYPE(GstGpumapSink, gst_gpumap_sink, GST_TYPE_BASE_SINK)

namespace {

/// The pads are closed, so a seek that has begun is nearly over.
constexpr std::chrono::seconds patience_for_seeks{2};
constexpr GstClockTime patience_for_frame = 5 * GST_SECOND;

GstPadEventFunction base_pad_event = nullptr;

SinkState& state_of(gpointer object) {
  return gpumap::gst::sink_state(object);
}

GstFlowReturn preroll(GstBaseSink* sink, GstBuffer* buffer) {
  return state_of(sink).frames.preroll(buffer);
}

GstFlowReturn render(GstBaseSink* sink, GstBuffer* buffer) {
  return state_of(sink).frames.render(buffer);
}

GstFlowReturn chain(GstPad* /*pad*/, GstObject* parent, GstBuffer* buffer) {
  return state_of(parent).gather.take(buffer);
}

/// GstBaseSink's own would not come through chain().
GstFlowReturn chain_list(GstPad* pad, GstObject* parent, GstBufferList* list) {
  GstFlowReturn flow = GST_FLOW_OK;
  for (guint i = 0; i < gst_buffer_list_length(list) && flow == GST_FLOW_OK; ++i) {
    flow = chain(pad, parent, gst_buffer_ref(gst_buffer_list_get(list, i)));
  }
  gst_buffer_list_unref(list);
  return flow;
}

gboolean accept_caps(GstBaseSink* self, GstEvent* event) {
  GstCaps* caps = nullptr;
  gst_event_parse_caps(event, &caps);
  if (gpumap::gst::is_system_caps(caps)) return TRUE;
  GST_ELEMENT_ERROR(self, STREAM, WRONG_TYPE,
                    ("gpumapsink takes system memory: put the element that downloads this memory before it"),
                    ("caps %s", gpumap::gst::message_of(Ptr<gchar>(gst_caps_to_string(caps)).get()).c_str()));
  return FALSE;
}

gboolean base_event(GstBaseSink* sink, GstEvent* event) {
  return GST_BASE_SINK_CLASS(gst_gpumap_sink_parent_class)->event(sink, event);
}

GstEvent* start_among_others(GstElement* sink, GstEvent* start);
void tell_summary(GstElement* element, SinkState& state);

/// Of a frame, before there is one: a ring that is too small for it would be followed by another at once.
std::size_t likely_bytes(const GstCaps* caps) {
  constexpr std::size_t page = 4096;
  constexpr std::size_t most_audio = std::size_t{1} << 20U;
  constexpr gint parts_of_second = 10;  // longer buffers of audio are rare
  if (caps == nullptr || gst_caps_get_size(caps) == 0) return page;
  const GstStructure* const media = gst_caps_get_structure(caps, 0);
  GstVideoInfo video;
  if (gst_structure_has_name(media, "video/x-raw") != 0 && gst_video_info_from_caps(&video, caps) != 0) {
    return video.size;
  }
  GstAudioInfo audio;
  if (gst_structure_has_name(media, "audio/x-raw") != 0 && gst_audio_info_from_caps(&audio, caps) != 0) {
    return std::min(static_cast<std::size_t>(audio.bpf) * static_cast<std::size_t>(audio.rate / parts_of_second + 1),
                    most_audio);
  }
  return page;
}

/// Clients connect to a ring. A stream may end without a frame, or begin with a gap or a custom event, which is not
/// kept for who connects later: then there is a ring before its first frame. False, with an error on the bus: there is
/// none.
bool provide_ring(GstBaseSink* sink, GstEvent* event) {
  if (!gpumap::gst::crosses(GST_EVENT_TYPE(event))) return true;
  if (gpumap::gst::is_sticky(event) && GST_EVENT_TYPE(event) != GST_EVENT_EOS) return true;
  const Ptr<GstCaps> caps(gst_pad_get_current_caps(GST_BASE_SINK_PAD(sink)));
  try {
    const SinkState& state = state_of(sink);
    state.core->provide_ring(std::max(likely_bytes(caps.get()), state.gather.bytes()));
    return true;
  } catch (const std::exception& error) {
    gpumap::gst::post_error(GST_ELEMENT_CAST(sink), error);
    return false;
  }
}

/// As the pipeline reckons when it tells its sinks of an instant rate.
GstClockTimeDiff running_time_of(GstBaseSink* sink) {
  auto* const element = GST_ELEMENT_CAST(sink);
  const Ptr<GstElement> pipeline(gpumap::gst::top_level(element));
  const GstClockTime now = gpumap::gst::is_in_playing(element) ? gst_element_get_current_running_time(element)
                                                               : gst_element_get_start_time(pipeline.get());
  return GST_CLOCK_TIME_IS_VALID(now) ? static_cast<GstClockTimeDiff>(now) : 0;
}

/// Serialized events come under the lock of the preroll, but for FLUSH_STOP. Takes `event`, whose copy goes across.
gboolean event(GstBaseSink* sink, GstEvent* event) {
  SinkState& state = state_of(sink);
  const auto channel = state.core->channel();
  GST_DEBUG_OBJECT(sink, "%" GST_PTR_FORMAT, static_cast<void*>(event));
  if (!channel || state.reviver == g_thread_self()) return base_event(sink, event);
  const bool serialized = (gst_event_type_get_flags(GST_EVENT_TYPE(event)) & GST_EVENT_TYPE_SERIALIZED) != 0;
  switch (GST_EVENT_TYPE(event)) {
    case GST_EVENT_FLUSH_START:
      ++state.flushes;
      state.core->set_flushing(true);
      channel->flush(gst_event_ref(event));
      // Before, too: a change to PLAYING that comes in between needs a frame.
      state.frames.preroll().restart();
      base_event(sink, event);
      --state.flushes;
      state.frames.preroll().restart();
      return TRUE;
    case GST_EVENT_FLUSH_STOP:
      channel->flush(gst_event_ref(event));
      state.core->set_flushing(false);
      (void)base_event(sink, event);
      gpumap::gst::mend_states_soon(GST_ELEMENT_CAST(sink));
      // The end of one flush is no end of another, whose thread may wait for the lock that this one has, and whose
      // pipeline for that thread: a frame that came in between would wait for that pipeline. Upstream sees that at the
      // pad: it would take an event that is refused for an error.
      if (state.flushes > 0) {
        state.core->set_flushing(true);
        GST_OBJECT_LOCK(sink->sinkpad);
        GST_PAD_SET_FLUSHING(sink->sinkpad);
        GST_OBJECT_UNLOCK(sink->sinkpad);
        base_event(sink, gst_event_new_flush_start());
      }
      return TRUE;
    case GST_EVENT_CAPS:
      if (!accept_caps(sink, event)) {
        gst_event_unref(event);
        return FALSE;
      }
      break;
    default:
      break;
  }
  if (!serialized) {
    const bool is_rate = GST_EVENT_TYPE(event) == GST_EVENT_INSTANT_RATE_CHANGE;
    channel->pass(is_rate ? channel->change_rate(event, running_time_of(sink)) : gst_event_ref(event));
    return base_event(sink, event);
  }
  if (state.outlet && !provide_ring(sink, event)) {
    gst_event_unref(event);
    return FALSE;
  }
  while (!channel->push_event(event)) {
    if (state.frames.preroll().wait_a_while() != SinkPreroll::Verdict::flushing) continue;
    gst_event_unref(event);
    return FALSE;
  }
  if (GST_EVENT_TYPE(event) == GST_EVENT_EOS) {
    // Held back, the end of a stream without frames is enough to preroll with.
    if (state.outlet && !state.frames.preroll().is_done() && state.outlet->holds_back_end()) {
      state.frames.preroll_with_nothing();
    }
    while (state.outlet && state.frames.preroll().is_done() && state.outlet->holds_back_end()) {
      if (state.frames.preroll().wait_a_while() != SinkPreroll::Verdict::flushing) continue;
      gst_event_unref(event);
      return FALSE;
    }
    state.frames.preroll().leave_to_base();
    tell_summary(GST_ELEMENT_CAST(sink), state);
  }
  if (GST_EVENT_TYPE(event) == GST_EVENT_GAP && !state.frames.preroll().is_done()) state.frames.preroll_with_nothing();
  if (GST_EVENT_TYPE(event) == GST_EVENT_GAP && state.frames.preroll().is_done() && !state.frames.preroll().plays()) {
    const auto verdict = state.frames.preroll().wait([&] { return state.frames.src_prerolls(); });
    if (verdict != SinkPreroll::Verdict::plays) {
      gst_event_unref(event);
      return static_cast<gboolean>(verdict == SinkPreroll::Verdict::wanted);
    }
  }
  if (!channel->has_src_beside(Channel::Linked::or_not)) return base_event(sink, event);
  switch (GST_EVENT_TYPE(event)) {
    case GST_EVENT_TAG:
    case GST_EVENT_TOC:
    case GST_EVENT_SINK_MESSAGE:  // messages, which the sinks behind the src post
      gst_event_unref(event);
      return TRUE;
    case GST_EVENT_STREAM_START:
      return base_event(sink, start_among_others(GST_ELEMENT_CAST(sink), event));
    default:
      return base_event(sink, event);
  }
}

/// After EOS GstBaseSink takes nothing but a flush; a queue takes a new stream, and so does this. The flush is this
/// element's own: the gpumapsrc sees to what follows it when the new stream comes out there.
GstFlowReturn pad_event(GstPad* pad, GstObject* parent, GstEvent* event) {
  SinkState& state = state_of(parent);
  const bool is_caps = GST_EVENT_TYPE(event) == GST_EVENT_CAPS;
  state.gather.see(event);
  if (GST_EVENT_TYPE(event) == GST_EVENT_STREAM_START && GST_BASE_SINK(parent)->eos != 0) {
    GST_INFO_OBJECT(parent, "a new stream after EOS");
    state.reviver = g_thread_self();
    base_pad_event(pad, parent, gst_event_new_flush_start());
    state.frames.preroll().restart();
    base_pad_event(pad, parent, gst_event_new_flush_stop(FALSE));
    // A flush by others, or the way to READY, may have begun in another thread meanwhile, which waits for this one.
    if (GST_PAD_IS_FLUSHING(pad)) base_pad_event(pad, parent, gst_event_new_flush_start());
    state.reviver = nullptr;
    gpumap::gst::mend_states_soon(GST_ELEMENT_CAST(parent));
  }
  if (base_pad_event(pad, parent, event) != 0) return GST_FLOW_OK;
  // As upstream reckons, caps that are refused cannot be agreed on. Here nobody waits for them any more.
  if (GST_PAD_IS_FLUSHING(pad)) return GST_FLOW_FLUSHING;
  return is_caps ? GST_FLOW_NOT_NEGOTIATED : GST_FLOW_ERROR;
}

/// A bin tells of a stream's start once all its sinks have, if they are of one group: of several gpumapsinks, whose
/// streams may meet behind their srcs, each is of its own. Takes `start`.
GstEvent* start_among_others(GstElement* sink, GstEvent* start) {
  if (!gpumap::gst::is_among_others(sink)) return start;
  const gchar* id = nullptr;
  gst_event_parse_stream_start(start, &id);
  GstEvent* without_group = gst_event_new_stream_start(id);
  gst_event_set_seqnum(without_group, gst_event_get_seqnum(start));
  gst_event_unref(start);
  return without_group;
}

gboolean propose_allocation(GstBaseSink* sink, GstQuery* query) {
  const SinkState& state = state_of(sink);
  if (!state.core->channel()) return FALSE;
  gpumap::gst::propose_slots(GST_BASE_SINK_PAD(sink), *state.core, state.gather, state.allocator, query);
  return TRUE;
}

gboolean query(GstBaseSink* sink, GstQuery* query) {
  const auto channel = state_of(sink).core->channel();
  const Ptr<GstPad> srcpad(channel ? channel->src_pad() : nullptr);
  if (gpumap::gst::answer_caps_query(srcpad.get(), query)) return TRUE;
  if (gpumap::gst::answer_across(*state_of(sink).core, query)) return TRUE;
  if (GST_QUERY_TYPE(query) == GST_QUERY_DRAIN) (void)state_of(sink).gather.finish();
  return GST_BASE_SINK_CLASS(gst_gpumap_sink_parent_class)->query(sink, query);
}

gboolean element_query(GstElement* element, GstQuery* query) {
  if (gpumap::gst::leaves_to_sinks_behind(*state_of(element).core, query)) return FALSE;
  return GST_ELEMENT_CLASS(gst_gpumap_sink_parent_class)->query(element, query);
}

gboolean send_event(GstElement* element, GstEvent* event) {
  const auto parent = GST_ELEMENT_CLASS(gst_gpumap_sink_parent_class)->send_event;
  const auto channel = state_of(element).core->channel();
  if (!channel) return parent(element, event);
  if (GST_EVENT_TYPE(event) == GST_EVENT_LATENCY) {
    const Channel::Latency upstream = gpumap::gst::latency_of_upstream(GST_BASE_SINK(element));
    event = gpumap::gst::own_latency(event, upstream);
    const gboolean told = parent(element, event);
    channel->tell_latency(upstream);
    return told;
  }
  if ((gst_event_type_get_flags(GST_EVENT_TYPE(event)) & GST_EVENT_TYPE_UPSTREAM) == 0) return parent(element, event);
  // The sinks behind the src send it through all that lies between, which may answer it, or make another one of it.
  // They step over frames, too, which would be missing here once more.
  if (channel->has_src_beside(Channel::Linked::yes)) {
    GstElement* src = channel->src();
    const bool for_all = GST_EVENT_TYPE(event) == GST_EVENT_STEP ||
                         (src != nullptr && gpumap::gst::is_sent_to_both(event, element, src));
    gst_clear_object(&src);
    // GstBaseSink needs to know of its own rate, too; upstream tells the two by their sequence number.
    if (for_all && GST_EVENT_TYPE(event) != GST_EVENT_INSTANT_RATE_SYNC_TIME) {
      gst_event_unref(event);
      return TRUE;
    }
  }
  return static_cast<gboolean>(
      channel->send_upstream(event, [&](GstEvent* sent) { return parent(element, sent) != 0; }));
}

void set_playing(GstElement* element, bool playing) {
  SinkState& state = state_of(element);
  state.frames.set_base_time(playing ? gpumap::gst::monotonic_base_time(element) : GST_CLOCK_TIME_NONE);
  if (playing) state.core->begin_to_play();
  state.frames.preroll().set_playing(playing);
  if (const auto channel = state.core->channel()) channel->set_sink_playing(playing);
}

void start(GstElement* element, SinkState& state) {
  const auto settings = gpumap::gst::sink_settings(element);
  auto users = gpumap::gst::users_of(settings.allowed_users);
  const mode_t mode = gpumap::gst::mode_of(settings.socket_mode);
  // First: it may be somebody else's. A client that connects before there is a frame waits there.
  auto address = settings.socket_path.empty() ? nullptr : gpumap::LinkAddress::take(settings.socket_path, mode);
  state.core->start(element, settings);
  state.gather.start(settings.gather_bytes, settings.gather_us);
  if (!address) {
    gpumap::gst::warn_of_idle_properties(
        element, {"allowed-users", "socket-mode", "wait-for-connection", "stall-limit", "upstream-events"});
    return;
  }
  try {
    state.outlet = std::make_unique<Outlet>(
        element, state.core->channel(),
        gpumap::gst::OutletSettings{std::move(address), settings.wait_for_connection, settings.upstream_events,
                                    settings.busy_poll_us, &state.core->dropped(),
                                    std::chrono::milliseconds(settings.stall_limit_ms), std::move(users),
                                    settings.threads.schedule()},
        state.clients);
  } catch (...) {
    state.core->stop(false);
    throw;
  }
}

/// As any sink that is added to a pipeline that plays, this one takes it to PAUSED until it has a frame. Where none
/// comes, nothing else would say why the pipeline does not come back.
void watch_for_frame(GstElement* element, SinkState& state) {
  state.no_frame.set(patience_for_frame, element, [](GstElement* sink) {
    GST_OBJECT_LOCK(sink);
    const bool waits = GST_STATE_RETURN(sink) == GST_STATE_CHANGE_ASYNC;
    GST_OBJECT_UNLOCK(sink);
    if (!waits) return;
    gpumap::gst::post_warning(
        sink,
        gpumap::Error(gpumap::ErrorCode::not_found,
                      "no frame has reached gpumapsink in the 5 s since it was added to a pipeline that plays, which "
                      "stays in PAUSED until one does",
                      "link what feeds it, or set async=false on it and on the sinks behind its gpumapsrc"));
  });
}

/// A pipeline that has both ends, of two names, waits in PAUSED for ever. One that plays waits where the ring is full.
void watch_for_src(GstElement* element, SinkState& state) {
  state.no_src.set(gpumap::gst::patience_for_peer, element, [](GstElement* sink) {
    gpumap::gst::SinkCore& core = *state_of(sink).core;
    const auto channel = core.channel();
    // Without a frame it waits for that one.
    if (channel && !channel->sink_playing() && core.sent() > 0) core.tell_if_alone("gpumapsink waits in PAUSED: ");
  });
}

/// Before EOS, for gst-launch-1.0 reads no message afterwards.
void tell_summary(GstElement* element, SinkState& state) {
  const std::string summary = state.core->summary();
  if (summary.empty() || state.summary_told.exchange(true)) return;
  gpumap::gst::post_info(element, GST_STREAM_ERROR, GST_STREAM_ERROR_FAILED, summary);
  g_object_notify(G_OBJECT(element), "stats");
}

GstStateChangeReturn change_state(GstElement* element, GstStateChange transition) {
  SinkState& state = state_of(element);
  // As GStreamer refuses it to a streaming thread.
  if (transition == GST_STATE_CHANGE_PAUSED_TO_READY && state.outlet && state.outlet->runs_here()) {
    // Once: the handler of this message may try again.
    if (!state.refusal_told.exchange(true)) {
      gpumap::gst::post_warning(
          element, gpumap::Error(gpumap::ErrorCode::busy,
                                 "gpumapsink goes on: a handler of a message, signal or seek stops it in a thread of "
                                 "the link, which would wait for itself",
                                 "stop it in another thread, as by gst_element_call_async()"));
    }
    return GST_STATE_CHANGE_FAILURE;
  }
  try {
    switch (transition) {
      case GST_STATE_CHANGE_NULL_TO_READY:
        state.core->open(gpumap::gst::sink_settings(element));
        break;
      case GST_STATE_CHANGE_READY_TO_PAUSED:
        gpumap::gst::mend_states_at_start(element);
        state.frames.preroll().restart();
        state.frames.begin();
        state.summary_told = false;
        state.refusal_told = false;
        start(element, state);
        if (gpumap::gst::joins_playing(element)) watch_for_frame(element, state);
        watch_for_src(element, state);
        break;
      case GST_STATE_CHANGE_PAUSED_TO_PLAYING:
        set_playing(element, true);
        break;
      case GST_STATE_CHANGE_PLAYING_TO_PAUSED:
        set_playing(element, false);
        break;
      case GST_STATE_CHANGE_PAUSED_TO_READY:
        // Before the pads close: a blocked chain function holds their lock.
        state.core->set_flushing(true);
        break;
      default:
        break;
    }
  } catch (const std::exception& error) {
    gpumap::gst::post_error(element, error);
    return GST_STATE_CHANGE_FAILURE;
  }
  const bool eos = GST_BASE_SINK(element)->eos != 0;
  const GstStateChangeReturn result =
      GST_ELEMENT_CLASS(gst_gpumap_sink_parent_class)->change_state(element, transition);
  if (transition == GST_STATE_CHANGE_PLAYING_TO_PAUSED) state.frames.preroll().hold();
  const bool failed_to_start = transition == GST_STATE_CHANGE_READY_TO_PAUSED && result == GST_STATE_CHANGE_FAILURE;
  if (transition == GST_STATE_CHANGE_PAUSED_TO_READY) {
    if (const auto channel = state.core->channel()) channel->await_seeks(gpumap::Clock::now() + patience_for_seeks);
  }
  if (transition == GST_STATE_CHANGE_PAUSED_TO_READY || failed_to_start) {
    state.no_frame.stop();
    state.no_src.stop();
    tell_summary(element, state);
    state.gather.stop();
    if (state.outlet) state.outlet->stop(eos);
    state.outlet.reset();
    state.core->stop(eos);
  }
  return result;
}

void finalize(GObject* object) {
  gpumap::gst::forget_end(GST_ELEMENT_CAST(object));
  SinkState* state = reinterpret_cast<GstGpumapSink*>(object)->state;
  gst_clear_object(&state->allocator);
  delete state;
  G_OBJECT_CLASS(gst_gpumap_sink_parent_class)->finalize(object);
}

}  // namespace

static void gst_gpumap_sink_class_init(GstGpumapSinkClass* klass) {
  auto* object_class = G_OBJECT_CLASS(klass);
  object_class->finalize = finalize;
  auto* element_class = GST_ELEMENT_CLASS(klass);
  element_class->change_state = change_state;
  element_class->send_event = send_event;
  element_class->query = element_query;
  klass->base.preroll = preroll;
  klass->base.render = render;
  klass->base.event = event;
  klass->base.query = query;
  klass->base.propose_allocation = propose_allocation;

  gpumap::gst::install_properties(object_class, gpumap::gst::sink_properties());
  gpumap::gst::install_outlet_signals(object_class);

  static GstStaticPadTemplate pad_template =
      GST_STATIC_PAD_TEMPLATE("sink", GST_PAD_SINK, GST_PAD_ALWAYS, GST_STATIC_CAPS_ANY);
  gst_element_class_add_static_pad_template(element_class, &pad_template);
  gst_element_class_set_static_metadata(
      element_class, "GPU map sink", "Sink/Hardware",
      "Lets upstream write frames straight into GPU memory, for a gpumapsrc of the same channel", "The gpumap authors");
}

static void gst_gpumap_sink_init(GstGpumapSink* self) {
  GstBaseSink* base = &self->base;
  GstPad* pad = GST_BASE_SINK_PAD(base);
  self->state = new SinkState(base, GST_PAD_CHAINFUNC(pad));
  self->state->allocator = gpumap::gst::slot_allocator_new(self->state->core);
  gst_pad_set_chain_function(pad, chain);
  gst_pad_set_chain_list_function(pad, chain_list);
  base_pad_event = GST_PAD_EVENTFUNC(pad);
  gst_pad_set_event_full_function(pad, pad_event);
  gst_base_sink_set_sync(base, FALSE);
  // A sample kept for the application would keep a slot.
  gst_base_sink_set_last_sample_enabled(base, FALSE);
  // What is outside the segment is for the sinks behind the src to drop, as behind a queue.
  gst_base_sink_set_drop_out_of_segment(base, FALSE);
  gst_base_sink_set_processing_deadline(base, 0);
  gpumap::gst::know_end(gpumap::gst::End::sink, GST_ELEMENT_CAST(self));
}
