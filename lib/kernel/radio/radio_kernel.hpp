// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>

#include "gpumap/kernel.hpp"
#include "gpumap/queue.hpp"
#include "kernel/radio/radio.h"

namespace gpumap {

/// A kernel of a radio built-in.
class RadioKernel {
 public:
  /// Of `builtin`, that of this name. Throws as Kernel::load.
  RadioKernel(const std::shared_ptr<Device>& device, Backend backend, const Builtin& builtin, std::string_view name);

  /// `frame` with `job` as its params, on about `threads` threads: the kernels' loops are right for any number.
  template <typename Job>
  void launch(Queue& queue, gpumap_frame frame, const Job& job, std::uint64_t threads) const {
    static_assert(sizeof job <= sizeof frame.params);
    std::memcpy(frame.params, &job, sizeof job);
    launch_with_job(queue, frame, threads);
  }

 private:
  void launch_with_job(Queue& queue, const gpumap_frame& frame, std::uint64_t threads) const;

  std::shared_ptr<Kernel> kernel_;
};

/// Threads that share a sum of ddc_filter and audio_filter. A CPU that plays GPU pays for what they tell each other.
[[nodiscard]] std::uint32_t sum_threads(const Device& device) noexcept;
/// Throws Error(invalid) unless `in` is a stream of IQ or real samples that the kernels know.
void check_iq(const Builtin& builtin, const gpumap_view& in);
/// As the kernels are to see samples of `format`: U8 `around128`, the parameter of that name, or around 127.5.
[[nodiscard]] std::uint32_t sample_format(std::uint32_t format, bool around128) noexcept;
/// How many samples, IQ or real ones, lie in `bytes` bytes of a stream as check_iq() let it pass.
[[nodiscard]] std::uint64_t iq_samples(const gpumap_view& in, std::uint64_t bytes) noexcept;

}  // namespace gpumap
