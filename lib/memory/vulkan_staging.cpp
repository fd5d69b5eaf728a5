// SPDX-License-Identifier: MIT
#include "memory/vulkan_staging.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "device/vulkan_device.hpp"
#include "gpumap/error.hpp"
#include "gpumap/fence.hpp"
#include "memory/vulkan_allocation.hpp"

namespace gpumap {
namespace {

using Access = vk::AccessFlagBits;
using Stage = vk::PipelineStageFlagBits;

constexpr std::uint64_t staging_bytes = 4U << 20U;
/// For a copy, which takes a millisecond where it does not stand behind a kernel that does not end.
constexpr std::uint64_t longest_copy_s = 60;

/// What a copy waits for, and what waits for it.
struct Barriers {
  vk::AccessFlags before_from, before_to;
  vk::PipelineStageFlags after_stage;
  vk::AccessFlags after_to;
};
// Waiting for a fence on the CPU makes earlier writes available; reading them here needs them visible too.
const Barriers downloading{Access::eMemoryWrite, Access::eTransferRead, Stage::eHost, Access::eHostRead};
const Barriers uploading{Access::eMemoryWrite, Access::eTransferWrite, Stage::eAllCommands,
                         Access::eMemoryRead | Access::eMemoryWrite};

}  // namespace

struct VulkanStaging::Block {
  explicit Block(VulkanContext& on)
      : context(on),
        allocation(on, Placement::host, staging_bytes, false),
        pool(on.device(), {vk::CommandPoolCreateFlagBits::eResetCommandBuffer, on.queue_family()}),
        commands(
            std::move(vk::raii::CommandBuffers(on.device(), {*pool, vk::CommandBufferLevel::ePrimary, 1}).front())),
        done(on.device(), vk::FenceCreateInfo()) {}

  /// One copy on the GPU, from start to end.
  void run(vk::Buffer from, vk::Buffer to, const vk::BufferCopy& region, const Barriers& barriers) {
    commands.begin({vk::CommandBufferUsageFlagBits::eOneTimeSubmit});
    const vk::MemoryBarrier before(barriers.before_from, barriers.before_to);
    commands.pipelineBarrier(Stage::eAllCommands, Stage::eTransfer, {}, before, {}, {});
    commands.copyBuffer(from, to, region);
    const vk::MemoryBarrier after(Access::eTransferWrite, barriers.after_to);
    commands.pipelineBarrier(Stage::eTransfer, barriers.after_stage, {}, after, {}, {});
    commands.end();

    const vk::CommandBuffer handle = *commands;
    context.submit(vk::SubmitInfo({}, {}, handle), *done);
    running = true;
    if (context.device().waitForFences(*done, VK_TRUE, longest_copy_s * 1'000'000'000) != vk::Result::eSuccess) {
      throw Error(ErrorCode::io, fmt::format("{} has not copied {} bytes for {} s: a kernel on it does not end: end "
                                             "that one",
                                             context.name(), region.size, longest_copy_s));
    }
    running = false;
    context.device().resetFences(*done);
  }

  VulkanContext& context;
  VulkanAllocation allocation;
  vk::raii::CommandPool pool;
  vk::raii::CommandBuffer commands;
  vk::raii::Fence done;
  bool running = false;  ///< the GPU may still use all of it
};

/// Of a copy that nobody waits for any more: until it has ended, what it reads or writes is not freed.
class VulkanStaging::LastCopy final : public Timeline {
 public:
  explicit LastCopy(std::unique_ptr<Block> block) : block_(std::move(block)) {}
  [[nodiscard]] std::uint64_t completed() override {
    try {
      return block_->done.getStatus() == vk::Result::eSuccess ? 1 : 0;
    } catch (const vk::SystemError&) {
      return 1;  // the device is lost: nothing runs on it any more
    }
  }
  void check() override { block_->context.health().check(); }

 private:
  const std::unique_ptr<Block> block_;
};

VulkanStaging::VulkanStaging(VulkanContext& context) : context_(context) {}
VulkanStaging::~VulkanStaging() = default;

void VulkanStaging::copy(std::size_t bytes, const char* what,
                         const std::function<void(Block& block, std::size_t at, std::size_t bytes)>& chunk) {
  const std::lock_guard lock(mutex_);
  try {
    if (!block_) block_ = std::make_unique<Block>(context_);
    for (std::size_t at = 0; at < bytes; at += staging_bytes) {
      chunk(*block_, at, std::min<std::size_t>(bytes - at, staging_bytes));
    }
  } catch (const vk::SystemError& error) {
    let_go();
    context_.fail(error, what);
  } catch (const Error&) {
    if (block_ && block_->running) let_go();
    throw;
  }
}

/// Half-used: the next copy makes it anew.
void VulkanStaging::let_go() {
  if (block_ && block_->running) {
    const auto last = std::make_shared<LastCopy>(std::move(block_));
    keep_for_good(last);
    context_.stuck_work().note(Fence(last, 1), "a copy between the GPU and the host");
  }
  block_.reset();
}

void VulkanStaging::download(VkBuffer buffer, std::uint64_t offset, std::span<std::byte> to) {
  copy(to.size(), "downloading", [&](Block& block, std::size_t at, std::size_t bytes) {
    block.run(buffer, *block.allocation.buffer, vk::BufferCopy(offset + at, 0, bytes), downloading);
    if (!block.allocation.coherent) block.allocation.invalidate(context_, 0, bytes);
    std::memcpy(to.data() + at, block.allocation.host, bytes);
  });
}

void VulkanStaging::upload(std::span<const std::byte> from, VkBuffer buffer, std::uint64_t offset) {
  copy(from.size(), "uploading", [&](Block& block, std::size_t at, std::size_t bytes) {
    std::memcpy(block.allocation.host, from.data() + at, bytes);
    if (!block.allocation.coherent) block.allocation.flush(context_, 0, bytes);
    block.run(*block.allocation.buffer, buffer, vk::BufferCopy(0, offset + at, bytes), uploading);
  });
}

}  // namespace gpumap
