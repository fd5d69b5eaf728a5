// SPDX-License-Identifier: MIT
// channelizer: a polyphase filter bank. Three kernels a frame: channelizer_fold reads the samples in place and filters
// them, the FFT writes the channels to the output, and radio_keep keeps what the filter still needs.
#include <fmt/format.h>

#include <array>
#include <cmath>

#include "gpumap/error.hpp"
#include "kernel/radio/fft/fft.hpp"
#include "kernel/radio/radio_kernel.hpp"

namespace gpumap {
namespace {

constexpr std::uint32_t max_channels = 65536;

struct ChannelizerSettings {
  std::uint32_t channels = 16;
  std::uint32_t taps = 12;  ///< of each channel
  std::uint32_t hop = 16;   ///< input samples from one step to the next
  double attenuation = 80.0;
  bool around128 = false;

  [[nodiscard]] bool operator==(const ChannelizerSettings&) const = default;
};

template <typename... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) {
  throw Error(ErrorCode::invalid, "kernel channelizer: " + fmt::format(text, std::forward<Args>(args)...));
}

ChannelizerSettings read_settings(std::string_view text) {
  std::array<double, GPUMAP_MAX_PARAMS> values{};
  apply_parameters(*find_builtin("channelizer"), text, values);
  const double channels = values[0], taps = values[1], oversample = values[2], attenuation = values[3];
  if (!(channels >= 2.0 && channels <= max_channels) || channels != std::floor(channels)) {
    refuse("channels={} is not a whole number from 2 to {}", channels, max_channels);
  }
  if (taps < 1.0 || taps > 64.0 || taps != std::floor(taps)) {
    refuse("taps={} is not a whole number from 1 to 64: taps of the filter for each channel", taps);
  }
  if (oversample != 1.0 && oversample != 2.0) {
    refuse("oversample={} is neither 1 (critically sampled) nor 2 (twice that)", oversample);
  }
  if (std::fmod(channels, oversample) != 0.0) {
    refuse("channels={} is odd, and oversample=2 moves on by half of them: take {}, or oversample=1", channels,
           channels < max_channels ? channels + 1 : channels - 1);
  }
  if (attenuation < 20.0 || attenuation > 140.0) refuse("attenuation={} is not between 20 and 140 dB", attenuation);
  return {.channels = static_cast<std::uint32_t>(channels),
          .taps = static_cast<std::uint32_t>(taps),
          .hop = static_cast<std::uint32_t>(channels / oversample),
          .attenuation = attenuation,
          .around128 = values[4] != 0.0};
}

class Channelizer final : public Program {
 public:
  Channelizer(std::shared_ptr<Device> device, Backend backend, const Builtin& builtin)
      : device_(std::move(device)),
        backend_(backend),
        builtin_(builtin),
        fold_(device_, backend, builtin, "channelizer_fold"),
        kept_(device_, backend, builtin),
        filter_(device_, backend),
        folded_(device_, backend) {}

  void set_params(std::string_view text) override {
    const ChannelizerSettings settings = read_settings(text);
    if (in_.rate != 0 && settings != settings_) {
      refuse("its parameters hold for a whole stream: change them where it is stopped");
    }
    settings_ = settings;
  }

  void begin(const gpumap_view& in, const gpumap_view& /*out*/) override {
    check_iq(builtin_, in);
    if (!fft_) fft_ = make_fft(device_, backend_, builtin_, settings_.channels);  // set_params() no longer changes it
    // Half way down where two channels meet.
    const auto filter = design_low_pass(std::size_t{settings_.channels} * settings_.taps, 0.5 / settings_.channels,
                                        settings_.attenuation);
    filter_.set({filter.begin(), filter.end()});
    in_ = in;
    kept_.restart();
    samples_ = 0;
  }

  [[nodiscard]] std::optional<std::size_t> output_bytes(std::size_t input_bytes) const override {
    return steps_in(iq_samples(in_, input_bytes)) * settings_.channels * 2 * sizeof(float);
  }

  [[nodiscard]] bool remembers() const override { return true; }
  [[nodiscard]] std::uint64_t gathers() const override { return settings_.hop; }

  void run(Queue& queue, const gpumap_frame& frame) override {
    const std::uint64_t samples = iq_samples(in_, frame.in.bytes);
    const std::uint64_t steps = steps_in(samples);
    gpumap_frame given = frame;
    given.in.format = sample_format(in_.format, settings_.around128);
    kept_.lend(given);
    if (steps != 0) {
      const std::uint64_t values = steps * settings_.channels;
      // A step is made when its last sample is there.
      const std::uint64_t newest = (samples_ / settings_.hop + 1) * settings_.hop - 1;
      const std::uint64_t folded = folded_.ready(queue, values * 2 * sizeof(float));
      given.in.plane[1] = filter_.ready(queue);
      given.out.plane[0] = folded;
      fold_.launch(queue, given,
                   radio_fold_job{.newest = static_cast<std::int64_t>(newest - samples_),
                                  .steps = steps,
                                  .channels = settings_.channels,
                                  .hop = settings_.hop,
                                  .taps = settings_.taps,
                                  .turn = static_cast<std::uint32_t>(newest % settings_.channels)},
                   values);
      fft_->forward(queue, folded, frame.out.plane[0], steps);
    }
    const std::uint64_t history = std::uint64_t{settings_.channels} * settings_.taps - 1;
    kept_.keep(queue, given, static_cast<std::int64_t>(samples) - static_cast<std::int64_t>(history), history);
    samples_ += samples;
  }

 private:
  [[nodiscard]] std::uint64_t steps_in(std::uint64_t samples) const {
    return (samples_ + samples) / settings_.hop - samples_ / settings_.hop;
  }

  std::shared_ptr<Device> device_;
  Backend backend_;
  const Builtin& builtin_;
  RadioKernel fold_;
  KeptSamples kept_;
  DeviceTable filter_;
  WorkMemory folded_;
  std::unique_ptr<Fft> fft_;
  ChannelizerSettings settings_;
  gpumap_view in_{};
  std::uint64_t samples_ = 0;  ///< of the stream so far
};

}  // namespace

std::unique_ptr<Program> make_channelizer(const std::shared_ptr<Device>& device, Backend backend) {
  return std::make_unique<Channelizer>(device, backend, *find_builtin("channelizer"));
}

}  // namespace gpumap
