// SPDX-License-Identifier: MIT
// spectrum: averaged power spectra. Three kernels a frame: spectrum_window reads the samples in place, whatever their
// format, the FFT, and spectrum_power; then radio_keep where the frame leaves samples for the next transform.
#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <numbers>

#include "gpumap/error.hpp"
#include "kernel/radio/fft.hpp"
#include "kernel/radio/radio_kernel.hpp"
#include "kernel/radio/radio_memory.hpp"
#include "kernel/radio/radio_programs.hpp"

namespace gpumap {
namespace {

// Transforms at a time: two times 32 MiB between the kernels stay in the cache of a large GPU, and in reason with
// overlap.
constexpr std::uint64_t most_values = 1U << 22U;

enum class Window { rectangle, hann, hamming, blackman_harris };

struct SpectrumSettings {
  std::uint32_t size = 1024;
  std::uint32_t hop = 1024;
  std::uint32_t average = 1;
  Window window = Window::hann;
  bool decibel = false;

  [[nodiscard]] bool operator==(const SpectrumSettings&) const = default;
};

template <typename... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) {
  throw Error(ErrorCode::invalid, "kernel spectrum: " + fmt::format(text, std::forward<Args>(args)...));
}

SpectrumSettings read_settings(std::string_view text) {
  std::array<float, GPUMAP_MAX_PARAMS> values{};
  apply_parameters(*find_builtin("spectrum"), text, values);
  const double size = values[0], overlap = values[1], average = values[2], window = values[3], decibel = values[4];
  SpectrumSettings settings;
  if (size < 2.0 || size > Fft::most_points || size != std::floor(size) ||
      !std::has_single_bit(static_cast<std::uint32_t>(size))) {
    refuse("size={} is not a power of two from 2 to {}", size, Fft::most_points);
  }
  settings.size = static_cast<std::uint32_t>(size);
  if (overlap < 0.0 || overlap >= 1.0) {
    refuse("overlap={} is not a part of a transform: give 0 to 0.99, as 0.5 for one half", overlap);
  }
  const auto shared = static_cast<std::uint32_t>(std::lround(overlap * size));
  settings.hop = settings.size - std::min(shared, settings.size - 1);
  if (average < 1.0 || average > 16777216.0 || average != std::floor(average)) {
    refuse("average={} is not a whole number of transforms from 1 on", average);
  }
  settings.average = static_cast<std::uint32_t>(average);
  if (window < 0.0 || window > 3.0 || window != std::floor(window)) {
    refuse("window={} is none of 0 (rectangle), 1 (Hann), 2 (Hamming), 3 (Blackman-Harris)", window);
  }
  settings.window = static_cast<Window>(static_cast<int>(window));
  if (decibel != 0.0 && decibel != 1.0) refuse("db={} is neither 0 (power) nor 1 (decibels)", decibel);
  settings.decibel = decibel != 0.0;
  return settings;
}

/// A sum of cosines over a whole period: the periodic form, which belongs to a transform.
std::vector<double> make_window(Window window, std::uint32_t size) {
  constexpr std::array<std::array<double, 4>, 4> coefficients{
      {{1.0, 0.0, 0.0, 0.0}, {0.5, 0.5, 0.0, 0.0}, {0.54, 0.46, 0.0, 0.0}, {0.35875, 0.48829, 0.14128, 0.01168}}};
  const auto& a = coefficients[static_cast<std::size_t>(window)];
  std::vector<double> made(size);
  for (std::uint32_t i = 0; i < size; ++i) {
    const double x = 2.0 * std::numbers::pi * i / size;
    made[i] = a[0] - a[1] * std::cos(x) + a[2] * std::cos(2.0 * x) - a[3] * std::cos(3.0 * x);
  }
  return made;
}

class Spectrum final : public Program {
 public:
  Spectrum(std::shared_ptr<Device> device, Backend backend, const Builtin& builtin)
      : device_(std::move(device)),
        backend_(backend),
        builtin_(builtin),
        window_kernel_(device_, backend, builtin, "spectrum_window"),
        power_kernel_(device_, backend, builtin, "spectrum_power"),
        kept_(device_, backend, builtin),
        window_(device_, backend),
        windowed_(device_, backend),
        transformed_(device_, backend),
        sums_{{{device_, backend}, {device_, backend}}} {}

  void set_params(std::string_view text) override {
    const SpectrumSettings settings = read_settings(text);
    if (in_.rate != 0 && settings != settings_) {
      refuse("its parameters hold for a whole stream, as its caps do: change them where it is stopped");
    }
    settings_ = settings;
  }

  void begin(const gpumap_view& in, const gpumap_view& /*out*/) override {
    check_iq(builtin_, in);
    if (!fft_) fft_ = make_fft(device_, backend_, builtin_, settings_.size);  // set_params() no longer changes it
    const std::vector<double> window = make_window(settings_.window, settings_.size);
    double sum = 0.0;
    for (const double value : window) sum += value;
    // A tone of full scale in the middle of a bin has power 1, whatever size and window.
    scale_ = 1.0 / (sum * sum * settings_.average);
    window_.set({window.begin(), window.end()});
    in_ = in;
    kept_.restart();
    carried_ = 0;
  }

  [[nodiscard]] std::optional<std::size_t> output_bytes(std::size_t input_bytes) const override {
    const std::uint64_t transforms = transforms_in(kept_.count() + iq_samples(in_.format, input_bytes));
    return (carried_ + transforms) / settings_.average * settings_.size * sizeof(float);
  }

  void run(Queue& queue, const gpumap_frame& frame) override {
    const std::uint64_t samples = kept_.count() + iq_samples(in_.format, frame.in.bytes);
    const std::uint64_t transforms = transforms_in(samples);
    gpumap_frame given = frame;
    kept_.lend(given);
    const auto oldest = -static_cast<std::int64_t>(kept_.count());
    const std::uint64_t at_a_time = std::max<std::uint64_t>(most_values / settings_.size, 1);
    for (std::uint64_t done = 0; done < transforms; done += at_a_time) {
      transform(queue, given, oldest + static_cast<std::int64_t>(done * settings_.hop),
                std::min(at_a_time, transforms - done));
    }
    const std::uint64_t used = transforms * settings_.hop;
    kept_.keep(queue, given, oldest + static_cast<std::int64_t>(used), samples - used);
  }

 private:
  [[nodiscard]] std::uint64_t transforms_in(std::uint64_t samples) const {
    return samples < settings_.size ? 0 : (samples - settings_.size) / settings_.hop + 1;
  }

  /// Rows go to frame.out, which is moved on behind them.
  void transform(Queue& queue, gpumap_frame& frame, std::int64_t first, std::uint64_t transforms) {
    const std::uint64_t values = transforms * settings_.size;
    const std::uint64_t windowed = windowed_.ready(queue, values * 2 * sizeof(float));
    const std::uint64_t transformed = transformed_.ready(queue, values * 2 * sizeof(float));
    gpumap_frame given = frame;
    given.in.plane[1] = window_.ready(queue);
    given.out.plane[0] = windowed;
    window_kernel_.launch(
        queue, given,
        radio_window_job{.first = first, .transforms = transforms, .size = settings_.size, .hop = settings_.hop},
        values);
    fft_->forward(queue, windowed, transformed, transforms);

    const std::uint64_t rows = (carried_ + transforms + settings_.average - 1) / settings_.average;
    const std::uint64_t sum_bytes = settings_.size * sizeof(float);
    given.in.plane[0] = transformed;
    // By turns: one row may be finished with an old sum while another thread leaves a new one.
    given.in.plane[1] = sums_[0].ready(queue, sum_bytes);
    given.out.plane[0] = frame.out.plane[0];
    given.out.plane[1] = sums_[1].ready(queue, sum_bytes);
    power_kernel_.launch(queue, given,
                         radio_power_job{.transforms = transforms,
                                         .size = settings_.size,
                                         .average = settings_.average,
                                         .carried = carried_,
                                         .decibel = settings_.decibel ? 1U : 0U,
                                         .scale = static_cast<float>(scale_),
                                         .rows = static_cast<std::uint32_t>(rows)},
                         rows * settings_.size);
    std::swap(sums_[0], sums_[1]);
    frame.out.plane[0] += (carried_ + transforms) / settings_.average * sum_bytes;
    carried_ = static_cast<std::uint32_t>((carried_ + transforms) % settings_.average);
  }

  std::shared_ptr<Device> device_;
  Backend backend_;
  const Builtin& builtin_;
  RadioKernel window_kernel_, power_kernel_;
  KeptSamples kept_;
  DeviceTable window_;
  WorkMemory windowed_, transformed_;
  std::array<WorkMemory, 2> sums_;  ///< of the row that is not finished: read, written
  std::unique_ptr<Fft> fft_;
  SpectrumSettings settings_;
  double scale_ = 1.0;
  gpumap_view in_{};
  std::uint32_t carried_ = 0;  ///< transforms in that row
};

}  // namespace

std::unique_ptr<Program> make_spectrum(const std::shared_ptr<Device>& device, Backend backend) {
  return std::make_unique<Spectrum>(device, backend, *find_builtin("spectrum"));
}

}  // namespace gpumap
