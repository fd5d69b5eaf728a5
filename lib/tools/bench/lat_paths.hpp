// SPDX-License-Identifier: MIT
// The ways of mode lat from a block in the CPU's hands to a kernel that has read it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "resident.hpp"

namespace bench {

/// Blocks of random words, a different one each time, with the checksum that a kernel should find. They stay in the
/// CPU's caches where they fit: what is timed is a block that was just made.
class Blocks {
 public:
  explicit Blocks(std::size_t bytes);
  [[nodiscard]] const std::byte* next();
  [[nodiscard]] std::uint32_t checksum() const { return sums_[at_]; }  ///< of the last next()

 private:
  std::size_t words_;
  std::vector<std::uint32_t> data_;
  std::vector<std::uint32_t> sums_;
  std::size_t at_ = 0;
};

struct LatRound {
  std::int64_t stored_ns = 0;  ///< the CPU's stores and their fence
  std::int64_t done_ns = 0;    ///< until the CPU has the kernel's checksum
  std::uint32_t checksum = 0;
};

/// One way. Thread safety: one thread.
class LatPath {
 public:
  LatPath() = default;
  LatPath(const LatPath&) = delete;
  LatPath& operator=(const LatPath&) = delete;
  virtual ~LatPath() = default;

  virtual void begin() {}
  virtual void end() {}
  /// Empty when the round says nothing: see Resident::answer().
  [[nodiscard]] virtual std::optional<LatRound> round(const std::byte* block) = 0;
};

/// Stores into `placement` and a doorbell there, answered by a kernel that runs already.
[[nodiscard]] std::unique_ptr<LatPath> resident_path(const Context& context, const ResidentKernels& kernels,
                                                     gpumap::Placement placement, std::size_t bytes);
/// Stores into `placement`, then a launch.
[[nodiscard]] std::unique_ptr<LatPath> launch_path(const Context& context, const ResidentKernels& kernels,
                                                   gpumap::Placement placement, std::size_t bytes);
/// Stores into the BAR and a doorbell there, which lets a launch go that is queued already. Null where the GPU's queues
/// cannot wait for a word in memory.
[[nodiscard]] std::unique_ptr<LatPath> queued_path(const Context& context, const ResidentKernels& kernels,
                                                   std::size_t bytes);
/// A copy to page-locked host memory, DMA and a launch.
[[nodiscard]] std::unique_ptr<LatPath> dma_path(const Context& context, const ResidentKernels& kernels,
                                                std::size_t bytes);

}  // namespace bench
