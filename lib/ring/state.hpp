// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gpumap/ring.hpp"
#include "ring/control_block.hpp"
#include "ring/read_fences.hpp"

namespace gpumap {

/// The part of a ring that is private to this process.
struct Ring::State {
  State(std::shared_ptr<Device> on, std::shared_ptr<Mapping> mapped, const RingOptions& options, std::size_t stride,
        Transport way);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// The oldest free slot whose fences have signalled, claimed. Throws Error(invalid) for a corrupt block.
  bool take_free(std::uint32_t& slot);
  /// Drop published frames, oldest first, until one gives a slot, claimed.
  bool take_back(std::uint32_t& slot);
  /// Skips what is corrupt. Throws Error(invalid) when nothing else comes.
  bool take_published(std::uint32_t& slot, FrameInfo& info);
  [[nodiscard]] bool take_nudge() noexcept;

  std::shared_ptr<Device> device;
  std::shared_ptr<Mapping> mapping;
  std::byte* host;
  std::size_t slot_stride;
  Transport transport;
  std::string fallback_reason;
  bool uploads;  ///< publish() calls upload(): the mapping is mirrored, or not coherent
  ring::Limits limits;
  ring::ControlMemory memory;
  ring::ControlBlock& block;
  ring::PendingSlots pending;
  std::vector<Fence> written;  ///< of each slot; set before it is queued, read by who takes it

  // Read on every call, written seldom.
  alignas(ring::line_bytes) std::atomic<bool> producer_flushing{false};
  std::atomic<bool> consumer_flushing{false};
  std::atomic<std::int64_t> spin_ns;
  // Written on slow paths only.
  alignas(ring::line_bytes) std::atomic<std::uint64_t> producer_waits{0};
  std::atomic<std::uint64_t> consumer_waits{0};
  std::atomic<std::uint64_t> nudges_seen{0};
  std::atomic<std::int64_t> fence_check_ns{0};
};

}  // namespace gpumap
