// SPDX-License-Identifier: MIT
#include "gst/kernel/neighbours.hpp"

#include <fmt/format.h>

#include "gpumap/error.hpp"
#include "gst/cuda/cuda_caps.hpp"
#include "gst/cuda/gst_cuda_api.hpp"
#include "gst/cuda/gst_cuda_memory.hpp"
#include "gst/gst_error.hpp"
#include "gst/memory/gpumap_memory.hpp"
#include "gst/ptr.hpp"
#include "gst/vulkan/gst_vulkan_context.hpp"

namespace gpumap::gst {

namespace {

/// What downstream takes where that is nothing but CUDA memory, else null.
Ptr<GstCaps> cuda_downstream(GstBaseTransform* kernel) {
  Ptr<GstCaps> takes(gst_pad_peer_query_caps(GST_BASE_TRANSFORM_SRC_PAD(kernel), nullptr));
  if (!is_cuda_only(takes.get())) takes.reset();
  return takes;
}

}  // namespace

bool answer_context(GstElement* element, GstQuery* query, const KernelSettings& settings, std::atomic<bool>& told) {
  const gchar* type = nullptr;
  gst_query_parse_context_type(query, &type);
  const bool vulkan = type != nullptr && g_str_has_prefix(type, "gst.vulkan.") != 0;
  if (!vulkan && (g_strcmp0(type, cuda_context_type) != 0 || settings.backend == Backend::vulkan)) return false;
  try {
    // Neighbours ask when they start, which those downstream do first.
    const auto device = Device::open(settings.device);
    if (vulkan) return answer_vulkan_context(element, query, *device);
    if (!answer_cuda_context(element, query, *device)) return false;
    if (!told.exchange(true)) post_cuda_context(element, *device);
    return true;
  } catch (const std::exception&) {
    return false;  // this element's own start says what is wrong
  }
}

void correct_caps(GstBaseTransform* kernel, GstQuery* query) {
  GstCaps* answer = nullptr;
  GstCaps* filter = nullptr;
  gst_query_parse_caps_result(query, &answer);
  gst_query_parse_caps(query, &filter);
  if (answer == nullptr || filter == nullptr) return;
  if (const Ptr<GstCaps> on_gpu{without_system_memory(answer)}) {
    gst_query_set_caps_result(query, on_gpu.get());
    return;
  }
  if (!gst_caps_is_empty(answer)) return;
  const Ptr<GstCaps> takes = cuda_downstream(kernel);
  if (!takes) return;
  // Towards the input memory features do not count: what is to come out says only which picture.
  const Ptr<GstCaps> admitted(
      GST_BASE_TRANSFORM_GET_CLASS(kernel)->transform_caps(kernel, GST_PAD_SRC, takes.get(), filter));
  gst_query_set_caps_result(query, admitted.get());
}

void post_refusal(GstBaseTransform* kernel, const KernelRunner& runner, const GstCaps* caps) {
  if (!cuda_downstream(kernel)) return;
  const Ptr<gchar> text(gst_caps_to_string(caps));
  const std::string refusal = cuda_refusal_text(runner.cuda_obstacle(), text.get());
  GST_ELEMENT_ERROR(kernel, STREAM, FORMAT, ("%s", message_of(refusal).c_str()), (nullptr));
}

void provide_cuda_pool(GstBaseTransform* kernel, KernelRunner& runner) {
  if (!runner.lacks_cuda_pool()) return;
  GstPad* pad = GST_BASE_TRANSFORM_SRC_PAD(kernel);
  const Ptr<GstCaps> caps(gst_pad_get_current_caps(pad));
  if (!caps) return;
  const Ptr<GstQuery> query(gst_query_new_allocation(caps.get(), TRUE));
  const bool answered = gst_pad_peer_query(pad, query.get()) != 0;
  runner.cuda().choose_pool(caps.get(), answered ? query.get() : nullptr);
}

void provide_vulkan(GstBaseTransform* kernel, KernelRunner& runner, GstBuffer* in) {
  using Side = VulkanFrames::Side;
  VulkanFrames& vulkan = runner.vulkan();
  if (runner.input() == FramesIn::vulkan) {
    GstVulkanDevice* device = vulkan_device_of(in);
    if (device == nullptr) {
      throw Error(ErrorCode::invalid,
                  "a frame that is not in Vulkan memory came under caps that say so: see what upstream sends");
    }
    if (vulkan.needs_site(Side::in, device)) {
      vulkan.use_site(Side::in, site_on(device, GST_BASE_TRANSFORM_SINK_PAD(kernel)));
    }
  }
  if (!runner.lacks_vulkan_pool()) return;
  GstPad* pad = GST_BASE_TRANSFORM_SRC_PAD(kernel);
  const Ptr<GstCaps> caps(gst_pad_get_current_caps(pad));
  if (!caps) return;
  vulkan.use_site(Side::out, site_of_peer(pad, runner.device()));
  vulkan.make_pool(caps.get(), runner.output_format());
}

bool propose_cuda(GstQuery* query, const KernelRunner& runner) {
  GstCaps* caps = nullptr;
  gst_query_parse_allocation(query, &caps, nullptr);
  if (!is_cuda_caps(caps)) return false;
  gst_query_add_allocation_meta(query, GST_VIDEO_META_API_TYPE, nullptr);
  // Without it upstream makes its own, in the context that it was given.
  (void)propose_cuda_pool(runner.device(), query);
  return true;
}

const std::shared_ptr<Device>& device_of(GstBuffer* frame) {
  static const auto& none = *new std::shared_ptr<Device>;  // for good: a thread may come here while the process ends
  const FrameMemory* memory =
      gst_buffer_n_memory(frame) == 1 ? frame_memory(gst_buffer_peek_memory(frame, 0)) : nullptr;
  return memory != nullptr ? memory->device() : none;
}

std::shared_ptr<Device> device_to_follow(std::string_view selector, const Device& own,
                                         const std::shared_ptr<Device>& frames) {
  if (!frames || frames.get() == &own) return nullptr;
  if (selector == "auto") return frames;
  const std::string& address = frames->info().pci_address;
  throw Error(
      ErrorCode::invalid,
      fmt::format("a frame in the memory of {} reached a gpumapkernel with device={}, which is {}: leave device "
                  "out, to follow the frames{}",
                  name_of(frames->info()), selector, name_of(own.info()),
                  address.empty() ? "" : fmt::format(", or set device={}", address)));
}

}  // namespace gpumap::gst
