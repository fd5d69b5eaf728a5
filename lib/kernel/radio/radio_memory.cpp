// SPDX-License-Identifier: MIT
#include "kernel/radio/radio_memory.hpp"

#include <algorithm>
#include <cstring>

namespace gpumap {

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
