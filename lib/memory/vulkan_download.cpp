// SPDX-License-Identifier: MIT
#include "memory/vulkan_download.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "device/vulkan_device.hpp"
#include "memory/vulkan_allocation.hpp"

namespace gpumap {
namespace {

constexpr std::uint64_t staging_bytes = 4U << 20U;

}  // namespace

struct VulkanDownloader::Staging {
  explicit Staging(VulkanContext& context)
      : allocation(context, Placement::host, staging_bytes, false),
        pool(context.device(), {vk::CommandPoolCreateFlagBits::eResetCommandBuffer, context.queue_family()}),
        commands(std::move(
            vk::raii::CommandBuffers(context.device(), {*pool, vk::CommandBufferLevel::ePrimary, 1}).front())),
        done(context.device(), vk::FenceCreateInfo()) {}

  VulkanAllocation allocation;
  vk::raii::CommandPool pool;
  vk::raii::CommandBuffer commands;
  vk::raii::Fence done;
};

VulkanDownloader::VulkanDownloader(VulkanContext& context) : context_(context) {}
VulkanDownloader::~VulkanDownloader() = default;

void VulkanDownloader::download(VkBuffer buffer, std::uint64_t offset, std::span<std::byte> to) {
  using Access = vk::AccessFlagBits;
  using Stage = vk::PipelineStageFlagBits;
  const std::lock_guard lock(mutex_);
  try {
    if (!staging_) staging_ = std::make_unique<Staging>(context_);
    const auto& commands = staging_->commands;
    while (!to.empty()) {
      const std::size_t bytes = std::min<std::size_t>(to.size(), staging_bytes);
      commands.begin({vk::CommandBufferUsageFlagBits::eOneTimeSubmit});
      // Waiting for a fence on the CPU makes earlier writes available; reading them here needs them visible too.
      const vk::MemoryBarrier before(Access::eMemoryWrite, Access::eTransferRead);
      commands.pipelineBarrier(Stage::eAllCommands, Stage::eTransfer, {}, before, {}, {});
      commands.copyBuffer(vk::Buffer(buffer), *staging_->allocation.buffer, vk::BufferCopy(offset, 0, bytes));
      const vk::MemoryBarrier after(Access::eTransferWrite, Access::eHostRead);
      commands.pipelineBarrier(Stage::eTransfer, Stage::eHost, {}, after, {}, {});
      commands.end();

      const vk::CommandBuffer handle = *commands;
      context_.submit(vk::SubmitInfo({}, {}, handle), *staging_->done);
      constexpr auto forever = std::numeric_limits<std::uint64_t>::max();
      static_cast<void>(context_.device().waitForFences(*staging_->done, VK_TRUE, forever));
      context_.device().resetFences(*staging_->done);

      if (!staging_->allocation.coherent) staging_->allocation.invalidate(context_, 0, bytes);
      std::memcpy(to.data(), staging_->allocation.host, bytes);
      offset += bytes;
      to = to.subspan(bytes);
    }
  } catch (const vk::SystemError& error) {
    staging_.reset();  // half-used: the next download makes it anew
    context_.fail(error, "downloading");
  }
}

}  // namespace gpumap
