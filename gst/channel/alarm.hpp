// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <functional>

namespace gpumap::gst {

/// Calls back once, after a while, in a thread of the system clock. Thread safety: the owner's lock; the call comes
/// without it, and may come although the alarm was stopped meanwhile, which its number tells.
class Alarm {
 public:
  Alarm() = default;
  ~Alarm() { stop(); }
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;

  /// `ring` gets the number of this setting; is() compares it.
  void set(GstClockTime after, std::function<void(guint64 number)> ring);
  void stop();
  /// This setting is the one that holds.
  [[nodiscard]] bool is(guint64 number) const noexcept { return id_ != nullptr && number == number_; }

 private:
  GstClockID id_ = nullptr;
  guint64 number_ = 0;
};

}  // namespace gpumap::gst
