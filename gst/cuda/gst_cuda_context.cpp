// SPDX-License-Identifier: MIT
#include "gst/cuda/gst_cuda_context.hpp"

#include <fmt/format.h>

#include <map>
#include <mutex>

#include "gpumap/cuda.hpp"
#include "gpumap/error.hpp"
#include "gst/cuda/gst_cuda_memory.hpp"
#include "gst/memory/memory_caps.hpp"
#include "gst/ptr.hpp"
#include "gst/runtime_library.hpp"
#include "gst/vulkan/gst_vulkan_context.hpp"

namespace gpumap::gst {
namespace {

constexpr const char* file_name = "libgstcuda-1.0.so.0";

CudaLibrary open_library() {
  CudaLibrary made;
  RuntimeLibrary library(file_name);
#define GPUMAP_GST_CUDA_LOAD(result, name, ...) library.find(#name, made.name);
  GPUMAP_GST_CUDA(GPUMAP_GST_CUDA_LOAD)
  made.problem = library.problem("libgstreamer-plugins-bad1.0-0 and gstreamer1.0-plugins-bad", "1.22");
  if (!made.problem.empty()) return made;
  GPUMAP_GST_CUDA_STREAMS(GPUMAP_GST_CUDA_LOAD)
  made.has_streams = library.problem("", "1.24").empty();
  GPUMAP_GST_CUDA_ORDER(GPUMAP_GST_CUDA_LOAD)
#undef GPUMAP_GST_CUDA_LOAD
  // Any other call of a libgstcuda that has not loaded libcuda ends the process.
  if (made.gst_cuda_load_library() == 0) {
    made.problem =
        std::string(file_name) + " cannot load libcuda: GST_DEBUG=cudaloader:4 tells what it misses; update the driver";
    return made;
  }
  made.gst_cuda_memory_init_once();
  return made;
}

}  // namespace

const CudaLibrary& CudaLibrary::get() {
  static const auto* const library = new CudaLibrary(open_library());
  return *library;
}

std::string cuda_obstacle(const Device& device, Backend backend) {
  const std::string gpu = name_of(device.info());
  if (!device.has(Backend::cuda)) {
    return fmt::format("{} has no CUDA here: use an NVIDIA GPU with its driver (gpumap-info lists the devices)", gpu);
  }
  if (backend != Backend::cuda) {
    return fmt::format("this kernel runs in Vulkan on {}: use backend=cuda, or a .cu file instead of a shader", gpu);
  }
  return CudaLibrary::get().problem;
}

GstCudaContext* shared_cuda_context(const Device& device) {
  static std::mutex mutex;
  static auto* const contexts = new std::map<void*, GstCudaContext*>;
  const CudaHandles handles = cuda_handles(device);
  if (handles.context == nullptr) return nullptr;
  const CudaLibrary& library = CudaLibrary::get();
  if (!library.problem.empty()) return nullptr;
  const std::lock_guard lock(mutex);
  GstCudaContext*& context = (*contexts)[handles.context];
  if (context == nullptr) {
    // Devices are open for the life of the process, so this may be too: with one for all, elements that compare
    // contexts by their address find theirs in every buffer.
    context = library.gst_cuda_context_new_wrapped(static_cast<CUcontext>(handles.context), handles.device);
    if (context != nullptr) GST_OBJECT_FLAG_SET(context, GST_OBJECT_FLAG_MAY_BE_LEAKED);
  }
  return context;
}

bool is_shared_context(const Device& device, GstCudaContext* context) {
  return CudaLibrary::get().gst_cuda_context_get_handle(context) == cuda_handles(device).context;
}

CudaScope::CudaScope(GstCudaContext* context) {
  if (CudaLibrary::get().gst_cuda_context_push(context) != 0) return;
  throw Error(ErrorCode::device_lost, "the CUDA context cannot be made current: restart the process");
}

CudaScope::~CudaScope() {
  CudaLibrary::get().gst_cuda_context_pop(nullptr);
}

bool answer_cuda_context(GstElement* element, GstQuery* query, const Device& device) {
  const gchar* type = nullptr;
  gst_query_parse_context_type(query, &type);
  if (g_strcmp0(type, cuda_context_type) != 0) return false;
  GstCudaContext* context = shared_cuda_context(device);
  return context != nullptr && CudaLibrary::get().gst_cuda_handle_context_query(element, query, context) != 0;
}

void post_cuda_context(GstElement* element, const Device& device) {
  GstCudaContext* shared = shared_cuda_context(device);
  if (shared == nullptr) return;
  if (GstContext* given = gst_element_get_context(element, cuda_context_type)) {
    gst_context_unref(given);
    return;
  }
  GstContext* context = CudaLibrary::get().gst_context_new_cuda_context(shared);
  gst_element_post_message(element, gst_message_new_have_context(GST_OBJECT_CAST(element), context));
}

namespace {

// What the allocator of libgstcuda 1.22 lays out. For any other format it ends the process, so nothing else may reach
// it: GRAY8 and v210 come later, if at all. Of the second ones it puts the last plane of an odd height where its
// copies for the CPU do not reach; of NV21 it allocates, from 1.24 on, a row too few.
constexpr const char* video_caps =
    "video/x-raw(memory:CUDAMemory), format={ NV12, P010_10LE, P016_LE, Y444, Y444_16LE, BGRA, RGBA, RGBx, BGRx, "
    "ARGB, ABGR, RGB, BGR, BGR10A2_LE, RGB10A2_LE, Y42B, I422_10LE, I422_12LE, YUY2, UYVY, RGBP, BGRP, GBR, GBRA }; "
    "video/x-raw(memory:CUDAMemory), format={ I420, YV12, I420_10LE, NV21 }, height=[2,2147483646,2]";

/// And tensors, which are memory of ours that libgstcuda is lent: that it takes from 1.24 on.
std::string cuda_caps() {
  guint major = 0, minor = 0, micro = 0, nano = 0;
  gst_version(&major, &minor, &micro, &nano);
  const bool lends = major > 1 || minor >= 24;
  return fmt::format("{}{}", video_caps, lends ? "; application/x-tensor(memory:CUDAMemory)" : "");
}

}  // namespace

bool is_cuda_caps(const GstCaps* caps) {
  return begins_with_feature(caps, cuda_feature_name);
}

bool is_cuda_only(const GstCaps* caps) {
  return is_cuda_caps(caps) &&
         all_features(caps, [](const GstCapsFeatures* features) { return has_feature(features, cuda_feature_name); });
}

GstCaps* in_cuda_memory(const GstCaps* caps) {
  const Ptr<GstCaps> ours(with_feature(caps, true));
  return gpu_caps_as(ours.get(), {cuda_feature_name}, cuda_caps().c_str());
}

GstCaps* offer_cuda(GstCaps* caps) {
  if (gst_caps_is_any(caps)) return caps;
  const Ptr<GstCaps> given(caps);
  GstCaps* offered = structures_by(caps, feature_name, true);
  gst_caps_append(offered, gpu_caps_as(caps, {cuda_feature_name}, cuda_caps().c_str()));
  gst_caps_append(offered, structures_by(caps, feature_name, false));
  return offered;
}

GstCaps* nearest_memory(GstPad* srcpad, GstCaps* caps) {
  Ptr<GstCaps> all(caps);
  for (const char* feature : {feature_name, cuda_feature_name, vulkan_feature_names[0], vulkan_feature_names[1]}) {
    Ptr<GstCaps> nearest(structures_by(caps, feature, true));
    if (!gst_caps_is_empty(nearest.get()) && peer_names_memory(srcpad, nearest.get(), feature)) {
      return nearest.release();
    }
  }
  Ptr<GstCaps> system(system_only(caps));
  return gst_caps_is_empty(system.get()) ? all.release() : system.release();
}

GstCaps* without_system_memory(const GstCaps* caps) {
  if (gst_caps_is_any(caps)) return nullptr;
  Ptr<GstCaps> theirs(gst_caps_new_empty());
  for (const char* feature : {cuda_feature_name, vulkan_feature_names[0], vulkan_feature_names[1]}) {
    gst_caps_append(theirs.get(), structures_by(caps, feature, true));
  }
  const Ptr<GstCaps> ours(structures_by(caps, feature_name, true));
  return gst_caps_is_empty(theirs.get()) || !gst_caps_is_empty(ours.get()) ? nullptr : theirs.release();
}

std::string cuda_refusal_text(const std::string& obstacle, const std::string& format) {
  if (!obstacle.empty()) {
    return fmt::format(
        "what follows gpumapkernel takes memory:CUDAMemory only, and that cannot be given: {}; or ask for "
        "system memory (video/x-raw) after gpumapkernel",
        obstacle);
  }
  return fmt::format(
      "what follows gpumapkernel takes memory:CUDAMemory only, and the kernel gives nothing that fits in "
      "there of {}: CUDA memory holds raw video, but no GRAY8, GRAY16_LE, v210 or Y210, I420, YV12, I420_10LE and "
      "NV21 only with an even height, and from GStreamer 1.24 on application/x-tensor: use kernel=convert and ask for "
      "RGBA, BGRA or RGB, or for "
      "system memory (video/x-raw) after gpumapkernel",
      format);
}

}  // namespace gpumap::gst
