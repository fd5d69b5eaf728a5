// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "gpumap/kernel.hpp"
#include "gpumap/queue.hpp"
#include "kernel/radio/radio.h"

namespace gpumap {

/// Power spectra of large transforms in CUDA. Between GPU memory and the arithmetic they go twice there and back, which
/// is the least that they can: samples are read and windowed by the FFT's first pass, powers are what its second one
/// writes. cuFFT takes two passes for the transform alone, and functions of others within its own (callbacks) make its
/// first one as slow as a third would be.
class TwoPassSpectrum {
 public:
  /// For samples of this format. Throws as Kernel::load.
  TwoPassSpectrum(const std::shared_ptr<Device>& device, std::uint32_t size, std::uint32_t format);

  /// Whether it is for this size. A block has 8192 of a transform's values, and goes through all transforms that make a
  /// row of the output: where those are more than a row has blocks, too few would be at work.
  [[nodiscard]] static bool suits(Backend backend, std::uint32_t size, std::uint32_t average) noexcept;

  /// `power.transforms` transforms of the samples that `columns` tells of, in `frame`, as spectrum_power makes rows of
  /// them: see radio_power_job. `between`: the address of 8 bytes for each of their values.
  void run(Queue& queue, const gpumap_frame& frame, const radio_columns_job& columns, std::uint64_t between,
           const radio_power_job& power) const;

  /// The first and the second pass.
  [[nodiscard]] static std::array<KernelSource, 2> sources(std::uint32_t size, std::uint32_t format);

 private:
  std::shared_ptr<Kernel> columns_, finish_;
};

}  // namespace gpumap
