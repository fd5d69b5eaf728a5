// SPDX-License-Identifier: MIT
#include "gst/cuda/gst_cuda_context.hpp"

#include <fmt/format.h>

#include <map>
#include <mutex>

#include "gpumap/cuda.hpp"
#include "gpumap/error.hpp"
#include "gst/cuda/gst_cuda_memory.hpp"
#include "gst/runtime_library.hpp"

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

}  // namespace gpumap::gst
