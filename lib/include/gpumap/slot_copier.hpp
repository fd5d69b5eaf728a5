// SPDX-License-Identifier: MIT
#pragma once

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

}  // namespace gpumap
