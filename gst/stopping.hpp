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

  /// It flushes, or it is to stop: nobody wants its frames any more, or hardly. Waits for no lock of GStreamer's, which
  /// maps bytes under some, as to compare caps: false where another thread has such a lock right now.
  [[nodiscard]] bool stops() const {
    const Ptr<GstPad> pad(static_cast<GstPad*>(g_weak_ref_get(&pad_)));
    if (!pad || GST_PAD_IS_FLUSHING(pad.get())) return true;
    Ptr<GstObject> at(GST_OBJECT_CAST(gst_object_ref(pad.get())));
    while (at && g_mutex_trylock(GST_OBJECT_GET_LOCK(at.get())) != 0) {
      GstObject* const parent = GST_OBJECT_PARENT(at.get());
      Ptr<GstObject> around(parent != nullptr ? GST_OBJECT_CAST(gst_object_ref(parent)) : nullptr);
      GST_OBJECT_UNLOCK(at.get());
      if (GST_IS_PAD(at.get()) && !around) return true;
      at = std::move(around);
      if (at && GST_IS_ELEMENT(at.get()) && GST_STATE_TARGET(at.get()) < GST_STATE_PAUSED) return true;
    }
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
