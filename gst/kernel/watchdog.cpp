// SPDX-License-Identifier: MIT
#include "gst/kernel/runner.hpp"

#include <fmt/format.h>

#include <mutex>
#include <utility>

#include "gpumap/figured_error.hpp"
#include "gst/gst_error.hpp"

namespace gpumap::gst {

/// What the clock's thread looks at; it may do so once more when the watchdog is gone.
struct Watchdog::Watched {
  void look() {
    std::string endless;
    GstElement* teller = nullptr;
    {
      const std::lock_guard lock(mutex);
      if (!runner) return;
      const GstClockTime now = gst_clock_get_time(clock);
      // Longer than that it did not look: the process was stopped, and on a software device so was the kernel.
      if (now - looked > period()) since += now - looked - period();
      looked = now;
      if (launched.signalled()) {
        launched = runner->last_launched();
        since = now;
      }
      // What waits behind other frames takes as long as these do: it hangs only where none of them ends either.
      const std::uint64_t reached = launched.timeline() ? launched.timeline()->completed() : 0;
      if (std::exchange(ended, reached) != reached) since = now;
      if (now - since < timeout_ms * GST_MSECOND) return;
      endless = runner->name();
      runner->cancel(true);
      // Now: it ends with its element, which waits for it, and not in this thread.
      runner.reset();
      teller = GST_ELEMENT_CAST(gst_object_ref(element));
    }
    // Without the lock: who hears of it may stop the element at once.
    post_error(
        teller,
        FiguredError(Error(ErrorCode::device_lost,
                           fmt::format("kernel {} has not ended for {} ms: does it loop for ever? Where it only takes "
                                       "long, raise timeout",
                                       endless, timeout_ms)),
                     {{"kernel", endless}, {"timeout-ms", timeout_ms}}));
    gst_object_unref(teller);
  }

  Watched() = default;
  ~Watched() { gst_object_unref(clock); }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

  /// From look to look.
  [[nodiscard]] GstClockTime period() const noexcept { return timeout_ms * GST_MSECOND / 4; }

  GstClock* const clock = gst_system_clock_obtain();
  std::mutex mutex;
  GstElement* element = nullptr;         ///< outlives the watchdog
  std::shared_ptr<KernelRunner> runner;  ///< null: nothing to look at any more
  std::uint32_t timeout_ms = 0;
  Fence launched;
  std::uint64_t ended = 0;  ///< what the timeline of `launched` had reached
  GstClockTime since = gst_clock_get_time(clock), looked = since;
};

Watchdog::Watchdog(GstElement* element, std::shared_ptr<KernelRunner> runner, std::uint32_t timeout_ms) {
  if (timeout_ms == 0) return;
  watched_ = std::make_shared<Watched>();
  watched_->element = element;
  watched_->runner = std::move(runner);
  watched_->timeout_ms = timeout_ms;
  GstClock* clock = watched_->clock;
  const GstClockTime period = watched_->period();
  alarm_ = gst_clock_new_periodic_id(clock, gst_clock_get_time(clock) + period, period);
  gst_clock_id_wait_async(
      alarm_,
      [](GstClock* /*clock*/, GstClockTime /*time*/, GstClockID /*id*/, gpointer data) -> gboolean {
        (*static_cast<std::shared_ptr<Watched>*>(data))->look();
        return TRUE;
      },
      new std::shared_ptr<Watched>(watched_),
      [](gpointer data) { delete static_cast<std::shared_ptr<Watched>*>(data); });
}

Watchdog::~Watchdog() {
  if (alarm_ == nullptr) return;
  {
    const std::lock_guard lock(watched_->mutex);
    // GStreamer's clock may keep what it was given for a while.
    watched_->runner.reset();
    watched_->launched = {};
  }
  gst_clock_id_unschedule(alarm_);
  gst_clock_id_unref(alarm_);
}

}  // namespace gpumap::gst
