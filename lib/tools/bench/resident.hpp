// SPDX-License-Identifier: MIT
// What the modes pingpong and lat share: a kernel that stays on the GPU and answers a doorbell.
//
//   CPU                                     GPU, one block
//   stores the payload, fence               looks at the doorbell …
//   raises the doorbell, fence ───────────▶ … until it has changed; reads the payload
//   looks at the answer … ◀──────────────── answers with the sequence and the payload's checksum
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "bench.hpp"

namespace bench {

/// The GPU's side. resident.cu says what each does; on Vulkan one shader does all three.
struct ResidentKernels {
  explicit ResidentKernels(const Context& context);
  std::shared_ptr<gpumap::Kernel> echo, read, read_once;
};

/// Empty where a kernel that is running already is sure to see what the CPU stored before it raised a doorbell; else
/// the reason why not.
[[nodiscard]] std::string refuse_resident(const Context& context);

/// The checksum of resident.cu, by the CPU.
[[nodiscard]] std::uint32_t weigh(std::span<const std::uint32_t> words) noexcept;

/// Rounds of one path: how many blocks take turns with the other paths, and what a block holds.
struct Rounds {
  unsigned blocks = 1, warmup = 0, counted = 1;

  /// A round that must be discarded is tried again, but not for ever on a machine that is busy.
  [[nodiscard]] bool go_on(unsigned valid, unsigned discarded) const {
    return valid < counted && valid + discarded < 4 * counted;
  }
};

struct ResidentOptions {
  gpumap::Placement placement = gpumap::Placement::bar;  ///< of the payload and of the doorbell
  std::size_t payload_bytes = 0;                         ///< a multiple of 4; 0: the kernel only answers
  unsigned bell_bytes = 8;                               ///< or 4
};

/// A doorbell, a payload and the kernel behind them. Thread safety: one thread.
class Resident {
 public:
  /// Throws gpumap::Error.
  Resident(const Context& context, const ResidentKernels& kernels, const ResidentOptions& options);
  ~Resident();
  Resident(const Resident&) = delete;
  Resident& operator=(const Resident&) = delete;

  /// The payload's memory, from its start: store there, then ring().
  [[nodiscard]] const gpumap::Mapping& memory() const { return *memory_; }
  void start();
  void stop();
  /// Order all stores before it, raise the doorbell and drain it.
  void ring();
  /// Wait for the answer to the last ring: the payload's checksum. Empty when the kernel had ended and was launched
  /// anew meanwhile: that round says nothing about time. Throws Error(device_lost) after ten seconds.
  [[nodiscard]] std::optional<std::uint32_t> answer();

 private:
  void write_bell(std::uint64_t value);
  void launch();

  const gpumap::Kernel& kernel_;
  ResidentOptions options_;
  std::size_t bell_at_ = 0;
  std::shared_ptr<gpumap::Mapping> memory_, answer_;
  std::unique_ptr<gpumap::Queue> queue_;  // last: ends before the memory goes
  gpumap_frame frame_{};
  gpumap::Grid grid_;
  gpumap::Fence running_;
  std::uint64_t sequence_ = 0;
  bool started_ = false;
};

}  // namespace bench
