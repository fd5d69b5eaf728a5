// SPDX-License-Identifier: MIT
#include "kernel/radio/fft/fft.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <complex>
#include <numbers>
#include <utility>
#include <vector>

#include "kernel/radio/radio_kernel.hpp"

namespace gpumap {
namespace {

// Bluestein's transform, of any size N, primes too. With w(n) = exp(-pi i n^2 / N) it is X(k) = w(k) * sum of
// (x(n) w(n)) / w(k - n): a convolution, which transforms of a power of two make. Its error is about theirs.

using Complex = std::complex<double>;

/// In double, on the CPU, once: a power of two of points, in place.
void transform(std::vector<Complex>& values) {
  const std::size_t size = values.size();
  for (std::size_t i = 1, reversed = 0; i < size; ++i) {
    std::size_t bit = size / 2;
    for (; (reversed & bit) != 0; bit /= 2) reversed ^= bit;
    reversed ^= bit;
    if (i < reversed) std::swap(values[i], values[reversed]);
  }
  for (std::size_t half = 1; half < size; half *= 2) {
    for (std::size_t k = 0; k < half; ++k) {
      const Complex turn = std::polar(1.0, -std::numbers::pi * static_cast<double>(k) / static_cast<double>(half));
      for (std::size_t i = k; i < size; i += 2 * half) {
        const Complex turned = turn * values[i + half];
        values[i + half] = values[i] - turned;
        values[i] += turned;
      }
    }
  }
}

std::vector<float> to_floats(const std::vector<Complex>& values) {
  std::vector<float> made;
  for (const Complex& value : values) {
    made.push_back(static_cast<float>(value.real()));
    made.push_back(static_cast<float>(value.imag()));
  }
  return made;
}

/// How many points the transform must have on which one of `size` is built.
std::uint32_t chirp_points(std::uint32_t size) noexcept {
  return std::bit_ceil(2 * size - 1);
}

/// A transform of any size up to Fft::max_points / 2, by `inner`, which has chirp_points(size) points.
class ChirpFft final : public Fft {
 public:
  ChirpFft(const std::shared_ptr<Device>& device, Backend backend, const Builtin& builtin, std::uint32_t size,
           std::unique_ptr<Fft> inner)
      : kernel_(device, backend, builtin, "radio_chirp"),
        chirp_(device, backend),
        filter_(device, backend),
        work_{{{device, backend}, {device, backend}}},
        inner_(std::move(inner)),
        size_(size),
        points_(chirp_points(size)) {
    std::vector<Complex> chirp, filter(points_);
    for (std::uint64_t n = 0; n < size; ++n) {
      // n^2 modulo a whole turn, as a whole number: exact however large.
      const auto turn = static_cast<double>(n * n % (2ULL * size));
      chirp.push_back(std::polar(1.0, -std::numbers::pi * turn / size));
      filter[n] = filter[(points_ - n) % points_] = std::conj(chirp.back()) / static_cast<double>(points_);
    }
    transform(filter);
    chirp_.set(to_floats(chirp));
    filter_.set(to_floats(filter));
  }

  void forward(Queue& queue, std::uint64_t from, std::uint64_t to, std::uint64_t transforms) override {
    while (transforms != 0) {
      const std::uint64_t count = std::min<std::uint64_t>(transforms, std::max(max_values / points_, 1U));
      const std::uint64_t bytes = count * points_ * 2 * sizeof(float);
      const std::uint64_t one = work_[0].ready(queue, bytes), other = work_[1].ready(queue, bytes);
      const std::uint64_t chirp = chirp_.ready(queue);
      multiply(queue, from, size_, chirp, one, points_, count, false);
      inner_->forward(queue, one, other, count);
      multiply(queue, other, points_, filter_.ready(queue), other, points_, count, false);
      inner_->forward(queue, other, one, count);
      // A transform back is one forward whose result is read backwards.
      multiply(queue, one, points_, chirp, to, size_, count, true);
      from += count * size_ * 2 * sizeof(float), to += count * size_ * 2 * sizeof(float), transforms -= count;
    }
  }

 private:
  static constexpr std::uint32_t max_values = 1U << 23U;  ///< at once: 64 MiB

  void multiply(Queue& queue, std::uint64_t from, std::uint32_t from_size, std::uint64_t table, std::uint64_t to,
                std::uint32_t to_size, std::uint64_t transforms, bool backwards) const {
    gpumap_frame frame{};
    frame.in.plane[0] = from;
    frame.in.plane[1] = table;
    frame.out.plane[0] = to;
    kernel_.launch(queue, frame,
                   radio_chirp_job{.transforms = transforms,
                                   .from_size = from_size,
                                   .to_size = to_size,
                                   .backwards = backwards ? 1U : 0U,
                                   .reserved = 0},
                   transforms * to_size);
  }

  RadioKernel kernel_;
  DeviceTable chirp_, filter_;
  std::array<WorkMemory, 2> work_;
  std::unique_ptr<Fft> inner_;
  std::uint32_t size_, points_;
};

// The FFT of a power of two of points: one kernel, the same for both backends, so that output is the same however a
// stream is cut into frames, and nothing has to be planned.

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
  return std::make_unique<ChirpFft>(device, backend, builtin, size,
                                    make_fft(device, backend, builtin, chirp_points(size)));
}

}  // namespace gpumap
