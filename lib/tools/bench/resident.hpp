// SPDX-License-Identifier: MIT
// A kernel that stays on the GPU and answers a doorbell.
//
//   CPU                                     GPU, one block
//                                           looks at the doorbell …
//   raises the doorbell, fence ───────────▶ … until it has changed
//   looks at the answer … ◀──────────────── answers with its word
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "bench.hpp"

namespace bench {

/// Empty where a kernel that is running already is sure to see what the CPU stored before it raised a doorbell; else
/// the reason why not.
[[nodiscard]] std::string refuse_resident(const Context& context);
[[nodiscard]] std::shared_ptr<gpumap::Kernel> load_resident(const Context& context);

/// Rounds of one path: how many blocks take turns with the other paths, and what a block holds.
struct Rounds {
  unsigned blocks = 1, warmup = 0, counted = 1;

  /// A round that must be discarded is tried again, but not for ever on a machine that is busy.
  [[nodiscard]] bool go_on(unsigned valid, unsigned discarded) const {
    return valid < counted && valid + discarded < 4 * counted;
  }
};

/// A doorbell and the kernel behind it. Thread safety: one thread.
class Resident {
 public:
  /// Throws gpumap::Error.
  /// The doorbell lies in memory of that `placement` and has 4 or 8 bytes.
  Resident(const Context& context, const gpumap::Kernel& kernel, gpumap::Placement placement, unsigned bell_bytes);
  ~Resident();
  Resident(const Resident&) = delete;
  Resident& operator=(const Resident&) = delete;

  void start();
  void stop();
  /// Order all stores before it, raise the doorbell and drain it.
  void ring();
  /// Wait for the answer to the last ring. False when the kernel had ended and was launched anew meanwhile: that round
  /// says nothing about time. Throws Error(device_lost) after ten seconds.
  [[nodiscard]] bool answer();

 private:
  void write_bell(std::uint64_t value);
  void launch();

  const gpumap::Kernel& kernel_;
  const unsigned bell_bytes_;
  std::shared_ptr<gpumap::Mapping> memory_, answer_;
  std::unique_ptr<gpumap::Queue> queue_;  // last: ends before the memory goes
  gpumap_frame frame_{};
  gpumap::Grid grid_;
  gpumap::Fence running_;
  std::uint64_t sequence_ = 0;
  bool started_ = false;
};

}  // namespace bench
