// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "gpumap/copy.hpp"
#include "gpumap/export.hpp"
#include "gpumap/ring.hpp"
#include "gpumap/thread_schedule.hpp"

namespace gpumap {

/// How a producer copies into slots. The copier is made, and measured on memory of the slots' kind, when the first
/// frame is copied: a stream that never copies has no threads for it. Thread safety: every member from any thread;
/// copies come one at a time.
class GPUMAP_API SlotCopier {
 public:
  /// Begin anew, with so many threads (0: as many as pay), of which those that are not the caller have this schedule.
  void start(unsigned threads, ThreadSchedule schedule = {});
  /// Let go of the threads. What last() says stays.
  void stop();
  /// Throws Error(invalid) when it would pass the slot's end. With `at` 0 the rest of the slot may lose its content.
  void copy(const WriteLease& slot, std::size_t at, std::span<const std::byte> from);

  /// How the last copy was made; no name and no threads before the first.
  [[nodiscard]] Copier::Plan last() const;

 private:
  void prepare(const WriteLease& slot, bool whole);

  mutable std::mutex mutex_;
  unsigned threads_ = 0;
  ThreadSchedule schedule_;
  std::unique_ptr<Copier> copier_;
  std::size_t measured_bytes_ = 0;  ///< slots up to this size are known
  std::optional<Transport> measured_transport_;
  Copier::Plan last_{"", 0};
};

/// Finds out an upstream that reads what it writes without saying so: through the BAR that is a thousand times slower
/// than host memory. A slot that takes suspiciously long to fill is followed by one that is timed by the CPU clock of
/// its thread, which a busy machine does not lengthen, and then by a frame in host memory. If that is much faster, all
/// that follow go to host memory. Thread safety: every member from any thread.
class GPUMAP_API SlowSlots {
 public:
  using Duration = std::chrono::nanoseconds;
  /// Of less a context switch weighs more than the stores: how long they took tells nothing.
  [[nodiscard]] static constexpr bool tells(std::size_t bytes) noexcept { return bytes >= std::size_t{64} * 1024; }
  enum class Next {
    slot,        ///< timed by the clock on the wall, which costs next to nothing
    timed_slot,  ///< timed by the CPU clock of the thread
    host,        ///< likewise
  };

  /// Where the next frame should go, of `bytes`: one that tells nothing is not sent to host memory to be timed.
  [[nodiscard]] Next next(std::size_t bytes) const;
  /// Whether next() is `host` only to be timed: once it is settled that upstream reads, any host memory will do.
  [[nodiscard]] bool times_host(std::size_t bytes) const;
  /// Upstream had a frame of `bytes` mapped for this long to fill it. True when this settles that upstream reads: the
  /// moment to say so.
  bool filled(Next where, std::size_t bytes, Duration took);
  void reset();

 private:
  enum class State { watching, timing_slot, timing_host, slots_are_fine, upstream_reads };

  mutable std::mutex mutex_;
  State state_ = State::watching;
  double slot_ns_per_byte_ = 0;
};

}  // namespace gpumap
