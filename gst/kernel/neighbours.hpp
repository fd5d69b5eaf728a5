// SPDX-License-Identifier: MIT
// How a gpumapkernel and the CUDA and Vulkan elements around it come to share a context, or a device, and its memory.
#pragma once

#include <gst/base/gstbasetransform.h>
#include <gst/gst.h>

#include <atomic>
#include <memory>
#include <string_view>

#include "gpumap/device.hpp"
#include "gpumap/kernel_plan.hpp"
#include "gst/kernel/runner.hpp"

namespace gpumap::gst {

/// Answer a CUDA element's query for its context, or a Vulkan element's for its device, with that of the GPU that
/// `settings` choose; false for any other query and where that GPU has none. `told`: whether the pipeline was told of
/// it too, since the start. Thread-safe.
[[nodiscard]] bool answer_context(GstElement* element, GstQuery* query, const KernelSettings& settings,
                                  std::atomic<bool>& told);

/// Correct the answer to a CAPS query on the sink pad, once started. A CUDA element upstream that can give both is not
/// asked for system memory, which is offered only for frames that lie in GPU memory all the same. And where downstream
/// takes nothing but CUDA memory that cannot be given, it is as if it could: the caps then come, and post_refusal() can
/// say what is missing, which caps that no one sends could not.
void correct_caps(GstBaseTransform* kernel, GstQuery* query);
/// After `caps` that were refused: an error, where the reason is that downstream takes nothing but CUDA memory.
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
