// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "device/unique_fd.hpp"
#include "gpumap/device.hpp"
#include "gpumap/memory.hpp"
#include "link/client_block.hpp"
#include "link/wire.hpp"

namespace gpumap::link {

/// The description of the slots' memory for clients, and its descriptor in `fd`. Throws Error(not_supported | io).
[[nodiscard]] MemoryOffer describe(const Mapping& mapping, UniqueFd& fd);
/// Imports the memory that `offer` describes. Precondition: `offer` is plausible(). Throws Error(invalid |
/// not_supported | io).
[[nodiscard]] std::shared_ptr<Mapping> import_memory(Device& device, const MemoryOffer& offer, UniqueFd fd);

/// A client's block, in a memfd whose size is sealed. Ownership: owns descriptor and mapping.
class BlockMemory {
 public:
  /// For the server: a new block. Throws Error(io).
  BlockMemory(std::uint32_t slots, std::uint64_t generation);
  /// For the client: the block that the server made. Throws Error(invalid) unless it is sealed and as described.
  BlockMemory(UniqueFd fd, std::uint32_t slots, std::uint64_t generation);
  ~BlockMemory();
  BlockMemory(const BlockMemory&) = delete;
  BlockMemory& operator=(const BlockMemory&) = delete;

  [[nodiscard]] ClientBlock& block() const noexcept { return *block_; }
  /// The note of a slot: max_link_note bytes.
  [[nodiscard]] std::byte* note(std::uint32_t slot) const noexcept {
    return reinterpret_cast<std::byte*>(block_) + block_bytes(slot);
  }
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }

 private:
  UniqueFd fd_;
  ClientBlock* block_ = nullptr;
  const std::size_t bytes_;
};

}  // namespace gpumap::link
