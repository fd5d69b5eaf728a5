// SPDX-License-Identifier: MIT
// Who meets whom on a channel: a src alone, two sinks, two srcs, and an end that comes from downstream.
#include <gmock/gmock.h>

#include <array>

#include "pipeline.hpp"

namespace gpumap::gst::test {
namespace {

using ::testing::HasSubstr;

constexpr const char* source = "videotestsrc ! video/x-raw,format=NV12,width=64,height=48 ! ";

TEST(Peers, SrcAloneTimesOut) {
  const std::string channel = new_channel();
  Pipeline pipeline("gpumapsrc name=lonely timeout=200 channel=" + channel + " ! fakesink");
  const auto began = std::chrono::steady_clock::now();
  const std::string error = pipeline.run();
  EXPECT_GE(std::chrono::steady_clock::now() - began, 190ms);
  EXPECT_THAT(error, HasSubstr("no gpumapsink"));
  EXPECT_THAT(error, HasSubstr('"' + channel + '"'));
  EXPECT_THAT(error, HasSubstr("200 ms"));
  EXPECT_EQ(pipeline.culprit(), "lonely");
  EXPECT_LT(pipeline.stop(), at_once);
}

TEST(Peers, SrcWithASinkThatSendsNothingTimesOut) {
  Pipeline pipeline(on_new_channel("appsrc ! gpumapsink $CHANNEL gpumapsrc timeout=200 $CHANNEL ! fakesink"));
  EXPECT_THAT(pipeline.run(), HasSubstr("no frame on channel"));
}

/// Two pipelines that play, the src's with this gpumapsrc.
struct Live {
  explicit Live(const std::string& options)
      : channel(new_channel()),
        in("videotestsrc is-live=true ! video/x-raw,format=NV12,width=64,height=48,framerate=25/1 ! "
           "gpumapsink name=sink channel=" +
           channel),
        out("gpumapsrc name=src channel=" + channel + " " + options + " ! queue ! fakesink name=out sync=false") {}
  [[nodiscard]] bool plays() {
    // Once the GPU's memory is there: what it takes to get it is no time without a frame.
    return in.set_state(GST_STATE_PLAYING) != GST_STATE_CHANGE_FAILURE &&
           eventually([&] { return stat(in.element("sink"), "frames") > 0; }) && out.reach(GST_STATE_PLAYING) &&
           received(3);
  }
  [[nodiscard]] bool received(std::uint64_t count) const {
    return eventually([&] { return stat(out.element("src"), "frames") >= count; });
  }
  std::string channel;
  Pipeline in, out;
};

// Time spent paused is no time without a frame.
TEST(Peers, TimeoutCountsWhilePlaying) {
  for (const char* options : {"is-live=true", "is-live=false"}) {
    const std::string problem = best_of_longer_limits([options](Time limit) -> std::string {
      Live live("timeout=" + std::to_string(limit.count()) + ' ' + options);
      if (!live.plays()) return "no frames: " + live.out.wait(1ms);
      live.out.set_state(GST_STATE_PAUSED);
      live.in.set_state(GST_STATE_PAUSED);
      if (live.out.wait(limit * 4 / 3) != "timeout") return "paused: " + live.out.error();
      const std::uint64_t before = stat(live.out.element("src"), "frames");
      live.in.set_state(GST_STATE_PLAYING);
      live.out.set_state(GST_STATE_PLAYING);
      if (!live.received(before + 10)) return "played again: " + live.out.wait(1ms);
      // It counts again from here.
      live.in.set_state(GST_STATE_PAUSED);
      const std::string error = live.out.wait();
      return error.find("no frame on channel") != std::string::npos ? "" : "without frames: " + error;
    });
    EXPECT_EQ(problem, "") << options;
  }
}

TEST(Peers, LiveSrcGivesNothingWhilePaused) {
  const std::string channel = new_channel();
  Pipeline in("appsrc name=in format=time ! gpumapsink name=sink channel=" + channel);
  gst_app_src_set_caps(in.appsrc(), new_caps("application/octet-stream").get());
  Pipeline out("gpumapsrc name=src is-live=true channel=" + channel + " ! appsink name=out sync=false async=false");
  ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(out.reach(GST_STATE_PLAYING));
  push(in.appsrc(), new_buffer(random_data(100, 0)));
  ASSERT_NE(pull(out.appsink()), nullptr);
  // The src waits for a frame: one that comes after the pause has to wait, too.
  ASSERT_TRUE(out.reach(GST_STATE_PAUSED));
  push(in.appsrc(), new_buffer(random_data(100, 1)));
  g_usleep(300000);
  EXPECT_EQ(stat(out.element("src"), "frames"), 1U);
  ASSERT_TRUE(out.reach(GST_STATE_PLAYING));
  EXPECT_NE(pull(out.appsink()), nullptr);
}

// What is-live was when the src started is what counts: a change comes with the next start.
TEST(Peers, LivenessChangesAtTheNextStart) {
  Live live("");
  ASSERT_TRUE(live.plays());
  g_object_set(live.out.element("src"), "is-live", TRUE, nullptr);
  EXPECT_NE(live.out.set_state(GST_STATE_PAUSED), GST_STATE_CHANGE_NO_PREROLL);
  live.out.stop();
  EXPECT_EQ(live.out.set_state(GST_STATE_PAUSED), GST_STATE_CHANGE_NO_PREROLL);
}

// As gst-launch-1.0 -e does on Ctrl-C: the src's pipeline ends, and with it what feeds the sink.
TEST(Peers, EosSentToTheSrcsPipeline) {
  Live live("is-live=true");
  ASSERT_TRUE(live.plays());
  ASSERT_TRUE(gst_element_send_event(live.out.get(), gst_event_new_eos()));
  EXPECT_EQ(live.out.wait(), "eos");
  EXPECT_EQ(live.in.wait(), "eos");
}

TEST(Peers, EosSentToASrcThatWaits) {
  for (const char* options : {"", "is-live=true"}) {
    Pipeline pipeline(on_new_channel(std::string("gpumapsrc $CHANNEL ") + options + " ! fakesink"));
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    g_usleep(100000);
    ASSERT_TRUE(gst_element_send_event(pipeline.get(), gst_event_new_eos())) << options;
    EXPECT_EQ(pipeline.wait(), "eos") << options;
  }
}

TEST(Peers, SrcAloneStopsAtOnce) {
  Pipeline pipeline(on_new_channel("gpumapsrc $CHANNEL ! fakesink"));
  for (const GstState state : {GST_STATE_PAUSED, GST_STATE_PLAYING}) {
    const auto problem = best_of_three([&]() -> std::string {
      if (pipeline.set_state(state) == GST_STATE_CHANGE_FAILURE) return "no state";
      g_usleep(200000);
      const Time took = pipeline.stop();
      return took < 500ms ? "" : "stopped after " + std::to_string(took.count()) + " ms";
    });
    EXPECT_EQ(problem, "");
  }
}

TEST(Peers, SinkThatComesLater) {
  const std::string channel = new_channel();
  Pipeline out("gpumapsrc timeout=30000 channel=" + channel + " ! gpumapkernel kernel=checksum ! fakesink");
  ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  g_usleep(200000);
  Pipeline in("videotestsrc num-buffers=10 ! video/x-raw,format=NV12,width=64,height=48 ! gpumapsink channel=" +
              channel);
  ASSERT_EQ(in.run(), "eos");
  ASSERT_EQ(out.wait(), "eos");
  EXPECT_EQ(out.results().size(), 10U);
}

TEST(Peers, TwoSinksAreAnErrorThatNamesBoth) {
  const std::string channel = new_channel();
  Pipeline first(source + ("gpumapsink name=first channel=" + channel));
  ASSERT_NE(first.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(eventually([&] { return stat(first.element("first"), "frames") == 8; }));
  Pipeline second(source + ("gpumapsink name=second channel=" + channel));
  const std::string error = second.run();
  EXPECT_THAT(error, HasSubstr("first"));
  EXPECT_THAT(error, HasSubstr('"' + channel + '"'));
  EXPECT_EQ(second.culprit(), "second");
  second.stop();
  // The first goes on, and once it is gone the channel is free.
  Pipeline out("gpumapsrc channel=" + channel + " ! fakesink name=out");
  ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  EXPECT_TRUE(eventually([&] { return stat(first.element("first"), "frames") > 50; }));
  first.stop();
  EXPECT_NE(second.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  EXPECT_TRUE(eventually([&] { return stat(second.element("second"), "frames") > 10; }));
}

TEST(Peers, TwoSrcsAreAnErrorThatNamesBoth) {
  const std::string channel = new_channel();
  Pipeline first("gpumapsrc name=first channel=" + channel + " ! fakesink");
  ASSERT_NE(first.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  Pipeline second("gpumapsrc name=second channel=" + channel + " ! fakesink");
  const std::string error = second.run();
  EXPECT_THAT(error, HasSubstr("first"));
  EXPECT_THAT(error, HasSubstr('"' + channel + '"'));
  EXPECT_EQ(second.culprit(), "second");
}

/// Frames of this pair of names go from `in` to `out`, and no others.
void expect_to_meet(const Pipeline& in, const Pipeline& out, const std::string& names, std::uint64_t seed) {
  SCOPED_TRACE(names);
  for (std::uint64_t i = 0; i < 10; ++i) {
    const Data data = random_data(1003, seed + i);
    push(in.appsrc(("in" + names).c_str()), new_buffer(data, i * GST_MSECOND));
    const Sample sample = pull(out.appsink(("out" + names).c_str()));
    ASSERT_NE(sample, nullptr);
    ASSERT_EQ(data_of(gst_sample_get_buffer(sample.get())), data);
  }
}

/// No sink waits for its first frame: one pipeline has several, and would not play before all of them have theirs.
std::string sink_line(const std::string& channel, const std::string& names) {
  return "appsrc name=in" + names +
         " format=time caps=application/octet-stream ! gpumapsink async=false channel=" + channel + " ";
}
std::string src_line(const std::string& channel, const std::string& names) {
  return "gpumapsrc channel=" + channel + " ! appsink name=out" + names + " sync=false async=false ";
}

// One launch line for each medium of an RTSP server, one description for each bin: the other end is the one nearby.
TEST(Names, OfPairsAreTheirBinsOwn) {
  const std::string channel = new_channel();
  const std::string line = sink_line(channel, "") + src_line(channel, "");
  Pipeline one(line);
  Pipeline two(line);
  Pipeline bins(sink_line(channel, "") + src_line(channel, ""));
  for (const char* names : {"1", "2"}) {
    GstElement* bin =
        gst_parse_bin_from_description((sink_line(channel, names) + src_line(channel, names)).c_str(), FALSE, nullptr);
    gst_bin_add(GST_BIN(bins.get()), bin);
  }
  Pipeline apart_in(sink_line(channel, ""));
  Pipeline apart_out(src_line(channel, ""));
  for (Pipeline* pipeline : {&apart_out, &one, &bins, &two, &apart_in}) {
    ASSERT_NE(pipeline->set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE) << pipeline->wait(1ms);
  }
  for (std::uint64_t round = 0; round < 2; ++round) {
    const std::uint64_t seed = round * 1000;
    expect_to_meet(one, one, "", seed);
    expect_to_meet(two, two, "", seed + 100);
    expect_to_meet(bins, bins, "", seed + 200);
    expect_to_meet(bins, bins, "1", seed + 300);
    expect_to_meet(bins, bins, "2", seed + 400);
    expect_to_meet(apart_in, apart_out, "", seed + 500);
  }
}

// Each recalculates its latency when the other one tells of its own, as gst-launch-1.0 does.
TEST(Peers, TwoThatGiveEachOtherStreamsAgreeOnALatency) {
  const std::string there = new_channel(), back = new_channel();
  const auto line = [](const std::string& gives, const std::string& takes) {
    return "audiotestsrc is-live=true ! gpumapsink sync=false channel=" + gives +
           " gpumapsrc name=src channel=" + takes + " ! fakesink async=false";
  };
  Pipeline one(line(there, back)), two(line(back, there));
  std::array<int, 2> told{};
  const auto hear = [&](std::size_t which, const Pipeline& pipeline) {
    const Ptr<GstBus> bus(gst_element_get_bus(pipeline.get()));
    const Ptr<GstMessage> message(gst_bus_timed_pop_filtered(bus.get(), 200 * GST_MSECOND, GST_MESSAGE_LATENCY));
    if (!message) return false;
    ++told.at(which);
    gst_bin_recalculate_latency(GST_BIN(pipeline.get()));
    return true;
  };
  for (Pipeline* pipeline : {&one, &two}) ASSERT_NE(pipeline->set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  for (Pipeline* pipeline : {&one, &two}) {
    ASSERT_TRUE(eventually([&] { return stat(pipeline->element("src"), "frames") >= 3; }));
  }
  constexpr int many = 50;
  while (told[0] < many && told[1] < many && (hear(0, one) || hear(1, two))) {
  }
  EXPECT_LT(told[0], many);
  EXPECT_LT(told[1], many);
}

// Whichever end is added to a pipeline that plays finds the one that was alone there.
TEST(Names, OfAnEndThatComesLaterAreThoseOfTheOtherEnd) {
  for (const bool sink_first : {true, false}) {
    const std::string channel = new_channel();
    Pipeline pipeline(sink_first ? sink_line(channel, "") : src_line(channel, ""));
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    GstElement* bin = gst_parse_bin_from_description(
        (sink_first ? src_line(channel, "") : sink_line(channel, "")).c_str(), FALSE, nullptr);
    gst_bin_add(GST_BIN(pipeline.get()), bin);
    ASSERT_TRUE(gst_element_sync_state_with_parent(bin));
    expect_to_meet(pipeline, pipeline, "", 7);
  }
}

// Two channels in one process keep out of each other's way.
TEST(Peers, TwoChannels) {
  Pipeline pipeline(
      on_new_channel("videotestsrc num-buffers=30 ! video/x-raw,format=GRAY8,width=33,height=7 ! "
                     "gpumapsink $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel kernel=checksum ! fakesink "
                     "audiotestsrc num-buffers=20 ! audio/x-raw,format=S16LE,channels=1 ! "
                     "gpumapsink channel=another gpumapsrc channel=another ! "
                     "gpumapkernel kernel=checksum ! fakesink"));
  ASSERT_EQ(pipeline.run(), "eos");
  std::size_t video = 0, audio = 0;
  for (const Result& result : pipeline.results()) {
    video += result.bytes == 252 ? 1U : 0U;
    audio += result.bytes == 2048 ? 1U : 0U;
  }
  EXPECT_EQ(video, 30U);
  EXPECT_EQ(audio, 20U);
}

// Downstream has had enough: upstream of the sink is told, instead of waiting for slots for ever.
class DownstreamEnds : public testing::TestWithParam<const char*> {};
TEST_P(DownstreamEnds, UpstreamStopsToo) {
  Pipeline pipeline(on_new_channel(GetParam()));
  ASSERT_EQ(pipeline.run(), "eos");
  EXPECT_LT(pipeline.stop(), at_once);
}
INSTANTIATE_TEST_SUITE_P(
    Pipelines, DownstreamEnds,
    testing::Values("videotestsrc ! video/x-raw,format=NV12,width=64,height=48 ! gpumapsink $CHANNEL slots=2 "
                    "gpumapsrc $CHANNEL ! identity eos-after=3 ! fakesink",
                    "audiotestsrc ! gpumapsink $CHANNEL slots=2 "
                    "gpumapsrc $CHANNEL ! gpumapkernel ! identity eos-after=3 ! fakesink",
                    "filesrc location=/dev/zero ! gpumapsink $CHANNEL slots=2 "
                    "gpumapsrc $CHANNEL ! identity eos-after=3 ! fakesink"));

TEST(Peers, DownstreamErrorEndsUpstream) {
  Pipeline pipeline(
      on_new_channel("videotestsrc name=in ! video/x-raw,format=NV12,width=64,height=48 ! "
                     "gpumapsink name=sink $CHANNEL slots=2 gpumapsrc $CHANNEL ! "
                     "identity error-after=3 ! fakesink"));
  EXPECT_NE(pipeline.run(), "timeout");
  EXPECT_NE(pipeline.error(), "");
  const Pad pad(gst_element_get_static_pad(pipeline.element("in"), "src"));
  EXPECT_TRUE(eventually([&] { return gst_pad_get_task_state(pad.get()) == GST_TASK_PAUSED; }));
  EXPECT_LT(pipeline.stop(), at_once);
}

}  // namespace
}  // namespace gpumap::gst::test
