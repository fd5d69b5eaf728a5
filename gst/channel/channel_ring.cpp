// SPDX-License-Identifier: MIT
#include "gst/channel/channel_ring.hpp"

#include <cstddef>
#include <utility>

namespace gpumap::gst {

ChannelRing::ChannelRing(std::shared_ptr<Ring> ring, std::uint64_t first, std::shared_ptr<LatencyLog> log)
    : ring_(std::move(ring)), first_(first), carriers_(ring_->slots()), log_(std::move(log)) {
  ring_->set_stamping(log_ != nullptr);
}

void ChannelRing::put_way(std::uint32_t slot, const FrameRecord& begun, std::shared_ptr<LatencyLog> log) {
  if (log && !ring_->stamping()) ring_->set_stamping(true);
  ways_[slot] = {begun, std::move(log)};
}

/// In this process the frame was only received: its earlier stamps and its number are the other process's.
std::shared_ptr<FrameTrace> ChannelRing::follow(const ReadLease& lease, Way way) {
  const auto here = way.log ? lease.stamps() : std::nullopt;
  if (!here) return nullptr;
  const std::uint64_t sequence = way.begun.sequence;
  if (std::exchange(followed_, true) && sequence > expected_) way.log->add_dropped(sequence - expected_);
  expected_ = sequence + 1;
  way.begun.at_ns[static_cast<std::size_t>(Stamp::received)] = here->at(Stamp::received);
  return std::make_shared<FrameTrace>(std::move(way.log), way.begun);
}

std::shared_ptr<FrameTrace> ChannelRing::follow(const ReadLease& lease) {
  if (!ways_.empty()) return follow(lease, std::exchange(ways_[lease.slot()], {}));
  if (!log_) return nullptr;
  auto record = lease.stamps();
  if (!record) return nullptr;
  if (record->sequence > expected_) log_->add_dropped(record->sequence - expected_);
  expected_ = record->sequence + 1;
  record->sequence += first_;
  return std::make_shared<FrameTrace>(log_, *record);
}

ChannelRing::~ChannelRing() {
  for (auto& carrier : carriers_) {
    if (GstBuffer* buffer = carrier.load(std::memory_order_relaxed)) gst_buffer_unref(buffer);
  }
}

void ChannelRing::put(std::uint32_t slot, GstBuffer* carrier) {
  // A frame that was dropped from the queue leaves its carrier behind.
  if (GstBuffer* old = carriers_[slot].exchange(carrier, std::memory_order_acq_rel)) gst_buffer_unref(old);
}

GstBuffer* ChannelRing::take(std::uint32_t slot) {
  GstBuffer* carrier = carriers_[slot].exchange(nullptr, std::memory_order_acq_rel);
  // The producer's core wrote it: its lines are fetched together now, instead of one after the other on first use.
  constexpr std::size_t line = 64, lines = 5;
  for (std::size_t i = 0; i < lines; ++i) __builtin_prefetch(reinterpret_cast<const std::byte*>(carrier) + i * line);
  return carrier;
}

}  // namespace gpumap::gst
