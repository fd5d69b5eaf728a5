// SPDX-License-Identifier: MIT
#pragma once

#include <gst/base/gstbasetransform.h>
#include <gst/gst.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "gpumap/device.hpp"
#include "gpumap/program.hpp"
#include "gst/kernel/runner.hpp"
#include "gst/property_table.hpp"

// What the files of the element gpumapkernel share.

namespace gpumap::gst {

/// The parameters of a kernel as children of its element (GstChildProxy), each with a controllable property `value`:
/// `gpumapkernel gain::value=2.5`, gst_child_proxy_set(kernel, "gain::value", 2.5, NULL), or a GstControlSource bound
/// to `value` of the child "gain". `value` is a gint64 where the kernel declares integers (i32, u32, i64), else a
/// double. A number of a list is the child "taps[1]". One that was not set shows what the
/// element's `params` say. Thread safety: every member from any thread.
class KernelParameters {
 public:
  KernelParameters();
  ~KernelParameters();
  KernelParameters(const KernelParameters&) = delete;
  KernelParameters& operator=(const KernelParameters&) = delete;

  /// The kernel that `settings` choose runs from here on: its parameters are the children.
  void begin(const KernelSettings& settings);
  /// No kernel runs any more.
  void end();
  /// The kernel of `element` is another one: its parameters are the children from here on. Those that it has not go;
  /// while a kernel runs, which goes on until the next start, they keep their values for it.
  void adopt(GstElement* element);
  /// The child, transfer full; null where the kernel has no such parameter. Of a file that declares none it has any.
  [[nodiscard]] GObject* child(GstElement* element, const std::string& name);
  /// Transfer full, or null.
  [[nodiscard]] GObject* child(guint index) const;
  [[nodiscard]] guint count() const;

  /// For a warning at the start: which children were asked for, or set, that the kernel of `element` does not have, and
  /// what it has. Empty: none.
  [[nodiscard]] std::string unknown_children(GstElement* element);

  /// Bring controlled values to stream time `time`; then true where any value differs from those of the last call.
  [[nodiscard]] bool changed(GstClockTime time);
  /// For the kernel that runs, or starts: `params` with the children's values in place of, or beside, what it says.
  /// Throws Error(invalid).
  [[nodiscard]] std::string over(const std::string& params) const;

  /// Give `type`, an element's, the GstChildProxy interface over what `of` finds.
  using Of = KernelParameters& (*)(GObject* element);
  static void add_interface(GType type, Of of);

 private:
  struct Child;
  /// The children of the kernel that runs; under the lock.
  [[nodiscard]] std::vector<Child*> in_force() const;
  GObject* find_or_add(GstElement* element, const std::string& name, bool whole);
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Child>> children_;
  std::vector<std::unique_ptr<Child>> former_;         ///< those of the kernel that runs which are children no more
  std::optional<std::array<std::string, 3>> running_;  ///< what chose the kernel that runs
  bool changed_since_ = false;                         ///< the element has another kernel for the next start
  std::set<std::string> missed_;  ///< that were asked for while the kernel had no such parameter, or went with a value
};

}  // namespace gpumap::gst

GST_DEBUG_CATEGORY_EXTERN(gpumap_kernel_debug);

namespace gpumap::gst {

struct KernelState {
  KernelSettings settings;                  ///< under the object lock; count from the next start on, but for `params`
  ThreadSettings threads;                   ///< likewise
  ThreadSchedule schedule;                  ///< of threads that this element starts; since its start
  std::atomic<bool> params_changed{false};  ///< since the last frame; set behind the change
  std::shared_ptr<KernelRunner> runner;     ///< under the object lock; used by the streaming thread
  std::unique_ptr<Watchdog> watchdog;       ///< of the runner
  KernelParameters parameters;
  std::atomic<bool> context_told{false};            ///< see answer_context()
  std::atomic<bool> downstream_changed{true};       ///< or its caps: it is to be asked what it reads
  bool shortfall_told = false;                      ///< since the start. The streaming thread's
  bool risk_told = false;                           ///< likewise
  bool share_told = false;                          ///< likewise
  gint64 refused_us = 0;                            ///< when parameters were refused, and told. The streaming thread's
  bool refused_untold = false;                      ///< and since then, untold. Likewise
  std::string proposal_refused;                     ///< why the last caps do not go with new parameters. Likewise
  std::atomic<std::uint64_t> dropped{0};            ///< since the start, for being too short
  std::atomic<std::uint64_t> dropped_by_kernel{0};  ///< since the start
  bool lost_one = false;                            ///< the last frame reached nobody. The streaming thread's
  bool caps_refused = false;                        ///< and told; upstream may send them again. The streaming thread's
  GstPadActivateModeFunction activate = nullptr;    ///< the base class's, of the sink pad
};

struct GstGpumapKernel {
  GstBaseTransform base;
  KernelState* state;
};

[[nodiscard]] inline KernelState& state_of(gpointer kernel) {
  return *reinterpret_cast<GstGpumapKernel*>(kernel)->state;
}
/// Null before start() and after stop(). From any thread.
[[nodiscard]] std::shared_ptr<KernelRunner> runner_of(gpointer kernel);
/// Put this one in its place, under the watchdog's eye. The streaming thread, or start().
void set_runner(GstBaseTransform* kernel, std::shared_ptr<KernelRunner> runner);
/// The stream goes on: where the watchdog has told of its kernel, another looks at that. Throws Error(no_resources).
void watch_again(GstBaseTransform* kernel, const std::shared_ptr<KernelRunner>& runner);
/// From any thread.
[[nodiscard]] KernelSettings settings_of(gpointer kernel);
[[nodiscard]] ThreadSettings thread_settings_of(gpointer kernel);
[[nodiscard]] inline GstBaseTransformClass* kernel_parent_class() {
  return GST_BASE_TRANSFORM_CLASS(g_type_class_peek(GST_TYPE_BASE_TRANSFORM));
}

/// Set what agrees on caps and answers queries.
void install_kernel_negotiation(GstBaseTransformClass* klass);
/// Set what takes buffers and events.
void install_kernel_stream(GstBaseTransformClass* klass);
/// Once, when the element is made: frames that were made for one peer do not reach another as they are.
void watch_kernel_link(GstBaseTransform* kernel);

// How a gpumapkernel and the CUDA and Vulkan elements around it come to share a context, or a device, and its memory.

/// Answer a CUDA element's query for its context, or a Vulkan element's for its device, with that of the GPU that
/// `settings` choose; false for any other query and where that GPU has none. `told`: whether the pipeline was told of
/// it too, since the start. Thread-safe.
[[nodiscard]] bool answer_context(GstElement* element, GstQuery* query, const KernelSettings& settings,
                                  std::atomic<bool>& told);

/// Correct the answer to a CAPS query on the sink pad, once started. A CUDA element upstream that can give both is not
/// asked for system memory, which is offered only for frames that lie in GPU memory all the same. And where downstream
/// takes nothing but CUDA memory that cannot be given, or what the kernel never makes, it is as if it could: the caps
/// then come, and post_refusal() can say what is missing, which caps that no one sends could not.
void correct_caps(GstBaseTransform* kernel, GstQuery* query);
/// After `caps` that were refused: an error, where the reason is that downstream takes nothing but CUDA memory, or what
/// the kernel never makes.
void post_refusal(GstBaseTransform* kernel, const KernelRunner& runner, const GstCaps* caps);

/// Before a frame: where the first of new caps is to go into CUDA memory, see what downstream offers of that. The base
/// class asks only for elements with a transform(). Throws Error(no_memory).
void provide_cuda_pool(GstBaseTransform* kernel, KernelRunner& runner);

/// Before a frame: where the memory of GStreamer's Vulkan elements lies that `in` has, or what comes out is to go into.
/// Throws Error(not_supported | no_memory | device_lost).
void provide_vulkan(GstBaseTransform* kernel, KernelRunner& runner, GstBuffer* in);

/// Answer an ALLOCATION query whose caps ask for CUDA memory; false for any other.
[[nodiscard]] bool propose_cuda(GstQuery* query, const KernelRunner& runner);

/// The GPU whose memory `frame` lies in; null where it is not gpumap's memory.
[[nodiscard]] const std::shared_ptr<Device>& device_of(GstBuffer* frame);

/// For a kernel that runs on `own`, as `selector` chose it, and a frame in the memory of `frames`: that GPU where the
/// kernel is to go there, null where it stays. Throws Error(invalid) where it was told to be elsewhere.
[[nodiscard]] std::shared_ptr<Device> device_to_follow(std::string_view selector, const Device& own,
                                                       const std::shared_ptr<Device>& frames);

}  // namespace gpumap::gst
