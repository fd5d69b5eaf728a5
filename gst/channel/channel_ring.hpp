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

/// A ring and, for each slot, the GstBuffer without memory that carries the frame's timestamps, flags and metas.
class ChannelRing {
 public:
  /// `first`: how many frames the channel's sink published on earlier rings. `log`: receives the ways of frames, which
  /// the ring then stamps; null: they are not stamped.
  ChannelRing(std::shared_ptr<Ring> ring, std::uint64_t first, std::shared_ptr<LatencyLog> log);
  ~ChannelRing();
  ChannelRing(const ChannelRing&) = delete;
  ChannelRing& operator=(const ChannelRing&) = delete;

  [[nodiscard]] Ring& ring() const noexcept { return *ring_; }
  [[nodiscard]] const std::shared_ptr<Ring>& shared_ring() const noexcept { return ring_; }
  [[nodiscard]] const std::shared_ptr<Loans>& loans() const noexcept { return loans_; }
  /// The frame's number on its channel; a ring counts only its own frames.
  [[nodiscard]] std::uint64_t sequence(const ReadLease& lease) const noexcept { return first_ + lease.info().sequence; }
  [[nodiscard]] std::uint64_t first() const noexcept { return first_; }
  /// Which of the sinks in other processes, that follow one another, it is of; under the channel's lock.
  std::uint64_t far_sink = 0;
  /// Takes `carrier`. Ordered by the ring: called before the publish of `slot` ...
  void put(std::uint32_t slot, GstBuffer* carrier);
  /// ... and after its receive. Transfer full.
  [[nodiscard]] GstBuffer* take(std::uint32_t slot);
  /// The ways of the frames began in another process: put_way() gives their beginning and their log.
  void expect_ways() { ways_.resize(carriers_.size()); }
  /// Called before the publish of `slot`, as put(). A null log: the frame is not followed.
  void put_way(std::uint32_t slot, const FrameRecord& begun, std::shared_ptr<LatencyLog> log);
  /// The way of a frame that was just received; null: it is not followed. One thread at a time.
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
  std::vector<Way> ways_;       ///< one for each slot; ordered by the ring, as the carriers
  bool followed_ = false;       ///< a frame of ways_ was followed
  std::uint64_t expected_ = 0;  ///< the ring's sequence of the next frame, if none is dropped
};

}  // namespace gpumap::gst
