// SPDX-License-Identifier: MIT
// spectrum: averaged power spectra. The FFT and spectrum_power a frame, and spectrum_rows before them where samples are
// not float32 IQ that lie in the frame row by row; the window, a
// sum of cosines, costs no pass of its own: spectrum_power applies it to the spectrum. Then radio_keep where the frame
// leaves samples for the next transform.
#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <numbers>

#include "gpumap/error.hpp"
#include "kernel/builtin/sums.h"
#include "kernel/radio/fft/fft.hpp"
#include "kernel/radio/radio_kernel.hpp"

namespace gpumap {
namespace {

// Transforms at a time: 32 MiB between two kernels stay in the cache of a large GPU, and in reason with overlap.
constexpr std::uint64_t max_values = 1U << 22U;
// Transforms of a row at a time. One has up to 5 turns of loops in spectrum_power, and lavapipe (Mesa 22.3) ends a
// thread's loops after 65,535 turns in all.
constexpr std::uint64_t max_of_a_row = 8192;
constexpr std::uint64_t sample_bytes = 2 * sizeof(float);

enum class Window { rectangle, hann, hamming, blackman_harris };

struct SpectrumSettings {
  std::uint32_t size = 1024;
  std::uint32_t hop = 1024;
  std::uint32_t average = 1;
  Window window = Window::hann;
  bool decibel = false;
  bool around128 = false;

  [[nodiscard]] bool operator==(const SpectrumSettings&) const = default;
};

template <typename... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) {
  throw Error(ErrorCode::invalid, "kernel spectrum: " + fmt::format(text, std::forward<Args>(args)...));
}

SpectrumSettings read_settings(std::string_view text) {
  std::array<double, GPUMAP_MAX_PARAMS> values{};
  apply_parameters(*find_builtin("spectrum"), text, values);
  const double size = values[0], overlap = values[1], average = values[2], window = values[3], decibel = values[4];
  SpectrumSettings settings;
  if (size < 2.0 || size > Fft::max_points || size != std::floor(size) ||
      !std::has_single_bit(static_cast<std::uint32_t>(size))) {
    refuse("size={} is not a power of two from 2 to {}", size, Fft::max_points);
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
  settings.around128 = values[5] != 0.0;
  return settings;
}

/// Sums of cosines over a whole period, a[0] - a[1] cos(x) + a[2] cos(2 x) - a[3] cos(3 x): the periodic form, which
/// belongs to a transform.
constexpr std::array<std::array<double, 4>, 4> windows{
    {{1.0, 0.0, 0.0, 0.0}, {0.5, 0.5, 0.0, 0.0}, {0.54, 0.46, 0.0, 0.0}, {0.35875, 0.48829, 0.14128, 0.01168}}};

/// The sum of a window's values. Cosines cancel out, but for one that is at its peak at each point.
double sum_of(const std::array<double, 4>& a, std::uint32_t size) {
  double sum = 0.0;
  for (std::uint32_t i = 0; i < size; ++i) {
    const double x = 2.0 * std::numbers::pi * i / size;
    sum += a[0] - a[1] * std::cos(x) + a[2] * std::cos(2.0 * x) - a[3] * std::cos(3.0 * x);
  }
  return sum;
}

class Spectrum final : public Program {
 public:
  Spectrum(std::shared_ptr<Device> device, Backend backend, const Builtin& builtin)
      : device_(std::move(device)),
        backend_(backend),
        builtin_(builtin),
        rows_kernel_(device_, backend, builtin, "spectrum_rows"),
        power_kernel_(device_, backend, builtin, "spectrum_power"),
        kept_(device_, backend, builtin),
        rows_(device_, backend),
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
    if (!fft_) fft_ = make_fft(device_, backend_, builtin_, settings_.size);  // set_params() changes no size any more
    // A tone of full scale in the middle of a bin has power 1, whatever size and window.
    const double sum = sum_of(windows.at(static_cast<std::size_t>(settings_.window)), settings_.size);
    scale_ = 1.0 / (sum * sum * settings_.average);
    in_ = in;
    kept_.restart();
    carried_ = 0;
  }

  [[nodiscard]] std::optional<std::size_t> output_bytes(std::size_t input_bytes) const override {
    const std::uint64_t transforms = transforms_in(kept_.count() + iq_samples(in_, input_bytes));
    return (carried_ + transforms) / settings_.average * settings_.size * sizeof(float);
  }

  [[nodiscard]] bool remembers() const override { return true; }
  [[nodiscard]] std::uint64_t gathers() const override {
    return settings_.size + std::uint64_t{settings_.average - 1} * settings_.hop;
  }

  void run(Queue& queue, const gpumap_frame& frame) override {
    const std::uint64_t samples = kept_.count() + iq_samples(in_, frame.in.bytes);
    const std::uint64_t transforms = transforms_in(samples);
    gpumap_frame given = frame;
    given.in.format = sample_format(in_.format, settings_.around128);
    kept_.lend(given);
    const auto oldest = -static_cast<std::int64_t>(kept_.count());
    for (std::uint64_t done = 0; done < transforms;) {
      const std::uint64_t some = std::min(at_a_time(), transforms - done);
      transform(queue, given, oldest + static_cast<std::int64_t>(done * settings_.hop), some);
      done += some;
    }
    const std::uint64_t used = transforms * settings_.hop;
    kept_.keep(queue, given, oldest + static_cast<std::int64_t>(used), samples - used);
  }

 private:
  [[nodiscard]] std::uint64_t transforms_in(std::uint64_t samples) const {
    return samples < settings_.size ? 0 : (samples - settings_.size) / settings_.hop + 1;
  }

  /// How many to make next, at most.
  [[nodiscard]] std::uint64_t at_a_time() const {
    const std::uint64_t most = std::max<std::uint64_t>(max_values / settings_.size, 1);
    return settings_.average > max_of_a_row ? std::min(most, max_of_a_row) : most;
  }

  /// Where the FFT finds its samples as float32, row by row: in the frame, if they lie there so, else in rows_.
  std::uint64_t rows_of(Queue& queue, const gpumap_frame& frame, std::int64_t first, std::uint64_t transforms) {
    if (in_.format == GPUMAP_FORMAT_F32 && in_.channels == 2 && first >= 0 && frame.in.plane[0] % sample_bytes == 0 &&
        (transforms == 1 || settings_.hop == settings_.size)) {
      return frame.in.plane[0] + static_cast<std::uint64_t>(first) * sample_bytes;
    }
    const std::uint64_t values = transforms * settings_.size;
    gpumap_frame given = frame;
    given.out.plane[0] = rows_.ready(queue, values * sample_bytes);
    rows_kernel_.launch(
        queue, given,
        radio_rows_job{.first = first, .transforms = transforms, .size = settings_.size, .hop = settings_.hop}, values);
    return given.out.plane[0];
  }

  [[nodiscard]] const std::array<double, 4>& window() const {
    return windows.at(static_cast<std::size_t>(settings_.window));
  }

  [[nodiscard]] radio_power_job power_job(std::uint64_t transforms, std::uint64_t rows) const {
    radio_power_job job{.transforms = transforms,
                        .size = settings_.size,
                        .average = settings_.average,
                        .carried = carried_,
                        .decibel = settings_.decibel ? 1U : 0U,
                        .scale = static_cast<float>(scale_),
                        .rows = static_cast<std::uint32_t>(rows),
                        .terms = 0,
                        .window = {}};
    for (const double value : window()) {
      if (value == 0.0) break;
      // A cosine is half of each of two neighbours.
      job.window[job.terms] = static_cast<float>(job.terms == 0 ? value : value / 2.0);
      ++job.terms;
    }
    return job;
  }

  /// Rows go to frame.out, which is moved on behind them.
  void transform(Queue& queue, gpumap_frame& frame, std::int64_t first, std::uint64_t transforms) {
    const std::uint64_t rows = (carried_ + transforms + settings_.average - 1) / settings_.average;
    const std::uint64_t row_bytes = settings_.size * sizeof(float);
    const std::uint64_t sum_bytes = 3 * row_bytes;
    gpumap_frame given = frame;
    // By turns: one row may be finished with an old sum while another thread leaves a new one.
    given.in.plane[1] = sums_[0].ready(queue, sum_bytes);
    given.out.plane[1] = sums_[1].ready(queue, sum_bytes);
    given.in.plane[0] = transformed_.ready(queue, transforms * settings_.size * sample_bytes);
    fft_->forward(queue, rows_of(queue, frame, first, transforms), given.in.plane[0], transforms);
    power_kernel_.launch(queue, given, power_job(transforms, rows), rows * settings_.size);
    std::swap(sums_[0], sums_[1]);
    frame.out.plane[0] += (carried_ + transforms) / settings_.average * row_bytes;
    carried_ = static_cast<std::uint32_t>((carried_ + transforms) % settings_.average);
  }

  std::shared_ptr<Device> device_;
  Backend backend_;
  const Builtin& builtin_;
  RadioKernel rows_kernel_, power_kernel_;
  KeptSamples kept_;
  WorkMemory rows_, transformed_;
  std::array<WorkMemory, 2> sums_;  ///< of the row that is not finished: read, written
  std::unique_ptr<Fft> fft_;        ///< from the first begin() on
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
