// SPDX-License-Identifier: MIT
/**
 * SECTION:element-gpumapupload
 * @title: gpumapupload
 * @short_description: lets upstream write frames straight into GPU memory, in one streaming thread
 * @see_also: gpumapsink, gpumapsrc, gpumapkernel, gpumapdownload
 *
 * gpumapupload offers its slots to upstream as gpumapsink does: the buffers are GPU memory, mapped through the PCIe
 * BAR, and an upstream that brings memory of its own costs one copy. It passes each frame on as a gpumapsrc does, in
 * the thread that brought it. Take gpumapsink and gpumapsrc instead where two threads, pipelines or processes lie
 * between the frame's producer and the GPU's work.
 *
 * Any caps go in. The same caps come out with memory:GPUMap where downstream names that feature, raw video and tensors
 * with memory:CUDAMemory where it names that, else plain.
 *
 * ## Example launch lines
 *
 * |[
 * gst-launch-1.0 videotestsrc num-buffers=1 ! video/x-raw,format=NV12,width=1920,height=1080 ! gpumapupload ! \
 *   gpumapkernel kernel=convert ! video/x-raw,format=RGBA ! pngenc ! filesink location=frame.png
 * ]| One frame of NV12 to a PNG; the GPU converts the colours.
 *
 * Since: 0.1
 */
#include "gst/elements.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpumap/error.hpp"
#include "gst/channel/channel.hpp"
#include "gst/channel/ends.hpp"
#include "gst/channel/frame_origin.hpp"
#include "gst/channel/pipeline_state.hpp"
#include "gst/gst_error.hpp"
#include "gst/memory/memory_caps.hpp"
#include "gst/property_table.hpp"
#include "gst/ptr.hpp"
#include "gst/sink/core.hpp"
#include "gst/sink/gather.hpp"
#include "gst/sink/sink_element.hpp"
#include "gst/src/output.hpp"
#include "gst/src/src_stream.hpp"

GST_DEBUG_CATEGORY_STATIC(gpumap_upload_debug);
#define GST_CAT_DEFAULT gpumap_upload_debug

using gpumap::gst::Channel;
using gpumap::gst::Gather;
using gpumap::gst::PeerAnswer;
using gpumap::gst::PropertiesOf;
using gpumap::gst::Property;
using gpumap::gst::Ptr;
using gpumap::gst::SinkCore;
using gpumap::gst::SinkSettings;
using gpumap::gst::SrcOutput;

namespace {

/// The frames go the way of a gpumapsink's and a gpumapsrc's, by a channel that nobody else finds and whose queue never
/// holds more than the frame that the streaming thread has just put there.
struct UploadState {
  UploadState(GstElement* element, GstPad* sinkpad, GstPad* srcpad, Gather::HandOn hand_on)
      : output(element, srcpad,
               {.upstream_gives = [sinkpad](GstCaps* wanted) { return upstream_gives(sinkpad, wanted); },
                .moment =
                    [this, sinkpad] {
                      return SrcOutput::Moment{.flushing = GST_PAD_IS_FLUSHING(sinkpad) != 0, .playing = playing};
                    },
                .device =
                    [this, element] {
                      GST_OBJECT_LOCK(element);
                      std::string selector = settings.device;
                      GST_OBJECT_UNLOCK(element);
                      return selector;
                    }}),
        gather(element, sinkpad, *core, std::move(hand_on)) {}

  /// An upstream that cannot be asked may give anything.
  static bool upstream_gives(GstPad* sinkpad, GstCaps* wanted) {
    const Ptr<GstQuery> query(gst_query_new_caps(wanted));
    if (gpumap::gst::peer_query(sinkpad, query.get()) != PeerAnswer::yes) return true;
    GstCaps* given = nullptr;
    gst_query_parse_caps_result(query.get(), &given);
    return given == nullptr || gst_caps_can_intersect(given, wanted) != 0;
  }

  SinkSettings settings;  ///< under the object's lock; count from the next start on
  std::shared_ptr<SinkCore> core = std::make_shared<SinkCore>();
  GstAllocator* allocator = gpumap::gst::slot_allocator_new(core);  ///< offered for what is not raw video
  std::shared_ptr<Channel> channel;                                 ///< from PAUSED on; changes of state only
  std::atomic<bool> playing{false};
  std::atomic<GstClockTime> base{GST_CLOCK_TIME_NONE};  ///< see due_ns()
  // Of the streaming thread.
  SrcOutput output;
  Gather gather;
  GstSegment segment{};
  bool refused = false;  ///< downstream refused these caps, which has been told
};

struct GstGpumapUpload {
  GstElement element;
  GstPad* sinkpad;
  GstPad* srcpad;
  UploadState* state;
};
struct GstGpumapUploadClass {
  GstElementClass base;
};

}  // namespace

G_DEFINE_TYPE(GstGpumapUpload, gst_gpumap_upload, GST_TYPE_ELEMENT)

namespace {

GstGpumapUpload* self_of(gpointer object) {
  return reinterpret_cast<GstGpumapUpload*>(object);
}
UploadState& state_of(gpointer object) {
  return *self_of(object)->state;
}

SinkSettings settings_of(GstElement* element) {
  GST_OBJECT_LOCK(element);
  SinkSettings settings = state_of(element).settings;
  GST_OBJECT_UNLOCK(element);
  settings.channel = gpumap::gst::path_of(GST_ELEMENT_CAST(gst_object_ref(element)));
  return settings;
}

/// While a pipeline goes down, what follows may have stopped already, and then takes neither caps nor events: an error,
/// by GStreamer's reckoning, which is none here. Nor is a flush.
bool is_ending(GstGpumapUpload* self) {
  return GST_PAD_IS_FLUSHING(self->srcpad) || gpumap::gst::is_stopping(&self->element);
}

/// Caps go before what they are for. An error is on the bus where they cannot, except while the pipeline goes down.
GstFlowReturn negotiate(GstGpumapUpload* self) {
  UploadState& state = *self->state;
  static_cast<void>(state.output.check_reconfigure());
  if (state.output.negotiate()) {
    state.channel->set_kept_slots(std::max(state.channel->kept_slots(), state.output.kept_buffers()));
    state.refused = false;
    return GST_FLOW_OK;
  }
  if (is_ending(self)) return GST_FLOW_FLUSHING;
  if (!std::exchange(state.refused, true)) {
    GST_ELEMENT_ERROR(self, STREAM, FORMAT, ("%s", gpumap::gst::message_of(state.output.refusal()).c_str()), (nullptr));
  }
  return GST_FLOW_NOT_NEGOTIATED;
}

/// Into a slot, where it does not lie in one already. Takes `buffer`. Throws Error.
GstFlowReturn put(GstGpumapUpload* self, Ptr<GstBuffer> buffer) {
  UploadState& state = *self->state;
  gpumap::gst::FrameOrigin origin;
  if (state.core->stamping()) {
    origin = {gpumap::gst::due_ns(buffer.get(), state.segment, state.base.load(std::memory_order_relaxed)),
              gpumap::gst::captured_ns(buffer.get())};
  }
  const auto stopped = [pad = self->sinkpad] { return GST_PAD_IS_FLUSHING(pad) != 0; };
  return state.core->send(buffer.get(), origin, stopped, SinkCore::Patience::waits).value_or(GST_FLOW_FLUSHING);
}

/// Out of the channel again and on. Throws Error.
GstFlowReturn take(GstGpumapUpload* self) {
  UploadState& state = *self->state;
  Channel::Next frame = state.channel->next(gpumap::Clock::now());
  if (frame.kind != Channel::Next::Kind::frame) return GST_FLOW_FLUSHING;  // a flush of the core dropped it
  if (state.output.take_loss()) frame.after_hole = true;
  const SrcOutput::Memory memory = state.output.memory_for(frame, *state.channel);
  GstBuffer* out = state.output.wrap(std::move(frame), memory);
  GST_LOG_OBJECT(self, "%s: %" GST_PTR_FORMAT, memory == SrcOutput::Memory::copy ? "copied" : "slot",
                 static_cast<void*>(out));
  return state.output.push(out);
}

GstFlowReturn hand_on(GstGpumapUpload* self, GstBuffer* buffer) {
  Ptr<GstBuffer> taken(buffer);
  const SinkCore::Rendering rendering(*self->state->core);
  try {
    GstFlowReturn flow = negotiate(self);
    if (flow == GST_FLOW_OK) flow = put(self, std::move(taken));
    if (flow == GST_FLOW_OK) flow = take(self);
    const bool failed = flow == GST_FLOW_ERROR || flow == GST_FLOW_NOT_NEGOTIATED;
    return failed && is_ending(self) ? GST_FLOW_FLUSHING : flow;
  } catch (const std::exception& error) {
    gpumap::gst::post_error(&self->element, error);
    return GST_FLOW_ERROR;
  }
}

GstFlowReturn chain(GstPad* /*pad*/, GstObject* parent, GstBuffer* buffer) {
  return state_of(parent).gather.take(buffer);
}

bool take_caps(GstGpumapUpload* self, GstEvent* event) {
  GstCaps* caps = nullptr;
  gst_event_parse_caps(event, &caps);
  if (gpumap::gst::is_system_caps(caps)) {
    self->state->output.set_caps(caps);
    self->state->refused = false;
    return true;
  }
  GST_ELEMENT_ERROR(self, STREAM, WRONG_TYPE,
                    ("gpumapupload takes system memory: put the element that downloads this memory before it"),
                    ("caps %s", gpumap::gst::message_of(Ptr<gchar>(gst_caps_to_string(caps)).get()).c_str()));
  return false;
}

/// Downstream needs some caps before the segment, and each set of caps before what belongs to it.
bool needs_caps(const UploadState& state, GstEvent* event) {
  const bool serialized = (gst_event_type_get_flags(GST_EVENT_TYPE(event)) & GST_EVENT_TYPE_SERIALIZED) != 0;
  return serialized && state.channel && (state.output.has_caps() || GST_EVENT_TYPE(event) == GST_EVENT_SEGMENT);
}

gboolean sink_event(GstPad* pad, GstObject* parent, GstEvent* event) {
  GstGpumapUpload* self = self_of(parent);
  UploadState& state = *self->state;
  state.gather.see(event);
  if (GST_EVENT_TYPE(event) == GST_EVENT_EOS) g_object_notify(G_OBJECT(self), "stats");
  switch (GST_EVENT_TYPE(event)) {
    case GST_EVENT_FLUSH_START:
      state.core->set_flushing(true);
      break;
    case GST_EVENT_FLUSH_STOP:
      state.core->set_flushing(false);
      state.output.forget_keeping();
      break;
    case GST_EVENT_CAPS: {
      const bool taken = take_caps(self, event);
      gst_event_unref(event);
      return static_cast<gboolean>(taken);
    }
    case GST_EVENT_STREAM_START:
      break;
    case GST_EVENT_SEGMENT:
      gst_event_copy_segment(event, &state.segment);
      [[fallthrough]];
    default:
      if (!needs_caps(state, event)) break;
      if (const GstFlowReturn flow = negotiate(self); flow != GST_FLOW_OK && flow != GST_FLOW_FLUSHING) {
        gst_event_unref(event);
        return FALSE;
      }
      break;
  }
  return gst_pad_event_default(pad, parent, event);
}

gboolean sink_query(GstPad* pad, GstObject* parent, GstQuery* query) {
  GstGpumapUpload* self = self_of(parent);
  if (gpumap::gst::answer_caps_query(self->srcpad, query)) return TRUE;
  if (GST_QUERY_TYPE(query) == GST_QUERY_ALLOCATION) {
    if (!self->state->core->channel()) return FALSE;
    const UploadState& state = *self->state;
    gpumap::gst::propose_slots(pad, *state.core, state.gather, state.allocator, query);
    return TRUE;
  }
  if (GST_QUERY_TYPE(query) == GST_QUERY_DRAIN) (void)self->state->gather.finish();
  return gst_pad_query_default(pad, parent, query);
}

gboolean src_query(GstPad* pad, GstObject* parent, GstQuery* query) {
  GstGpumapUpload* self = self_of(parent);
  if (gpumap::gst::asks_for_gpu_memory(query)) {
    return static_cast<gboolean>(self->state->output.may_give_gpu_caps());
  }
  if (self->state->output.answer_context(query)) return TRUE;
  if (GST_QUERY_TYPE(query) == GST_QUERY_CAPS && gst_pad_is_linked(self->sinkpad) != 0) {
    return gpumap::gst::answer_caps(pad, self->sinkpad, query);
  }
  const gboolean answered = gst_pad_query_default(pad, parent, query);
  const auto channel = self->state->core->channel();
  if (GST_QUERY_TYPE(query) == GST_QUERY_LATENCY && answered != 0 && channel) channel->add_sink_latency(query);
  return answered;
}

/// Whatever the chain function waits for ends with the pad.
gboolean activate_mode(GstPad* /*pad*/, GstObject* parent, GstPadMode mode, gboolean active) {
  if (mode != GST_PAD_MODE_PUSH) return FALSE;
  state_of(parent).core->set_flushing(active == 0);
  return TRUE;
}

void stop(UploadState& state) {
  state.gather.stop();
  state.channel->detach_src();
  state.core->stop(false);
  state.channel.reset();
  state.output.reset();
}

void start(GstGpumapUpload* self) {
  UploadState& state = *self->state;
  const SinkSettings settings = settings_of(&self->element);
  auto channel = std::make_shared<Channel>(settings.channel);
  state.core->start(&self->element, settings, channel);
  std::string holder;
  (void)channel->attach_src(
      &self->element, self->srcpad, [](GstEvent* event) { gst_event_unref(event); }, holder);
  state.channel = std::move(channel);
  state.output.begin({.elements = {.takes = "gpumapupload", .gives = "gpumapupload"}, .where = {}});
  state.gather.start(settings.gather_bytes, settings.gather_us);
  gst_segment_init(&state.segment, GST_FORMAT_UNDEFINED);
  state.refused = false;
}

void set_playing(GstElement* element, bool playing) {
  UploadState& state = state_of(element);
  state.base = playing ? gpumap::gst::monotonic_base_time(element) : GST_CLOCK_TIME_NONE;
  state.playing = playing;
  state.channel->set_sink_playing(playing);
  state.channel->set_src_playing(playing);
}

GstStateChangeReturn change_state(GstElement* element, GstStateChange transition) {
  UploadState& state = state_of(element);
  try {
    if (transition == GST_STATE_CHANGE_NULL_TO_READY) state.core->open(settings_of(element));
    if (transition == GST_STATE_CHANGE_READY_TO_PAUSED) start(self_of(element));
  } catch (const std::exception& error) {
    gpumap::gst::post_error(element, error);
    return GST_STATE_CHANGE_FAILURE;
  }
  if (transition == GST_STATE_CHANGE_PAUSED_TO_PLAYING) set_playing(element, true);
  if (transition == GST_STATE_CHANGE_PLAYING_TO_PAUSED) set_playing(element, false);
  const GstStateChangeReturn result =
      GST_ELEMENT_CLASS(gst_gpumap_upload_parent_class)->change_state(element, transition);
  const bool failed_to_start = transition == GST_STATE_CHANGE_READY_TO_PAUSED && result == GST_STATE_CHANGE_FAILURE;
  if (transition == GST_STATE_CHANGE_PAUSED_TO_READY || failed_to_start) stop(state);
  return result;
}

GstStructure* stats(GObject* upload) {
  const UploadState& state = state_of(upload);
  GstStructure* made = state.core->stats("gpumapupload-stats");
  gst_structure_set(made, "host-copies", G_TYPE_UINT64, state.output.host_copies(), "gpu-copies", G_TYPE_UINT64,
                    state.output.gpu_copies(), nullptr);
  return made;
}

std::vector<Property> upload_properties() {
  const PropertiesOf<SinkSettings> of([](GObject* upload) -> SinkSettings& { return state_of(upload).settings; });
  std::vector<Property> table = gpumap::gst::slot_properties(
      of, [](GObject* upload) -> gpumap::gst::ThreadSettings& { return state_of(upload).settings.threads; },
      "the threads that copy frames");
  table.push_back(of.number("busy-poll", "Microseconds to spin for a slot before sleeping", &SinkSettings::busy_poll_us,
                            0, 1000000));
  table.push_back(gpumap::gst::statistics(
      "frames, zero-copy-frames, copied-frames, bytes-copied, bytes-in-place, gathered-buffers, drops, cpu-reads, "
      "waits, device, "
      "transport, "
      "copy-threads, copy-kernel; host-copies: frames that downstream got in host memory because it keeps so many; "
      "gpu-copies: frames that were copied within the GPU, into CUDA memory; "
      "with stamps: latency",
      stats));
  return table;
}

void finalize(GObject* object) {
  UploadState* state = self_of(object)->state;
  gst_clear_object(&state->allocator);
  delete state;
  G_OBJECT_CLASS(gst_gpumap_upload_parent_class)->finalize(object);
}

}  // namespace

static void gst_gpumap_upload_class_init(GstGpumapUploadClass* klass) {
  GST_DEBUG_CATEGORY_INIT(gpumap_upload_debug, "gpumapupload", 0, "gpumap upload");
  G_OBJECT_CLASS(klass)->finalize = finalize;
  GST_ELEMENT_CLASS(klass)->change_state = change_state;
  gpumap::gst::install_properties(G_OBJECT_CLASS(klass), upload_properties());

  static GstStaticPadTemplate sink_template =
      GST_STATIC_PAD_TEMPLATE("sink", GST_PAD_SINK, GST_PAD_ALWAYS, GST_STATIC_CAPS_ANY);
  static GstStaticPadTemplate src_template =
      GST_STATIC_PAD_TEMPLATE("src", GST_PAD_SRC, GST_PAD_ALWAYS, GST_STATIC_CAPS_ANY);
  gst_element_class_add_static_pad_template(GST_ELEMENT_CLASS(klass), &sink_template);
  gst_element_class_add_static_pad_template(GST_ELEMENT_CLASS(klass), &src_template);
  gst_element_class_set_static_metadata(GST_ELEMENT_CLASS(klass), "GPU map upload", "Filter/Hardware",
                                        "Lets upstream write frames straight into GPU memory and passes them on",
                                        "The gpumap authors");
}

static void gst_gpumap_upload_init(GstGpumapUpload* self) {
  auto* klass = GST_ELEMENT_GET_CLASS(self);
  self->sinkpad = gst_pad_new_from_template(gst_element_class_get_pad_template(klass, "sink"), "sink");
  self->srcpad = gst_pad_new_from_template(gst_element_class_get_pad_template(klass, "src"), "src");
  self->state = new UploadState(&self->element, self->sinkpad, self->srcpad,
                                [self](GstBuffer* frame) { return hand_on(self, frame); });
  gst_pad_set_chain_function(self->sinkpad, chain);
  gst_pad_set_event_function(self->sinkpad, sink_event);
  gst_pad_set_query_function(self->sinkpad, sink_query);
  gst_pad_set_activatemode_function(self->sinkpad, activate_mode);
  gst_pad_set_query_function(self->srcpad, src_query);
  gst_pad_use_fixed_caps(self->srcpad);
  gst_element_add_pad(&self->element, self->sinkpad);
  gst_element_add_pad(&self->element, self->srcpad);
}
