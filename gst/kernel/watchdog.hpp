// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <cstdint>
#include <memory>

#include "gst/kernel/runner.hpp"

namespace gpumap::gst {

/// Tells of a kernel that does not end. Looks now and then, in GStreamer's clock thread: the streaming thread may be
/// waiting for that kernel, or for a frame that cannot come before it ends. The time of one frame counts, not that of
/// those it waits behind. An error comes after `timeout_ms` and at most half as much again. Thread safety: made and
/// destroyed by one thread.
class Watchdog {
 public:
  /// `timeout_ms` 0: never looks.
  Watchdog(GstElement* element, std::shared_ptr<KernelRunner> runner, std::uint32_t timeout_ms);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  struct Watched;
  std::shared_ptr<Watched> watched_;
  GstClockID alarm_ = nullptr;
};

}  // namespace gpumap::gst
