// SPDX-License-Identifier: MIT
// fm, am and ssb: a level for each sample (how far the phase turned, how strong it is; ssb: the sample itself), and a
// filter that makes the sound of those at its rate. As in ddc output n stands at n * down / up samples. What is kept is
// the samples that the filter reaches back to: levels are made of them anew, so that no frame's end shows.
//
// The filter of fm has the de-emphasis in it, a first-order low-pass, until that is below what float32 shows. That of
// ssb is a low-pass turned to the middle of the sideband, of whose complex output the real part is the sound.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <numbers>
#include <numeric>

#include "gpumap/error.hpp"
#include "kernel/radio/radio_kernel.hpp"

namespace gpumap {
namespace {

constexpr double attenuation = 70.0;  // dB, of what is outside the sound's band
constexpr double max_filter_taps = 1048576.0;
constexpr double max_phase_taps = 65536.0;
// In Hz: a level is no float32 any more where it is far less.
constexpr double least_deviation = 0.001;
// De-emphasis is followed for so many of its time constants: e^-16 is the last bit of float32.
constexpr double time_constants = 16.0;
// What a launch does at most, as in ddc.
constexpr std::uint64_t max_blocks = 65535;

enum class Modulation { fm, am, ssb };

struct SoundSettings {
  double rate = 0.0;
  double deviation = 0.0;   ///< fm
  double deemphasis = 0.0;  ///< fm: microseconds
  double lowest = 0.0, highest = 0.0;
  bool lsb = false;
  bool around128 = false;
};

struct SoundFilter {
  std::uint32_t up = 1, down = 1;
  std::uint32_t taps = 1;     ///< of each phase
  std::vector<float> rows{};  ///< I and Q of each tap, by phases
};

class Demodulator final : public Program {
 public:
  Demodulator(const std::shared_ptr<Device>& device, Backend backend, Modulation modulation, const char* name,
              const char* level)
      : modulation_(modulation),
        builtin_(*find_builtin(name)),
        sum_threads_(sum_threads(*device)),
        filter_kernel_(device, backend, builtin_, "audio_filter"),
        kept_(device, backend, builtin_),
        levels_(device, backend),
        rows_(device, backend) {
    if (level != nullptr) level_.emplace(device, backend, builtin_, level);
  }

  void set_params(std::string_view text) override {
    const SoundSettings settings = read(text);
    if (in_.rate != 0) adopt(settings, in_.rate, out_rate_);
    settings_ = settings;
  }

  void begin(const gpumap_view& in, const gpumap_view& out) override { begin(settings_, in, out); }
  void begin_with(std::string_view params, const gpumap_view& in, const gpumap_view& out) override {
    begin(read(params), in, out);
  }

  [[nodiscard]] std::optional<std::size_t> output_bytes(std::size_t input_bytes) const override {
    const std::uint64_t samples = iq_samples(in_, input_bytes);
    return (outputs_of(samples_ + samples) - outputs_of(samples_)) * sizeof(float);
  }

  [[nodiscard]] bool remembers() const override { return true; }
  [[nodiscard]] std::uint64_t gathers() const override { return (filter_.down + filter_.up - 1) / filter_.up; }

  void run(Queue& queue, const gpumap_frame& frame) override {
    const std::uint64_t samples = iq_samples(in_, frame.in.bytes);
    const std::uint64_t outputs = outputs_of(samples_ + samples) - outputs_of(samples_);
    gpumap_frame given = frame;
    given.in.format = sample_format(in_.format, settings_.around128);
    kept_.lend(given);
    // One more than the filter has taps: an angle is between two samples.
    const std::uint64_t history = filter_.taps;
    constexpr std::uint64_t sample_bytes = 2 * sizeof(float);
    std::uint64_t newest =
        kept_.keep(queue, given, -static_cast<std::int64_t>(history), history + samples) + sample_bytes * history;
    if (level_ && outputs != 0) {
      const std::uint64_t count = history - 1 + samples;
      given.in.plane[0] = newest - sample_bytes * history;
      given.out.plane[0] = levels_.ready(queue, count * sample_bytes);
      level_->launch(queue, given, radio_level_job{.count = count, .scale = scale(), .reserved = 0}, count);
      newest = given.out.plane[0] + sample_bytes * (history - 1);
    }
    const std::uint64_t first = first_output(samples_, filter_.up, filter_.down);
    given.in.plane[0] = newest;
    const std::uint64_t max_outputs = max_blocks * (RADIO_BLOCK_THREADS / sum_threads_);
    for (std::uint64_t done = 0; done < outputs; done += max_outputs) {
      const std::uint64_t some = std::min(outputs - done, max_outputs);
      given.in.plane[1] = rows_.ready(queue);
      given.out.plane[0] = frame.out.plane[0] + done * sizeof(float);
      filter_kernel_.launch(queue, given,
                            radio_audio_job{.outputs = some,
                                            .phase = first + done * filter_.down,
                                            .up = filter_.up,
                                            .down = filter_.down,
                                            .taps = filter_.taps,
                                            .sum_threads = sum_threads_},
                            some * sum_threads_);
    }
    samples_ += samples;
  }

 private:
  void begin(const SoundSettings& settings, const gpumap_view& in, const gpumap_view& out) {
    check_iq(builtin_, in);
    if (in.channels != 2) refuse("it takes I and Q, two channels: put ddc before it, which gives them");
    const std::uint32_t out_rate = out.rate != 0 ? out.rate : static_cast<std::uint32_t>(settings.rate);
    adopt(settings, in.rate, out_rate);
    settings_ = settings;
    in_ = in;
    out_rate_ = out_rate;
    kept_.restart();
    samples_ = 0;
  }

  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) const {
    throw Error(ErrorCode::invalid,
                fmt::format("kernel {}: ", builtin_.name) + fmt::format(text, std::forward<Args>(args)...));
  }

  [[nodiscard]] SoundSettings read(std::string_view text) const {
    std::array<double, GPUMAP_MAX_PARAMS> values{};
    apply_parameters(builtin_, text, values);
    SoundSettings made{.rate = values[0]};
    if (modulation_ == Modulation::fm) {
      made.deviation = values[1];
      made.deemphasis = values[2];
      made.highest = values[3];
      made.around128 = values[4] != 0.0;
      if (!(made.deviation >= least_deviation)) {
        refuse("deviation={} is less than {} Hz: give hertz, 75000 for broadcast", made.deviation, least_deviation);
      }
      if (!(made.deemphasis >= 0.0 && made.deemphasis <= 1000.0)) {
        refuse("deemphasis={} is not between 0 and 1000 us: give 50, 75 in America, 0 for none", made.deemphasis);
      }
    } else {
      made.lowest = values[1];
      made.highest = values[2];
      made.lsb = modulation_ == Modulation::ssb && values[3] != 0.0;
      made.around128 = values[modulation_ == Modulation::ssb ? 4 : 3] != 0.0;
      if (!(made.lowest > 0.0)) refuse("lowest={} is not above 0 Hz", made.lowest);
    }
    if (!(made.highest > made.lowest)) refuse("highest={} is not above lowest, {} Hz", made.highest, made.lowest);
    if (made.rate < 0.0 || made.rate > 2147483647.0 || made.rate != std::floor(made.rate)) {
      refuse("rate={} is not a whole number of samples a second: give one, or 0 for what downstream asks for",
             made.rate);
    }
    return made;
  }

  void adopt(const SoundSettings& settings, std::uint32_t in_rate, std::uint32_t out_rate) {
    SoundFilter made = design(settings, in_rate, out_rate);
    rows_.set(std::move(made.rows));
    filter_ = std::move(made);
  }

  [[nodiscard]] SoundFilter design(const SoundSettings& settings, std::uint32_t in_rate, std::uint32_t out_rate) const {
    if (out_rate == 0) refuse("no output rate: set the parameter rate, or caps with a rate after it");
    if (settings.rate != 0.0 && settings.rate != static_cast<double>(out_rate)) {
      refuse("rate={} where the caps after it say {}: a stream keeps its rate", settings.rate, out_rate);
    }
    if (out_rate > in_rate) refuse("rate={} is above the input's {}: give a rate up to that", out_rate, in_rate);
    if (settings.deviation > in_rate / 2.0) {
      refuse("deviation={} does not fit into the input's rate of {}: put ddc before it with a larger rate",
             settings.deviation, in_rate);
    }
    // What would fold into the band begins at rate - highest.
    const double stop = std::min(1.25 * settings.highest, out_rate - settings.highest);
    if (stop <= settings.highest) {
      refuse("highest={} takes a rate above {}: this one is {}", settings.highest, 2.0 * settings.highest, out_rate);
    }
    const std::uint32_t common = std::gcd(in_rate, out_rate);
    SoundFilter made{.up = out_rate / common, .down = in_rate / common};
    const double filter_rate = 1.0 * made.up * in_rate;
    const double edge =
        settings.lowest != 0.0 ? std::min(stop - settings.highest, settings.lowest) : stop - settings.highest;
    const double sound_taps = std::ceil(kaiser_taps(attenuation, edge / filter_rate) / made.up) * made.up;
    const double tail = time_constants * settings.deemphasis * 1e-6 * filter_rate;
    const double phase_taps = std::ceil((sound_taps + tail) / made.up);
    if (phase_taps > max_phase_taps || phase_taps * made.up > max_filter_taps) {
      refuse(
          "from {} to {} samples a second its filter takes {} phases of {} taps, more than {} of {} or {} in all: put "
          "ddc before it, with a rate that is a multiple of {}",
          in_rate, out_rate, made.up, phase_taps, made.up, max_phase_taps, max_filter_taps, out_rate);
    }
    made.taps = static_cast<std::uint32_t>(phase_taps);
    const auto taps = design_taps(settings, filter_rate, sound_taps, std::size_t{made.taps} * made.up,
                                  settings.highest + (stop - settings.highest) / 2.0);
    made.rows.reserve(2 * taps.size());
    for (std::size_t phase = 0; phase < made.up; ++phase) {
      for (std::size_t k = 0; k < made.taps; ++k) {
        const std::complex<double> tap = taps[k * made.up + phase] * static_cast<double>(made.up);
        made.rows.push_back(static_cast<float>(tap.real()));
        made.rows.push_back(static_cast<float>(tap.imag()));
      }
    }
    return made;
  }

  /// `all` taps, of which the first `sound_taps` are the filter's, the rest the de-emphasis' end. Of unit gain.
  [[nodiscard]] std::vector<std::complex<double>> design_taps(const SoundSettings& settings, double filter_rate,
                                                              double sound_taps, std::size_t all, double cutoff) const {
    const auto length = static_cast<std::size_t>(sound_taps);
    std::vector<std::complex<double>> made(all);
    if (modulation_ == Modulation::ssb) {
      // From half below lowest, where nothing of the other sideband is left, to the same above highest.
      const double low = settings.lowest / 2.0;
      const auto filter = design_low_pass(length, (cutoff - low) / 2.0 / filter_rate, attenuation);
      const double turn = 2.0 * std::numbers::pi * (cutoff + low) / 2.0 / filter_rate * (settings.lsb ? -1.0 : 1.0);
      for (std::size_t i = 0; i < length; ++i) made[i] = filter[i] * std::polar(1.0, turn * static_cast<double>(i));
      return made;
    }
    const auto filter = design_low_pass(length, cutoff / filter_rate, attenuation);
    std::copy(filter.begin(), filter.end(), made.begin());
    if (modulation_ == Modulation::am) {
      // Less what is below `lowest`, the carrier.
      const auto below = design_low_pass(length, settings.lowest / 2.0 / filter_rate, attenuation);
      for (std::size_t i = 0; i < length; ++i) made[i] -= below[i];
      return made;
    }
    const double time = settings.deemphasis * 1e-6 * filter_rate;
    const double keeps = time != 0.0 ? std::exp(-1.0 / time) : 0.0;
    std::complex<double> value = 0.0;
    for (std::complex<double>& tap : made) tap = value = keeps * value + (1.0 - keeps) * tap;
    return made;
  }

  /// Of a level.
  [[nodiscard]] float scale() const noexcept {
    if (modulation_ == Modulation::am) return 1.0F;
    return static_cast<float>(in_.rate / (2.0 * std::numbers::pi * settings_.deviation));
  }

  /// Outputs that stand before sample number `samples`, of any stream's length.
  [[nodiscard]] std::uint64_t outputs_of(std::uint64_t samples) const {
    return outputs_before(samples, filter_.up, filter_.down);
  }

  const Modulation modulation_;
  const Builtin& builtin_;
  std::optional<RadioKernel> level_;
  const std::uint32_t sum_threads_;
  RadioKernel filter_kernel_;
  KeptSamples kept_;
  WorkMemory levels_;
  DeviceTable rows_;
  SoundSettings settings_;
  SoundFilter filter_;
  gpumap_view in_{};
  std::uint32_t out_rate_ = 0;
  std::uint64_t samples_ = 0;  ///< of the stream so far
};

}  // namespace

std::unique_ptr<Program> make_fm(const std::shared_ptr<Device>& device, Backend backend) {
  return std::make_unique<Demodulator>(device, backend, Modulation::fm, "fm", "fm_angle");
}

std::unique_ptr<Program> make_am(const std::shared_ptr<Device>& device, Backend backend) {
  return std::make_unique<Demodulator>(device, backend, Modulation::am, "am", "am_envelope");
}

std::unique_ptr<Program> make_ssb(const std::shared_ptr<Device>& device, Backend backend) {
  return std::make_unique<Demodulator>(device, backend, Modulation::ssb, "ssb", nullptr);
}

}  // namespace gpumap
