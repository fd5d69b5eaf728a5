// SPDX-License-Identifier: MIT
#include "memory/vulkan_allocation.hpp"

#include <fmt/format.h>
#include <optional>
#include <tuple>

#include "gpumap/error.hpp"

namespace gpumap {
namespace {

using Property = vk::MemoryPropertyFlagBits;

constexpr auto buffer_usage = vk::BufferUsageFlagBits::eStorageBuffer | vk::BufferUsageFlagBits::eTransferSrc |
                              vk::BufferUsageFlagBits::eTransferDst | vk::BufferUsageFlagBits::eShaderDeviceAddress;

vk::MemoryPropertyFlags required_properties(Placement placement) {
  switch (placement) {
    case Placement::bar:
      return Property::eDeviceLocal | Property::eHostVisible;
    case Placement::device:
      return Property::eDeviceLocal;
    case Placement::host:
      break;
  }
  return Property::eHostVisible | Property::eHostCached;
}

/// What a placement had better not have: device memory would waste the window, host memory the device.
vk::MemoryPropertyFlags unwanted_properties(Placement placement) {
  switch (placement) {
    case Placement::bar:
      return {};
    case Placement::device:
      return Property::eHostVisible;
    case Placement::host:
      break;
  }
  return Property::eDeviceLocal;
}

const char* describe(Placement placement) {
  switch (placement) {
    case Placement::bar:
      return "device memory that the CPU can map (is resizable BAR on in the firmware?)";
    case Placement::device:
      return "device memory";
    case Placement::host:
      break;
  }
  return "CPU-cached memory that the device can reach";
}

/// By flags first, then by budget: a coherent type that has no room left loses to a non-coherent one that has.
std::optional<std::uint32_t> find_type(const VulkanContext& context, Placement placement,
                                       const vk::MemoryRequirements& needs, bool require_coherent) {
  constexpr auto never = Property::eProtected | Property::eLazilyAllocated | Property::eDeviceCoherentAMD;
  auto required = required_properties(placement);
  if (require_coherent) required |= Property::eHostCoherent;
  const auto unwanted = unwanted_properties(placement);
  const auto free = heap_budgets(context.physical(), context.optional().memory_budget);

  using Score = std::tuple<bool, bool, bool, std::uint64_t>;
  std::optional<Score> best;
  std::uint32_t chosen = 0;
  const auto& memory = context.memory();
  for (std::uint32_t type = 0; type < memory.memoryTypeCount; ++type) {
    const auto flags = memory.memoryTypes[type].propertyFlags;
    if ((needs.memoryTypeBits >> type & 1U) == 0 || (flags & required) != required || (flags & never)) continue;
    const std::uint64_t left = free.at(memory.memoryTypes[type].heapIndex);
    const Score score(left >= needs.size, static_cast<bool>(flags & Property::eHostCoherent), !(flags & unwanted),
                      left);
    if (best && *best >= score) continue;
    best = score;
    chosen = type;
  }
  if (!best) return std::nullopt;
  return chosen;
}

}  // namespace

VulkanAllocation::VulkanAllocation(VulkanContext& context, Placement placement, std::uint64_t bytes,
                                   bool require_coherent) {
  context.health().check();
  if (bytes > context.max_allocation()) {
    throw Error(ErrorCode::no_memory,
                fmt::format("{}: {} asked in one allocation, the driver allows {}: lower slots or slot-size",
                            context.name(), format_bytes(bytes), format_bytes(context.max_allocation())));
  }
  exportable = context.optional().export_fd && placement != Placement::host;
  try {
    const vk::ExternalMemoryBufferCreateInfo external(vk::ExternalMemoryHandleTypeFlagBits::eOpaqueFd);
    vk::BufferCreateInfo buffer_info({}, bytes, buffer_usage);
    if (exportable) buffer_info.setPNext(&external);
    buffer = vk::raii::Buffer(context.device(), buffer_info);
    auto needs = buffer.getMemoryRequirements();
    auto type = find_type(context, placement, needs, require_coherent);
    if (!type && exportable) {
      // NVIDIA's driver (580) leaves the BAR's type out of what an external buffer may lie in, though memory of that
      // type can be exported, imported and bound: a buffer that does not announce the export gets it. The validation
      // layer's objection to that is set aside in vulkan_instance.cpp.
      buffer_info.setPNext(nullptr);
      buffer = vk::raii::Buffer(context.device(), buffer_info);
      needs = buffer.getMemoryRequirements();
      type = find_type(context, placement, needs, require_coherent);
    }
    if (!type) {
      throw Error(ErrorCode::not_supported,
                  fmt::format("{} offers no {}{}: use another transport or another device", context.name(),
                              require_coherent ? "coherent " : "", describe(placement)));
    }
    memory_bytes = needs.size;
    if (placement == Placement::bar) {
      share =
          context.window().reserve(context.name(), memory_bytes, context.window_bytes(), context.window_budget_bytes());
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
    if (placement != Placement::device) host = static_cast<std::byte*>(memory.mapMemory(0, VK_WHOLE_SIZE));
    address = context.device().getBufferAddress({*buffer});
  } catch (const vk::OutOfDeviceMemoryError&) {
    throw Error(ErrorCode::no_memory,
                fmt::format("{}: the driver has no {} of {} left, of {} in the BAR window {} are free: lower slots or "
                            "slot-size, or use another transport",
                            context.name(), format_bytes(bytes), describe(placement),
                            format_bytes(context.window_bytes()), format_bytes(context.window_free_bytes())));
  } catch (const vk::SystemError& error) {
    context.fail(error, fmt::format("allocating {} of {}", format_bytes(bytes), describe(placement)));
  }
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

}  // namespace gpumap
