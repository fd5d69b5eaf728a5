// SPDX-License-Identifier: MIT
// Two pipelines with two clocks and two base times: a frame that is due now on one side is due now on the other.
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

}  // namespace
}  // namespace gpumap::gst::test
