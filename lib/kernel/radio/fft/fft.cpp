// SPDX-License-Identifier: MIT
// The FFT of a power of two of points: one kernel, the same for both backends, so that output is the same however a
// stream is cut into frames, and nothing has to be planned.
#include "kernel/radio/fft/fft.hpp"

#include <bit>
#include <cmath>
#include <numbers>
#include <vector>

#include "kernel/radio/fft/chirp_fft.hpp"
#include "kernel/radio/radio_memory.hpp"

namespace gpumap {
namespace {

/// Passes of radix 4 and 2 whose number is odd: out of place each, by turns between two pieces of memory, they end
/// where they shall without a copy.
std::vector<std::uint32_t> radices_of(std::uint32_t size) {
  const auto powers = static_cast<std::size_t>(std::countr_zero(size));
  std::size_t fours = powers / 2;
  if ((powers - fours) % 2 == 0) --fours;
  std::vector<std::uint32_t> radices(fours, 4);
  radices.resize(powers - fours, 2);
  return radices;
}

class RadixFft final : public Fft {
 public:
  RadixFft(const std::shared_ptr<Device>& device, Backend backend, const Builtin& builtin, std::uint32_t size)
      : kernel_(device, backend, builtin, "radio_fft"),
        twiddles_(device, backend),
        scratch_(device, backend),
        size_(size) {
    std::vector<float> table;
    for (std::uint32_t k = 0; k < size; ++k) {
      const double angle = -2.0 * std::numbers::pi * k / size;
      table.push_back(static_cast<float>(std::cos(angle)));
      table.push_back(static_cast<float>(std::sin(angle)));
    }
    twiddles_.set(std::move(table));
  }

  void forward(Queue& queue, std::uint64_t from, std::uint64_t to, std::uint64_t transforms) override {
    gpumap_frame frame{};
    frame.in.plane[1] = twiddles_.ready(queue);
    const std::vector<std::uint32_t> radices = radices_of(size_);
    std::uint64_t other = radices.size() > 1 ? scratch_.ready(queue, transforms * size_ * 2 * sizeof(float)) : 0;
    std::uint32_t stride = 1;
    for (const std::uint32_t radix : radices) {
      frame.in.plane[0] = from;
      frame.out.plane[0] = to;
      kernel_.launch(
          queue, frame,
          radio_fft_job{.transforms = transforms, .size = size_, .stride = stride, .radix = radix, .reserved = 0},
          transforms * (size_ / radix));
      stride *= radix;
      from = to;
      std::swap(to, other);
    }
  }

 private:
  RadioKernel kernel_;
  DeviceTable twiddles_;
  WorkMemory scratch_;
  std::uint32_t size_;
};

}  // namespace

std::unique_ptr<Fft> make_fft(const std::shared_ptr<Device>& device, Backend backend, const Builtin& builtin,
                              std::uint32_t size) {
  if (std::has_single_bit(size)) return std::make_unique<RadixFft>(device, backend, builtin, size);
  return make_chirp_fft(device, backend, builtin, size, make_fft(device, backend, builtin, chirp_points(size)));
}

}  // namespace gpumap
