// SPDX-License-Identifier: MIT
#include "kernel.hpp"

#include <gst/base/gstbasetransform.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "caps.hpp"
#include "cuda_caps.hpp"
#include "error.hpp"
#include "kernel_caps.hpp"
#include "kernel_neighbours.hpp"
#include "kernel_parameter.hpp"
#include "kernel_properties.hpp"
#include "kernel_runner.hpp"
#include "radio_caps.hpp"
#include "video_layout.hpp"
#include "watchdog.hpp"

GST_DEBUG_CATEGORY_STATIC(gpumap_kernel_debug);
#define GST_CAT_DEFAULT gpumap_kernel_debug

using gpumap::gst::KernelParameters;
using gpumap::gst::KernelProperties;
using gpumap::gst::KernelRunner;
using gpumap::gst::KernelSettings;
using gpumap::gst::Watchdog;

namespace {

struct KernelState {
  KernelProperties properties;           ///< under the object lock
  std::shared_ptr<KernelRunner> runner;  ///< under the object lock; used by the streaming thread
  std::unique_ptr<Watchdog> watchdog;    ///< from start to stop
  KernelParameters parameters;
  std::atomic<bool> context_told{false};       ///< see answer_context()
  std::atomic<bool> downstream_changed{true};  ///< or its caps: it is to be asked what it reads
  bool caps_refused = false;                   ///< and told; upstream may send them again. The streaming thread's
};

struct GstGpumapKernel {
  GstBaseTransform base;
  KernelState* state;
};
struct GstGpumapKernelClass {
  GstBaseTransformClass base;
};

}  // namespace

static void add_interfaces(GType type);
G_DEFINE_TYPE_WITH_CODE(GstGpumapKernel, gst_gpumap_kernel, GST_TYPE_BASE_TRANSFORM, add_interfaces(g_define_type_id))

namespace {

KernelState& state_of(gpointer object) {
  return *reinterpret_cast<GstGpumapKernel*>(object)->state;
}

void set_property(GObject* object, guint id, const GValue* value, GParamSpec* spec) {
  gpumap::gst::set_kernel_property(object, state_of(object).properties, id, value, spec);
}

std::shared_ptr<KernelRunner> runner_of(gpointer object) {
  GST_OBJECT_LOCK(object);
  auto runner = state_of(object).runner;
  GST_OBJECT_UNLOCK(object);
  return runner;
}

void get_property(GObject* object, guint id, GValue* value, GParamSpec* spec) {
  if (id == gpumap::gst::kernel_stats_id) {
    const auto runner = runner_of(object);
    g_value_take_boxed(value, runner ? runner->stats() : gst_structure_new_empty("gpumapkernel-stats"));
    return;
  }
  gpumap::gst::get_kernel_property(object, state_of(object).properties, id, value, spec);
}

KernelSettings settings_of(gpointer object) {
  GST_OBJECT_LOCK(object);
  KernelSettings settings = state_of(object).properties.settings;
  GST_OBJECT_UNLOCK(object);
  return settings;
}

gboolean start(GstBaseTransform* trans) {
  KernelState& state = state_of(trans);
  GST_OBJECT_LOCK(trans);
  const KernelSettings settings = state.properties.settings;
  // The children's values are not in the settings.
  state.properties.params_changed = true;
  GST_OBJECT_UNLOCK(trans);
  state.caps_refused = false;
  try {
    auto runner = std::make_shared<KernelRunner>(settings);
    state.watchdog = std::make_unique<Watchdog>(GST_ELEMENT_CAST(trans), runner, settings.timeout_ms);
    GST_OBJECT_LOCK(trans);
    state.runner = std::move(runner);
    GST_OBJECT_UNLOCK(trans);
  } catch (const std::exception& error) {
    gpumap::gst::post_error(GST_ELEMENT_CAST(trans), error);
    return FALSE;
  }
  return TRUE;
}

gboolean stop(GstBaseTransform* trans) {
  state_of(trans).watchdog.reset();
  GST_OBJECT_LOCK(trans);
  auto runner = std::move(state_of(trans).runner);
  GST_OBJECT_UNLOCK(trans);
  state_of(trans).context_told = false;
  return TRUE;  // the runner ends here, outside the lock: it waits for the GPU
}

GstCaps* transform_caps(GstBaseTransform* trans, GstPadDirection direction, GstCaps* caps, GstCaps* filter) {
  KernelState& state = state_of(trans);
  GST_OBJECT_LOCK(trans);
  KernelProperties& properties = state.properties;
  const std::string kernel(gpumap::gst::builtin_name(properties.settings));
  if (!properties.declared) properties.declared = gpumap::gst::declared_caps(properties.settings);
  const gpumap::gst::DeclaredCaps declared = *properties.declared;
  const std::string params = properties.settings.params;
  GST_OBJECT_UNLOCK(trans);
  GstCaps* made = gpumap::gst::transform_kernel_caps(kernel, params, declared, direction, caps);
  if (filter != nullptr && gst_caps_is_any(made) && !gst_caps_is_any(filter)) {
    // Any media type is not any memory: who asks about one that is not ours is told no.
    gst_caps_unref(made);
    made = gpumap::gst::in_either_memory(filter);
  }
  // Before the start no one knows; but elements that cannot be linked could not say why.
  const auto runner = runner_of(trans);
  if (!runner || runner->cuda_obstacle().empty()) made = gpumap::gst::offer_cuda(made);
  if (filter == nullptr) return made;
  GstCaps* filtered = gst_caps_intersect_full(filter, made, GST_CAPS_INTERSECT_FIRST);
  gst_caps_unref(made);
  return filtered;
}

/// Frames stay in GPU memory for a downstream that names it, as another gpumapkernel does.
GstCaps* fixate_caps(GstBaseTransform* trans, GstPadDirection direction, GstCaps* caps, GstCaps* others) {
  if (direction == GST_PAD_SINK) {
    const KernelSettings settings = settings_of(trans);
    others = gpumap::gst::nearest_memory(trans->srcpad, others);
    others = gpumap::gst::fixate_size(gpumap::gst::builtin_name(settings), settings.params, caps, others);
    others = gst_caps_make_writable(others);
    gpumap::gst::fixate_rate(others, caps);
  }
  return GST_BASE_TRANSFORM_CLASS(gst_gpumap_kernel_parent_class)->fixate_caps(trans, direction, caps, others);
}

gboolean set_caps(GstBaseTransform* trans, GstCaps* in, GstCaps* out) {
  const auto runner = runner_of(trans);
  if (!runner) return FALSE;
  // Plain caps are fine: behind a tee whose other branch is on the CPU, the frames still lie in GPU memory.
  if (!gpumap::gst::is_gpu_caps(in) && !gpumap::gst::is_cuda_caps(in) && !gpumap::gst::is_system_caps(in)) {
    GST_ELEMENT_ERROR(trans, STREAM, WRONG_TYPE,
                      ("gpumapkernel takes memory:GPUMap: put gpumapsink and gpumapsrc before it"),
                      ("caps %" GST_PTR_FORMAT, static_cast<void*>(in)));
    state_of(trans).caps_refused = true;
    return FALSE;
  }
  try {
    runner->set_caps(in, out);
    state_of(trans).downstream_changed = true;
  } catch (const std::exception& error) {
    gpumap::gst::post_error(GST_ELEMENT_CAST(trans), error);
    state_of(trans).caps_refused = true;
    return FALSE;
  }
  return TRUE;
}

gboolean propose_allocation(GstBaseTransform* trans, GstQuery* decide_query, GstQuery* query) {
  const auto runner = runner_of(trans);
  if (runner && gpumap::gst::propose_cuda(query, *runner)) return TRUE;
  gst_query_add_allocation_meta(query, GST_VIDEO_META_API_TYPE, nullptr);

  return GST_BASE_TRANSFORM_CLASS(gst_gpumap_kernel_parent_class)->propose_allocation(trans, decide_query, query);
}

gboolean query(GstBaseTransform* trans, GstPadDirection direction, GstQuery* query) {
  KernelState& state = state_of(trans);
  if (GST_QUERY_TYPE(query) == GST_QUERY_CONTEXT) {
    const KernelSettings settings = settings_of(trans);
    if (gpumap::gst::answer_context(GST_ELEMENT_CAST(trans), query, settings, state.context_told)) return TRUE;
  }
  const gboolean answered = GST_BASE_TRANSFORM_CLASS(gst_gpumap_kernel_parent_class)->query(trans, direction, query);
  if (GST_QUERY_TYPE(query) == GST_QUERY_CAPS && direction == GST_PAD_SINK && answered != 0 && runner_of(trans)) {
    gpumap::gst::correct_caps(trans, query);
  }
  return answered;
}

/// Before a frame: a downstream that does not say that it reads GstVideoMeta gets none of another layout than the
/// default one. Asked after the caps went out, without which it may not answer.
void ask_for_layout(GstBaseTransform* trans, KernelRunner& runner) {
  if (!state_of(trans).downstream_changed.exchange(false)) return;
  GstCaps* caps = gst_pad_get_current_caps(trans->srcpad);
  if (caps == nullptr) return;
  runner.set_default_layout_only(gpumap::gst::is_system_caps(caps) &&
                                 !gpumap::gst::peer_reads_video_meta(trans->srcpad, caps));
  gst_caps_unref(caps);
}

/// Parameters that were set or are controlled, for the frame `in` and those after it.
void update_params(GstBaseTransform* trans, KernelRunner& runner, GstBuffer* in) {
  KernelState& state = state_of(trans);
  GST_OBJECT_LOCK(trans);
  const bool set = std::exchange(state.properties.params_changed, false);
  GST_OBJECT_UNLOCK(trans);
  const bool timed = trans->segment.format == GST_FORMAT_TIME;
  const GstClockTime time =
      timed ? gst_segment_to_stream_time(&trans->segment, GST_FORMAT_TIME, GST_BUFFER_PTS(in)) : GST_CLOCK_TIME_NONE;
  const bool controlled = state.parameters.changed(time);
  if (!set && !controlled) return;
  GST_OBJECT_LOCK(trans);
  const std::string params = state.properties.settings.params;
  GST_OBJECT_UNLOCK(trans);
  runner.set_params(state.parameters.over(params));
}

void tell_reload(GstBaseTransform* trans, const std::optional<std::string>& outcome) {
  if (!outcome) return;
  if (outcome->empty()) {
    GST_INFO_OBJECT(trans, "the kernel was loaded again");
  } else {
    GST_ELEMENT_WARNING(trans, LIBRARY, SETTINGS, ("%s", outcome->c_str()), (nullptr));
  }
}

GstFlowReturn generate_output(GstBaseTransform* trans, GstBuffer** out) {
  *out = nullptr;
  GstBuffer* in = trans->queued_buf;
  trans->queued_buf = nullptr;
  if (in == nullptr) return GST_FLOW_OK;
  const auto runner = runner_of(trans);
  GstFlowReturn flow = GST_FLOW_FLUSHING;
  try {
    if (runner) {
      update_params(trans, *runner, in);
      tell_reload(trans, runner->reload());
      ask_for_layout(trans, *runner);
      gpumap::gst::provide_cuda_pool(trans, *runner);
      *out = runner->run(in);
      // Not GST_BASE_TRANSFORM_FLOW_DROPPED: that would mark what follows as discontinuous.
      if (*out != nullptr || runner->only_remembered()) flow = GST_FLOW_OK;
      if (GstStructure* found = runner->take_result()) {
        gst_element_post_message(GST_ELEMENT_CAST(trans), gst_message_new_element(GST_OBJECT_CAST(trans), found));
      }
    }
  } catch (const std::exception& error) {
    gpumap::gst::post_error(GST_ELEMENT_CAST(trans), error);
    flow = GST_FLOW_ERROR;
  }
  gst_buffer_unref(in);
  return flow;
}

gboolean sink_event(GstBaseTransform* trans, GstEvent* event) {
  const auto runner = runner_of(trans);
  if (runner) {
    if (GST_EVENT_TYPE(event) == GST_EVENT_FLUSH_START) runner->cancel(true);
    if (GST_EVENT_TYPE(event) == GST_EVENT_FLUSH_STOP) {
      runner->cancel(false);
      try {
        runner->begin();
      } catch (const std::exception& error) {
        gpumap::gst::post_error(GST_ELEMENT_CAST(trans), error);
      }
    }
    if (GST_EVENT_TYPE(event) == GST_EVENT_EOS) {
      // A fault in the last frames' kernels shows only when someone waits for them.
      try {
        runner->drain();
      } catch (const std::exception& error) {
        gpumap::gst::post_error(GST_ELEMENT_CAST(trans), error);
      }
    }
  }
  GstCaps* caps = nullptr;
  if (GST_EVENT_TYPE(event) == GST_EVENT_CAPS) {
    gst_event_parse_caps(event, &caps);
    gst_caps_ref(caps);
  }
  const gboolean taken = GST_BASE_TRANSFORM_CLASS(gst_gpumap_kernel_parent_class)->sink_event(trans, event);
  if (caps != nullptr && taken == 0 && runner && !std::exchange(state_of(trans).caps_refused, true)) {
    gpumap::gst::post_refusal(trans, *runner, caps);
  }
  gst_clear_caps(&caps);
  return taken;
}

gboolean src_event(GstBaseTransform* trans, GstEvent* event) {
  if (GST_EVENT_TYPE(event) == GST_EVENT_RECONFIGURE) state_of(trans).downstream_changed = true;
  return GST_BASE_TRANSFORM_CLASS(gst_gpumap_kernel_parent_class)->src_event(trans, event);
}

GstStateChangeReturn change_state(GstElement* element, GstStateChange transition) {
  if (transition == GST_STATE_CHANGE_PAUSED_TO_READY) {
    if (const auto runner = runner_of(element)) runner->cancel(true);
  }
  return GST_ELEMENT_CLASS(gst_gpumap_kernel_parent_class)->change_state(element, transition);
}

void finalize(GObject* object) {
  delete reinterpret_cast<GstGpumapKernel*>(object)->state;
  G_OBJECT_CLASS(gst_gpumap_kernel_parent_class)->finalize(object);
}

}  // namespace

static void add_interfaces(GType type) {
  KernelParameters::add_interface(type,
                                  [](GObject* element) -> KernelParameters& { return state_of(element).parameters; });
}

static void gst_gpumap_kernel_class_init(GstGpumapKernelClass* klass) {
  GST_DEBUG_CATEGORY_INIT(gpumap_kernel_debug, "gpumapkernel", 0, "gpumap kernel");
  auto* object_class = G_OBJECT_CLASS(klass);
  object_class->set_property = set_property;
  object_class->get_property = get_property;
  object_class->finalize = finalize;
  GST_ELEMENT_CLASS(klass)->change_state = change_state;
  klass->base.start = start;
  klass->base.stop = stop;
  klass->base.transform_caps = transform_caps;
  klass->base.fixate_caps = fixate_caps;
  klass->base.set_caps = set_caps;
  klass->base.propose_allocation = propose_allocation;
  klass->base.query = query;
  klass->base.generate_output = generate_output;
  klass->base.sink_event = sink_event;
  klass->base.src_event = src_event;

  gpumap::gst::install_kernel_properties(object_class);

  static GstStaticPadTemplate sink_template =
      GST_STATIC_PAD_TEMPLATE("sink", GST_PAD_SINK, GST_PAD_ALWAYS, GST_STATIC_CAPS_ANY);
  static GstStaticPadTemplate src_template =
      GST_STATIC_PAD_TEMPLATE("src", GST_PAD_SRC, GST_PAD_ALWAYS, GST_STATIC_CAPS_ANY);
  gst_element_class_add_static_pad_template(GST_ELEMENT_CLASS(klass), &sink_template);
  gst_element_class_add_static_pad_template(GST_ELEMENT_CLASS(klass), &src_template);
  gst_element_class_set_static_metadata(GST_ELEMENT_CLASS(klass), "GPU map kernel", "Filter/Converter/Hardware",
                                        "Runs a CUDA kernel or a compute shader on each frame in GPU memory",
                                        "The gpumap authors");
}

static void gst_gpumap_kernel_init(GstGpumapKernel* self) {
  self->state = new KernelState;
  gst_base_transform_set_in_place(GST_BASE_TRANSFORM_CAST(self), FALSE);
  gst_base_transform_set_passthrough(GST_BASE_TRANSFORM_CAST(self), FALSE);
}
