// SPDX-License-Identifier: MIT
#include "kernel.hpp"

#include <gst/base/gstbasetransform.h>

#include <memory>
#include <mutex>
#include <string>

#include "caps.hpp"
#include "error.hpp"
#include "kernel_caps.hpp"
#include "kernel_runner.hpp"
#include "video_layout.hpp"

GST_DEBUG_CATEGORY_STATIC(gpumap_kernel_debug);
#define GST_CAT_DEFAULT gpumap_kernel_debug

using gpumap::Backend;
using gpumap::gst::KernelRunner;
using gpumap::gst::KernelSettings;

namespace {

struct KernelState {
  KernelSettings settings;               ///< under the object lock
  std::shared_ptr<KernelRunner> runner;  ///< under the object lock; used by the streaming thread
  bool params_changed = false;           ///< under the object lock
};

struct GstGpumapKernel {
  GstBaseTransform base;
  KernelState* state;
};
struct GstGpumapKernelClass {
  GstBaseTransformClass base;
};

enum { PROP_KERNEL = 1, PROP_LOCATION, PROP_FUNCTION, PROP_PARAMS, PROP_BACKEND, PROP_DEVICE };
enum { BACKEND_AUTO, BACKEND_CUDA, BACKEND_VULKAN };

GType backend_type() {
  static const GType type = [] {
    static const GEnumValue values[] = {
        {BACKEND_AUTO, "CUDA where the GPU has it, else Vulkan", "auto"},
        {BACKEND_CUDA, "CUDA", "cuda"},
        {BACKEND_VULKAN, "Vulkan compute", "vulkan"},
        {0, nullptr, nullptr},
    };
    return g_enum_register_static("GstGpumapBackend", values);
  }();
  return type;
}

}  // namespace

G_DEFINE_TYPE(GstGpumapKernel, gst_gpumap_kernel, GST_TYPE_BASE_TRANSFORM)

namespace {

KernelState& state_of(gpointer object) {
  return *reinterpret_cast<GstGpumapKernel*>(object)->state;
}

std::string text_of(const GValue* value, const char* otherwise) {
  const gchar* text = g_value_get_string(value);
  return text != nullptr ? text : otherwise;
}

void set_property(GObject* object, guint id, const GValue* value, GParamSpec* spec) {
  KernelState& state = state_of(object);
  GST_OBJECT_LOCK(object);
  switch (id) {
    case PROP_KERNEL:
      state.settings.kernel = text_of(value, "identity");
      break;
    case PROP_LOCATION:
      state.settings.location = text_of(value, "");
      break;
    case PROP_FUNCTION:
      state.settings.function = text_of(value, "");
      break;
    case PROP_PARAMS:
      state.settings.params = text_of(value, "");
      state.params_changed = true;
      break;
    case PROP_BACKEND: {
      const gint backend = g_value_get_enum(value);
      state.settings.backend.reset();
      if (backend != BACKEND_AUTO) state.settings.backend = backend == BACKEND_CUDA ? Backend::cuda : Backend::vulkan;
      break;
    }
    case PROP_DEVICE:
      state.settings.device = text_of(value, "auto");
      break;
    default:
      G_OBJECT_WARN_INVALID_PROPERTY_ID(object, id, spec);
  }
  GST_OBJECT_UNLOCK(object);
}

void get_property(GObject* object, guint id, GValue* value, GParamSpec* spec) {
  const KernelSettings& settings = state_of(object).settings;
  GST_OBJECT_LOCK(object);
  switch (id) {
    case PROP_KERNEL:
      g_value_set_string(value, settings.kernel.c_str());
      break;
    case PROP_LOCATION:
      g_value_set_string(value, settings.location.empty() ? nullptr : settings.location.c_str());
      break;
    case PROP_FUNCTION:
      g_value_set_string(value, settings.function.empty() ? nullptr : settings.function.c_str());
      break;
    case PROP_PARAMS:
      g_value_set_string(value, settings.params.empty() ? nullptr : settings.params.c_str());
      break;
    case PROP_BACKEND:
      g_value_set_enum(value, !settings.backend                    ? BACKEND_AUTO
                              : *settings.backend == Backend::cuda ? BACKEND_CUDA
                                                                   : BACKEND_VULKAN);
      break;
    case PROP_DEVICE:
      g_value_set_string(value, settings.device.c_str());
      break;
    default:
      G_OBJECT_WARN_INVALID_PROPERTY_ID(object, id, spec);
  }
  GST_OBJECT_UNLOCK(object);
}

std::shared_ptr<KernelRunner> runner_of(gpointer object) {
  GST_OBJECT_LOCK(object);
  auto runner = state_of(object).runner;
  GST_OBJECT_UNLOCK(object);
  return runner;
}

gboolean start(GstBaseTransform* trans) {
  KernelState& state = state_of(trans);
  GST_OBJECT_LOCK(trans);
  const KernelSettings settings = state.settings;
  state.params_changed = false;
  GST_OBJECT_UNLOCK(trans);
  try {
    auto runner = std::make_shared<KernelRunner>(settings);
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
  GST_OBJECT_LOCK(trans);
  auto runner = std::move(state_of(trans).runner);
  GST_OBJECT_UNLOCK(trans);
  return TRUE;  // the runner ends here, outside the lock: it waits for the GPU
}

GstCaps* transform_caps(GstBaseTransform* trans, GstPadDirection direction, GstCaps* caps, GstCaps* filter) {
  KernelState& state = state_of(trans);
  GST_OBJECT_LOCK(trans);
  const std::string kernel = state.settings.location.empty() ? state.settings.kernel : std::string();
  GST_OBJECT_UNLOCK(trans);
  GstCaps* made = gpumap::gst::transform_kernel_caps(kernel, direction, caps);
  if (filter == nullptr) return made;
  GstCaps* filtered = gst_caps_intersect_full(filter, made, GST_CAPS_INTERSECT_FIRST);
  gst_caps_unref(made);
  return filtered;
}

/// Where downstream takes both (another gpumapkernel does), frames stay in GPU memory.
GstCaps* fixate_caps(GstBaseTransform* trans, GstPadDirection direction, GstCaps* caps, GstCaps* others) {
  if (direction == GST_PAD_SINK) {
    GstCaps* gpu = gst_caps_new_empty();
    for (guint i = 0; i < gst_caps_get_size(others); ++i) {
      const GstCapsFeatures* features = gst_caps_get_features(others, i);
      if (features == nullptr || !gst_caps_features_contains(features, gpumap::gst::feature_name)) continue;
      gst_caps_append_structure_full(gpu, gst_structure_copy(gst_caps_get_structure(others, i)),
                                     gst_caps_features_copy(features));
    }
    if (!gst_caps_is_empty(gpu)) gst_caps_replace(&others, gpu);
    gst_caps_unref(gpu);
  }
  return GST_BASE_TRANSFORM_CLASS(gst_gpumap_kernel_parent_class)->fixate_caps(trans, direction, caps, others);
}

gboolean set_caps(GstBaseTransform* trans, GstCaps* in, GstCaps* out) {
  const auto runner = runner_of(trans);
  if (!runner) return FALSE;
  if (!gpumap::gst::is_gpu_caps(in)) {
    GST_ELEMENT_ERROR(trans, STREAM, WRONG_TYPE,
                      ("gpumapkernel takes memory:GPUMap: put gpumapsink and gpumapsrc before it"),
                      ("caps %" GST_PTR_FORMAT, static_cast<void*>(in)));
    return FALSE;
  }
  const bool gpu_output = gpumap::gst::is_gpu_caps(out);
  const bool reads_meta = gpu_output || gpumap::gst::peer_reads_video_meta(trans->srcpad, out);
  runner->set_caps(in, out, gpu_output, reads_meta);
  return TRUE;
}

// Output blocks come from the kernel's own pools.
gboolean decide_allocation(GstBaseTransform* /*trans*/, GstQuery* /*query*/) {
  return TRUE;
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
      KernelState& state = state_of(trans);
      GST_OBJECT_LOCK(trans);
      const bool changed = std::exchange(state.params_changed, false);
      const std::string params = changed ? state.settings.params : std::string();
      GST_OBJECT_UNLOCK(trans);
      if (changed) runner->set_params(params);
      *out = runner->run(in);
      if (*out != nullptr) flow = GST_FLOW_OK;
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
    if (GST_EVENT_TYPE(event) == GST_EVENT_FLUSH_STOP) runner->cancel(false);
    if (GST_EVENT_TYPE(event) == GST_EVENT_EOS) {
      // A fault in the last frames' kernels shows only when someone waits for them.
      try {
        runner->drain();
      } catch (const std::exception& error) {
        gpumap::gst::post_error(GST_ELEMENT_CAST(trans), error);
      }
    }
  }
  return GST_BASE_TRANSFORM_CLASS(gst_gpumap_kernel_parent_class)->sink_event(trans, event);
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
  klass->base.decide_allocation = decide_allocation;
  klass->base.generate_output = generate_output;
  klass->base.sink_event = sink_event;

  const auto rw = static_cast<GParamFlags>(G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | GST_PARAM_MUTABLE_READY);
  const auto playing = static_cast<GParamFlags>(G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | GST_PARAM_MUTABLE_PLAYING);
  g_object_class_install_property(
      object_class, PROP_KERNEL,
      g_param_spec_string("kernel", "Kernel", "Built-in: identity, checksum, convert, iq-to-f32 or iq-power",
                          "identity", rw));
  g_object_class_install_property(
      object_class, PROP_LOCATION,
      g_param_spec_string("location", "Location", "File of a kernel of yours: .cu, .ptx, .cubin, .comp or .spv",
                          nullptr, rw));
  g_object_class_install_property(
      object_class, PROP_FUNCTION,
      g_param_spec_string("function", "Function", "Entry point in that file, where it has several", nullptr, rw));
  g_object_class_install_property(
      object_class, PROP_PARAMS,
      g_param_spec_string("params", "Parameters", "Numbers for the kernel, as in mean=[0.5,0.5,0.5],scale=[2,2,2]",
                          nullptr, playing));
  g_object_class_install_property(
      object_class, PROP_BACKEND,
      g_param_spec_enum("backend", "Backend", "What runs a built-in kernel", backend_type(), BACKEND_AUTO, rw));
  g_object_class_install_property(
      object_class, PROP_DEVICE,
      g_param_spec_string("device", "Device", "GPU: auto, an index, a UUID or a PCI address (see gpumap-info)", "auto",
                          rw));

  static GstStaticPadTemplate sink_template =
      GST_STATIC_PAD_TEMPLATE("sink", GST_PAD_SINK, GST_PAD_ALWAYS, GST_STATIC_CAPS_ANY);
  static GstStaticPadTemplate src_template =
      GST_STATIC_PAD_TEMPLATE("src", GST_PAD_SRC, GST_PAD_ALWAYS, GST_STATIC_CAPS_ANY);
  gst_element_class_add_static_pad_template(GST_ELEMENT_CLASS(klass), &sink_template);
  gst_element_class_add_static_pad_template(GST_ELEMENT_CLASS(klass), &src_template);
  gst_element_class_set_static_metadata(GST_ELEMENT_CLASS(klass), "GPU map kernel", "Filter/Converter/Hardware",
                                        "Runs a CUDA kernel or a compute shader on each frame in GPU memory",
                                        "The gpumap authors");
  gst_type_mark_as_plugin_api(backend_type(), static_cast<GstPluginAPIFlags>(0));
}

static void gst_gpumap_kernel_init(GstGpumapKernel* self) {
  self->state = new KernelState;
  gst_base_transform_set_in_place(GST_BASE_TRANSFORM_CAST(self), FALSE);
  gst_base_transform_set_passthrough(GST_BASE_TRANSFORM_CAST(self), FALSE);
}
