// SPDX-License-Identifier: MIT
#include "gst/kernel/kernel_properties.hpp"

#include "gst/kernel/converted_caps.hpp"
#include "gst/kernel/kernel_element.hpp"

namespace gpumap::gst {

namespace {

GType backend_type() {
  static const GType type = [] {
    static const GEnumValue values[] = {
        {0, "CUDA where the GPU has it, else Vulkan", "auto"},
        {static_cast<gint>(Backend::cuda) + 1, "CUDA", value_name(Backend::cuda)},
        {static_cast<gint>(Backend::vulkan) + 1, "Vulkan compute", value_name(Backend::vulkan)},
        {0, nullptr, nullptr},
    };
    return g_enum_register_static("GstGpumapBackend", values);
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

}  // namespace

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

}  // namespace gpumap::gst
