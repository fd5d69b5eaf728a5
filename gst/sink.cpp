// SPDX-License-Identifier: MIT
#include "sink.hpp"

#include <gst/video/video.h>

#include <memory>
#include <utility>

#include "caps.hpp"
#include "end_of_stream.hpp"
#include "error.hpp"
#include "frame_origin.hpp"
#include "pipeline_state.hpp"
#include "pool.hpp"
#include "sink_clock.hpp"
#include "sink_core.hpp"
#include "sink_properties.hpp"

GST_DEBUG_CATEGORY(gpumap_sink_debug);
#define GST_CAT_DEFAULT gpumap_sink_debug

using gpumap::gst::EndOfStream;
using gpumap::gst::FrameOrigin;
using gpumap::gst::SinkClock;
using gpumap::gst::SinkCore;
using gpumap::gst::SinkProperties;

namespace {

struct SinkState {
  SinkProperties properties;
  std::shared_ptr<SinkCore> core = std::make_shared<SinkCore>();
  GstAllocator* allocator = nullptr;  ///< offered for what is not raw video
  SinkClock clock;
  EndOfStream eos;
};

struct GstGpumapSink {
  GstElement element;
  GstPad* pad;
  SinkState* state;
};
struct GstGpumapSinkClass {
  GstElementClass base;
};

}  // namespace

G_DEFINE_TYPE(GstGpumapSink, gst_gpumap_sink, GST_TYPE_ELEMENT)

namespace {

GstGpumapSink* self_of(gpointer object) {
  return reinterpret_cast<GstGpumapSink*>(object);
}
SinkState& state_of(gpointer object) {
  return *self_of(object)->state;
}

void set_property(GObject* object, guint id, const GValue* value, GParamSpec* spec) {
  gpumap::gst::set_sink_property(object, state_of(object).properties, id, value, spec);
}

void get_property(GObject* object, guint id, GValue* value, GParamSpec* spec) {
  const SinkState& state = state_of(object);
  if (id == gpumap::gst::sink_stats_id) {
    g_value_take_boxed(value, state.core->stats());
    return;
  }
  gpumap::gst::get_sink_property(object, state.properties, id, value, spec);
}

/// Whether what follows the src waits for a frame, to change its state, and none is on its way.
bool src_prerolls(const SinkState& state) {
  const auto channel = state.core->channel();
  GstElement* src = channel ? channel->src() : nullptr;
  if (src == nullptr) return false;
  const bool prerolls = gpumap::gst::is_changing_state(src) && state.core->queue_is_empty();
  gst_object_unref(src);
  return prerolls;
}

GstFlowReturn chain(GstPad* /*pad*/, GstObject* parent, GstBuffer* buffer) {
  SinkState& state = state_of(parent);
  const SinkCore::Rendering rendering(*state.core);
  GstFlowReturn flow = GST_FLOW_OK;
  try {
    if (state.properties.sync)
      flow = state.clock.wait_for(GST_ELEMENT_CAST(parent), buffer, [&] { return src_prerolls(state); });
    FrameOrigin origin;
    if (state.core->stamping()) origin = {state.clock.due_ns(buffer), gpumap::gst::captured_ns(buffer)};
    if (flow == GST_FLOW_OK) flow = state.core->send(buffer, origin);
  } catch (const std::exception& error) {
    gpumap::gst::post_error(GST_ELEMENT_CAST(parent), error);
    flow = GST_FLOW_ERROR;
  }
  gst_buffer_unref(buffer);
  return flow;
}

gboolean accept_caps(GstGpumapSink* self, GstEvent* event) {
  GstCaps* caps = nullptr;
  gst_event_parse_caps(event, &caps);
  if (gpumap::gst::is_system_caps(caps)) return TRUE;
  GST_ELEMENT_ERROR(self, STREAM, WRONG_TYPE,
                    ("gpumapsink takes system memory: put the element that downloads this memory before it"),
                    ("caps %" GST_PTR_FORMAT, static_cast<void*>(caps)));
  return FALSE;
}

gboolean sink_event(GstPad* /*pad*/, GstObject* parent, GstEvent* event) {
  GstGpumapSink* self = self_of(parent);
  SinkState& state = *self->state;
  const auto channel = state.core->channel();
  if (!channel) {
    gst_event_unref(event);
    return FALSE;
  }
  switch (GST_EVENT_TYPE(event)) {
    case GST_EVENT_FLUSH_START:
      state.clock.set_flushing(true);
      state.core->set_flushing(true);
      channel->flush(event);
      return TRUE;
    case GST_EVENT_FLUSH_STOP:
      state.eos.clear();
      state.clock.reset();
      channel->flush(event);
      state.core->set_flushing(false);
      return TRUE;
    case GST_EVENT_CAPS:
      if (!accept_caps(self, event)) {
        gst_event_unref(event);
        return FALSE;
      }
      break;
    case GST_EVENT_SEGMENT:
      state.clock.set_segment(event);
      break;
    case GST_EVENT_STREAM_START: {
      guint group = GST_GROUP_ID_INVALID;
      gst_event_parse_group_id(event, &group);
      GstMessage* message = gst_message_new_stream_start(parent);
      gst_message_set_seqnum(message, gst_event_get_seqnum(event));
      if (group != GST_GROUP_ID_INVALID) gst_message_set_group_id(message, group);
      gst_element_post_message(GST_ELEMENT_CAST(self), message);
      state.eos.clear();
      break;
    }
    case GST_EVENT_EOS:
      channel->push_event(gst_event_ref(event));
      state.eos.reached(GST_ELEMENT_CAST(self), event);
      gst_event_unref(event);
      return TRUE;
    default:
      break;
  }
  channel->push_event(event);
  return TRUE;
}

void propose_allocation(GstGpumapSink* self, GstQuery* query) {
  SinkState& state = *self->state;
  GstCaps* caps = nullptr;
  gboolean need_pool = FALSE;
  gst_query_parse_allocation(query, &caps, &need_pool);
  gst_query_add_allocation_meta(query, GST_VIDEO_META_API_TYPE, nullptr);
  // Without caps (filesrc) nothing is known of the buffers' size; those are copied.
  if (caps == nullptr) return;
  state.core->set_upstream(gpumap::gst::find_upstream(self->pad, caps));
  GstVideoInfo info;
  if (gst_structure_has_name(gst_caps_get_structure(caps, 0), "video/x-raw") && gst_video_info_from_caps(&info, caps)) {
    if (!need_pool) {
      gst_query_add_allocation_pool(query, nullptr, static_cast<guint>(info.size), 0, 0);
      return;
    }
    GstBufferPool* pool = gpumap::gst::pool_new(state.core);
    GstStructure* config = gst_buffer_pool_get_config(pool);
    gst_buffer_pool_config_set_params(config, caps, static_cast<guint>(info.size), 0, 0);
    if (gst_buffer_pool_set_config(pool, config)) {
      gst_query_add_allocation_pool(query, pool, static_cast<guint>(info.size), 0, 0);
    }
    gst_object_unref(pool);
    return;
  }
  // Anything else has no fixed frame size: an allocator is told each one, a pool would have to guess.
  GstAllocationParams params;
  gst_allocation_params_init(&params);
  gst_query_add_allocation_param(query, state.allocator, &params);
}

gboolean sink_query(GstPad* pad, GstObject* parent, GstQuery* query) {
  GstGpumapSink* self = self_of(parent);
  switch (GST_QUERY_TYPE(query)) {
    case GST_QUERY_ALLOCATION:
      if (!self->state->core->channel()) return FALSE;
      propose_allocation(self, query);
      return TRUE;
    case GST_QUERY_CAPS: {
      GstCaps* filter = nullptr;
      gst_query_parse_caps(query, &filter);
      GstCaps* result = filter != nullptr ? gpumap::gst::system_only(filter) : gst_caps_new_any();
      gst_query_set_caps_result(query, result);
      gst_caps_unref(result);
      return TRUE;
    }
    case GST_QUERY_ACCEPT_CAPS: {
      GstCaps* caps = nullptr;
      gst_query_parse_accept_caps(query, &caps);
      gst_query_set_accept_caps_result(query, static_cast<gboolean>(gpumap::gst::is_system_caps(caps)));
      return TRUE;
    }
    default:
      return gst_pad_query_default(pad, parent, query);
  }
}

/// Seeks and the like that the application sends to its pipeline reach every sink, and go upstream from there.
gboolean send_event(GstElement* element, GstEvent* event) {
  // GST_EVENT_IS_UPSTREAM mixes enumerations, which C++20 frowns on.
  const bool upstream = (gst_event_type_get_flags(GST_EVENT_TYPE(event)) & GST_EVENT_TYPE_UPSTREAM) != 0;
  if (upstream) return gst_pad_push_event(self_of(element)->pad, event);
  return GST_ELEMENT_CLASS(gst_gpumap_sink_parent_class)->send_event(element, event);
}

GstStateChangeReturn change_state(GstElement* element, GstStateChange transition) {
  SinkState& state = state_of(element);
  try {
    switch (transition) {
      case GST_STATE_CHANGE_NULL_TO_READY:
        state.core->open(gpumap::gst::settings_of(element, state.properties));
        break;
      case GST_STATE_CHANGE_READY_TO_PAUSED:
        state.eos.clear();
        state.clock.reset();
        state.core->start(element, gpumap::gst::settings_of(element, state.properties));
        break;
      case GST_STATE_CHANGE_PAUSED_TO_PLAYING:
        state.clock.set_playing(element, true);
        state.eos.set_playing(element, true);
        state.core->channel()->set_sink_playing(true);
        break;
      case GST_STATE_CHANGE_PLAYING_TO_PAUSED:
        state.clock.set_playing(element, false);
        state.eos.set_playing(element, false);
        state.core->channel()->set_sink_playing(false);
        break;
      case GST_STATE_CHANGE_PAUSED_TO_READY:
        // Before the pads close: a blocked chain function holds their lock.
        state.clock.set_flushing(true);
        state.core->set_flushing(true);
        break;
      default:
        break;
    }
  } catch (const std::exception& error) {
    gpumap::gst::post_error(element, error);
    return GST_STATE_CHANGE_FAILURE;
  }
  const GstStateChangeReturn result =
      GST_ELEMENT_CLASS(gst_gpumap_sink_parent_class)->change_state(element, transition);
  if (transition == GST_STATE_CHANGE_PAUSED_TO_READY) state.core->stop(state.eos.is_reached());
  return result;
}

void finalize(GObject* object) {
  SinkState* state = self_of(object)->state;
  gst_clear_object(&state->allocator);
  delete state;
  G_OBJECT_CLASS(gst_gpumap_sink_parent_class)->finalize(object);
}

}  // namespace

static void gst_gpumap_sink_class_init(GstGpumapSinkClass* klass) {
  GST_DEBUG_CATEGORY_INIT(gpumap_sink_debug, "gpumapsink", 0, "gpumap sink");
  auto* object_class = G_OBJECT_CLASS(klass);
  object_class->set_property = set_property;
  object_class->get_property = get_property;
  object_class->finalize = finalize;
  GST_ELEMENT_CLASS(klass)->change_state = change_state;
  GST_ELEMENT_CLASS(klass)->send_event = send_event;

  gpumap::gst::install_sink_properties(object_class);

  static GstStaticPadTemplate pad_template =
      GST_STATIC_PAD_TEMPLATE("sink", GST_PAD_SINK, GST_PAD_ALWAYS, GST_STATIC_CAPS_ANY);
  gst_element_class_add_static_pad_template(GST_ELEMENT_CLASS(klass), &pad_template);
  gst_element_class_set_static_metadata(
      GST_ELEMENT_CLASS(klass), "GPU map sink", "Sink/Hardware",
      "Lets upstream write frames straight into GPU memory, for a gpumapsrc of the same channel", "The gpumap authors");
}

static void gst_gpumap_sink_init(GstGpumapSink* self) {
  self->state = new SinkState;
  self->state->allocator = gpumap::gst::allocator_new([core = self->state->core](std::size_t bytes) {
    std::unique_ptr<gpumap::gst::Bytes> slot;
    try {
      (void)core->acquire(bytes, slot, [] { return false; });
    } catch (const std::exception& error) {
      core->report(error);
    }
    return slot;
  });
  self->pad =
      gst_pad_new_from_template(gst_element_class_get_pad_template(GST_ELEMENT_GET_CLASS(self), "sink"), "sink");
  gst_pad_set_chain_function(self->pad, chain);
  gst_pad_set_event_function(self->pad, sink_event);
  gst_pad_set_query_function(self->pad, sink_query);
  gst_element_add_pad(GST_ELEMENT_CAST(self), self->pad);
  GST_OBJECT_FLAG_SET(self, GST_ELEMENT_FLAG_SINK);
}
