// SPDX-License-Identifier: MIT
// What the files of the element gpumapkernel share, and no other includes.
#pragma once

#include <gst/base/gstbasetransform.h>

#include <atomic>
#include <memory>

#include "gpumap/kernel_plan.hpp"
#include "gst/kernel/parameter.hpp"
#include "gst/kernel/runner.hpp"
#include "gst/kernel/watchdog.hpp"
#include "gst/property_table.hpp"

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
  std::atomic<std::uint64_t> dropped{0};            ///< since the start, for being too short
  std::atomic<std::uint64_t> dropped_by_kernel{0};  ///< since the start
  bool lost_one = false;                            ///< the last frame reached nobody. The streaming thread's
  bool caps_refused = false;                        ///< and told; upstream may send them again. The streaming thread's
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

}  // namespace gpumap::gst
