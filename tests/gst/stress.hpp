// SPDX-License-Identifier: MIT
//
// GstHarness's stress: threads that push frames, change caps, flush, send events of every kind, ask, set properties and
// change states, all at once. Nothing hangs, nothing crashes, and afterwards a frame goes through as before.
#pragma once

#include <gst/check/gstharness.h>

#include <atomic>
#include <functional>
#include <list>
#include <mutex>

#include "matrix.hpp"

namespace gpumap::gst::test {

inline constexpr gulong stress_us = 800000;

/// A thread of GstHarness's that does something again and again, for as long as it lives.
class Stress {
 public:
  Stress(GstHarness* harness, gulong pause_us, std::function<void()> what) : what_(std::move(what)) {
    thread_ = gst_harness_stress_custom_start(harness, nullptr, run, this, pause_us);
  }
  explicit Stress(GstHarnessThread* thread) : thread_(thread) {}
  ~Stress() { gst_harness_stress_thread_stop(thread_); }
  Stress(const Stress&) = delete;
  Stress& operator=(const Stress&) = delete;

 private:
  static void run(gpointer /*thread*/, gpointer user) { static_cast<Stress*>(user)->what_(); }

  std::function<void()> what_;
  GstHarnessThread* thread_;
};
using Stresses = std::list<Stress>;

inline constexpr const char* first_caps = "video/x-raw,format=GRAY8,width=32,height=32,framerate=30/1";

inline GstSegment time_segment() {
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  return segment;
}

/// Frames of these caps, from GstHarness's own thread. It lets go between two of them: without a pause it has the pad's
/// lock again before another thread, which waits for it, wakes.
inline GstHarnessThread* push_frames(GstHarness* harness) {
  const GstSegment segment = time_segment();
  const Caps caps = new_caps(first_caps);
  const Buffer buffer = new_buffer(random_data(1024, 1), 0);
  return gst_harness_stress_push_buffer_start_full(harness, caps.get(), &segment, buffer.get(), 20);
}

inline void change_caps(GstHarness* harness) {
  static std::atomic<unsigned> changes{0};
  const int size = changes++ % 2 == 0 ? 16 : 32;
  gst_harness_push_event(harness, gst_event_new_caps(video_caps("GRAY8", size, size).get()));
}

/// Flushes of one stream come one after the other in GStreamer: a FLUSH_STOP that overtakes another's FLUSH_START would
/// leave elements downstream waiting.
inline std::mutex flush_order;

inline void start_flush(GstHarness* harness) {
  const std::lock_guard lock(flush_order);
  gst_harness_push_event(harness, gst_event_new_flush_start());
}
inline void flush(GstHarness* harness) {
  const GstSegment segment = time_segment();
  {
    const std::lock_guard lock(flush_order);
    gst_harness_push_event(harness, gst_event_new_flush_start());
    gst_harness_push_event(harness, gst_event_new_flush_stop(TRUE));
  }
  gst_harness_push_event(harness, gst_event_new_segment(&segment));
}

inline void send_events(GstHarness* harness) {
  gst_harness_push_event(harness, gst_event_new_custom(GST_EVENT_CUSTOM_DOWNSTREAM, gst_structure_new_empty("a")));
  gst_harness_push_event(harness, gst_event_new_custom(GST_EVENT_CUSTOM_DOWNSTREAM_OOB, gst_structure_new_empty("b")));
  gst_harness_push_event(harness, gst_event_new_custom(GST_EVENT_CUSTOM_BOTH_OOB, gst_structure_new_empty("c")));
  gst_harness_push_event(harness,
                         gst_event_new_custom(GST_EVENT_CUSTOM_DOWNSTREAM_STICKY, gst_structure_new_empty("d")));
  gst_harness_push_event(harness, gst_event_new_tag(gst_tag_list_new(GST_TAG_TITLE, "title", nullptr)));
  gst_harness_push_event(harness, gst_event_new_gap(0, 1));
}

inline void start(GstHarness* harness) {
  const GstSegment segment = time_segment();
  gst_harness_push_event(harness, gst_event_new_stream_start("again"));
  gst_harness_push_event(harness, gst_event_new_caps(new_caps(first_caps).get()));
  gst_harness_push_event(harness, gst_event_new_segment(&segment));
}
inline void end_and_start(GstHarness* harness) {
  gst_harness_push_event(harness, gst_event_new_eos());
  start(harness);
}

/// Those that go both ways, and where the peer is downstream those that have to be in order. GStreamer's transforms, a
/// capsfilter also, answer for the position by a segment that a flush changes meanwhile: beside flushes that is a
/// critical warning, in one run of a thousand.
inline void query(const Pad& pad, bool beside_flushes = false) {
  std::vector<GstQuery*> queries = {gst_query_new_caps(nullptr), gst_query_new_latency(),
                                    gst_query_new_duration(GST_FORMAT_TIME), gst_query_new_seeking(GST_FORMAT_TIME)};
  if (!beside_flushes) queries.push_back(gst_query_new_position(GST_FORMAT_TIME));
  if (GST_PAD_IS_SRC(pad.get())) {
    queries.push_back(gst_query_new_allocation(video_caps("GRAY8", 32, 32).get(), TRUE));
    queries.push_back(gst_query_new_drain());
  }
  for (GstQuery* query : queries) {
    gst_pad_peer_query(pad.get(), query);
    gst_query_unref(query);
  }
}

/// What is done to an element at once with the frames, each a bit.
enum With : unsigned {
  states = 1,
  caps = 2,
  flushes = 4,
  events = 8,
  restarts = 16,
  properties = 32,
  queries = 64,
  other_side = 128,  ///< the states of the element at the other end of the channel
  all = 255,
};
inline std::string name_of(unsigned with) {
  if (with == all) return "All";
  constexpr const char* names[] = {"States",   "Caps",       "Flushes", "Events",
                                   "Restarts", "Properties", "Queries", "OtherSide"};
  std::string name;
  for (std::size_t bit = 0; bit < std::size(names); ++bit) name += (with >> bit & 1U) != 0 ? names[bit] : "";
  return name;
}

}  // namespace gpumap::gst::test
