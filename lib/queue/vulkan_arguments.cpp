// SPDX-License-Identifier: MIT
#include "queue/vulkan_arguments.hpp"

#include <cstring>

namespace gpumap {
namespace {

constexpr std::uint32_t blocks_per_chunk = 64;
// Whole cache lines, and whole non-coherent atoms (at most 256 bytes by the Vulkan specification).
constexpr std::uint64_t block_bytes = (sizeof(gpumap_frame) + 255) / 256 * 256;

constexpr std::uint64_t offset_of(VulkanArguments::Block block) {
  return block % blocks_per_chunk * block_bytes;
}

}  // namespace

VulkanArguments::Block VulkanArguments::store(const gpumap_frame& frame) {
  if (idle_.empty()) {
    const auto first = static_cast<Block>(chunks_.size() * blocks_per_chunk);
    chunks_.emplace_back(context_, Placement::host, blocks_per_chunk * block_bytes, false);
    for (Block i = blocks_per_chunk; i > 0; --i) idle_.push_back(first + i - 1);
  }
  const Block block = idle_.back();
  const auto& chunk = chunks_.at(block / blocks_per_chunk);
  std::memcpy(chunk.host + offset_of(block), &frame, sizeof frame);
  if (!chunk.coherent) chunk.flush(context_, offset_of(block), sizeof frame);
  idle_.pop_back();
  return block;
}

std::uint64_t VulkanArguments::address(Block block) const {
  return chunks_.at(block / blocks_per_chunk).address + offset_of(block);
}

}  // namespace gpumap
