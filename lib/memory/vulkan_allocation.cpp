// SPDX-License-Identifier: MIT
#include "memory/vulkan_allocation.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "device/budget.hpp"
#include "device/unique_fd.hpp"
#include "device/vulkan_device.hpp"
#include "gpumap/error.hpp"
#include "gpumap/fence.hpp"
#include "gpumap/file.hpp"

namespace gpumap {
namespace {

using Property = vk::MemoryPropertyFlagBits;

constexpr auto buffer_usage = vk::BufferUsageFlagBits::eStorageBuffer | vk::BufferUsageFlagBits::eTransferSrc |
                              vk::BufferUsageFlagBits::eTransferDst | vk::BufferUsageFlagBits::eShaderDeviceAddress;

/// What to look for in a memory type.
struct Wanted {
  vk::MemoryPropertyFlags required;
  vk::MemoryPropertyFlags unwanted;  ///< device memory would waste the window, host memory the device
  const char* text;
};

Wanted wanted_for(Placement placement) {
  switch (placement) {
    case Placement::bar:
      return {Property::eDeviceLocal | Property::eHostVisible,
              {},
              "device memory that the CPU can map (is resizable BAR on in the firmware?)"};
    case Placement::device:
      return {Property::eDeviceLocal, Property::eHostVisible, "device memory"};
    default:
      return {Property::eHostVisible | Property::eHostCached, Property::eDeviceLocal,
              "CPU-cached memory that the device can reach"};
  }
}

/// By flags first, then by budget: a coherent type that has no room left loses to a non-coherent one that has.
std::optional<std::uint32_t> find_type(const VulkanContext& context, const Wanted& wanted,
                                       const vk::MemoryRequirements& needs, bool require_coherent) {
  constexpr auto never = Property::eProtected | Property::eLazilyAllocated | Property::eDeviceCoherentAMD;
  auto required = wanted.required;
  if (require_coherent) required |= Property::eHostCoherent;
  const auto free = heap_budgets(context.physical(), context.optional().memory_budget);

  using Score = std::tuple<bool, bool, bool, std::uint64_t>;
  std::optional<Score> best;
  std::uint32_t chosen = 0;
  const auto& memory = context.memory();
  for (std::uint32_t type = 0; type < memory.memoryTypeCount; ++type) {
    const auto flags = memory.memoryTypes[type].propertyFlags;
    if ((needs.memoryTypeBits >> type & 1U) == 0 || (flags & required) != required || (flags & never)) continue;
    const std::uint64_t left = free.at(memory.memoryTypes[type].heapIndex);
    const Score score(left >= needs.size, static_cast<bool>(flags & Property::eHostCoherent),
                      !(flags & wanted.unwanted), left);
    if (best && *best >= score) continue;
    best = score;
    chosen = type;
  }
  if (!best) return std::nullopt;
  return chosen;
}

Budget::Share reserve_window(VulkanContext& context, std::uint64_t bytes) {
  const auto explain = [&](const Budget::Figures& figures) {
    return Error(ErrorCode::no_memory,
                 fmt::format("{}: BAR window {}, {} in use, {} asked", context.name(), format_bytes(figures.total),
                             format_bytes(figures.in_use), format_bytes(figures.asked)),
                 "lower slots or slot-size, or use another transport");
  };
  return context.window().reserve(bytes, context.window_bytes(), context.window_budget_bytes(), explain);
}

}  // namespace

VulkanAllocation::VulkanAllocation(VulkanContext& context, Placement placement, std::uint64_t bytes,
                                   bool require_coherent)
    : stuck(&context.stuck_work()) {
  // Of drivers in software, whose memory is a file where it can be exported.
  const FileSizeErrors instead_of_a_signal;
  context.health().check();
  if (bytes > context.max_allocation()) {
    throw FiguredError(Error(ErrorCode::no_memory,
                             fmt::format("{}: {} asked in one allocation, the driver allows {}", context.name(),
                                         format_bytes(bytes), format_bytes(context.max_allocation())),
                             "lower slots or slot-size"),
                       {{"asked-bytes", bytes}, {"most-bytes", context.max_allocation()}});
  }
  exportable = context.optional().export_fd && placement != Placement::host;
  const Wanted wanted = wanted_for(placement);
  try {
    const vk::ExternalMemoryBufferCreateInfo external(vk::ExternalMemoryHandleTypeFlagBits::eOpaqueFd);
    vk::BufferCreateInfo buffer_info({}, bytes, buffer_usage);
    if (exportable) buffer_info.setPNext(&external);
    buffer = vk::raii::Buffer(context.device(), buffer_info);
    auto needs = buffer.getMemoryRequirements();
    auto type = find_type(context, wanted, needs, require_coherent);
    if (!type && exportable) {
      // NVIDIA's driver (580) leaves the BAR's type out of what an external buffer may lie in, though memory of that
      // type can be exported, imported and bound: a buffer that does not announce the export gets it. The validation
      // layer's objection to that is set aside in vulkan_device.cpp.
      buffer_info.setPNext(nullptr);
      buffer = vk::raii::Buffer(context.device(), buffer_info);
      needs = buffer.getMemoryRequirements();
      type = find_type(context, wanted, needs, require_coherent);
    }
    if (!type) {
      throw Error(ErrorCode::not_supported,
                  fmt::format("{} offers no {}{}: use another transport or another device", context.name(),
                              require_coherent ? "coherent " : "", wanted.text));
    }
    memory_bytes = needs.size;
    buffer_bytes = bytes;
    memory_type = *type;
    if (placement == Placement::bar) {
      share = reserve_window(context, memory_bytes);
    } else if (placement == Placement::host) {
      share = reserve_page_locked(memory_bytes);
    }

    // CUDA imports a dedicated allocation as a whole; the flag makes it addressable by kernels.
    vk::MemoryDedicatedAllocateInfo dedicated({}, *buffer);
    const vk::MemoryAllocateFlagsInfo flags(vk::MemoryAllocateFlagBits::eDeviceAddress, 0, &dedicated);
    const vk::ExportMemoryAllocateInfo exported(vk::ExternalMemoryHandleTypeFlagBits::eOpaqueFd);
    if (exportable) dedicated.setPNext(&exported);
    memory = vk::raii::DeviceMemory(context.device(), {memory_bytes, *type, &flags});
    buffer.bindMemory(*memory, 0);

    const auto properties = context.memory().memoryTypes[*type].propertyFlags;
    coherent = static_cast<bool>(properties & Property::eHostCoherent);
    address = context.device().getBufferAddress({*buffer});
    if (placement != Placement::device) {
      host = static_cast<std::byte*>(memory.mapMemory(0, VK_WHOLE_SIZE));
    }
  } catch (const vk::SystemError& error) {
    const auto result = static_cast<vk::Result>(error.code().value());
    const bool exhausted = result == vk::Result::eErrorOutOfDeviceMemory ||
                           result == vk::Result::eErrorOutOfHostMemory || result == vk::Result::eErrorMemoryMapFailed;
    if (exhausted)
      check_descriptors(context.name(), fmt::format("allocating {} of {}", format_bytes(bytes), wanted.text));
    rlimit files{};
    if (exhausted && exportable && getrlimit(RLIMIT_FSIZE, &files) == 0 && files.rlim_cur < memory_bytes) {
      throw Error(ErrorCode::no_resources,
                  fmt::format("{}: the driver has no {} of {} where a process may have no file of more than {}",
                              context.name(), format_bytes(bytes), wanted.text, format_bytes(files.rlim_cur)),
                  "raise ulimit -f");
    }
    if (exhausted && placement == Placement::host && memory_bytes != 0)
      throw page_locked_refused(context.name(), memory_bytes);
    if (result == vk::Result::eErrorOutOfDeviceMemory) {
      throw FiguredError(
          Error(ErrorCode::no_memory,
                fmt::format("{}: the driver has no {} of {} left, of {} in the BAR window {} are free", context.name(),
                            format_bytes(bytes), wanted.text, format_bytes(context.window_bytes()),
                            format_bytes(context.window_free_bytes())),
                "lower slots or slot-size, or use another transport"),
          {{"asked-bytes", bytes},
           {"free-bytes", context.window_free_bytes()},
           {"window-bytes", context.window_bytes()}});
    }
    context.fail(error, fmt::format("allocating {} of {}", format_bytes(bytes), wanted.text));
  }
}

VulkanAllocation::VulkanAllocation(VulkanContext& context, MemoryExport& from) : stuck(&context.stuck_work()) {
  context.health().check();
  const auto refuse = [&context](const std::string& what) {
    throw Error(ErrorCode::invalid, fmt::format("{}: memory of another process {}: use the same driver on both sides",
                                                context.name(), what));
  };
  const auto& types = context.memory();
  if (!context.optional().export_fd) refuse("cannot be imported (VK_KHR_external_memory_fd)");
  if (from.memory_type >= types.memoryTypeCount ||
      !(types.memoryTypes[from.memory_type].propertyFlags & Property::eHostVisible)) {
    refuse(fmt::format("is of type {}, which the CPU cannot map here", from.memory_type));
  }
  if (from.allocation_bytes > context.max_allocation() || from.buffer_bytes > from.allocation_bytes) {
    refuse(fmt::format("has {} in an allocation of {}, the driver allows {}", format_bytes(from.buffer_bytes),
                       format_bytes(from.allocation_bytes), format_bytes(context.max_allocation())));
  }
  try {
    const vk::ExternalMemoryBufferCreateInfo external(vk::ExternalMemoryHandleTypeFlagBits::eOpaqueFd);
    vk::BufferCreateInfo buffer_info({}, from.buffer_bytes, buffer_usage);
    buffer_info.setPNext(&external);
    buffer = vk::raii::Buffer(context.device(), buffer_info);
    auto needs = buffer.getMemoryRequirements();
    if ((needs.memoryTypeBits >> from.memory_type & 1U) == 0) {  // as where it was allocated
      buffer_info.setPNext(nullptr);
      buffer = vk::raii::Buffer(context.device(), buffer_info);
      needs = buffer.getMemoryRequirements();
    }
    if (needs.size > from.allocation_bytes) refuse(fmt::format("is too small: {} asked", format_bytes(needs.size)));
    const vk::MemoryDedicatedAllocateInfo dedicated({}, *buffer);
    const vk::MemoryAllocateFlagsInfo flags(vk::MemoryAllocateFlagBits::eDeviceAddress, 0, &dedicated);
    const vk::ImportMemoryFdInfoKHR import(vk::ExternalMemoryHandleTypeFlagBits::eOpaqueFd, from.fd.get(), &flags);
    memory = vk::raii::DeviceMemory(context.device(), {from.allocation_bytes, from.memory_type, &import});
    static_cast<void>(from.fd.release());  // Vulkan's now
    buffer.bindMemory(*memory, 0);
    memory_bytes = from.allocation_bytes;
    buffer_bytes = from.buffer_bytes;
    memory_type = from.memory_type;
    coherent = static_cast<bool>(types.memoryTypes[memory_type].propertyFlags & Property::eHostCoherent);
    address = context.device().getBufferAddress({*buffer});
    host = static_cast<std::byte*>(memory.mapMemory(0, VK_WHOLE_SIZE));
  } catch (const vk::SystemError& error) {
    context.fail(error, fmt::format("importing {} of another process", format_bytes(from.allocation_bytes)));
  }
}

VulkanAllocation::~VulkanAllocation() {
  if (!*memory) return;  // moved from
  if (stuck->any()) {
    keep_for_good(std::make_shared<const VulkanAllocation>(std::move(*this)));
    return;
  }
  buffer.clear();
  memory.clear();  // which unmaps it too
}

vk::MappedMemoryRange VulkanAllocation::widen(std::uint64_t atom, std::uint64_t offset, std::uint64_t bytes) const {
  const std::uint64_t begin = offset / atom * atom;
  const std::uint64_t end = (offset + bytes + atom - 1) / atom * atom;
  return {*memory, begin, end >= memory_bytes ? VK_WHOLE_SIZE : end - begin};
}

void VulkanAllocation::flush(const VulkanContext& context, std::uint64_t offset, std::uint64_t bytes) const {
  try {
    context.device().flushMappedMemoryRanges(widen(context.non_coherent_atom(), offset, bytes));
  } catch (const vk::SystemError& error) {
    context.fail(error, "flushing mapped memory");
  }
}

void VulkanAllocation::invalidate(const VulkanContext& context, std::uint64_t offset, std::uint64_t bytes) const {
  try {
    context.device().invalidateMappedMemoryRanges(widen(context.non_coherent_atom(), offset, bytes));
  } catch (const vk::SystemError& error) {
    context.fail(error, "invalidating mapped memory");
  }
}

namespace {

using Access = vk::AccessFlagBits;
using Stage = vk::PipelineStageFlagBits;

constexpr std::uint64_t staging_bytes = 4U << 20U;
/// For a copy, which takes a millisecond where it does not stand behind a kernel that does not end.
constexpr std::chrono::seconds longest_copy{60};
/// For one whose bytes nobody wants any more.
constexpr std::chrono::seconds longest_copy_when_given_up{1};
/// After each of these it is asked whether anybody wants them.
constexpr std::chrono::nanoseconds look_again = std::chrono::milliseconds(20);
/// Blocks that are kept for the next copies. Seldom do more threads copy at a time.
constexpr std::size_t most_idle = 4;

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
  void run(vk::Buffer from, vk::Buffer to, const vk::BufferCopy& region, const Barriers& barriers,
           const std::function<bool()>& given_up) {
    if (given_up && given_up()) check_not_stuck(region.size);
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
    wait(region.size, given_up);
    running = false;
    context.device().resetFences(*done);
  }
  /// Behind work that was given up each copy would wait until it is given up, too. Throws Error(io).
  void check_not_stuck(std::uint64_t bytes) const {
    const std::string work = context.stuck_work().running();
    if (work.empty()) return;
    throw Error(ErrorCode::io, fmt::format("{} does not copy {} bytes: {} does not end, and the copy is to stop",
                                           context.name(), bytes, work));
  }
  void wait(std::uint64_t bytes, const std::function<bool()>& given_up) const {
    auto longest = longest_copy;
    Deadline end = Clock::now() + longest;
    // Ends: by `end`.
    while (context.device().waitForFences(*done, VK_TRUE, look_again.count()) != vk::Result::eSuccess) {
      const auto now = Clock::now();
      if (longest != longest_copy_when_given_up && given_up && given_up()) {
        longest = longest_copy_when_given_up;
        end = std::min<Deadline>(end, now + longest);
      }
      if (now < end) continue;
      throw Error(ErrorCode::io, fmt::format("{} has not copied {} bytes for {} s: a kernel on it does not end: end "
                                             "that one",
                                             context.name(), bytes, longest.count()));
    }
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
  // Not under the lock: a copy that does not end keeps nobody else waiting.
  std::unique_ptr<Block> block = take();
  try {
    if (!block) block = std::make_unique<Block>(context_);
    for (std::size_t at = 0; at < bytes; at += staging_bytes) {
      chunk(*block, at, std::min<std::size_t>(bytes - at, staging_bytes));
    }
  } catch (const vk::SystemError& error) {
    let_go(std::move(block));
    context_.fail(error, what);
  } catch (const Error&) {
    let_go(std::move(block));
    throw;
  }
  const std::lock_guard lock(mutex_);
  if (idle_.size() < most_idle) idle_.push_back(std::move(block));
}

/// Null: none is idle.
std::unique_ptr<VulkanStaging::Block> VulkanStaging::take() {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) return nullptr;
  std::unique_ptr<Block> block = std::move(idle_.back());
  idle_.pop_back();
  return block;
}

/// Half-used: none of the next copies takes it.
void VulkanStaging::let_go(std::unique_ptr<Block> block) {
  if (!block || !block->running) return;
  const auto last = std::make_shared<LastCopy>(std::move(block));
  keep_for_good(last);
  context_.stuck_work().note(Fence(last, 1), "a copy between the GPU and the host");
}

void VulkanStaging::download(VkBuffer buffer, std::uint64_t offset, std::span<std::byte> to,
                             const std::function<bool()>& given_up) {
  copy(to.size(), "downloading", [&](Block& block, std::size_t at, std::size_t bytes) {
    block.run(buffer, *block.allocation.buffer, vk::BufferCopy(offset + at, 0, bytes), downloading, given_up);
    if (!block.allocation.coherent) block.allocation.invalidate(context_, 0, bytes);
    std::memcpy(to.data() + at, block.allocation.host, bytes);
  });
}

void VulkanStaging::upload(std::span<const std::byte> from, VkBuffer buffer, std::uint64_t offset,
                           const std::function<bool()>& given_up) {
  copy(from.size(), "uploading", [&](Block& block, std::size_t at, std::size_t bytes) {
    std::memcpy(block.allocation.host, from.data() + at, bytes);
    if (!block.allocation.coherent) block.allocation.flush(context_, 0, bytes);
    block.run(*block.allocation.buffer, buffer, vk::BufferCopy(0, offset + at, bytes), uploading, given_up);
  });
}

}  // namespace gpumap
