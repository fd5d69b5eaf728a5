// SPDX-License-Identifier: MIT
// What an encoder or a muxer behind a gpumapsrc makes of a stream: whole, in order, and nothing twice, whatever becomes
// of either pipeline meanwhile.
#include <gst/video/video-event.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <iterator>

#include "due.hpp"
#include "temporary_folder.hpp"
#include "watch.hpp"

namespace gpumap::gst::test {
namespace {

// One that is faster than time, and starts again: behind what is recorded, not over it. A flush drops that, and what
// comes behind it waits for nothing.
TEST(TwoPipelines, ARecordingGoesOnBehindARestart) {
  Due raw;
  const std::string channel = new_channel();
  Pipeline in(
      "videotestsrc ! video/x-raw,format=I420,width=16,height=16,framerate=5/1 ! gpumapsink name=sink channel=" +
      channel);
  Pipeline out("gpumapsrc channel=" + channel + " ! x264enc name=enc ! fakesink sync=false");
  raw.watch(out.element("enc"), "sink");
  ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  for (const std::size_t until : {100, 200, 300}) {
    ASSERT_TRUE(eventually([&] { return raw.count() >= until; }));
    in.stop();
    ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  }
  ASSERT_TRUE(eventually([&] { return raw.count() >= 400; }));
  std::size_t before = 0;
  {
    const std::lock_guard lock(raw.mutex);
    before = raw.running.size();
    ASSERT_TRUE(std::ranges::is_sorted(raw.running));
    EXPECT_GT(raw.running.back(), 60 * GST_SECOND);
  }
  ASSERT_TRUE(gst_element_seek_simple(in.element("sink"), GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH, 0));
  ASSERT_TRUE(eventually([&] {
    const std::lock_guard lock(raw.mutex);
    return std::any_of(raw.running.begin() + static_cast<std::ptrdiff_t>(before), raw.running.end(),
                       [](GstClockTime due) { return due < 30 * GST_SECOND; });
  }));
  out.stop();
}

/// How many segments begin behind the first buffer.
struct SegmentsAmid {
  Due& buffers;
  std::atomic<int> count{0};

  static GstPadProbeReturn note(GstPad* /*pad*/, GstPadProbeInfo* info, gpointer user) {
    auto* self = static_cast<SegmentsAmid*>(user);
    const bool begins = GST_EVENT_TYPE(GST_PAD_PROBE_INFO_EVENT(info)) == GST_EVENT_SEGMENT;
    if (begins && self->buffers.count() > 0) ++self->count;
    return GST_PAD_PROBE_OK;
  }
};

// Sound has no gap, and encoders begin anew at each segment (flacenc of GStreamer 1.22 ends the process there).
TEST(TwoPipelines, ARecordingOfSoundHasOneTimeFromItsFirstSample) {
  const std::vector<std::string> starts{"consumer first", "producer first", "consumer first, of a live producer"};
  side_by_side(starts, [&starts](const std::string& start) {
    Due raw;
    SegmentsAmid segments{raw};
    const std::string channel = new_channel();
    Pipeline in(std::string("audiotestsrc num-buffers=40 samplesperbuffer=1920 is-live=") +
                (start == starts[2] ? "true" : "false") +
                " ! audio/x-raw,format=S16LE,rate=48000,channels=1 ! gpumapsink channel=" + channel);
    Pipeline out("gpumapsrc channel=" + channel + " ! opusenc name=enc ! fakesink sync=false");
    raw.watch(out.element("enc"), "sink");
    const Pad pad(gst_element_get_static_pad(out.element("enc"), "sink"));
    gst_pad_add_probe(pad.get(), GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM, SegmentsAmid::note, &segments, nullptr);
    std::vector<Pipeline*> both{&out, &in};
    if (start == starts[1]) std::ranges::reverse(both);
    for (Pipeline* pipeline : both) {
      ASSERT_NE(pipeline->set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
      g_usleep(100'000);
    }
    EXPECT_EQ(out.wait(), "eos");
    const std::lock_guard lock(raw.mutex);
    ASSERT_EQ(raw.running.size(), 40U);
    EXPECT_LT(raw.running[0], 50 * GST_MSECOND);
    for (std::size_t i = 1; i < raw.running.size(); ++i) {
      EXPECT_EQ(raw.running[i] - raw.running[i - 1], 40 * GST_MSECOND) << i;
    }
    EXPECT_EQ(segments.count, 0);
  });
}

// Nothing goes back in a recording that is paused, nor does the pause last in it: a live producer plays on meanwhile,
// another waits. Where the producer is paused the time here goes on. Frames that the encoder reorders keep theirs.
TEST(TwoPipelines, ARecordingGoesOnBehindAPause) {
  const std::vector<std::string> names{
      "a producer that waits", "a live one", "a live one that drops frames", "a live one beside another source",
      "the producer",          "both"};
  side_by_side(names, [&names](const std::string& name) {
    const auto is = [&](std::size_t n) { return name == names[n]; };
    Due raw, encoded;
    const std::string channel = new_channel();
    Pipeline in(std::string("videotestsrc is-live=") + (is(0) ? "false" : "true") +
                " ! video/x-raw,format=I420,width=16,height=16,framerate=50/1 ! gpumapsink leaky=" +
                (is(2) ? "oldest" : "no") + " channel=" + channel);
    Pipeline out("gpumapsrc channel=" + channel +
                 " ! x264enc name=enc rc-lookahead=5 sync-lookahead=0 bframes=3 b-adapt=false ! "
                 "identity name=out sleep-time=5000 ! fakesink sync=false" +
                 (is(3) ? " audiotestsrc is-live=true ! fakesink sync=false async=false" : ""));
    raw.watch(out.element("enc"), "sink");
    encoded.watch(out.element("out"), "sink");
    ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    std::vector<Pipeline*> paused;
    if (!is(4)) paused.push_back(&out);
    if (is(4) || is(5)) paused.push_back(&in);
    std::size_t from = 0;  // what comes before time begins, and its encoder's, is due as it begins beside other sources
    for (const std::size_t until : {50, 100, 150}) {
      ASSERT_TRUE(eventually([&] { return encoded.count() >= until; }));
      if (from == 0) from = raw.count() - 1;
      for (Pipeline* const one : paused) {
        ASSERT_NE(one->set_state(GST_STATE_PAUSED), GST_STATE_CHANGE_FAILURE);
        g_usleep(200'000);
      }
      g_usleep(800'000);
      std::ranges::reverse(paused);
      for (Pipeline* const one : paused) {
        ASSERT_NE(one->set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
        g_usleep(200'000);
      }
      std::ranges::reverse(paused);
    }
    ASSERT_TRUE(eventually([&] { return encoded.count() >= 200; }));
    out.stop();
    raw.running.erase(raw.running.begin(), raw.running.begin() + static_cast<std::ptrdiff_t>(from));
    int gaps = 0;
    for (std::size_t n = 1; n < raw.running.size(); ++n) {
      EXPECT_LT(raw.running[n - 1], raw.running[n]) << n;
      if (raw.running[n] - raw.running[n - 1] > 700 * GST_MSECOND) ++gaps;
    }
    EXPECT_EQ(gaps, is(4) ? 3 : 0);
    std::ranges::sort(encoded.running);
    const auto begin = std::ranges::lower_bound(encoded.running, raw.running[0]);
    std::vector<GstClockTime> others;  // each once
    std::set_difference(begin, encoded.running.end(), raw.running.begin(), raw.running.end(),
                        std::back_inserter(others));
    EXPECT_THAT(others, testing::IsEmpty());
  });
}

struct Flow {
  std::atomic<std::size_t> asked{0};

  /// Says of each frame but the first that it needs others.
  static GstPadProbeReturn give(GstPad* /*pad*/, GstPadProbeInfo* info, gpointer /*user*/) {
    GstBuffer* const buffer = gst_buffer_make_writable(GST_PAD_PROBE_INFO_BUFFER(info));
    if (GST_BUFFER_PTS(buffer) != 0) GST_BUFFER_FLAG_SET(buffer, GST_BUFFER_FLAG_DELTA_UNIT);
    GST_PAD_PROBE_INFO_DATA(info) = buffer;
    return GST_PAD_PROBE_OK;
  }
  static GstPadProbeReturn ask(GstPad* /*pad*/, GstPadProbeInfo* info, gpointer user) {
    if (gst_video_event_is_force_key_unit(GST_PAD_PROBE_INFO_EVENT(info)) != 0) ++static_cast<Flow*>(user)->asked;
    return GST_PAD_PROBE_OK;
  }
};

// A live stream of which a part is left out in a pause, and which has one key frame, or says of nothing that it is one.
TEST(TwoPipelines, ARecordingWaitsForNoKeyFrameWithoutEnd) {
  Due recorded;
  Flow flow;
  const std::string channel = new_channel();
  Pipeline in(
      "videotestsrc name=film is-live=true ! video/x-raw,format=I420,width=16,height=16,framerate=50/1 ! gpumapsink "
      "channel=" +
      channel);
  Pipeline out("gpumapsrc name=src channel=" + channel + " ! matroskamux ! fakesink sync=false");
  const Pad film(gst_element_get_static_pad(in.element("film"), "src"));
  gst_pad_add_probe(film.get(), GST_PAD_PROBE_TYPE_BUFFER, Flow::give, nullptr, nullptr);
  gst_pad_add_probe(film.get(), GST_PAD_PROBE_TYPE_EVENT_UPSTREAM, Flow::ask, &flow, nullptr);
  recorded.watch(out.element("src"), "src");
  ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(eventually([&] { return recorded.count() >= 50; }));
  EXPECT_EQ(flow.asked, 0U);
  ASSERT_NE(out.set_state(GST_STATE_PAUSED), GST_STATE_CHANGE_FAILURE);
  g_usleep(300'000);
  const std::size_t before = recorded.count();
  ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(eventually([&] { return recorded.count() >= before + 50; }));
  EXPECT_EQ(flow.asked, 1U);
  const std::lock_guard lock(recorded.mutex);
  EXPECT_TRUE(std::ranges::is_sorted(recorded.running));
}

// What comes before it is left out by the muxer, whose pipeline plays only then.
TEST(TwoPipelines, ARecordingThatBeginsBetweenKeyFramesGoesNotBack) {
  const TemporaryFolder folder;
  Due recorded;
  const std::string channel = new_channel();
  Pipeline in(
      "videotestsrc is-live=true ! video/x-raw,format=I420,width=16,height=16,framerate=50/1 ! x264enc name=enc "
      "tune=zerolatency key-int-max=100 ! h264parse ! gpumapsink name=sink leaky=oldest slot-size=65536 channel=" +
      channel);
  ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(eventually([&] { return stat(in.element("sink"), "frames") > 120; }));
  Pipeline out("gpumapsrc name=src channel=" + channel + " ! h264parse ! splitmuxsink max-size-time=500000000 " +
               "send-keyframe-requests=true muxer=matroskamux location=" + std::string(folder.path() / "%d.mkv"));
  recorded.watch(out.element("src"), "src");
  ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(eventually([&] { return recorded.count() > 250; }));
  out.stop();
  for (std::size_t n = 1; n < recorded.running.size(); ++n) {
    ASSERT_LT(recorded.running[n - 1], recorded.running[n]) << n;
  }
  // Of half a second each: key frames come when they are asked for.
  EXPECT_GT(std::distance(std::filesystem::directory_iterator(folder.path()), std::filesystem::directory_iterator()),
            4);
}

/// A key frame that is asked for, upstream or downstream: at which running time. Filled by a probe.
struct KeyFrames {
  std::mutex mutex;
  std::vector<GstClockTime> times;

  void watch(GstElement* element, const char* pad_name, GstPadProbeType direction) {
    const Pad pad(gst_element_get_static_pad(element, pad_name));
    gst_pad_add_probe(pad.get(), direction, note, this, nullptr);
  }
  static GstPadProbeReturn note(GstPad* /*pad*/, GstPadProbeInfo* info, gpointer user) {
    auto* const self = static_cast<KeyFrames*>(user);
    GstEvent* const event = GST_PAD_PROBE_INFO_EVENT(info);
    GstClockTime time = 0;
    if (gst_video_event_is_force_key_unit(event) == 0 ||
        gst_structure_get_clock_time(gst_event_get_structure(event), "running-time", &time) == 0) {
      return GST_PAD_PROBE_OK;
    }
    const std::lock_guard lock(self->mutex);
    self->times.push_back(time);
    return GST_PAD_PROBE_OK;
  }
};

// As splitmuxsink asks for them, and an encoder tells of them.
TEST(TwoPipelines, AKeyFrameIsAskedForAtTheSameMoment) {
  Due due;
  KeyFrames asked, told;
  const std::string channel = new_channel();
  Pipeline in(
      "videotestsrc name=film is-live=true ! video/x-raw,format=I420,width=16,height=16,framerate=50/1 ! gpumapsink "
      "name=sink channel=" +
      channel);
  ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  g_usleep(500'000);
  Pipeline out("gpumapsrc channel=" + channel + " ! fakesink name=out");
  due.watch(out.element("out"), "sink");
  told.watch(out.element("out"), "sink", GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM);
  asked.watch(in.element("film"), "src", GST_PAD_PROBE_TYPE_EVENT_UPSTREAM);
  ASSERT_TRUE(out.reach(GST_STATE_PLAYING));
  ASSERT_TRUE(eventually([&, before = due.count()] { return due.count() > before + 5; }));
  const GstClockTime later = gst_element_get_base_time(out.get()) - gst_element_get_base_time(in.get());
  ASSERT_GE(later, 500 * GST_MSECOND);
  const Pad here(gst_element_get_static_pad(out.element("out"), "sink"));
  for (const GstClockTime time : std::vector<GstClockTime>{10 * GST_SECOND, GST_CLOCK_TIME_NONE}) {
    gst_pad_push_event(here.get(), gst_video_event_new_upstream_force_key_unit(time, TRUE, 3));
  }
  const Pad there(gst_element_get_static_pad(in.element("film"), "src"));
  const auto tell = [&](GstClockTime time) {
    return gst_pad_push_event(there.get(), gst_video_event_new_downstream_force_key_unit(0, 0, time, TRUE, 3));
  };
  EXPECT_TRUE(tell(20 * GST_SECOND));
  EXPECT_TRUE(tell(later / 2));  // before time began there
  EXPECT_TRUE(eventually([&] {
    const std::lock_guard lock(told.mutex);
    return told.times.size() == 2;
  }));
  EXPECT_THAT(told.times, testing::ElementsAre(20 * GST_SECOND - later, 0));
  EXPECT_THAT(asked.times, testing::ElementsAre(10 * GST_SECOND + later, GST_CLOCK_TIME_NONE));
}

// Its stamps stand still in a pause, as the running time does.
TEST(DoTimestamp, GoesBackInNoPause) {
  Due due;
  const std::string channel = new_channel();
  Pipeline in(
      "videotestsrc is-live=true ! video/x-raw,format=I420,width=16,height=16,framerate=50/1 ! gpumapsink "
      "leaky=oldest channel=" +
      channel);
  Pipeline out("gpumapsrc name=src do-timestamp=true channel=" + channel + " ! queue ! fakesink sync=false");
  due.watch(out.element("src"), "src");
  ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  g_usleep(300'000);
  ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  for (const std::size_t until : {20, 40, 60}) {
    ASSERT_TRUE(eventually([&] { return due.count() >= until; }));
    ASSERT_TRUE(out.reach(GST_STATE_PAUSED));
    g_usleep(300'000);
    ASSERT_TRUE(out.reach(GST_STATE_PLAYING));
  }
  ASSERT_TRUE(eventually([&] { return due.count() >= 80; }));
  const std::lock_guard lock(due.mutex);
  EXPECT_TRUE(std::ranges::is_sorted(due.running));
  EXPECT_LT(due.running[79], gst_element_get_current_running_time(out.element("src"))) << "the pauses are in it";
}

// A flush empties a file that is written.
TEST(Recording, IsNotEmptiedByAProducerThatBeginsAnew) {
  const TemporaryFolder folder;
  const std::string channel = new_channel();
  const std::string file = folder.path() / "film.mkv";
  Pipeline in(
      "videotestsrc num-buffers=50 ! video/x-raw,format=I420,width=16,height=16,framerate=50/1 ! gpumapsink channel=" +
      channel);
  Pipeline out("gpumapsrc channel=" + channel +
               " ! tee ! queue max-size-buffers=2 ! matroskamux ! filesink name=file location=" + file);
  ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_EQ(in.run(), "eos");
  ASSERT_EQ(out.wait(), "eos");
  const auto bytes = std::filesystem::file_size(file);
  ASSERT_GT(bytes, 50U * 16 * 16);
  ASSERT_TRUE(in.reach(GST_STATE_NULL));
  ASSERT_EQ(in.run(), "eos");
  const Ptr<GstBus> bus(gst_element_get_bus(out.get()));
  const Ptr<GstMessage> message(gst_bus_timed_pop_filtered(bus.get(), 10 * GST_SECOND, GST_MESSAGE_WARNING));
  ASSERT_TRUE(message);
  GError* warning = nullptr;
  gst_message_parse_warning(message.get(), &warning, nullptr);
  EXPECT_THAT(warning->message, testing::HasSubstr("which a flush would empty"));
  g_error_free(warning);
  EXPECT_EQ(std::filesystem::file_size(file), bytes);
  out.stop();
  EXPECT_EQ(std::filesystem::file_size(file), bytes);
  // The next recording is one.
  const std::string next = folder.path() / "next.mkv";
  g_object_set(out.element("file"), "location", next.c_str(), nullptr);
  ASSERT_TRUE(in.reach(GST_STATE_NULL));  // else the end of its last stream may come first
  ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_EQ(in.run(), "eos");
  ASSERT_EQ(out.wait(), "eos");
  EXPECT_EQ(std::filesystem::file_size(next), bytes);
}

}  // namespace
}  // namespace gpumap::gst::test
