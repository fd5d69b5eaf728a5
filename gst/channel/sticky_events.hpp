// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <functional>
#include <vector>

namespace gpumap::gst {

[[nodiscard]] bool is_sticky(GstEvent* event);

/// The state of a stream as a pad keeps it: the sticky events that were taken from a channel. A gpumapsrc that comes
/// later needs them, too. Thread safety: the owner's lock.
class StickyEvents {
 public:
  StickyEvents() = default;
  ~StickyEvents() { forget(); }
  StickyEvents(const StickyEvents&) = delete;
  StickyEvents& operator=(const StickyEvents&) = delete;

  /// An event was taken; adds a reference if it is sticky. As on a pad, caps and segment stay valid in a new stream.
  void remember(GstEvent* event);
  void forget();
  void flush();  ///< as on a pad: the segment does not outlive it
  /// Give all events back (transfer full), the last one first.
  void give_back(const std::function<void(GstEvent*)>& take);
  [[nodiscard]] bool empty() const noexcept { return events_.empty(); }
  /// Whether the last event that was taken was EOS.
  [[nodiscard]] bool ended() const noexcept { return ended_; }
  void begin() noexcept { ended_ = false; }

 private:
  std::vector<GstEvent*> events_;
  bool ended_ = false;
};

}  // namespace gpumap::gst
