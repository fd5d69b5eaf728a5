// SPDX-License-Identifier: MIT
// Frames of a KernelRunner that lie in the memory of GStreamer's own Vulkan elements.
#include <fmt/format.h>

#include <utility>

#include "gpumap/error.hpp"
#include "gst/kernel/runner.hpp"
#include "gst/ptr.hpp"

namespace gpumap::gst {

namespace {

/// Memory of a kernel's for one frame at a time.
[[nodiscard]] bool lend(std::shared_ptr<BlockPool>& pool, const std::shared_ptr<Device>& device, Backend backend,
                        Placement placement, std::size_t bytes, const std::atomic<bool>& cancelled, LentBlock& block) {
  if (!pool || pool->bytes() < bytes) pool = std::make_shared<BlockPool>(device, backend, placement, bytes);
  auto taken = pool->take(cancelled);
  if (!taken) return false;
  block = LentBlock(pool, std::move(*taken));
  return true;
}

/// Of memory that begins at 0.
gpumap_view layout_of(const FrameFormat& format, std::size_t bytes, const GstVideoMeta* meta) {
  return format.view(0, bytes, meta);
}

}  // namespace

void KernelRunner::set_vulkan_caps(const GstCaps* in, const GstCaps* out) {
  vulkan_input_ = is_vulkan_caps(in);
  vulkan_output_ = is_vulkan_caps(out);
  same_vulkan_memory_ = vulkan_input_ && vulkan_output_ &&
                        gst_caps_features_is_equal(gst_caps_get_features(in, 0), gst_caps_get_features(out, 0));
  vulkan_pool_.reset();
  vulkan_in_.reset();
  vulkan_out_.reset();
  vulkan_in_pool_.reset();
  vulkan_out_pool_.reset();
}

bool KernelRunner::hands_vulkan_on() const noexcept {
  return same_vulkan_memory_ && vulkan_in_->device() == vulkan_out_->device();
}

void KernelRunner::use_vulkan_site(VulkanSide side, VulkanSite site) {
  auto& transfer = side == VulkanSide::in ? vulkan_in_ : vulkan_out_;
  transfer = std::make_unique<VulkanTransfer>(std::move(site), device());
  if (side == VulkanSide::in) vulkan_in_pool_.reset();  // where its memory lies hangs on what the device imports
}

void KernelRunner::make_vulkan_pool(GstCaps* caps) {
  const bool images = gst_caps_features_contains(gst_caps_get_features(caps, 0), vulkan_feature_names[0]) != 0;
  const GstVulkanLibrary& library = GstVulkanLibrary::get();
  GstVulkanDevice* on = vulkan_out_->device();
  GstBufferPool* pool = images ? library.gst_vulkan_image_buffer_pool_new(on) : library.gst_vulkan_buffer_pool_new(on);
  GstStructure* config = gst_buffer_pool_get_config(pool);
  gst_buffer_pool_config_set_params(config, caps, static_cast<guint>(out_format_.image_bytes()), 0, 0);
  const bool made = gst_buffer_pool_set_config(pool, config) != 0 && gst_buffer_pool_set_active(pool, TRUE) != 0;
  vulkan_pool_.reset(pool);
  if (made) return;
  vulkan_pool_.reset();
  throw Error(ErrorCode::no_memory,
              fmt::format("libgstvulkan makes no {} of {}x{} on {}: see the largest that the GPU has (vulkaninfo, "
                          "maxImageDimension2D), and what else is in its memory",
                          images ? "images" : "buffers", GST_VIDEO_INFO_WIDTH(&out_format_.video()),
                          GST_VIDEO_INFO_HEIGHT(&out_format_.video()), name_of(device().info())));
}

std::optional<KernelRunner::Input> KernelRunner::vulkan_input_of(GstBuffer* in) {
  using Direction = VulkanTransfer::Direction;
  const std::size_t bytes = in_format_.image_bytes();
  const bool shared = vulkan_in_->shares();
  Input made;
  if (!lend(vulkan_in_pool_, launcher_->shared_device(), launcher_->backend(),
            shared ? Placement::device : Placement::host, bytes, cancelled_, made.block)) {
    return {};
  }
  const Mapping& mapping = made.block.mapping();
  const gpumap_view layout = layout_of(in_format_, bytes, nullptr);
  if (shared) {
    vulkan_in_->copy(Direction::from_frame, in, in_format_.video(), layout, made.block.shared_mapping());
    ++gpu_copies_;
  } else {
    vulkan_in_->copy_through_host(Direction::from_frame, in, in_format_.video(), layout, mapping.host(), bytes);
    mapping.flush(0, bytes);
    ++host_copies_;
  }
  FrameInput& frame = made.frame;
  frame.mapping = &mapping;
  frame.bytes = frame.picture_bytes = bytes;
  frame.address = mapping.address(launcher_->backend());
  frame.view = in_format_.view(frame.address, bytes, nullptr);
  frame.sequence = foreign_sequence_++;
  return made;
}

GstBuffer* KernelRunner::vulkan_output_of(const Input& input, FrameOutput& made) {
  using Direction = VulkanTransfer::Direction;
  const GstVideoMeta* meta = launcher_->keeps_layout() && !made.packed ? input.meta : nullptr;
  const gpumap_view layout = layout_of(out_format_, made.bytes, meta);
  if (!launcher_->wait(made.done)) return nullptr;
  LentBlock copied;
  if (!made.host && !made.block) {
    // The input goes on. Its memory is a part of a ring's: that ring, not this, says how long it lasts.
    if (!lend(vulkan_out_pool_, launcher_->shared_device(), launcher_->backend(), Placement::device, made.bytes,
              cancelled_, copied)) {
      return nullptr;
    }
    launcher_->queue().copy(*input.frame.mapping, input.frame.offset, copied.mapping(), 0, made.bytes);
    const Fence done = launcher_->queue().submit();
    copied.add_read_fence(done);
    if (!launcher_->wait(done)) return nullptr;
    ++gpu_copies_;
  }
  GstBuffer* buffer = nullptr;
  if (gst_buffer_pool_acquire_buffer(vulkan_pool_.get(), &buffer, nullptr) != GST_FLOW_OK) {
    throw Error(ErrorCode::no_memory,
                fmt::format("no Vulkan memory on {} for a frame of {}x{}: queues downstream hold a frame for each of "
                            "their buffers, let them hold fewer",
                            name_of(device().info()), GST_VIDEO_INFO_WIDTH(&out_format_.video()),
                            GST_VIDEO_INFO_HEIGHT(&out_format_.video())));
  }
  Ptr<GstBuffer> owner(buffer);
  LentBlock& from = made.host ? made.host : made.block ? made.block : copied;
  if (from.mapping().placement() == Placement::host) {
    vulkan_out_->copy_through_host(Direction::to_frame, buffer, out_format_.video(), layout, from.mapping().host(),
                                   made.bytes);
    ++host_copies_;
  } else {
    vulkan_out_->copy(Direction::to_frame, buffer, out_format_.video(), layout, from.shared_mapping());
    ++gpu_copies_;
  }
  return owner.release();
}

}  // namespace gpumap::gst
