// SPDX-License-Identifier: MIT
#include "gst/vulkan/transfer.hpp"

#include <unistd.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "gpumap/fence.hpp"
#include "gpumap/memory.hpp"
#include "gst/memory/frame_format.hpp"

namespace gpumap::gst {
namespace {

/// Of memory that the CPU sees, which each device has in a coherent kind.
std::uint32_t host_type(const GstVulkanDevice& device, std::uint32_t allowed) {
  constexpr VkMemoryPropertyFlags wanted = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  const auto get =
      vulkan_function<PFN_vkGetPhysicalDeviceMemoryProperties>(device, "vkGetPhysicalDeviceMemoryProperties");
  VkPhysicalDeviceMemoryProperties memory{};
  if (get != nullptr) {
    auto* of = const_cast<GstVulkanDevice*>(&device);
    get(GstVulkanLibrary::get().gst_vulkan_device_get_physical_device(of), &memory);
  }
  std::uint32_t chosen = memory.memoryTypeCount;
  for (std::uint32_t i = memory.memoryTypeCount; i-- > 0;) {
    const VkMemoryPropertyFlags flags = memory.memoryTypes[i].propertyFlags;
    if ((allowed >> i & 1U) == 0 || (flags & wanted) != wanted) continue;
    chosen = i;
    if ((flags & VK_MEMORY_PROPERTY_HOST_CACHED_BIT) != 0) break;  // which the CPU reads faster
  }
  if (chosen == memory.memoryTypeCount) {
    throw Error(ErrorCode::not_supported,
                "the Vulkan device of GStreamer's elements has no memory that the CPU sees: give it another device");
  }
  return chosen;
}

}  // namespace

void VulkanWindow::create_buffer(std::uint64_t buffer_bytes, const void* next) {
  VkBufferCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
  info.pNext = next;
  info.size = buffer_bytes;
  info.usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;
  check_vulkan(vulkan.vkCreateBuffer(device, &info, nullptr, &buffer), "making a buffer");
}

void VulkanWindow::bind_new_memory(std::uint64_t allocation_bytes, std::uint32_t type, const void* next) {
  VkMemoryAllocateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
  info.pNext = next;
  info.allocationSize = allocation_bytes;
  info.memoryTypeIndex = type;
  check_vulkan(vulkan.vkAllocateMemory(device, &info, nullptr, &memory), "getting memory");
  check_vulkan(vulkan.vkBindBufferMemory(device, buffer, memory, 0), "binding memory");
}

std::unique_ptr<VulkanWindow> import_window(const VulkanFunctions& vulkan, VkDevice device, const Mapping& mapping) {
  const VulkanExport from = export_to_vulkan(mapping);
  auto window = std::make_unique<VulkanWindow>(vulkan, device);
  try {
    VkExternalMemoryBufferCreateInfo external{};
    external.sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO;
    external.handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;
    window->create_buffer(from.buffer_bytes, &external);
    VkMemoryDedicatedAllocateInfo dedicated{};
    dedicated.sType = VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO;
    dedicated.buffer = window->buffer;
    VkImportMemoryFdInfoKHR import{};
    import.sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR;
    import.pNext = &dedicated;
    import.handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;
    import.fd = from.fd;
    window->bind_new_memory(from.allocation_bytes, from.memory_type, &import);
  } catch (...) {
    if (window->memory == VK_NULL_HANDLE) close(from.fd);  // else it is the driver's
    throw;
  }
  window->base = from.base;
  window->bytes = mapping.bytes();
  return window;
}

std::unique_ptr<VulkanWindow> host_window(const VulkanFunctions& vulkan, const GstVulkanDevice& device,
                                          std::size_t bytes) {
  auto window = std::make_unique<VulkanWindow>(vulkan, device.device);
  window->create_buffer(bytes, nullptr);
  VkMemoryRequirements needs{};
  vulkan.vkGetBufferMemoryRequirements(window->device, window->buffer, &needs);
  window->bind_new_memory(needs.size, host_type(device, needs.memoryTypeBits), nullptr);
  void* host = nullptr;
  check_vulkan(vulkan.vkMapMemory(window->device, window->memory, 0, VK_WHOLE_SIZE, 0, &host), "mapping memory");
  window->host = static_cast<std::byte*>(host);
  window->bytes = bytes;
  return window;
}

namespace {

using Direction = VulkanTransfer::Direction;

/// A driver that hangs is to be told, with what it was asked.
constexpr std::chrono::seconds patience{10};
/// For a picture that nobody wants any more: as a rule it is there in a moment, and all can be freed.
constexpr std::chrono::milliseconds patience_when_given_up{300};
/// After each of these it is asked whether anybody wants it.
constexpr std::uint64_t wait_slice_ns = 10'000'000;

/// Kept at most: a pool of gpumap's lends fewer blocks than this as a rule.
constexpr std::size_t max_windows = 16;

/// A plane of a picture in a frame's memory and beside it.
struct PlaneCopy {
  GstMemory* memory;
  VkImageAspectFlags aspect;
  std::uint32_t width, height;        ///< in pixels of the plane
  std::uint64_t pixel_bytes, offset;  ///< beside it
  std::uint64_t stride;
};

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::invalid, fmt::format("a frame in Vulkan memory {}: see what sends it", what));
}

/// Of a pixel of an image of one plane; 0: of several, or no format of the caps that are offered.
std::uint64_t pixel_bytes_of(VkFormat format) {
  switch (format) {
    case VK_FORMAT_R8_UNORM:
      return 1;
    case VK_FORMAT_R8G8_UNORM:
      return 2;
    case VK_FORMAT_R8G8B8A8_UNORM:
    case VK_FORMAT_R8G8B8A8_SRGB:
    case VK_FORMAT_B8G8R8A8_UNORM:
    case VK_FORMAT_B8G8R8A8_SRGB:
      return 4;
    default:
      return 0;
  }
}

void check_memory(const PlaneCopy& plane, const GstVulkanDevice* device) {
  const GstVulkanLibrary& library = GstVulkanLibrary::get();
  if (library.gst_is_vulkan_image_memory(plane.memory) != 0) {
    const auto& image = *reinterpret_cast<GstVulkanImageMemory*>(plane.memory);
    if (image.device != device) refuse("came on another Vulkan device than those before");
    const VkFormat format = image.create_info.format;
    const bool fits = plane.aspect == VK_IMAGE_ASPECT_COLOR_BIT ? pixel_bytes_of(format) == plane.pixel_bytes
                                                                : format == VK_FORMAT_G8_B8R8_2PLANE_420_UNORM;
    if (!fits) refuse(fmt::format("is an image of VkFormat {}, which is not that of its caps", int{format}));
    // A plane of a format of several is smaller than its image.
    if (image.create_info.extent.width < plane.width || image.create_info.extent.height < plane.height) {
      refuse(fmt::format("is of {}x{} pixels where its caps say {}x{}", image.create_info.extent.width,
                         image.create_info.extent.height, plane.width, plane.height));
    }
  } else if (library.gst_is_vulkan_buffer_memory(plane.memory) != 0) {
    const auto& buffer = *reinterpret_cast<GstVulkanBufferMemory*>(plane.memory);
    if (buffer.device != device) refuse("came on another Vulkan device than those before");
    if (plane.aspect != VK_IMAGE_ASPECT_COLOR_BIT) refuse("has several planes in one VkBuffer");
    const std::uint64_t needed = plane.width * plane.pixel_bytes * plane.height;
    if (plane.memory->size < needed) {
      refuse(fmt::format("has {} bytes for a plane that takes {}", plane.memory->size, needed));
    }
  } else {
    refuse("has memory of another kind");
  }
}

std::vector<PlaneCopy> planes_of(GstBuffer* frame, const GstVideoInfo& info, const gpumap_view& layout,
                                 const VulkanWindow& window) {
  const guint planes = GST_VIDEO_INFO_N_PLANES(&info);
  const guint memories = gst_buffer_n_memory(frame);
  if (memories != planes && memories != 1) refuse(fmt::format("has {} pieces for {} planes", memories, planes));
  std::vector<PlaneCopy> made;
  for (guint i = 0; i < planes; ++i) {
    const PlaneExtent extent = plane_extent(info, i);
    PlaneCopy plane{};
    plane.memory = gst_buffer_peek_memory(frame, memories == planes ? i : 0);
    plane.aspect = VkImageAspectFlags{VK_IMAGE_ASPECT_COLOR_BIT};
    if (memories != planes) plane.aspect = VkImageAspectFlags{VK_IMAGE_ASPECT_PLANE_0_BIT} << i;
    plane.pixel_bytes = static_cast<std::uint64_t>(GST_VIDEO_INFO_COMP_PSTRIDE(&info, i));
    plane.width = static_cast<std::uint32_t>(extent.row_bytes / plane.pixel_bytes);
    plane.height = static_cast<std::uint32_t>(extent.rows);
    plane.offset = layout.plane[i];
    plane.stride = layout.stride[i];
    const std::uint64_t end = plane.offset + plane.stride * (extent.rows - 1) + extent.row_bytes;
    if (plane.stride < extent.row_bytes || end > window.bytes) {
      refuse(fmt::format("of {} bytes has no room for the picture that its caps say", window.bytes));
    }
    if (plane.stride % plane.pixel_bytes != 0 || plane.offset % plane.pixel_bytes != 0) {
      refuse(fmt::format("is to be copied between rows of {} bytes, which are no whole pixels of {}", plane.stride,
                         plane.pixel_bytes));
    }
    made.push_back(plane);
  }
  return made;
}

/// Those of other users of the frame that a timeline tells of.
struct Waits {
  std::vector<VkSemaphore> timelines;
  std::vector<std::uint64_t> values;
  std::vector<VkPipelineStageFlags> stages;

  void add(const VulkanWork& work) {
    if (work.timeline == VK_NULL_HANDLE || work.value == 0) return;
    timelines.push_back(work.timeline);
    values.push_back(work.value);
    stages.push_back(VK_PIPELINE_STAGE_ALL_COMMANDS_BIT);
  }
};

}  // namespace

VulkanTransfer::VulkanTransfer(VulkanSite site, const Device& device, std::function<bool()> given_up)
    : site_(std::move(site)),
      shares_(shares_memory(site_, device)),
      vulkan_(std::make_unique<VulkanFunctions>(site_.device.get())),
      given_up_(std::move(given_up)) {
  VkDevice on = site_.device->device;
  VkCommandPoolCreateInfo pool{};
  pool.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO;
  pool.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT;
  pool.queueFamilyIndex = site_.queue->family;
  check_vulkan(vulkan_->vkCreateCommandPool(on, &pool, nullptr, &pool_), "making a command pool");
  VkCommandBufferAllocateInfo commands{};
  commands.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO;
  commands.commandPool = pool_;
  commands.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
  commands.commandBufferCount = 1;
  VkFenceCreateInfo fence{};
  fence.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO;
  VkResult result = vulkan_->vkAllocateCommandBuffers(on, &commands, &commands_);
  if (result >= 0) result = vulkan_->vkCreateFence(on, &fence, nullptr, &fence_);
  if (result < 0) vulkan_->vkDestroyCommandPool(on, pool_, nullptr);
  check_vulkan(result, "making a command buffer");
}

VulkanTransfer::~VulkanTransfer() {
  VkDevice on = site_.device->device;
  if (under_way_ && vulkan_->vkWaitForFences(on, 1, &fence_, VK_TRUE, 0) == VK_SUCCESS) under_way_.reset();
  if (under_way_) {  // it all stays
    for (auto& [mapping, kept] : windows_) {
      keep_for_good(std::shared_ptr<VulkanWindow>(std::move(kept.second)));
      keep_for_good(kept.first);
    }
    keep_for_good(std::shared_ptr<VulkanWindow>(std::move(room_)));
    keep_for_good(std::shared_ptr<VulkanFunctions>(std::move(vulkan_)));
    keep_for_good(std::shared_ptr<GstVulkanDevice>(std::move(site_.device)));
    keep_for_good(std::shared_ptr<GstBuffer>(std::move(under_way_)));
    return;
  }
  vulkan_->vkDestroyFence(on, fence_, nullptr);
  vulkan_->vkDestroyCommandPool(on, pool_, nullptr);
}

VulkanWindow& VulkanTransfer::window_on(const std::shared_ptr<Mapping>& mapping) {
  const auto found = windows_.find(mapping.get());
  if (found != windows_.end()) return *found->second.second;
  if (windows_.size() >= max_windows) windows_.clear();
  auto window = import_window(*vulkan_, site_.device->device, *mapping);
  return *windows_.emplace(mapping.get(), std::pair(mapping, std::move(window))).first->second.second;
}

void VulkanTransfer::make_room(std::size_t bytes) {
  if (room_ && room_->bytes >= bytes) return;
  room_.reset();
  room_ = host_window(*vulkan_, *site_.device, bytes);
}

bool VulkanTransfer::copy(Direction direction, GstBuffer* frame, const GstVideoInfo& info, const gpumap_view& layout,
                          const std::shared_ptr<Mapping>& mapping) {
  return wait_for_end() && run(direction, frame, info, layout, window_on(mapping));
}

bool VulkanTransfer::copy_through_host(Direction direction, GstBuffer* frame, const GstVideoInfo& info,
                                       const gpumap_view& layout, std::byte* host, std::size_t bytes) {
  if (!wait_for_end()) return false;
  make_room(bytes);
  if (direction == Direction::to_frame) std::memcpy(room_->host, host, bytes);
  if (!run(direction, frame, info, layout, *room_)) return false;
  if (direction == Direction::from_frame) std::memcpy(host, room_->host, bytes);
  return true;
}

namespace {

VkMemoryBarrier memory_barrier(VkAccessFlags before, VkAccessFlags after) {
  VkMemoryBarrier barrier{};
  barrier.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER;
  barrier.srcAccessMask = before;
  barrier.dstAccessMask = after;
  return barrier;
}

void record_image(const VulkanFunctions& vulkan, VkCommandBuffer commands, Direction direction, const PlaneCopy& plane,
                  const VulkanWindow& window) {
  auto& memory = *reinterpret_cast<GstVulkanImageMemory*>(plane.memory);
  const bool to_frame = direction == Direction::to_frame;
  const VkImageLayout layout = to_frame ? VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL : VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL;
  const VkAccessFlags access = to_frame ? VK_ACCESS_TRANSFER_WRITE_BIT : VK_ACCESS_TRANSFER_READ_BIT;
  const VulkanImageState state = state_of(memory);
  VkImageMemoryBarrier barrier{};
  barrier.sType = VK_STRUCTURE_TYPE_IMAGE_MEMORY_BARRIER;
  barrier.srcAccessMask = VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT;
  barrier.dstAccessMask = access;
  barrier.oldLayout = state.layout;
  barrier.newLayout = layout;
  barrier.srcQueueFamilyIndex = barrier.dstQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED;
  barrier.image = memory.image;
  barrier.subresourceRange = state.part;
  vulkan.vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, VK_PIPELINE_STAGE_TRANSFER_BIT, 0, 0,
                              nullptr, 0, nullptr, 1, &barrier);
  VkBufferImageCopy region{};
  region.bufferOffset = window.base + plane.offset;
  region.bufferRowLength = static_cast<std::uint32_t>(plane.stride / plane.pixel_bytes);
  region.imageSubresource = {plane.aspect, 0, 0, 1};
  region.imageExtent = {plane.width, plane.height, 1};
  if (to_frame) {
    vulkan.vkCmdCopyBufferToImage(commands, window.buffer, memory.image, layout, 1, &region);
  } else {
    vulkan.vkCmdCopyImageToBuffer(commands, memory.image, layout, window.buffer, 1, &region);
  }
  set_transferred(memory, layout, access);
}

/// Rows have no padding there: GStreamer's elements know none.
void record_buffer(const VulkanFunctions& vulkan, VkCommandBuffer commands, Direction direction, const PlaneCopy& plane,
                   const VulkanWindow& window) {
  const auto& memory = *reinterpret_cast<GstVulkanBufferMemory*>(plane.memory);
  const std::uint64_t row_bytes = plane.width * plane.pixel_bytes;
  const bool whole = plane.stride == row_bytes;
  std::vector<VkBufferCopy> regions;
  for (std::uint32_t row = 0; row < (whole ? 1 : plane.height); ++row) {
    VkBufferCopy region{window.base + plane.offset + row * plane.stride, row * row_bytes,
                        whole ? row_bytes * plane.height : row_bytes};
    if (direction == Direction::from_frame) std::swap(region.srcOffset, region.dstOffset);
    regions.push_back(region);
  }
  VkBuffer from = window.buffer;
  VkBuffer to = memory.buffer;
  if (direction == Direction::from_frame) std::swap(from, to);
  vulkan.vkCmdCopyBuffer(commands, from, to, static_cast<std::uint32_t>(regions.size()), regions.data());
}

}  // namespace

bool VulkanTransfer::run(Direction direction, GstBuffer* frame, const GstVideoInfo& info, const gpumap_view& layout,
                         const VulkanWindow& window) {
  const GstVulkanLibrary& library = GstVulkanLibrary::get();
  const auto planes = planes_of(frame, info, layout, window);
  for (const PlaneCopy& plane : planes) check_memory(plane, site_.device.get());
  Waits waits;
  VkCommandBufferBeginInfo begin{};
  begin.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO;
  begin.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
  check_vulkan(vulkan_->vkBeginCommandBuffer(commands_, &begin), "recording a copy");
  const auto order = [&](VkPipelineStageFlags from, VkPipelineStageFlags to, const VkMemoryBarrier& barrier) {
    vulkan_->vkCmdPipelineBarrier(commands_, from, to, 0, 1, &barrier, 0, nullptr, 0, nullptr);
  };
  order(VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, VK_PIPELINE_STAGE_TRANSFER_BIT,
        memory_barrier(VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT,
                       VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT));
  for (const PlaneCopy& plane : planes) {
    if (library.gst_is_vulkan_image_memory(plane.memory) != 0) {
      waits.add(work_on(*reinterpret_cast<GstVulkanImageMemory*>(plane.memory)));
      record_image(*vulkan_, commands_, direction, plane, window);
    } else {
      waits.add(work_on(*reinterpret_cast<GstVulkanBufferMemory*>(plane.memory)));
      record_buffer(*vulkan_, commands_, direction, plane, window);
    }
  }
  order(VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_HOST_BIT | VK_PIPELINE_STAGE_ALL_COMMANDS_BIT,
        memory_barrier(VK_ACCESS_TRANSFER_WRITE_BIT, VK_ACCESS_HOST_READ_BIT | VK_ACCESS_MEMORY_READ_BIT));
  check_vulkan(vulkan_->vkEndCommandBuffer(commands_), "recording a copy");

  VkTimelineSemaphoreSubmitInfo timelines{};
  timelines.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO;
  timelines.waitSemaphoreValueCount = static_cast<std::uint32_t>(waits.values.size());
  timelines.pWaitSemaphoreValues = waits.values.data();
  VkSubmitInfo submit{};
  submit.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
  if (!waits.timelines.empty()) submit.pNext = &timelines;
  submit.waitSemaphoreCount = static_cast<std::uint32_t>(waits.timelines.size());
  submit.pWaitSemaphores = waits.timelines.data();
  submit.pWaitDstStageMask = waits.stages.data();
  submit.commandBufferCount = 1;
  submit.pCommandBuffers = &commands_;
  check_vulkan(vulkan_->vkResetFences(site_.device->device, 1, &fence_), "resetting a fence");
  library.gst_vulkan_queue_submit_lock(site_.queue.get());
  const VkResult submitted = vulkan_->vkQueueSubmit(site_.queue->queue, 1, &submit, fence_);
  library.gst_vulkan_queue_submit_unlock(site_.queue.get());
  check_vulkan(submitted, "submitting a copy");
  under_way_.reset(gst_buffer_ref(frame));
  return wait_for_end();
}

bool VulkanTransfer::wait_for_end() {
  if (!under_way_) return true;
  bool wanted = true;
  Deadline end = Clock::now() + patience;
  VkResult waited = VK_TIMEOUT;
  while (waited == VK_TIMEOUT && Clock::now() < end) {
    waited = vulkan_->vkWaitForFences(site_.device->device, 1, &fence_, VK_TRUE, wait_slice_ns);
    if (waited == VK_TIMEOUT && wanted && given_up_()) {
      wanted = false;
      end = Clock::now() + patience_when_given_up;
    }
  }
  check_vulkan(waited, "copying a frame");
  if (waited == VK_SUCCESS) {
    under_way_.reset();
    return true;
  }
  if (!wanted) return false;
  throw Error(ErrorCode::device_lost,
              "a copy on the Vulkan device of GStreamer's elements has not ended after 10 s: see what else that GPU "
              "does, and the driver's log");
}

}  // namespace gpumap::gst
