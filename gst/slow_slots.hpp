// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstddef>
#include <mutex>

namespace gpumap::gst {

/// Finds out an upstream that reads what it writes without saying so: through the BAR that is a thousand times slower
/// than host memory. When filling a slot takes suspiciously long, one frame goes to host memory; if that is much
/// faster, so do all that follow. Thread safety: every member from any thread.
class SlowSlots {
 public:
  using Duration = std::chrono::nanoseconds;

  /// Where the next frame should go.
  [[nodiscard]] bool wants_host() const;
  /// An upstream had a slot, or host memory, mapped for this long to fill `bytes`. True when this settles that upstream
  /// reads: the moment to say so.
  bool filled_slot(std::size_t bytes, Duration took);
  bool filled_host(std::size_t bytes, Duration took);
  void reset();

 private:
  enum class State { watching, trying_host, slots_are_fine, upstream_reads };

  mutable std::mutex mutex_;
  State state_ = State::watching;
  double slow_ns_per_byte_ = 0;
};

}  // namespace gpumap::gst
