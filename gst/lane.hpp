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
  explicit Lane(std::shared_ptr<Ring> ring) : ring_(std::move(ring)), carriers_(ring_->slots()) {}
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  [[nodiscard]] Ring& ring() const noexcept { return *ring_; }
  /// Takes `carrier`. Ordered by the ring: called before the publish of `slot` ...
  void put(std::uint32_t slot, GstBuffer* carrier);
  /// ... and after its receive. Transfer full.
  [[nodiscard]] GstBuffer* take(std::uint32_t slot);

 private:
  std::shared_ptr<Ring> ring_;
  std::vector<std::atomic<GstBuffer*>> carriers_;
};

}  // namespace gpumap::gst
