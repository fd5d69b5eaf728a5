// SPDX-License-Identifier: MIT
#include "kernel/radio/radio_kernel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <climits>

#include "gpumap/error.hpp"
#include "gpumap/sample_format.hpp"

namespace gpumap {
namespace {

// A row of workgroups of any Vulkan driver.
constexpr std::uint64_t max_blocks = 65535;

const KernelText& text_of(const Builtin& builtin, std::string_view name) {
  const auto found =
      std::find_if(builtin.kernels.begin(), builtin.kernels.end(), [&](const KernelText& k) { return k.name == name; });
  if (found == builtin.kernels.end()) {
    throw Error(ErrorCode::invalid, fmt::format("kernel {} has no part {}", builtin.name, name));
  }
  return *found;
}

}  // namespace

RadioKernel::RadioKernel(const std::shared_ptr<Device>& device, Backend backend, const Builtin& builtin,
                         std::string_view name)
    : kernel_(Kernel::load(device, source_of(text_of(builtin, name), backend))) {}

void RadioKernel::launch_with_job(Queue& queue, const gpumap_frame& frame, std::uint64_t threads) const {
  const std::uint64_t blocks = (threads + RADIO_BLOCK_THREADS - 1) / RADIO_BLOCK_THREADS;
  const Grid grid{.blocks = {static_cast<std::uint32_t>(std::clamp<std::uint64_t>(blocks, 1, max_blocks)), 1, 1},
                  .threads = {RADIO_BLOCK_THREADS, 1, 1}};
  queue.launch(*kernel_, grid, frame);
}

std::uint32_t sum_threads(const Device& device) noexcept {
  constexpr std::uint32_t of_cpu = 4;
  return device.info().software ? of_cpu : RADIO_SUM_THREADS;
}

void check_iq(const Builtin& builtin, const gpumap_view& in) {
  const bool is_whole = in.channels == 2 || (in.channels == 1 && in.format != GPUMAP_FORMAT_S12);
  if (sample_bits(in.format) != 0 && is_whole && in.rate != 0) return;
  throw Error(
      ErrorCode::invalid,
      fmt::format("kernel {} takes IQ samples, audio/x-raw of two channels, or real ones, of one channel, with a "
                  "rate; these have {} channels, rate {} and format {}: put audioconvert or caps before "
                  "gpumapsink",
                  builtin.name, in.channels, in.rate, in.format));
}

std::uint32_t sample_format(std::uint32_t format, bool around128) noexcept {
  return format == GPUMAP_FORMAT_U8 && around128 ? std::uint32_t{GPUMAP_FORMAT_U8_ZERO_128} : format;
}

std::uint64_t iq_samples(const gpumap_view& in, std::uint64_t bytes) noexcept {
  return bytes * CHAR_BIT / (std::uint64_t{sample_bits(in.format)} * in.channels);
}

}  // namespace gpumap
