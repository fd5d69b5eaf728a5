// SPDX-License-Identifier: MIT
/**
 * SECTION:element-gpumapkernel
 * @title: gpumapkernel
 * @short_description: runs a CUDA kernel or a compute shader on each frame in GPU memory
 * @see_also: gpumapsink, gpumapsrc
 *
 * gpumapkernel launches a kernel on each frame once a fence says that the frame is whole: a built-in
 * (#GstGpumapKernel:kernel) or a file of the user's (#GstGpumapKernel:location), in CUDA C++ or in GLSL, which is
 * compiled when the pipeline starts. Comment lines in the file declare parameters, tables, state, results and the caps
 * of what comes out. The output stays in GPU memory for an element that takes memory:GPUMap, memory:CUDAMemory or
 * memory:VulkanImage, else it is brought to ordinary memory. A tensor (application/x-tensor) goes into any of these but
 * memory:VulkanImage. A kernel with results posts them as the element message gpumap-result.
 *
 * ## Example launch lines
 *
 * |[
 * gst-launch-1.0 videotestsrc num-buffers=1 ! video/x-raw,format=NV12,width=224,height=224 ! gpumapsink \
 *   gpumapsrc ! gpumapkernel kernel=convert params="mean=[0.485,0.456,0.406],scale=[4.367,4.464,4.444]" ! \
 *   application/x-tensor ! filesink location=tensor.f32
 * ]| Input for a neural network: planar RGB as float32, normalised.
 *
 * |[
 * gst-launch-1.0 videotestsrc num-buffers=1 ! video/x-raw,format=NV12,width=224,height=224 ! gpumapupload ! \
 *   gpumapkernel kernel=convert ! "application/x-tensor(memory:GPUMap),type=float16" ! \
 *   gpumapkernel location=examples/tensor/from_tensor.comp ! video/x-raw,format=RGBA ! pngenc ! \
 *   filesink location=picture.png
 * ]| A tensor from kernel to kernel, in GPU memory.
 *
 * |[
 * gst-launch-1.0 videotestsrc num-buffers=1 ! video/x-raw,format=RGBA ! gpumapsink \
 *   gpumapsrc ! gpumapkernel location=examples/kernels/invert.comp ! \
 *   video/x-raw,format=RGBA ! pngenc ! filesink location=negative.png
 * ]| A picture through a kernel of one's own.
 *
 * Since: 0.1
 */
#include "gst/elements.hpp"

#include <array>
#include <memory>
#include <utility>

#include "gst/gst_error.hpp"
#include "gst/kernel/kernel_caps.hpp"
#include "gst/kernel/kernel_element.hpp"

GST_DEBUG_CATEGORY(gpumap_kernel_debug);
#define GST_CAT_DEFAULT gpumap_kernel_debug

using gpumap::gst::GstGpumapKernel;
using gpumap::gst::kernel_parent_class;
using gpumap::gst::KernelParameters;
using gpumap::gst::KernelRunner;
using gpumap::gst::KernelState;
using gpumap::gst::runner_of;
using gpumap::gst::state_of;

namespace {

struct GstGpumapKernelClass {
  GstBaseTransformClass base;
};

}  // namespace

static void add_interfaces(GType type);
G_DEFINE_TYPE_WITH_CODE(GstGpumapKernel, gst_gpumap_kernel, GST_TYPE_BASE_TRANSFORM, add_interfaces(g_define_type_id))

namespace gpumap::gst {

std::shared_ptr<KernelRunner> runner_of(gpointer kernel) {
  GST_OBJECT_LOCK(kernel);
  auto runner = state_of(kernel).runner;
  GST_OBJECT_UNLOCK(kernel);
  return runner;
}

void set_runner(GstBaseTransform* kernel, std::shared_ptr<KernelRunner> runner) {
  KernelState& state = state_of(kernel);
  runner->set_giver(std::make_shared<const Giver>(kernel->sinkpad));
  state.watchdog = std::make_unique<Watchdog>(GST_ELEMENT_CAST(kernel), runner, runner->settings().timeout_ms);
  GST_OBJECT_LOCK(kernel);
  state.runner.swap(runner);
  state.params_changed = true;
  GST_OBJECT_UNLOCK(kernel);
  state.downstream_changed = true;
}

void watch_again(GstBaseTransform* kernel, const std::shared_ptr<KernelRunner>& runner) {
  std::unique_ptr<Watchdog>& watchdog = state_of(kernel).watchdog;
  if (!watchdog || !watchdog->has_told()) return;
  watchdog = std::make_unique<Watchdog>(GST_ELEMENT_CAST(kernel), runner, runner->settings().timeout_ms);
}

KernelSettings settings_of(gpointer kernel) {
  GST_OBJECT_LOCK(kernel);
  KernelSettings settings = state_of(kernel).settings;
  GST_OBJECT_UNLOCK(kernel);
  return settings;
}

ThreadSettings thread_settings_of(gpointer kernel) {
  GST_OBJECT_LOCK(kernel);
  ThreadSettings settings = state_of(kernel).threads;
  GST_OBJECT_UNLOCK(kernel);
  return settings;
}

namespace {

GType backend_type() {
  static const GType type = [] {
    static std::array<GEnumValue, backends.size() + 2> values{{{0, "CUDA where the GPU has it, else Vulkan", "auto"}}};
    for (const BackendTraits& traits : backends) {
      const gint value = static_cast<gint>(traits.backend) + 1;
      values.at(static_cast<std::size_t>(value)) = {value, to_string(traits.backend), traits.value};
    }
    return g_enum_register_static("GstGpumapBackend", values.data());
  }();
  return type;
}

GType mode_type() {
  static const GType type = [] {
    static const GEnumValue values[] = {
        {static_cast<gint>(KernelMode::launch), "Each frame is a launch", "launch"},
        {static_cast<gint>(KernelMode::resident), "The kernel stays on the GPU and waits for frames", "resident"},
        {static_cast<gint>(KernelMode::automatic), "Resident where kernel and memory allow it, else launch", "auto"},
        {0, nullptr, nullptr},
    };
    return g_enum_register_static("GstGpumapKernelMode", values);
  }();
  return type;
}

std::string names_of_builtins() {
  std::string names;
  for (const Builtin& builtin : builtins()) names += (names.empty() ? "" : ", ") + std::string(builtin.name);
  return names;
}

/// What each built-in that has any knows: "ddc: rate, taps; ...".
std::string names_of_parameters() {
  std::string text;
  for (const Builtin& builtin : builtins()) {
    std::string names;
    for (const DeclaredParameter& parameter : declaration_of(builtin).params) {
      names += (names.empty() ? "" : ", ") + parameter.name;
      if (parameter.values.size() > 1) names += "[" + std::to_string(parameter.values.size()) + "]";
    }
    if (names.empty()) continue;
    text += (text.empty() ? "" : "; ") + std::string(builtin.name) + ": " + names;
  }
  return text;
}

void adopt_parameters(GObject* kernel) {
  state_of(kernel).parameters.adopt(GST_ELEMENT_CAST(kernel));
}

void note_params(GObject* kernel) {
  GST_OBJECT_LOCK(kernel);
  state_of(kernel).params_changed = true;
  GST_OBJECT_UNLOCK(kernel);
}

GstStructure* stats(GObject* kernel) {
  const KernelState& state = state_of(kernel);
  const auto runner = runner_of(kernel);
  GstStructure* made = runner ? runner->stats() : gst_structure_new_empty("gpumapkernel-stats");
  gst_structure_set(made, "dropped", G_TYPE_UINT64, static_cast<guint64>(state.dropped), "dropped-by-kernel",
                    G_TYPE_UINT64, static_cast<guint64>(state.dropped_by_kernel), nullptr);
  return made;
}

/// All properties.
std::vector<Property> kernel_properties() {
  using Settings = KernelSettings;
  const PropertiesOf<Settings> of([](GObject* kernel) -> Settings& { return state_of(kernel).settings; });
  std::vector<Property> table{
      then(of.text("kernel",
                   "Built-in kernel that runs, unless location is set: " + names_of_builtins() + ". convert " +
                       formats_of_convert(),
                   &Settings::kernel),
           adopt_parameters),
      then(of.optional_text("location", "File with a kernel of yours: .cu, .ptx, .cubin, .comp or .spv",
                            &Settings::location),
           adopt_parameters),
      of.optional_text("function",
                       "Function of that file which runs, where there is more than one; or several in sequence, as in "
                       "blur,sharpen, each on the output of the one before",
                       &Settings::function),
      then(of.optional_text("params",
                            "Numbers for the kernel, as in mean=[0.5,0.5,0.5],scale=[2,2,2]. " + names_of_parameters() +
                                "; a file of yours: as it declares",
                            &Settings::params, mutable_playing),
           note_params),
      then(of.optional_text("declare",
                            "Declaration lines for a file of yours, in place of its own of the same word, separated by "
                            "';' or line ends, as in output video/x-raw,format=GRAY8; state 4096; table "
                            "weights=/path/of/file",
                            &Settings::declare),
           adopt_parameters),
      of.choice("backend", "What runs a built-in kernel", &Settings::backend, backend_type()),
      of.text("device", "GPU: auto, an index, a UUID or a PCI address (see gpumap-info)", &Settings::device),
      of.optional_text("include-path", "Folders for what the file includes, separated by ':'", &Settings::include_path),
      of.optional_text("defines", "Macros for the file, as in RADIUS=3,FAST", &Settings::defines),
      of.flag("reload", "Compile the file again when it changes, keeping the previous kernel where it does not compile",
              &Settings::reload),
      of.flag("check-bounds",
              "Post an error where a kernel in a file writes behind its output, its results, its tensors or its state; "
              "each "
              "frame is waited for",
              &Settings::check_bounds),
      of.flag("late-results",
              "Hand frames on before their results are there; these come as messages and with later frames",
              &Settings::late_results),
      of.number("timeout", "Milliseconds that a kernel may take before an error is posted (0: wait for ever)",
                &Settings::timeout_ms),
      of.number("priority",
                "Where kernels wait for a place on the GPU, those of a higher priority go first; CUDA only, most GPUs "
                "have 0 to 5",
                &Settings::priority, 0, G_MAXINT),
      of.number("sm-share",
                "Share of the GPU's multiprocessors that the kernel runs on at most, and no other kernel with a share; "
                "CUDA 12.4 (0: it runs on all)",
                &Settings::sm_share, 0, 1),
      of.choice("mode", "How frames come to the kernel; CUDA C++ alone can stay on the GPU", &Settings::mode,
                mode_type()),
      of.number(
          "resident-blocks",
          "Largest number of blocks that a resident kernel keeps on the GPU; multiprocessors take one each, then more "
          "(0: one for almost every second multiprocessor)",
          &Settings::resident_blocks, 0, 65535),
      of.number("resident-idle",
                "Milliseconds without a frame after which a kernel that stays leaves the GPU until the next one",
                &Settings::resident_idle_ms, 1, 3600000),
      statistics("kernel, backend, mode and its reason, frames since the start, those that came too short, those that "
                 "the kernel dropped; latency "
                 "of frames that gpumapsink follows (stamps=true)",
                 stats),
  };
  add_thread_properties(
      table, [](GObject* kernel) -> ThreadSettings& { return state_of(kernel).threads; },
      "the threads that wait for CUDA elements and for a resident kernel");
  return table;
}

}  // namespace

}  // namespace gpumap::gst

namespace {

gboolean start(GstBaseTransform* trans) {
  KernelState& state = state_of(trans);
  gpumap::gst::forget_errors(GST_ELEMENT_CAST(trans));
  state.caps_refused = false;
  state.shortfall_told = false;
  state.risk_told = false;
  state.share_told = false;
  state.refused_us = 0;
  state.refused_untold = false;
  state.lost_one = false;
  state.dropped = state.dropped_by_kernel = 0;
  try {
    const std::string unknown = state.parameters.unknown_children(GST_ELEMENT_CAST(trans));
    if (!unknown.empty()) {
      gpumap::gst::post_warning(GST_ELEMENT_CAST(trans), gpumap::Error(gpumap::ErrorCode::invalid, unknown));
    }
    auto settings = gpumap::gst::settings_of(trans);
    state.parameters.begin(settings);
    settings.params = state.parameters.over(settings.params);
    state.schedule = gpumap::gst::try_schedule(GST_ELEMENT_CAST(trans), gpumap::gst::thread_settings_of(trans));
    const gpumap::StartedWith started(state.schedule);
    gpumap::gst::set_runner(trans, std::make_shared<KernelRunner>(settings));
  } catch (const std::exception& error) {
    gpumap::gst::post_error_once(GST_ELEMENT_CAST(trans), error);
    state.parameters.end();
    return FALSE;
  }
  return TRUE;
}

gboolean stop(GstBaseTransform* trans) {
  GST_PAD_STREAM_LOCK(trans->sinkpad);  // the end of a flush that came before the pad's may look at it
  auto watchdog = std::move(state_of(trans).watchdog);
  GST_PAD_STREAM_UNLOCK(trans->sinkpad);
  watchdog.reset();
  GST_OBJECT_LOCK(trans);
  auto runner = std::move(state_of(trans).runner);
  GST_OBJECT_UNLOCK(trans);
  state_of(trans).context_told = false;
  state_of(trans).parameters.end();
  return TRUE;  // the runner ends here, outside the lock: it waits for the GPU
}

GstStateChangeReturn change_state(GstElement* element, GstStateChange transition) {
  if (transition == GST_STATE_CHANGE_PAUSED_TO_READY) {
    if (const auto runner = runner_of(element)) runner->cancel(true);
  }
  return GST_ELEMENT_CLASS(gst_gpumap_kernel_parent_class)->change_state(element, transition);
}

/// Who switches the pad off waits for the thread that is in it, and that for the kernel.
gboolean activate_sink(GstPad* pad, GstObject* parent, GstPadMode mode, gboolean active) {
  const auto runner = active == 0 ? runner_of(parent) : nullptr;
  if (runner) runner->cancel(true);
  return state_of(parent).activate(pad, parent, mode, active);
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
  object_class->finalize = finalize;
  GST_ELEMENT_CLASS(klass)->change_state = change_state;
  klass->base.start = start;
  klass->base.stop = stop;
  gpumap::gst::install_kernel_negotiation(&klass->base);
  gpumap::gst::install_kernel_stream(&klass->base);

  gpumap::gst::install_properties(object_class, gpumap::gst::kernel_properties());

  static GstStaticPadTemplate sink_template =
      GST_STATIC_PAD_TEMPLATE("sink", GST_PAD_SINK, GST_PAD_ALWAYS, GST_STATIC_CAPS_ANY);
  static GstStaticPadTemplate src_template =
      GST_STATIC_PAD_TEMPLATE("src", GST_PAD_SRC, GST_PAD_ALWAYS, GST_STATIC_CAPS_ANY);
  gst_element_class_add_static_pad_template(GST_ELEMENT_CLASS(klass), &sink_template);
  gst_element_class_add_static_pad_template(GST_ELEMENT_CLASS(klass), &src_template);
  gst_element_class_set_static_metadata(GST_ELEMENT_CLASS(klass), "GPU map kernel", "Filter/Converter/Hardware",
                                        "Runs a CUDA kernel or a compute shader on each frame or tensor in GPU memory",
                                        "The gpumap authors");
}

static void gst_gpumap_kernel_init(GstGpumapKernel* self) {
  self->state = new KernelState;
  gst_base_transform_set_in_place(GST_BASE_TRANSFORM_CAST(self), FALSE);
  gst_base_transform_set_passthrough(GST_BASE_TRANSFORM_CAST(self), FALSE);
  GstPad* pad = GST_BASE_TRANSFORM_SINK_PAD(self);
  self->state->activate = GST_PAD_ACTIVATEMODEFUNC(pad);
  gst_pad_set_activatemode_function(pad, activate_sink);
  gpumap::gst::watch_kernel_link(GST_BASE_TRANSFORM_CAST(self));
}
