// SPDX-License-Identifier: MIT
#include "kernel/radio/two_pass_spectrum.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernel/embedded_sources.hpp"

namespace gpumap {
namespace {

constexpr std::uint64_t block_values = std::uint64_t{32} * RADIO_FFT_THREADS;  // BLOCK_FFT_VALUES a thread
constexpr std::uint32_t least_size = block_values;
// As many blocks work at once on a large GPU: more of them for a row would bring nothing.
constexpr std::uint32_t max_blocks = 128;

template <typename Job>
void launch(Queue& queue, const Kernel& kernel, gpumap_frame frame, const Job& job, std::uint64_t values) {
  static_assert(sizeof job <= sizeof frame.params);
  std::memcpy(frame.params, &job, sizeof job);
  const auto blocks = static_cast<std::uint32_t>(values / block_values);
  queue.launch(kernel, {.blocks = {blocks, 1, 1}, .threads = {RADIO_FFT_THREADS, 1, 1}}, frame);
}

}  // namespace

bool TwoPassSpectrum::suits(Backend backend, std::uint32_t size, std::uint32_t average) noexcept {
  return backend == Backend::cuda && size >= least_size && size / block_values >= std::min(average, max_blocks);
}

std::array<KernelSource, 2> TwoPassSpectrum::sources(std::uint32_t size, std::uint32_t format) {
  const auto source = [&](const char* name, std::string_view text) {
    return KernelSource{.language = Language::cuda,
                        .name = name,
                        .code = std::string(text),
                        .function = {},
                        .defines = {fmt::format("SPECTRUM_LOG2_SIZE={}", std::countr_zero(size)),
                                    fmt::format("SPECTRUM_FORMAT={}", format)},
                        .include_folders = {}};
  };
  return {source("spectrum_columns", embedded::spectrum_columns_cu),
          source("spectrum_finish", embedded::spectrum_finish_cu)};
}

TwoPassSpectrum::TwoPassSpectrum(const std::shared_ptr<Device>& device, std::uint32_t size, std::uint32_t format) {
  const auto both = sources(size, format);
  columns_ = Kernel::load(device, both[0]);
  finish_ = Kernel::load(device, both[1]);
}

void TwoPassSpectrum::run(Queue& queue, const gpumap_frame& frame, const radio_columns_job& columns,
                          std::uint64_t between, const radio_power_job& power) const {
  gpumap_frame given = frame;
  given.out.plane[0] = between;
  launch(queue, *columns_, given, columns, power.transforms * power.size);
  given.in.plane[0] = between;
  given.out.plane[0] = frame.out.plane[0];
  launch(queue, *finish_, given, power, std::uint64_t{power.rows} * power.size);
}

}  // namespace gpumap
