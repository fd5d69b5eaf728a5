// SPDX-License-Identifier: MIT
#include "kernel/radio/radio_kernel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <complex>
#include <cstring>
#include <numbers>
#include <numeric>

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

Oscillator::Oscillator(double frequency, std::uint32_t rate, std::uint64_t first, std::uint64_t start)
    : first_(first), start_(start) {
  constexpr double units = 1073741824.0;  // 2^30 in a hertz: rates of 32 bits still fit
  const std::uint64_t turn = std::uint64_t{rate} << 30;
  const std::int64_t offset = std::llround(frequency * units) % static_cast<std::int64_t>(turn);
  // It takes the frequency away, hence turns backwards.
  const std::uint64_t back =
      offset > 0 ? turn - static_cast<std::uint64_t>(offset) : static_cast<std::uint64_t>(-offset);
  const std::uint64_t common = std::gcd(back, turn);
  period_ = turn / common;
  // back / turn in 2^-64 turns, rounded: long division, as the dividend has 128 bits.
  std::uint64_t rest = back / common;
  std::uint64_t step = 0;
  for (int bit = 0; bit < 64; ++bit) {
    rest *= 2;  // below 2^63: a turn has 62 bits
    step = step * 2 + (rest >= period_ ? 1 : 0);
    if (rest >= period_) rest -= period_;
  }
  step_ = step + (2 * rest >= period_ ? 1 : 0);
}

std::uint64_t DeviceTable::ready(Queue& queue) {
  const std::size_t bytes = values_.size() * sizeof(float);
  if (!staging_.empty()) std::erase_if(staging_, [](const Staging& one) { return one.copied.signalled(); });
  if (!stale_) return memory_.address();
  const std::uint64_t address = memory_.ready(queue, bytes);
  const auto staging = device_->allocate({.placement = Placement::host, .bytes = bytes}, backend_);
  std::memcpy(staging->host(), values_.data(), bytes);
  staging->flush(0, bytes);
  queue.copy(*staging, 0, *memory_.memory(), 0, bytes);
  staging_.push_back({staging, queue.submit()});
  values_ = {};
  stale_ = false;
  return address;
}

void KeptSamples::lend(gpumap_frame& frame) const {
  frame.state = count_ != 0 ? memory_[current_].address() : 0;
  frame.state_bytes = count_ * 2 * sizeof(float);
}

std::uint64_t KeptSamples::keep(Queue& queue, const gpumap_frame& frame, std::int64_t first, std::uint64_t count,
                                const OscillatorTurn& turn) {
  constexpr std::uint64_t sample_bytes = 2 * sizeof(float);
  // Nothing goes: the new ones are put behind the old, or else small frames would copy a long transform's over and
  // over.
  const bool appends = count_ != 0 && first == -static_cast<std::int64_t>(count_);
  const bool in_place = appends && memory_[current_].bytes() >= count * sample_bytes;
  const std::uint64_t before = in_place ? count_ : 0;
  const std::size_t place = in_place ? current_ : 1 - current_;
  const std::uint64_t address =
      in_place ? memory_[place].address() : memory_[place].ready(queue, count * sample_bytes * (appends ? 2 : 1));
  if (count != before) {
    gpumap_frame given = frame;
    given.out.plane[0] = address + before * sample_bytes;
    const radio_keep_job job{.first = first + static_cast<std::int64_t>(before),
                             .count = count - before,
                             .start = turn.start,
                             .position = turn.position,
                             .period = turn.period,
                             .step = turn.step};
    kernel_.launch(queue, given, job, job.count);
  }
  current_ = place;
  count_ = count;
  return address;
}

namespace {

/// The modified Bessel function of order 0, by its series: std::cyl_bessel_i is not in every standard library.
double bessel_i0(double x) {
  double sum = 1.0, term = 1.0;
  for (int k = 1; term > sum * 1e-17; ++k) {
    term *= x / (2.0 * k) * (x / (2.0 * k));
    sum += term;
  }
  return sum;
}

/// Kaiser's formulas for the shape of his window.
double kaiser_beta(double attenuation) {
  if (attenuation > 50.0) return 0.1102 * (attenuation - 8.7);
  if (attenuation >= 21.0) return 0.5842 * std::pow(attenuation - 21.0, 0.4) + 0.07886 * (attenuation - 21.0);
  return 0.0;
}

}  // namespace

double kaiser_taps(double attenuation, double transition) {
  return (attenuation - 7.95) / (14.36 * transition) + 1.0;
}

LowPass::LowPass(double taps, double cutoff, double attenuation)
    : taps_(taps), cutoff_(cutoff), beta_(kaiser_beta(attenuation)), window_scale_(1.0 / bessel_i0(beta_)) {}

double LowPass::at(double i) const {
  const double middle = (taps_ - 1.0) / 2.0;
  const double t = i - middle;
  const double x = 2.0 * std::numbers::pi * cutoff_ * t;
  const double edge = middle > 0.0 ? t / middle : 0.0;
  const double window = bessel_i0(beta_ * std::sqrt(std::fmax(0.0, 1.0 - edge * edge))) * window_scale_;
  return (x == 0.0 ? 1.0 : std::sin(x) / x) * window;
}

double LowPass::sum(std::size_t steps) const {
  // Its integral from end to end is the sum but for half of each of the two ends.
  const double ends = (at(0.0) + at(taps_ - 1.0)) / 2.0;
  const double step = (taps_ - 1.0) / static_cast<double>(steps);
  double inner = 0.0;
  for (std::size_t i = 1; i < steps; ++i) inner += at(static_cast<double>(i) * step);
  return (inner + ends) * step + ends;
}

double LowPass::stop_band(double from) const {
  // Behind its edge, one of a wide band leaves what one of a narrower band does, which takes less to find out.
  constexpr double wide = 2048.0;
  const double narrower = std::fmax(cutoff_ - wide / 2.0 / taps_, 0.0);
  LowPass narrow = *this;
  narrow.cutoff_ -= narrower;
  const double worst = narrow.worst_of(from - narrower, 0.5 - narrower);
  // Four deviations, about, of what rounding to float32 adds to taps whose squares' sum is 2 * cutoff.
  const double rounding = std::ldexp(std::sqrt(2.0 * cutoff_), -24);
  return -20.0 * std::log10(worst + rounding);
}

double LowPass::worst_of(double from, double to) const {
  constexpr std::size_t few = 8192;
  constexpr std::size_t lobes = 24, per_lobe = 48;  // the largest are the first ones: the window's fall off
  const double waves = 2.0 * cutoff_ * taps_;
  const auto points = static_cast<std::size_t>(std::fmin(taps_, std::fmax(few, 8.0 * waves)));
  const double step = points > 1 ? (taps_ - 1.0) / static_cast<double>(points - 1) : 1.0;
  // From the middle on, of which each but one in the middle stands for two.
  std::vector<double> half;
  double gain = 0.0;
  const double first = points % 2 == 1 ? 0.0 : 0.5;
  for (std::size_t i = 0; i < (points + 1) / 2; ++i) {
    const double value = at((taps_ - 1.0) / 2.0 + (static_cast<double>(i) + first) * step);
    half.push_back(i == 0 && points % 2 == 1 ? value : 2.0 * value);
    gain += half.back();
  }
  double worst = 0.0;
  for (std::size_t i = 0; i < lobes * per_lobe; ++i) {
    const double frequency = from + static_cast<double>(i) / per_lobe / taps_;
    if (frequency > to) break;
    const double turn = 2.0 * std::numbers::pi * frequency * step;
    const std::complex<double> each = std::polar(1.0, turn);
    std::complex<double> now = std::polar(1.0, turn * first);
    double response = 0.0;
    for (const double value : half) {
      response += value * now.real();
      now *= each;
    }
    worst = std::fmax(worst, std::abs(response));
  }
  return worst / gain;
}

std::vector<double> design_low_pass(std::size_t taps, double cutoff, double attenuation) {
  const LowPass low_pass(static_cast<double>(taps), cutoff, attenuation);
  std::vector<double> filter(taps);
  double sum = 0.0;
  for (std::size_t i = 0; i < taps; ++i) sum += filter[i] = low_pass.at(static_cast<double>(i));
  for (double& tap : filter) tap /= sum;
  return filter;
}

}  // namespace gpumap
