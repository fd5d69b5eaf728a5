// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "gpumap/device.hpp"
#include "gpumap/export.hpp"
#include "gpumap/kernel.h"

namespace gpumap {

/// The last frames of a stream, for kernels that look back. They are copies within the GPU: to hold the frames
/// themselves would take slots from a ring whose size is the sender's, or pictures from a decoder's pool, and a stream
/// that has too few of these stands still. All of it goes by the order of one queue: no one waits.
/// Ownership: keeps the device open; the owner waits for the queue before it destroys this. Thread safety: one thread
/// at a time.
class GPUMAP_API FrameHistory {
 public:
  /// Of `frames`, 1 to GPUMAP_MAX_HISTORY.
  FrameHistory(std::shared_ptr<Device> device, Backend backend, std::uint32_t frames);

  /// A stream begins, or goes on behind a hole: there are none.
  void forget() noexcept { kept_ = 0; }
  /// Into past[] of a frame that is to be launched on.
  void lend(gpumap_frame& frame) const;

  /// Where the frame that was launched on is to be copied, on the same queue: at least `bytes`, in place of the oldest
  /// one. Throws Error(no_memory).
  [[nodiscard]] const std::shared_ptr<Mapping>& room(std::size_t bytes);
  /// That was asked for: it is the last one of the past from here on, and lies there as `view` says of what began at
  /// the address `from`.
  void add(const gpumap_view& view, std::uint64_t from);

 private:
  struct Kept {
    std::shared_ptr<Mapping> memory;
    gpumap_view view{};
  };
  std::shared_ptr<Device> device_;
  Backend backend_;
  std::vector<Kept> frames_;
  std::size_t next_ = 0;  ///< the oldest one, or none yet
  std::size_t kept_ = 0;
  std::vector<std::shared_ptr<Mapping>> outgrown_;  ///< what was launched may still read it
};

}  // namespace gpumap
