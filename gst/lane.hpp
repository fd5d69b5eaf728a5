// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "gpumap/ring.hpp"

namespace gpumap::gst {

/// A ring and, beside each slot, the GstBuffer without memory that carries its timestamps, flags and metas across.
class Lane {
 public:
  /// `first`: frames that the channel's sink published on the rings before this one.
  Lane(std::shared_ptr<Ring> ring, std::uint64_t first)
      : ring_(std::move(ring)), first_(first), carriers_(ring_->slots()) {}
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  [[nodiscard]] Ring& ring() const noexcept { return *ring_; }
  /// Of a frame on its channel: a ring counts its own only.
  [[nodiscard]] std::uint64_t sequence(const ReadLease& lease) const noexcept { return first_ + lease.info().sequence; }
  /// Takes `carrier`. Ordered by the ring: called before the publish of `slot` ...
  void put(std::uint32_t slot, GstBuffer* carrier);
  /// ... and after its receive. Transfer full.
  [[nodiscard]] GstBuffer* take(std::uint32_t slot);

 private:
  std::shared_ptr<Ring> ring_;
  std::uint64_t first_;
  std::vector<std::atomic<GstBuffer*>> carriers_;
};

}  // namespace gpumap::gst
