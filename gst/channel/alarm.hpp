// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <functional>

namespace gpumap::gst {

/// How long an end of a channel or of a link waits for the other before it says so.
constexpr GstClockTime patience_for_peer = 3 * GST_SECOND;

/// A one-shot timer: calls back once in a thread of the system clock. Thread safety: the owner's lock protects every
/// member. The call is made without that lock, and may still be made after stop(): compare its number by is().
class Alarm {
 public:
  Alarm() = default;
  ~Alarm() { stop(); }
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;

  /// Calls `ring` after this time, with the number of this setting. Replaces an earlier setting. False: never, for
  /// GStreamer's clock has no thread.
  bool set(GstClockTime after, std::function<void(guint64 number)> ring);
  /// Calls `ring` with the element, unless that is gone by then. Likewise.
  bool set(GstClockTime after, GstElement* element, std::function<void(GstElement*)> ring);
  void stop();
  /// Whether the setting of this number is the current one.
  [[nodiscard]] bool is(guint64 number) const noexcept { return id_ != nullptr && number == number_; }

 private:
  GstClockID id_ = nullptr;
  guint64 number_ = 0;
};

}  // namespace gpumap::gst
