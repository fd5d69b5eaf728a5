// SPDX-License-Identifier: MIT
#include "gst/kernel/properties.hpp"

namespace gpumap::gst {

namespace {

enum {
  PROP_KERNEL = 1,
  PROP_LOCATION,
  PROP_FUNCTION,
  PROP_PARAMS,
  PROP_BACKEND,
  PROP_DEVICE,
  PROP_BLOCK,
  PROP_GRID,
  PROP_SHARED_BYTES,
  PROP_STATE_BYTES,
  PROP_INPUT_CAPS,
  PROP_OUTPUT_CAPS,
  PROP_OUTPUT_BYTES,
  PROP_OUTPUT_MAY,
  PROP_RESULT_WORDS,
  PROP_INCLUDE_PATH,
  PROP_DEFINES,
  PROP_RELOAD,
  PROP_CHECK_BOUNDS,
  PROP_LATE_RESULTS,
  PROP_TIMEOUT,
  PROP_TABLES,
  PROP_HISTORY,
  PROP_PRIORITY,
  PROP_SM_SHARE,
};
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

/// The text that a property sets; null for properties that are no text.
std::string* text_of(KernelSettings& settings, guint id) {
  switch (id) {
    case PROP_KERNEL:
      return &settings.kernel;
    case PROP_LOCATION:
      return &settings.location;
    case PROP_FUNCTION:
      return &settings.function;
    case PROP_PARAMS:
      return &settings.params;
    case PROP_TABLES:
      return &settings.tables;
    case PROP_DEVICE:
      return &settings.device;
    case PROP_BLOCK:
      return &settings.block;
    case PROP_GRID:
      return &settings.grid;
    case PROP_INPUT_CAPS:
      return &settings.input_caps;
    case PROP_OUTPUT_CAPS:
      return &settings.output_caps;
    case PROP_OUTPUT_BYTES:
      return &settings.output_bytes;
    case PROP_OUTPUT_MAY:
      return &settings.output_may;
    case PROP_INCLUDE_PATH:
      return &settings.include_path;
    case PROP_DEFINES:
      return &settings.defines;
    default:
      return nullptr;
  }
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

}  // namespace

bool chooses_kernel(guint id) noexcept {
  return id == PROP_KERNEL || id == PROP_LOCATION;
}

void set_kernel_property(GObject* object, KernelProperties& properties, guint id, const GValue* value,
                         GParamSpec* spec) {
  KernelSettings& settings = properties.settings;
  GST_OBJECT_LOCK(object);
  if (std::string* text = text_of(settings, id)) {
    KernelSettings unset;
    const gchar* given = g_value_get_string(value);
    *text = given != nullptr ? given : *text_of(unset, id);
    properties.params_changed = properties.params_changed || id == PROP_PARAMS;
    GST_OBJECT_UNLOCK(object);
    return;
  }
  switch (id) {
    case PROP_BACKEND: {
      const gint backend = g_value_get_enum(value);
      settings.backend.reset();
      if (backend != BACKEND_AUTO) settings.backend = backend == BACKEND_CUDA ? Backend::cuda : Backend::vulkan;
      break;
    }
    case PROP_SHARED_BYTES:
      settings.shared_bytes = g_value_get_uint(value);
      break;
    case PROP_STATE_BYTES:
      settings.state_bytes = g_value_get_uint64(value);
      break;
    case PROP_HISTORY:
      settings.history = g_value_get_uint(value);
      break;
    case PROP_RESULT_WORDS:
      settings.result_words = g_value_get_uint(value);
      break;
    case PROP_RELOAD:
      settings.reload = g_value_get_boolean(value) != 0;
      break;
    case PROP_CHECK_BOUNDS:
      settings.check_bounds = g_value_get_boolean(value) != 0;
      break;
    case PROP_LATE_RESULTS:
      settings.late_results = g_value_get_boolean(value) != 0;
      break;
    case PROP_TIMEOUT:
      settings.timeout_ms = g_value_get_uint(value);
      break;
    case PROP_PRIORITY:
      settings.priority = g_value_get_uint(value);
      break;
    case PROP_SM_SHARE:
      settings.sm_share = g_value_get_double(value);
      break;
    default:
      G_OBJECT_WARN_INVALID_PROPERTY_ID(object, id, spec);
  }
  GST_OBJECT_UNLOCK(object);
}

void get_kernel_property(GObject* object, const KernelProperties& properties, guint id, GValue* value,
                         GParamSpec* spec) {
  GST_OBJECT_LOCK(object);
  KernelSettings settings = properties.settings;
  GST_OBJECT_UNLOCK(object);
  if (const std::string* text = text_of(settings, id)) {
    g_value_set_string(value, text->empty() ? nullptr : text->c_str());
    return;
  }
  switch (id) {
    case PROP_BACKEND:
      g_value_set_enum(value, !settings.backend                    ? BACKEND_AUTO
                              : *settings.backend == Backend::cuda ? BACKEND_CUDA
                                                                   : BACKEND_VULKAN);
      break;
    case PROP_SHARED_BYTES:
      g_value_set_uint(value, settings.shared_bytes);
      break;
    case PROP_STATE_BYTES:
      g_value_set_uint64(value, settings.state_bytes);
      break;
    case PROP_HISTORY:
      g_value_set_uint(value, settings.history);
      break;
    case PROP_RESULT_WORDS:
      g_value_set_uint(value, settings.result_words);
      break;
    case PROP_RELOAD:
      g_value_set_boolean(value, static_cast<gboolean>(settings.reload));
      break;
    case PROP_CHECK_BOUNDS:
      g_value_set_boolean(value, static_cast<gboolean>(settings.check_bounds));
      break;
    case PROP_LATE_RESULTS:
      g_value_set_boolean(value, static_cast<gboolean>(settings.late_results));
      break;
    case PROP_TIMEOUT:
      g_value_set_uint(value, settings.timeout_ms);
      break;
    case PROP_PRIORITY:
      g_value_set_uint(value, settings.priority);
      break;
    case PROP_SM_SHARE:
      g_value_set_double(value, settings.sm_share);
      break;
    default:
      G_OBJECT_WARN_INVALID_PROPERTY_ID(object, id, spec);
  }
}

void install_kernel_properties(GObjectClass* object_class) {
  const auto ready = static_cast<GParamFlags>(G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | GST_PARAM_MUTABLE_READY);
  const auto playing = static_cast<GParamFlags>(G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | GST_PARAM_MUTABLE_PLAYING);
  const auto text = [&](guint id, const char* name, const char* nick, const char* blurb,
                        const char* otherwise = nullptr, bool while_playing = false) {
    g_object_class_install_property(object_class, id,
                                    g_param_spec_string(name, nick, blurb, otherwise, while_playing ? playing : ready));
  };
  static const auto& kernels = *new std::string([] {
    std::string names;
    for (const Builtin& builtin : builtins())
      names += (names.empty() ? "Built-in: " : ", ") + std::string(builtin.name);
    return names;
  }());
  static const auto& unset = *new KernelSettings;
  text(PROP_KERNEL, "kernel", "Kernel", kernels.c_str(), unset.kernel.c_str());
  text(PROP_LOCATION, "location", "Location", "File of a kernel of yours: .cu, .ptx, .cubin, .comp or .spv");
  text(
      PROP_FUNCTION, "function", "Function",
      "Entry point in that file, where it has several; or several, as in blur,sharpen, each run on what the one before "
      "it wrote");
  static const auto& params = *new std::string("Numbers for the kernel, as in mean=[0.5,0.5,0.5],scale=[2,2,2]. " +
                                               names_of_parameters() + "; a file of yours: as it declares");
  text(PROP_PARAMS, "params", "Parameters", params.c_str(), nullptr, true);
  g_object_class_install_property(
      object_class, PROP_BACKEND,
      g_param_spec_enum("backend", "Backend", "What runs a built-in kernel", backend_type(), BACKEND_AUTO, ready));
  text(PROP_DEVICE, "device", "Device", "GPU: auto, an index, a UUID or a PCI address (see gpumap-info)", "auto");
  text(PROP_BLOCK, "block", "Block", "Threads of a block, as in 32x8 (unset: as the file declares, else chosen)");
  text(PROP_GRID, "grid", "Grid",
       "Blocks, as in 60x135 (unset: as the file declares, else enough to give each pixel, sample or byte a thread)");
  g_object_class_install_property(
      object_class, PROP_SHARED_BYTES,
      g_param_spec_uint("shared-bytes", "Shared bytes",
                        "Dynamic shared memory of a block, for CUDA (0: as the file declares)", 0, G_MAXUINT, 0,
                        ready));
  g_object_class_install_property(
      object_class, PROP_STATE_BYTES,
      g_param_spec_uint64("state-bytes", "State bytes",
                          "Memory that the kernel keeps from frame to frame (0: as the file declares)", 0, G_MAXUINT64,
                          0, ready));
  text(PROP_TABLES, "tables", "Tables",
       "Files of numbers for the kernel in a file, as in weights=/path/of/file,other=/path; loaded again when they "
       "change");
  g_object_class_install_property(
      object_class, PROP_HISTORY,
      g_param_spec_uint("history", "History",
                        "Frames before the one at hand that the kernel sees (0: as the file "
                        "declares)",
                        0, GPUMAP_MAX_HISTORY, 0, ready));
  text(PROP_INPUT_CAPS, "input-caps", "Input caps",
       "What the kernel takes, as in video/x-raw,format=GRAY8 (unset: as the file declares, else anything)");
  text(PROP_OUTPUT_CAPS, "output-caps", "Output caps",
       "What the kernel gives, as in video/x-raw,format=GRAY8,width={width/2},height={height/2} (unset: as the file "
       "declares, else as the input); fields left out are the input's; \"unchanged\": it only looks at the frame");
  text(PROP_OUTPUT_BYTES, "output-bytes", "Output bytes",
       "Size of a frame that the caps do not tell, as in bytes/2 (unset: as the file declares, else as the input)");
  text(PROP_OUTPUT_MAY, "output-may", "Output may",
       "What the kernel may do by what it writes at frame.given: drop, shorten or drop,shorten (unset: as the file "
       "declares)");
  g_object_class_install_property(
      object_class, PROP_RESULT_WORDS,
      g_param_spec_uint("result-words", "Result words",
                        "Words of 64 bits in the kernel's result block, from 32 on (0: as the file declares, else 32)",
                        0, GPUMAP_MAX_RESULT_WORDS, 0, ready));
  text(PROP_INCLUDE_PATH, "include-path", "Include path", "Folders for what the file includes, separated by ':'");
  text(PROP_DEFINES, "defines", "Defines", "Macros for the file, as in RADIUS=3,FAST");
  g_object_class_install_property(
      object_class, PROP_RELOAD,
      g_param_spec_boolean("reload", "Reload",
                           "Compile the file again when it changes, and go on with what was there where it does not "
                           "compile",
                           FALSE, ready));
  g_object_class_install_property(
      object_class, PROP_CHECK_BOUNDS,
      g_param_spec_boolean("check-bounds", "Check bounds",
                           "Tell of a kernel in a file that writes behind its output, at the cost of waiting for each "
                           "frame",
                           FALSE, ready));
  g_object_class_install_property(
      object_class, PROP_LATE_RESULTS,
      g_param_spec_boolean(
          "late-results", "Late results",
          "Hand frames on before their results are there, which come as messages and with later frames", FALSE, ready));
  g_object_class_install_property(
      object_class, PROP_TIMEOUT,
      g_param_spec_uint("timeout", "Timeout",
                        "Milliseconds after which a kernel that has not ended is an error (0: wait for ever)", 0,
                        G_MAXUINT, KernelSettings().timeout_ms, ready));
  g_object_class_install_property(
      object_class, PROP_PRIORITY,
      g_param_spec_uint("priority", "Priority",
                        "Before kernels of a lower priority where both wait for a place on the GPU; CUDA, 5 at most as "
                        "a rule",
                        0, G_MAXINT, 0, ready));
  g_object_class_install_property(
      object_class, PROP_SM_SHARE,
      g_param_spec_double(
          "sm-share", "SM share",
          "Share of the GPU's multiprocessors that the kernel runs on at most, and no other kernel with "
          "a share; CUDA 12.4 (0: it runs on all)",
          0, 1, 0, ready));
  g_object_class_install_property(
      object_class, kernel_stats_id,
      g_param_spec_boxed("stats", "Statistics",
                         "kernel, backend, frames since the start, those that came too short, those that the kernel "
                         "dropped; latency of frames that gpumapsink follows "
                         "(stamps=true)",
                         GST_TYPE_STRUCTURE, static_cast<GParamFlags>(G_PARAM_READABLE | G_PARAM_STATIC_STRINGS)));
  gst_type_mark_as_plugin_api(backend_type(), static_cast<GstPluginAPIFlags>(0));
}

}  // namespace gpumap::gst
