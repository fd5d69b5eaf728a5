// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <chrono>
#include <mutex>
#include <utility>

#include "gpumap/fence.hpp"
#include "gst/ptr.hpp"

namespace gpumap::gst {

/// Whether `holds` of the element, or of a bin around it. From any thread.
template <typename Holds>
[[nodiscard]] bool any_around(GstElement* element, const Holds& holds) {
  bool found = false;
  for (Ptr<GstObject> at(GST_OBJECT_CAST(gst_object_ref(element))); at && !found;) {
    found = GST_IS_ELEMENT(at.get()) && holds(GST_ELEMENT_CAST(at.get()));
    at.reset(gst_object_get_parent(at.get()));
  }
  return found;
}

/// Whether the element, or a bin around it, is on its way below PAUSED. From any thread.
[[nodiscard]] inline bool is_stopping(GstElement* element) {
  return any_around(element, [](GstElement* at) { return GST_STATE_TARGET(at) < GST_STATE_PAUSED; });
}

/// What the frames of an element know of it, which may outlive it. Thread safety: every member from any thread.
class Giver {
 public:
  /// `pad` is the element's, and flushes when it does.
  explicit Giver(GstPad* pad) { g_weak_ref_init(&pad_, pad); }
  ~Giver() { g_weak_ref_clear(&pad_); }
  Giver(const Giver&) = delete;
  Giver& operator=(const Giver&) = delete;

  /// It flushes, or it is to stop: nobody wants its frames any more, or hardly.
  [[nodiscard]] bool stops() const {
    const Ptr<GstPad> pad(static_cast<GstPad*>(g_weak_ref_get(&pad_)));
    const Ptr<GstElement> element(pad ? gst_pad_get_parent_element(pad.get()) : nullptr);
    if (!element || GST_PAD_IS_FLUSHING(pad.get()) || is_stopping(element.get())) return true;
    const std::lock_guard lock(mutex_);
    asked_ = {};  // the next flush, or stop, has a time of its own
    return false;
  }
  /// Likewise, and it has not stopped yet: somebody may wait for that. An application may still want a frame later.
  [[nodiscard]] bool is_about_to_stop() const {
    const Ptr<GstPad> pad(static_cast<GstPad*>(g_weak_ref_get(&pad_)));
    return pad && GST_PAD_MODE(pad.get()) != GST_PAD_MODE_NONE && stops();
  }
  /// Once it stops(): until when a wait for one of its frames lasts. Waits that follow on one another, as of a queue
  /// with many frames, last 1 s together. To be asked again and again while one waits.
  [[nodiscard]] Deadline end_of_waits() const {
    constexpr std::chrono::milliseconds between{500};
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    if (now - asked_ > between) end_ = now + std::chrono::seconds(1);
    asked_ = now;
    return end_;
  }

 private:
  mutable GWeakRef pad_;
  mutable std::mutex mutex_;  ///< of what follows
  mutable Deadline end_{}, asked_{};
};

}  // namespace gpumap::gst
