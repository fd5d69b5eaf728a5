// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "gpumap/latency.hpp"
#include "gpumap/ring.hpp"
#include "gst/memory/slot_usage.hpp"

namespace gpumap::gst {

/// A ring and, beside each slot, the GstBuffer without memory that carries its timestamps, flags and metas across.
class ChannelRing {
 public:
  /// `first`: frames that the channel's sink published on the rings before this one. `log`: where the ways of its
  /// frames go, which the ring stamps then; null: nowhere.
  ChannelRing(std::shared_ptr<Ring> ring, std::uint64_t first, std::shared_ptr<LatencyLog> log);
  ~ChannelRing();
  ChannelRing(const ChannelRing&) = delete;
  ChannelRing& operator=(const ChannelRing&) = delete;

  [[nodiscard]] Ring& ring() const noexcept { return *ring_; }
  [[nodiscard]] const std::shared_ptr<Ring>& shared_ring() const noexcept { return ring_; }
  [[nodiscard]] const std::shared_ptr<Loans>& loans() const noexcept { return loans_; }
  /// Of a frame on its channel: a ring counts its own only.
  [[nodiscard]] std::uint64_t sequence(const ReadLease& lease) const noexcept { return first_ + lease.info().sequence; }
  /// Takes `carrier`. Ordered by the ring: called before the publish of `slot` ...
  void put(std::uint32_t slot, GstBuffer* carrier);
  /// ... and after its receive. Transfer full.
  [[nodiscard]] GstBuffer* take(std::uint32_t slot);
  /// The ways of its frames began in another process: put_way() tells which, and where they go.
  void expect_ways() { ways_.resize(carriers_.size()); }
  /// Ahead of the publish of `slot`, as put(). A null log: the frame is not followed.
  void put_way(std::uint32_t slot, const FrameRecord& begun, std::shared_ptr<LatencyLog> log);
  /// The way of a frame that was just received; null where it is not followed. One thread at a time.
  [[nodiscard]] std::shared_ptr<FrameTrace> follow(const ReadLease& lease);

 private:
  std::shared_ptr<Ring> ring_;
  std::uint64_t first_;
  std::vector<std::atomic<GstBuffer*>> carriers_;
  std::shared_ptr<Loans> loans_ = std::make_shared<Loans>();
  std::shared_ptr<LatencyLog> log_;
  struct Way {
    FrameRecord begun;
    std::shared_ptr<LatencyLog> log;
  };
  [[nodiscard]] std::shared_ptr<FrameTrace> follow(const ReadLease& lease, Way way);
  std::vector<Way> ways_;       ///< of each slot; ordered by the ring, as the carriers
  bool followed_ = false;       ///< one of those
  std::uint64_t expected_ = 0;  ///< the ring's sequence of the next frame, when none is dropped
};

}  // namespace gpumap::gst
