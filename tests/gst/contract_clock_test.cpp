// SPDX-License-Identifier: MIT
// Two pipelines with two clocks and two base times: a frame that is due now on one side is due now on the other.
#include <optional>

#include "temporary_folder.hpp"
#include "watch.hpp"

namespace gpumap::gst::test {
namespace {

using ClockPtr = Ptr<GstClock>;

/// Seconds since 1970 here, seconds since the machine started in the default clock: 50 years apart.
ClockPtr realtime_clock() {
  auto* clock = static_cast<GstClock*>(
      g_object_new(GST_TYPE_SYSTEM_CLOCK, "name", "realtime", "clock-type", GST_CLOCK_TYPE_REALTIME, nullptr));
  gst_object_ref_sink(clock);
  return ClockPtr(clock);
}

void use(Pipeline& pipeline, GstClock* clock) {
  gst_pipeline_use_clock(GST_PIPELINE(pipeline.get()), clock);
}

std::string camera(const char* live) {
  return std::string("videotestsrc is-live=") + live +
         " ! video/x-raw,format=I420,width=64,height=48,framerate=25/1 ! gpumapsink name=sink leaky=oldest " +
         (std::string_view(live) == "true" ? "" : "sync=true ") + "channel=";
}

/// Who has the real-time clock; whether the producer is live or paced by gpumapsink; who plays first.
class Clocks : public testing::TestWithParam<std::tuple<const char*, const char*, const char*>> {};
INSTANTIATE_TEST_SUITE_P(Of, Clocks,
                         testing::Combine(testing::Values("Nobody", "Producer", "Consumer", "Both"),
                                          testing::Values("true", "false"), testing::Values("In", "Out")),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param)) +
                                  (std::string_view(std::get<1>(test.param)) == "true" ? "Live" : "Paced") +
                                  std::get<2>(test.param) + "First";
                         });

TEST_P(Clocks, KeepTheStreamsPace) {
  const std::string_view realtime = std::get<0>(GetParam());
  const bool in_first = std::string_view(std::get<2>(GetParam())) == "In";
  const std::string channel = new_channel();
  const ClockPtr clock = realtime_clock();
  Watch rendered;
  Pipeline in(camera(std::get<1>(GetParam())) + channel);
  Pipeline out("gpumapsrc is-live=true channel=" + channel + " ! fakesink name=out sync=true");
  rendered.on_rendered(out.element("out"));
  if (realtime == "Producer" || realtime == "Both") use(in, clock.get());
  if (realtime == "Consumer" || realtime == "Both") use(out, clock.get());
  ASSERT_NE((in_first ? in : out).set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  // Base times differ by this.
  g_usleep(500000);
  ASSERT_NE((in_first ? out : in).set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(eventually([&] { return rendered.count() > 2; }, 10s)) << "no frame was due";
  EXPECT_TRUE(rendered.keeps_pace(10, 40)) << "frames of 25 in a second";
}

// A consumer whose clock is another and who comes again and again gets frames at once each time.
TEST(ClocksAgain, AConsumerThatComesAgain) {
  const std::string channel = new_channel();
  const ClockPtr clock = realtime_clock();
  Watch rendered;
  Pipeline in(camera("true") + channel);
  Pipeline out("gpumapsrc is-live=true channel=" + channel + " ! fakesink name=out sync=true");
  rendered.on_rendered(out.element("out"));
  use(in, clock.get());
  ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  for (int round = 0; round < 3; ++round) {
    rendered.forget();
    ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    EXPECT_TRUE(eventually([&] { return rendered.count() > 10; }, 10s)) << rendered.count() << " in round " << round;
    ASSERT_TRUE(out.reach(round % 2 == 0 ? GST_STATE_NULL : GST_STATE_READY));
  }
}

// Paused and played again, a pipeline's base time moves on by the pause.
TEST(ClocksAgain, AConsumerThatPauses) {
  const std::string channel = new_channel();
  const ClockPtr clock = realtime_clock();
  Watch rendered;
  Pipeline in(camera("true") + channel);
  Pipeline out("gpumapsrc is-live=true channel=" + channel + " ! fakesink name=out sync=true");
  rendered.on_rendered(out.element("out"));
  use(out, clock.get());
  ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  for (int round = 0; round < 3; ++round) {
    ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    rendered.forget();
    EXPECT_TRUE(eventually([&] { return rendered.count() > 10; }, 10s)) << rendered.count() << " in round " << round;
    EXPECT_TRUE(rendered.keeps_pace(0, 40));
    ASSERT_TRUE(out.reach(GST_STATE_PAUSED));
    g_usleep(500000);
  }
}

/// When frames are due at the pad of an element, in its pipeline. Outlives the pipeline.
class Due {
 public:
  explicit Due(GstElement* element) : pad_(gst_element_get_static_pad(element, "sink")) {
    gst_pad_add_probe(pad_.get(), GST_PAD_PROBE_TYPE_BUFFER, note, this, nullptr);
  }
  /// Running times, in the order in which the frames came; those before the pipeline began count down from 0.
  [[nodiscard]] std::vector<GstClockTimeDiff> times() const {
    const std::lock_guard lock(mutex_);
    return times_;
  }
  void forget() {
    const std::lock_guard lock(mutex_);
    times_.clear();
  }

 private:
  static GstPadProbeReturn note(GstPad* pad, GstPadProbeInfo* info, gpointer user) {
    auto* self = static_cast<Due*>(user);
    const Ptr<GstEvent> event(gst_pad_get_sticky_event(pad, GST_EVENT_SEGMENT, 0));
    const GstSegment* segment = nullptr;
    if (event) gst_event_parse_segment(event.get(), &segment);
    guint64 time = 0;
    const int sign = segment == nullptr
                         ? 0
                         : gst_segment_to_running_time_full(segment, GST_FORMAT_TIME,
                                                            GST_BUFFER_PTS(GST_PAD_PROBE_INFO_BUFFER(info)), &time);
    const std::lock_guard lock(self->mutex_);
    self->times_.push_back(sign * static_cast<GstClockTimeDiff>(time));
    return GST_PAD_PROBE_OK;
  }

  Pad pad_;
  mutable std::mutex mutex_;
  std::vector<GstClockTimeDiff> times_;
};

GstClockTimeDiff running_time(Pipeline& pipeline) {
  return static_cast<GstClockTimeDiff>(gst_element_get_current_running_time(pipeline.get()));
}

class LateProducer : public testing::TestWithParam<std::tuple<const char*, bool>> {};
INSTANTIATE_TEST_SUITE_P(Starts, LateProducer, testing::Combine(testing::Values("true", "false"), testing::Bool()),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param)[0] == 't' ? "Live" : "NotLive") +
                                  (std::get<1>(test.param) ? "AtASocket" : "OnAChannel");
                         });

// A live consumer does not wait for its first frame. When the producer comes at last, its first frame is not late by
// the consumer's age: it may be the only one.
TEST_P(LateProducer, ItsFirstFrameIsDueWhenItStarts) {
  const TemporaryFolder folder;
  const std::string at = std::get<1>(GetParam()) ? "socket-path=" + (folder.path() / "link").string() + " "
                                                 : "channel=" + new_channel() + " ";
  const std::string wait = std::get<1>(GetParam()) ? "wait-for-connection=true " : "";
  Pipeline out("videotestsrc is-live=true ! fakesink sync=true  gpumapsrc " + at + " ! fakesink name=out sync=true");
  Due due(out.element("out"));
  ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(eventually([&] { return running_time(out) > 2 * static_cast<GstClockTimeDiff>(GST_SECOND); }));
  Pipeline in(std::string("videotestsrc num-buffers=1 is-live=") + std::get<0>(GetParam()) +
              " ! video/x-raw,format=GRAY8,width=33,height=7 ! gpumapsink " + wait + at);
  const GstClockTimeDiff before = running_time(out);
  ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(eventually([&] { return !due.times().empty(); })) << out.wait(1ms) << in.wait(1ms);
  const GstClockTimeDiff after = running_time(out);
  EXPECT_GE(due.times().front(), before);
  EXPECT_LE(due.times().front(), after);
}

// Backwards the running time counts from the end of the segment on, however much earlier the producer began.
TEST(Backwards, FramesKeepTheirPaceAcrossPipelines) {
  constexpr GstClockTimeDiff frame = 40 * GST_MSECOND;
  for (const char* sync : {"false", "true"}) {
    SCOPED_TRACE(sync);
    const std::string channel = new_channel();
    Pipeline in(std::string("videotestsrc ! video/x-raw,format=GRAY8,width=33,height=7,framerate=25/1 ! gpumapsink ") +
                "name=sink sync=" + sync + " channel=" + channel);
    Pipeline out("gpumapsrc channel=" + channel + " ! fakesink name=out sync=true");
    Due due(out.element("out"));
    ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    ASSERT_TRUE(eventually([&] { return running_time(in) > static_cast<GstClockTimeDiff>(GST_SECOND) / 2; }));
    ASSERT_TRUE(out.reach(GST_STATE_PLAYING)) << out.error();
    ASSERT_TRUE(eventually([&] { return due.times().size() > 10; }));
    constexpr auto flags = static_cast<GstSeekFlags>(static_cast<unsigned>(GST_SEEK_FLAG_FLUSH) |
                                                     static_cast<unsigned>(GST_SEEK_FLAG_ACCURATE));
    ASSERT_TRUE(gst_element_seek(out.get(), -1.0, GST_FORMAT_TIME, flags, GST_SEEK_TYPE_SET, 0, GST_SEEK_TYPE_SET,
                                 static_cast<gint64>(GST_SECOND)));
    due.forget();
    ASSERT_EQ(out.wait(), "eos");
    const auto times = due.times();
    ASSERT_GE(times.size(), 20U);
    for (std::size_t i = 1; i < times.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(times[i] - times[i - 1]), static_cast<double>(frame), 5e6) << i;
    }
  }
}

}  // namespace
}  // namespace gpumap::gst::test
