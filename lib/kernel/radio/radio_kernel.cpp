// SPDX-License-Identifier: MIT
#include "kernel/radio/radio_kernel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstring>
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

}  // namespace gpumap
