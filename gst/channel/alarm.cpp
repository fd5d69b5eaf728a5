// SPDX-License-Identifier: MIT
#include "gst/channel/alarm.hpp"

#include <memory>
#include <utility>

#include "gst/ptr.hpp"

namespace gpumap::gst {

namespace {

struct Call {
  std::function<void(guint64)> ring;
  guint64 number;
};

}  // namespace

bool Alarm::set(GstClockTime after, std::function<void(guint64)> ring) {
  stop();
  GstClock* clock = gst_system_clock_obtain();
  id_ = gst_clock_new_single_shot_id(clock, gst_clock_get_time(clock) + after);
  gst_object_unref(clock);
  return gst_clock_id_wait_async(
             id_,
             [](GstClock*, GstClockTime, GstClockID, gpointer data) -> gboolean {
               const Call& call = *static_cast<Call*>(data);
               call.ring(call.number);
               return TRUE;
             },
             new Call{std::move(ring), ++number_},
             [](gpointer data) { delete static_cast<Call*>(data); }) == GST_CLOCK_OK;
}

bool Alarm::set(GstClockTime after, GstElement* element, std::function<void(GstElement*)> ring) {
  const std::shared_ptr<GWeakRef> weak(new GWeakRef, [](GWeakRef* ref) {
    g_weak_ref_clear(ref);
    delete ref;
  });
  g_weak_ref_init(weak.get(), element);
  return set(after, [weak, ring = std::move(ring)](guint64 /*number*/) {
    if (const Ptr<GstElement> there{static_cast<GstElement*>(g_weak_ref_get(weak.get()))}) ring(there.get());
  });
}

void Alarm::stop() {
  if (id_ == nullptr) return;
  gst_clock_id_unschedule(id_);
  gst_clock_id_unref(id_);
  id_ = nullptr;
}

}  // namespace gpumap::gst
