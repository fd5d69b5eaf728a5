// SPDX-License-Identifier: MIT
// ddc: a mixer, a low-pass filter and a resampler. Two kernels a frame: radio_keep mixes the frame behind the samples
// kept from the one before, ddc_filter makes of those what is output.
//
// Output n stands at n * down / up input samples, up / down being output rate over input rate in lowest terms. The
// filter is designed at up times the input's rate; of its taps those of one phase, each up-th, meet input samples at
// any output. Where up is so large that all phases would take too much memory, there are fewer, and taps are
// interpolated between two of them.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numbers>
#include <numeric>

#include "gpumap/error.hpp"
#include "kernel/radio/radio_kernel.hpp"

namespace gpumap {
namespace {

// 16 MiB of filter: beyond that it no longer fits into a GPU's cache.
constexpr double max_filter_taps = 4194304.0;

// Of interpolation between two phases, against those of exactly this place.
constexpr double largest_error = 1e-6;
// What a launch does at most. lavapipe (Mesa 22.3) ends a thread's loops after 65,535 turns in all: a thread adds up
// its part of an output's taps, and makes one output.
constexpr std::uint64_t max_blocks = 65535;
constexpr std::uint32_t max_taps_a_thread = 1U << 15U;

struct DdcSettings {
  double frequency = 0.0;
  double rate = 0.0;
  double bandwidth = 0.0;
  double taps = 0.0;
  double attenuation = 80.0;
  bool around128 = false;
  double sky = 0.0;
  double center = 0.0;

  /// What becomes 0, in hertz from the middle of the input's band.
  [[nodiscard]] double shift() const { return sky != 0.0 ? sky - center : frequency; }
};

/// What a filter is made for.
struct DdcBand {
  std::uint32_t in_rate = 0, out_rate = 0;
  double bandwidth = 0.0, taps = 0.0, attenuation = 0.0;

  [[nodiscard]] bool operator==(const DdcBand&) const = default;
};

struct DdcPlan {
  std::uint32_t up = 1, down = 1;
  std::uint32_t taps = 1;    ///< of each phase
  std::uint32_t phases = 1;  ///< up, or fewer
  double cutoff = 0.5;       ///< in parts of the filter's rate, up times the input's
  double attenuation = 80.0;
};

template <typename... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) {
  throw Error(ErrorCode::invalid, "kernel ddc: " + fmt::format(text, std::forward<Args>(args)...));
}

DdcSettings read_settings(std::string_view text) {
  std::array<double, GPUMAP_MAX_PARAMS> values{};
  apply_parameters(*find_builtin("ddc"), text, values);
  const DdcSettings settings{values[0], values[1],        values[2], values[3],
                             values[4], values[5] != 0.0, values[6], values[7]};
  if (settings.rate < 0.0 || settings.rate > 2147483647.0 || settings.rate != std::floor(settings.rate)) {
    refuse("rate={} is not a whole number of samples a second: give one, or 0 for what downstream asks for",
           settings.rate);
  }
  if (settings.sky != 0.0 && settings.frequency != 0.0) {
    refuse("frequency={} and sky={}: give one of the two", settings.frequency, settings.sky);
  }
  if (settings.bandwidth < 0.0) refuse("bandwidth={} is negative: give hertz, or 0 for 0.8 * rate", settings.bandwidth);
  if (settings.taps < 0.0 || settings.taps > 65536.0 || settings.taps != std::floor(settings.taps)) {
    refuse("taps={} is not a whole number up to 65536: give one, or 0 for as many as attenuation needs", settings.taps);
  }
  if (settings.attenuation < 20.0 || settings.attenuation > 140.0) {
    refuse("attenuation={} is not between 20 and 140 dB", settings.attenuation);
  }
  return settings;
}

DdcBand band_of(const DdcSettings& settings, std::uint32_t in_rate, std::uint32_t out_rate) {
  if (out_rate == 0) refuse("no output rate: set the parameter rate, or caps with a rate after it");
  if (settings.rate != 0.0 && settings.rate != static_cast<double>(out_rate)) {
    refuse("rate={} where the caps after it say {}: a stream keeps its rate", settings.rate, out_rate);
  }
  if (out_rate > in_rate) {
    refuse("rate={} is above the input's {}: give a rate up to that, a down-converter adds nothing", out_rate, in_rate);
  }
  if (settings.sky != 0.0 && std::abs(settings.shift()) > in_rate / 2.0) {
    refuse(
        "sky={} is outside the input's band, {} Hz around {}: give a frequency of that band; where the centre is not "
        "right, caps with center-frequency or the parameter center say it",
        settings.sky, in_rate, settings.center);
  }
  if (std::abs(settings.shift()) > in_rate / 2.0) {
    refuse("frequency={} is outside the input's band of -{} to {} Hz", settings.frequency, in_rate / 2.0,
           in_rate / 2.0);
  }
  const double bandwidth = settings.bandwidth != 0.0 ? settings.bandwidth : 0.8 * out_rate;
  if (bandwidth >= out_rate) {
    refuse("bandwidth={} does not fit into rate={}: the filter's edges need room, give up to 0.95 of the rate",
           bandwidth, out_rate);
  }
  return {in_rate, out_rate, bandwidth, settings.taps, settings.attenuation};
}

/// As many phases as interpolation between them needs: its error is an 8th of the second derivative times the distance
/// squared, and that of a low-pass at most (2 pi cutoff)^2 times its own, whose magnitudes add up to some 3.
std::uint32_t interpolated_phases(const DdcBand& band) {
  const double error = std::min(largest_error, std::pow(10.0, -band.attenuation / 20.0) / 4.0);
  const double cutoff = 0.5 * band.out_rate / band.in_rate;
  return std::bit_ceil(static_cast<std::uint32_t>(2.0 * std::numbers::pi * cutoff * std::sqrt(0.4 / error)) + 1);
}

DdcPlan make_plan(const DdcBand& band) {
  const std::uint32_t common = std::gcd(band.in_rate, band.out_rate);
  DdcPlan plan{.up = band.out_rate / common, .down = band.in_rate / common, .attenuation = band.attenuation};
  // What passes is bandwidth / 2 on either side; what would fold into that begins at rate - bandwidth / 2.
  const double filter_rate = 1.0 * plan.up * band.in_rate;
  const double stop = (band.out_rate - band.bandwidth / 2.0) / filter_rate;
  plan.cutoff = band.out_rate / 2.0 / filter_rate;
  const auto choose = [&](double taps) {
    plan.phases = taps * plan.up <= max_filter_taps ? plan.up : interpolated_phases(band);
    if (taps * plan.phases > max_filter_taps) {
      refuse(
          "from {} to {} samples a second, a filter for bandwidth={} and attenuation={} takes {} phases of {} taps, "
          "more "
          "than {}: choose a smaller bandwidth or fewer taps",
          band.in_rate, band.out_rate, band.bandwidth, band.attenuation, plan.phases, taps, max_filter_taps);
    }
    plan.taps = static_cast<std::uint32_t>(taps);
  };
  if (band.taps != 0.0) {
    choose(band.taps);
    return plan;
  }
  // Kaiser's formulas are near: more, until it is what was asked for.
  for (int steps = 0; steps <= 40; ++steps) {
    plan.attenuation = band.attenuation + 0.25 * steps;
    choose(std::ceil(kaiser_taps(plan.attenuation, 2.0 * (stop - plan.cutoff)) / plan.up));
    const LowPass filter(1.0 * plan.up * plan.taps, plan.cutoff, plan.attenuation);
    if (filter.stop_band(stop) >= band.attenuation) break;
  }
  return plan;
}

/// The filter by phases, a row for each; where taps lie between two of them, with one more row at the end.
std::vector<float> filter_rows(const DdcPlan& plan) {
  const LowPass filter(1.0 * plan.up * plan.taps, plan.cutoff, plan.attenuation);
  const bool all = plan.phases == plan.up;
  const std::size_t rows = plan.phases + (all ? 0U : 1U);
  std::vector<double> made(rows * plan.taps);
  double sum = 0.0;
  for (std::size_t row = 0; row < rows; ++row) {
    const double phase = static_cast<double>(row) * plan.up / plan.phases;
    for (std::size_t k = 0; k < plan.taps; ++k) {
      sum += made[row * plan.taps + k] = filter.at(static_cast<double>(k * plan.up) + phase);
    }
  }
  if (!all) sum = filter.sum(std::size_t{plan.phases} * plan.taps);
  std::vector<float> table(made.size());
  std::transform(made.begin(), made.end(), table.begin(),
                 [&](double tap) { return static_cast<float>(tap * plan.up / sum); });
  return table;
}

class Ddc final : public Program {
 public:
  Ddc(const std::shared_ptr<Device>& device, Backend backend, const Builtin& builtin)
      : builtin_(builtin),
        sum_threads_(sum_threads(*device)),
        filter_(device, backend, builtin, "ddc_filter"),
        kept_(device, backend, builtin),
        rows_(device, backend) {}

  void set_params(std::string_view text) override {
    const DdcSettings settings = read_settings(text);
    if (in_.rate != 0) adopt(band_of(settings, in_.rate, out_rate_));
    // From here on it turns at another pace, and goes on from where it is.
    if (in_.rate != 0 && settings.shift() != settings_.shift()) {
      oscillator_ = Oscillator(settings.shift(), in_.rate, samples_, oscillator_.phase(samples_));
    }
    settings_ = settings;
  }

  void begin(const gpumap_view& in, const gpumap_view& out) override { begin(settings_, in, out); }
  void begin_with(std::string_view params, const gpumap_view& in, const gpumap_view& out) override {
    begin(read_settings(params), in, out);
  }

  [[nodiscard]] std::optional<std::size_t> output_bytes(std::size_t input_bytes) const override {
    const std::uint64_t samples = iq_samples(in_, input_bytes);
    return (outputs_of(samples_ + samples) - outputs_of(samples_)) * 2 * sizeof(float);
  }

  [[nodiscard]] bool remembers() const override { return true; }
  [[nodiscard]] std::uint64_t gathers() const override { return (plan_.down + plan_.up - 1) / plan_.up; }

  void run(Queue& queue, const gpumap_frame& frame) override {
    const std::uint64_t samples = iq_samples(in_, frame.in.bytes);
    const std::uint64_t history = plan_.taps - 1;
    const std::uint64_t before = outputs_of(samples_);
    const std::uint64_t outputs = outputs_of(samples_ + samples) - before;
    gpumap_frame given = frame;
    given.in.format = sample_format(in_.format, settings_.around128);
    kept_.lend(given);
    const std::uint64_t line =
        kept_.keep(queue, given, -static_cast<std::int64_t>(history), history + samples, oscillator_.at(samples_));
    const std::uint64_t first = first_output(samples_, plan_.up, plan_.down);
    given.in.plane[0] = line + 2 * sizeof(float) * history;
    const std::uint64_t max_outputs = max_blocks * (RADIO_BLOCK_THREADS / sum_threads_);
    const std::uint32_t max_taps = max_taps_a_thread * sum_threads_;
    for (std::uint64_t done = 0; done < outputs; done += max_outputs) {
      const std::uint64_t some = std::min(outputs - done, max_outputs);
      given.in.plane[1] = rows_.ready(queue);
      given.out.plane[0] = frame.out.plane[0] + done * 2 * sizeof(float);
      for (std::uint32_t tap = 0; tap < plan_.taps; tap += max_taps) {
        filter_.launch(queue, given,
                       radio_ddc_job{.outputs = some,
                                     .phase = first + done * plan_.down,
                                     .up = plan_.up,
                                     .down = plan_.down,
                                     .taps = plan_.taps,
                                     .phases = plan_.phases,
                                     .begin = tap,
                                     .end = std::min(plan_.taps, tap + max_taps),
                                     .sum_threads = sum_threads_,
                                     .reserved = 0},
                       some * sum_threads_);
      }
    }
    samples_ += samples;
  }

 private:
  void begin(const DdcSettings& settings, const gpumap_view& in, const gpumap_view& out) {
    check_iq(builtin_, in);
    const std::uint32_t out_rate = out.rate != 0 ? out.rate : static_cast<std::uint32_t>(settings.rate);
    adopt(band_of(settings, in.rate, out_rate));
    settings_ = settings;
    in_ = in;
    out_rate_ = out_rate;
    oscillator_ = Oscillator(settings_.shift(), in.rate);
    kept_.restart();
    samples_ = 0;
  }

  void adopt(const DdcBand& band) {
    if (band == band_) return;
    const DdcPlan plan = make_plan(band);
    rows_.set(filter_rows(plan));
    plan_ = plan;
    band_ = band;
  }

  /// Outputs that stand before sample number `samples`: the ceiling of samples * up / down, of any stream's length.
  [[nodiscard]] std::uint64_t outputs_of(std::uint64_t samples) const {
    return outputs_before(samples, plan_.up, plan_.down);
  }

  const Builtin& builtin_;
  const std::uint32_t sum_threads_;
  RadioKernel filter_;
  KeptSamples kept_;
  DeviceTable rows_;
  DdcSettings settings_;
  DdcBand band_;  ///< of plan_
  DdcPlan plan_;
  Oscillator oscillator_;
  gpumap_view in_{};
  std::uint32_t out_rate_ = 0;
  std::uint64_t samples_ = 0;  ///< of the stream so far
};

}  // namespace

std::unique_ptr<Program> make_ddc(const std::shared_ptr<Device>& device, Backend backend) {
  return std::make_unique<Ddc>(device, backend, *find_builtin("ddc"));
}

}  // namespace gpumap
