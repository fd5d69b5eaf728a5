// SPDX-License-Identifier: MIT
#include "gst/kernel/foreign_frames.hpp"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "gpumap/error.hpp"
#include "gst/ptr.hpp"
#include "gst/vulkan/gst_vulkan_context.hpp"

namespace gpumap::gst {

CudaFrame CudaFrames::map(GstBuffer* in, const GstVideoInfo& info) {
  if (!launcher_.use_streams()) return {};
  CudaFrame frame = map_cuda(launcher_.device(), gst_buffer_ref(in), GST_MAP_READ, info);
  take_over(launcher_.queue(), frame);
  return frame;
}

CudaFrame CudaFrames::map_bytes(GstBuffer* in) {
  if (!launcher_.use_streams()) return {};
  CudaFrame frame = map_cuda_bytes(launcher_.device(), gst_buffer_ref(in), GST_MAP_READ);
  take_over(launcher_.queue(), frame);
  return frame;
}

CudaFrame CudaFrames::take(const GstVideoInfo& info) {
  if (!pool_) throw Error(ErrorCode::invalid, "a frame for CUDA memory came before its caps: see what upstream sends");
  if (!launcher_.use_streams()) return {};
  // Where downstream shares one pool between streams, another element may have made an end of it.
  gst_buffer_pool_set_active(pool_.get(), TRUE);
  GstBuffer* buffer = nullptr;
  const GstFlowReturn flow = gst_buffer_pool_acquire_buffer(pool_.get(), &buffer, nullptr);
  if (flow == GST_FLOW_FLUSHING) return {};
  if (flow != GST_FLOW_OK) {
    throw Error(
        ErrorCode::no_memory,
        fmt::format("no CUDA memory on {} for a frame of {}x{}: nvidia-smi tells what else is on the GPU, and "
                    "queues downstream hold a frame for each of their buffers",
                    name_of(launcher_.device().info()), GST_VIDEO_INFO_WIDTH(&info), GST_VIDEO_INFO_HEIGHT(&info)));
  }
  CudaFrame frame = map_cuda(launcher_.device(), buffer, GST_MAP_WRITE, info);
  take_over(launcher_.queue(), frame);
  return frame;
}

CopyPicture CudaFrames::copier(const GstVideoInfo& info) const {
  return [&device = launcher_.device(), &info](Queue& queue, const gpumap_view& from, const gpumap_view& to) {
    copy_rows(device, queue, info, from, to);
  };
}

CopyPicture CudaFrames::copier_of_bytes() const {
  return [&device = launcher_.device()](Queue& queue, const gpumap_view& from, const gpumap_view& to) {
    copy_bytes(device, queue, from.plane[0], to.plane[0], to.bytes);
  };
}

GstBuffer* CudaFrames::lend(GstBuffer* out) {
  Ptr<GstBuffer> taken(out);
  // No stream can wait for a kernel that stays on the GPU.
  if (launcher_.how().resident && !launcher_.wait(launcher_.last_launched())) return nullptr;
  return slots_.convert_bytes(taken.release());
}

bool CudaFrames::give_back(CudaFrame frame, const Fence& read) {
  constexpr std::size_t max_kept = 2;
  keep(std::move(frame), read);
  if (!launcher_.wait(loans_->excess(max_kept))) return false;
  sweep();
  return true;
}

using Direction = VulkanTransfer::Direction;

void VulkanFrames::set_caps(const GstCaps* in, const GstCaps* out) {
  same_memory_ = is_vulkan_caps(in) && is_vulkan_caps(out) &&
                 gst_caps_features_is_equal(gst_caps_get_features(in, 0), gst_caps_get_features(out, 0));
  pool_.reset();
  in_ = {};
  out_ = {};
}

bool VulkanFrames::needs_site(Side side, const GstVulkanDevice* device) const noexcept {
  const auto& transfer = (side == Side::in ? in_ : out_).transfer;
  return !transfer || transfer->device() != device;
}

void VulkanFrames::use_site(Side side, VulkanSite site) {
  auto transfer = std::make_unique<VulkanTransfer>(std::move(site), launcher_.device(),
                                                   [&launcher = launcher_] { return launcher.is_cancelled(); });
  if (side == Side::out) {
    out_.transfer = std::move(transfer);
  } else {
    in_ = {std::move(transfer), nullptr};  // where its memory lies hangs on what the device imports
  }
}

void VulkanFrames::make_pool(GstCaps* caps, const FrameFormat& format) {
  const bool images = gst_caps_features_contains(gst_caps_get_features(caps, 0), vulkan_feature_names[0]) != 0;
  const GstVulkanLibrary& library = GstVulkanLibrary::get();
  GstVulkanDevice* on = out_.transfer->device();
  GstBufferPool* pool = images ? library.gst_vulkan_image_buffer_pool_new(on) : library.gst_vulkan_buffer_pool_new(on);
  GstStructure* config = gst_buffer_pool_get_config(pool);
  gst_buffer_pool_config_set_params(config, caps, static_cast<guint>(format.image_bytes()), 0, 0);
  const bool made = gst_buffer_pool_set_config(pool, config) != 0 && gst_buffer_pool_set_active(pool, TRUE) != 0;
  pool_.reset(pool);
  if (made) return;
  pool_.reset();
  throw Error(ErrorCode::no_memory,
              fmt::format("libgstvulkan makes no {} of {}x{} on {}: see the largest that the GPU has (vulkaninfo, "
                          "maxImageDimension2D), and what else is in its memory",
                          images ? "images" : "buffers", GST_VIDEO_INFO_WIDTH(&format.video()),
                          GST_VIDEO_INFO_HEIGHT(&format.video()), name_of(launcher_.device().info())));
}

LentBlock VulkanFrames::copy_in(GstBuffer* in, const FrameFormat& format) {
  const std::size_t bytes = format.image_bytes();
  const bool shared = in_.transfer->shares();
  LentBlock block;
  if (!launcher_.take(in_.blocks, shared ? Placement::device : Placement::host, bytes, block)) return {};
  const gpumap_view layout = format.view(0, bytes, nullptr);
  if (shared) {
    if (!in_.transfer->copy(Direction::from_frame, in, format.video(), layout, block.shared_mapping())) return {};
    ++gpu_copies_;
  } else {
    const Mapping& mapping = block.mapping();
    if (!in_.transfer->copy_through_host(Direction::from_frame, in, format.video(), layout, mapping.host(), bytes)) {
      return {};
    }
    mapping.flush(0, bytes);
    ++host_copies_;
  }
  return block;
}

GstBuffer* VulkanFrames::copy_out(const FrameInput& input, FrameOutput& made, const FrameFormat& format,
                                  const GstVideoMeta* meta) {
  const gpumap_view layout = format.view(0, made.bytes, meta);
  if (!launcher_.wait(made.done)) return nullptr;
  LentBlock copied;
  if (!made.host && !made.block) {
    // The input goes on. Its memory is a part of a ring's: that ring, not this, says how long it lasts.
    if (!launcher_.take(out_.blocks, Placement::device, made.bytes, copied)) return nullptr;
    launcher_.queue().copy(*input.mapping, input.offset, copied.mapping(), 0, made.bytes);
    const Fence done = launcher_.queue().submit();
    copied.add_read_fence(done);
    if (!launcher_.wait(done)) return nullptr;
    ++gpu_copies_;
  }
  GstBuffer* buffer = nullptr;
  if (gst_buffer_pool_acquire_buffer(pool_.get(), &buffer, nullptr) != GST_FLOW_OK) {
    throw Error(ErrorCode::no_memory,
                fmt::format("no Vulkan memory on {} for a frame of {}x{}: queues downstream hold a frame for each of "
                            "their buffers, let them hold fewer",
                            name_of(launcher_.device().info()), GST_VIDEO_INFO_WIDTH(&format.video()),
                            GST_VIDEO_INFO_HEIGHT(&format.video())));
  }
  Ptr<GstBuffer> owner(buffer);
  LentBlock& from = made.host ? made.host : made.block ? made.block : copied;
  if (from.mapping().placement() == Placement::host) {
    if (!out_.transfer->copy_through_host(Direction::to_frame, buffer, format.video(), layout, from.mapping().host(),
                                          made.bytes)) {
      return nullptr;
    }
    ++host_copies_;
  } else {
    if (!out_.transfer->copy(Direction::to_frame, buffer, format.video(), layout, from.shared_mapping()))
      return nullptr;
    ++gpu_copies_;
  }
  return owner.release();
}

}  // namespace gpumap::gst
