// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "gpumap/device.hpp"
#include "gpumap/kernel.hpp"
#include "gpumap/program.hpp"
#include "gpumap/queue.hpp"
#include "kernel/kernel_memory.hpp"
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

/// How an oscillator turns the samples of a frame: see radio_keep_job. Start and step 0: not at all.
struct OscillatorTurn {
  std::uint64_t start = 0;
  std::uint64_t position = 0;
  std::uint64_t period = 1;
  std::uint64_t step = 0;
};

/// exp(-2 pi i frequency t), sampled. From one frequency to the next its phase is a function of the sample's number
/// alone, and exact: frequency and rate are whole numbers of nanohertz-like units (2^-30 Hz), so that it repeats after
/// a whole number of samples, the period. Within one the phase counts in 2^-64 turns, and is wrong by at most period *
/// 2^-65.
class Oscillator {
 public:
  Oscillator() = default;
  /// `start`: its phase at the stream's sample `first`, in 2^-64 turns.
  Oscillator(double frequency, std::uint32_t rate, std::uint64_t first = 0, std::uint64_t start = 0);
  /// From the stream's sample `number` on, which is not before `first`.
  [[nodiscard]] OscillatorTurn at(std::uint64_t number) const noexcept {
    return {.start = start_, .position = (number - first_) % period_, .period = period_, .step = step_};
  }
  /// In 2^-64 turns.
  [[nodiscard]] std::uint64_t phase(std::uint64_t number) const noexcept {
    return start_ + (number - first_) % period_ * step_;
  }

 private:
  std::uint64_t first_ = 0;
  std::uint64_t start_ = 0;
  std::uint64_t period_ = 1;
  std::uint64_t step_ = 0;
};

/// Numbers that were computed on the CPU: filters, twiddle factors.
class DeviceTable {
 public:
  DeviceTable(std::shared_ptr<Device> device, Backend backend)
      : device_(device), backend_(backend), memory_(std::move(device), backend) {}
  void set(std::vector<float> values) { values_ = std::move(values), stale_ = true; }
  /// Its address for what is launched on `queue` from here on: new numbers take their place behind what was launched
  /// with the old ones. Throws QueueCancelled, Error(no_memory | device_lost).
  [[nodiscard]] std::uint64_t ready(Queue& queue);

 private:
  struct Staging {
    std::shared_ptr<Mapping> memory;
    Fence copied;
  };

  std::shared_ptr<Device> device_;
  Backend backend_;
  WorkMemory memory_;
  std::vector<Staging> staging_;  ///< from which the GPU may still copy
  std::vector<float> values_;
  bool stale_ = false;
};

/// The samples that are kept from frame to frame, as float32 I and Q. Two pieces of memory by turns: what is kept next
/// is made of what was kept before.
class KeptSamples {
 public:
  KeptSamples(const std::shared_ptr<Device>& device, Backend backend, const Builtin& builtin)
      : kernel_(device, backend, builtin, "radio_keep"), memory_{{{device, backend}, {device, backend}}} {}

  /// A stream begins: there are none.
  void restart() noexcept { count_ = 0; }
  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  /// Tells the kernels of this frame where they lie.
  void lend(gpumap_frame& frame) const;
  /// Keep `count` samples from number `first` on (see radio.h); those of this frame turned by `turn`.
  /// `frame` was lent what is kept so far. The address of the new ones. Throws as WorkMemory::ready().
  std::uint64_t keep(Queue& queue, const gpumap_frame& frame, std::int64_t first, std::uint64_t count,
                     const OscillatorTurn& turn = {});

 private:
  RadioKernel kernel_;
  std::array<WorkMemory, 2> memory_;
  std::size_t current_ = 0;
  std::uint64_t count_ = 0;
};

// The programs of the radio built-ins, for Builtin::make_program.
[[nodiscard]] std::unique_ptr<Program> make_ddc(const std::shared_ptr<Device>& device, Backend backend);
[[nodiscard]] std::unique_ptr<Program> make_fm(const std::shared_ptr<Device>& device, Backend backend);
[[nodiscard]] std::unique_ptr<Program> make_am(const std::shared_ptr<Device>& device, Backend backend);
[[nodiscard]] std::unique_ptr<Program> make_ssb(const std::shared_ptr<Device>& device, Backend backend);
[[nodiscard]] std::unique_ptr<Program> make_spectrum(const std::shared_ptr<Device>& device, Backend backend);
[[nodiscard]] std::unique_ptr<Program> make_channelizer(const std::shared_ptr<Device>& device, Backend backend);

/// Taps that a Kaiser-windowed low-pass needs for this stop-band attenuation in dB, where the transition from pass band
/// to stop band is `transition` wide; in parts of the sampling rate.
[[nodiscard]] double kaiser_taps(double attenuation, double transition);

/// A symmetric low-pass of `taps` taps, as what it is made from: a sinc that cuts off at `cutoff` parts of the sampling
/// rate, times a Kaiser window for this attenuation. Not scaled: 1 in its middle.
class LowPass {
 public:
  LowPass(double taps, double cutoff, double attenuation);
  /// Tap `i`, from 0 to taps - 1; also between two taps, and a little beyond the ends.
  [[nodiscard]] double at(double i) const;
  /// The sum of its taps, from `steps` values: more than it has waves.
  [[nodiscard]] double sum(std::size_t steps) const;
  /// What it leaves of a frequency from `from` parts of the sampling rate on, in dB below its gain at 0, at most: the
  /// response of its taps as float32 or, where they are many, of points as far apart as its waves allow.
  [[nodiscard]] double stop_band(double from) const;

 private:
  /// The largest response to the frequencies from `from` up to `to`, in parts of its gain at 0.
  [[nodiscard]] double worst_of(double from, double to) const;

  double taps_, cutoff_, beta_, window_scale_;
};

/// A low-pass of `taps` taps, symmetric, of sum 1: a sinc that cuts off at `cutoff` parts of the sampling rate, times a
/// Kaiser window for this attenuation.
[[nodiscard]] std::vector<double> design_low_pass(std::size_t taps, double cutoff, double attenuation);

/// A filter that gives `up` outputs for `down` samples: output n stands at n * down / up samples. How many stand before
/// sample number `samples` of a stream, the ceiling of samples * up / down, of any stream's length.
[[nodiscard]] constexpr std::uint64_t outputs_before(std::uint64_t samples, std::uint32_t up, std::uint32_t down) {
  const std::uint64_t rest = samples % down * up;
  return samples / down * up + (rest + down - 1) / down;
}
/// How far behind that sample the next output stands, in parts of 1 / up of a sample: less than `down`.
[[nodiscard]] constexpr std::uint64_t first_output(std::uint64_t samples, std::uint32_t up, std::uint32_t down) {
  const std::uint64_t past = samples % down * up % down;
  return past == 0 ? 0 : down - past;
}

}  // namespace gpumap
