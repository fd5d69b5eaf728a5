// SPDX-License-Identifier: MIT
// Flushes in every form that pads allow, holes that are marked, and events that do not wait behind frames or pile up.
#include <gst/check/gstharness.h>

#include <atomic>
#include <thread>

#include "sanitizers.hpp"
#include "watch.hpp"

namespace gpumap::gst::test {
namespace {

/// A gpumapsink to push into; a gpumapsrc where a test wants one.
class Channel : public testing::Test {
 protected:
  void open(const std::string& options) {
    in_ = gst_harness_new_parse(("gpumapsink " + options + " channel=" + channel_).c_str());
    gst_harness_set_src_caps(in_, new_caps("application/octet-stream").release());
  }
  void consume(const std::string& behind = "fakesink name=out async=false sync=false") {
    out_ = std::make_unique<Pipeline>("gpumapsrc channel=" + channel_ + " ! " + behind);
    watch_.on(out_->element("out"));
    ASSERT_NE(out_->set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  }
  void TearDown() override {
    out_.reset();
    if (in_ != nullptr) gst_harness_teardown(in_);
  }
  void frame(GstClockTime pts = 0) {
    ASSERT_EQ(gst_harness_push(in_, new_buffer(random_data(64, 1), pts).release()), GST_FLOW_OK);
  }
  bool event(GstEvent* event) { return gst_harness_push_event(in_, event) != FALSE; }
  void segment() {
    GstSegment time;
    gst_segment_init(&time, GST_FORMAT_TIME);
    ASSERT_TRUE(event(gst_event_new_segment(&time)));
  }
  [[nodiscard]] bool arrives(std::size_t frames) {
    return eventually([&] { return watch_.count() >= frames; });
  }

  const std::string channel_ = new_channel();
  Watch watch_, before_;
  GstHarness* in_ = nullptr;
  std::unique_ptr<Pipeline> out_;
};

// A FLUSH_STOP may come alone, as where a probe ate its FLUSH_START; the src waits for a frame then, or works on one.
TEST_F(Channel, FlushStopWithoutFlushStart) {
  open("slots=4");
  consume();
  frame();
  ASSERT_TRUE(arrives(1));
  for (std::size_t round = 2; round < 12; ++round) {
    std::atomic<bool> returned{false};
    std::thread flusher([&] {
      event(gst_event_new_flush_stop(TRUE));
      returned = true;
    });
    const bool in_time = eventually([&] { return returned.load(); });
    if (!in_time) out_.reset();  // lets the flush go on, so that the other tests run
    flusher.join();
    ASSERT_TRUE(in_time) << "deadlock";
    segment();
    frame();
    ASSERT_TRUE(arrives(round)) << round << ": " << watch_.order();
  }
}

TEST_F(Channel, FlushesAgainAndAgainWithoutAPause) {
  open("slots=4");
  consume();
  for (int round = 0; round < 100; ++round) {
    ASSERT_TRUE(event(gst_event_new_flush_start()));
    event(gst_event_new_flush_start());  // refused by the pad, which is flushing
    ASSERT_TRUE(event(gst_event_new_flush_stop(round % 2 == 0)));
    segment();
    frame();
  }
  const std::size_t before = watch_.count();
  frame();
  EXPECT_TRUE(arrives(before + 1));
}

// What comes behind a hole says so: decoders and kernels that keep state begin anew there.
TEST_F(Channel, LeakyMarksTheHole) {
  for (const char* leaky : {"oldest", "newest"}) {
    SCOPED_TRACE(leaky);
    open(std::string("slots=4 leaky=") + leaky);
    for (int i = 0; i < 20; ++i) frame(static_cast<GstClockTime>(i) * GST_SECOND);
    consume();
    ASSERT_TRUE(arrives(3));
    frame(20 * GST_SECOND);
    ASSERT_TRUE(eventually([&] {
      const auto frames = watch_.frames();
      return !frames.empty() && frames.back().pts == 20 * GST_SECOND;
    }));
    const auto frames = watch_.frames();
    for (std::size_t i = 1; i < frames.size(); ++i) {
      EXPECT_EQ(frames[i].discont, frames[i].pts != frames[i - 1].pts + GST_SECOND)
          << "frame of " << frames[i].pts / GST_SECOND << " s behind that of " << frames[i - 1].pts / GST_SECOND
          << " s";
    }
    EXPECT_TRUE(frames.front().pts == 0 || frames.front().discont);
    out_.reset();
    watch_.forget();
    gst_harness_teardown(std::exchange(in_, nullptr));
  }
}

TEST_F(Channel, AFlushMarksTheHole) {
  open("slots=8");
  consume();
  frame(0);
  frame(GST_SECOND);
  ASSERT_TRUE(arrives(2));
  ASSERT_TRUE(event(gst_event_new_flush_start()));
  ASSERT_TRUE(event(gst_event_new_flush_stop(TRUE)));
  segment();
  frame(9 * GST_SECOND);
  frame(10 * GST_SECOND);
  ASSERT_TRUE(arrives(4)) << watch_.order();
  const auto frames = watch_.frames();
  EXPECT_FALSE(frames[1].discont);
  EXPECT_TRUE(frames[2].discont);
  EXPECT_FALSE(frames[3].discont);
}

// A flush ends the segment, also for who comes later.
TEST_F(Channel, ASrcThatComesBehindAFlushGetsNoOldSegment) {
  open("slots=8");
  consume();
  frame(0);
  ASSERT_TRUE(arrives(1));
  out_.reset();
  watch_.forget();
  ASSERT_TRUE(event(gst_event_new_flush_start()));
  ASSERT_TRUE(event(gst_event_new_flush_stop(TRUE)));
  consume();
  ASSERT_TRUE(eventually([&] { return watch_.events(GST_EVENT_STREAM_START) != 0; })) << watch_.order();
  segment();
  frame(GST_SECOND);
  ASSERT_TRUE(arrives(1)) << watch_.order();
  EXPECT_EQ(watch_.events(GST_EVENT_SEGMENT), 1U) << watch_.order();
}

// An event out of band overtakes the frames that wait.
TEST_F(Channel, OutOfBandEventsPassAtOnce) {
  open("slots=32");
  consume("identity sleep-time=1000000 ! fakesink name=out async=false sync=false");
  GstElement* src = nullptr;
  GstIterator* sources = gst_bin_iterate_sources(GST_BIN(out_->get()));
  GValue value = G_VALUE_INIT;
  ASSERT_EQ(gst_iterator_next(sources, &value), GST_ITERATOR_OK);
  src = static_cast<GstElement*>(g_value_get_object(&value));
  before_.on(src, "src");
  g_value_unset(&value);
  gst_iterator_free(sources);
  for (int i = 0; i < 20; ++i) frame(static_cast<GstClockTime>(i) * GST_SECOND);
  ASSERT_TRUE(event(gst_event_new_custom(GST_EVENT_CUSTOM_DOWNSTREAM_OOB, gst_structure_new_empty("now"))));
  // Twenty frames take twenty seconds.
  EXPECT_TRUE(eventually([&] { return before_.events(GST_EVENT_CUSTOM_DOWNSTREAM_OOB) == 1; }, at_once))
      << before_.order();
  EXPECT_LT(before_.count(), 15U);
}

// Events without end and nobody to take them: memory does not grow with them.
TEST_F(Channel, GapsDoNotPileUp) {
  open("slots=4 leaky=oldest");
  frame();
  for (int i = 0; i < 5000; ++i) event(gst_event_new_gap(static_cast<GstClockTime>(i), 1));
  const std::size_t before = resident_bytes();
  for (int i = 0; i < 100000; ++i) event(gst_event_new_gap(static_cast<GstClockTime>(i), 1));
  if (!sanitized) {
    EXPECT_LE(resident_bytes(), before + 10'000'000) << "before: " << before;
  }
  consume();
  frame();
  EXPECT_TRUE(arrives(1));
}

}  // namespace
}  // namespace gpumap::gst::test
