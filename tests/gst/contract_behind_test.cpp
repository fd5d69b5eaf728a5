// SPDX-License-Identifier: MIT
// Elements between gpumapsrc and the sinks that answer for themselves (demuxers, mixers) do so as behind a queue; what
// they ask of upstream arrives there.
#include <atomic>
#include <filesystem>

#include "pipeline.hpp"
#include "temporary_folder.hpp"
#include "watch.hpp"

namespace gpumap::gst::test {
namespace {

const std::string picture = "video/x-raw,format=I420,width=64,height=48,framerate=30/1 ! ";

/// gpumapsink is the newest of the pipeline's sinks, which is asked first.
std::string behind(const std::string& head, const std::string& tail, const std::string& name) {
  return on_new_channel(tail + "   " + head + " ! gpumapsink name=sink $CHANNEL gpumapsrc $CHANNEL name=src ! " + name +
                        ".");
}

GstMessage* message(const Pipeline& pipeline, GstMessageType type, Time limit = patience) {
  const std::shared_ptr<GstBus> bus(gst_element_get_bus(pipeline.get()), gst_object_unref);
  return gst_bus_timed_pop_filtered(bus.get(), static_cast<GstClockTime>(std::chrono::nanoseconds(limit).count()),
                                    type);
}

void expect_seek(const Pipeline& pipeline, GstClockTime expected) {
  const auto began = std::chrono::steady_clock::now();
  ASSERT_TRUE(
      gst_element_seek_simple(pipeline.get(), GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH, static_cast<gint64>(expected)));
  GstMessage* done = message(pipeline, GST_MESSAGE_ASYNC_DONE);
  ASSERT_NE(done, nullptr);
  gst_message_unref(done);
  // The message may be an older one that came late: then there is no position yet, or the one before. The right one
  // goes on with the clock, for as long as this thread may be away.
  gint64 at = -1;
  constexpr auto tolerance = 150 * static_cast<gint64>(GST_MSECOND);
  const auto is_there = [&] {
    if (gst_element_query_position(pipeline.get(), GST_FORMAT_TIME, &at) == 0) return false;
    const std::chrono::nanoseconds since = std::chrono::steady_clock::now() - began;
    const gint64 from = at - static_cast<gint64>(expected);
    return from > -tolerance && from < since.count() + tolerance;
  };
  EXPECT_TRUE(eventually(is_there, 10s)) << "at " << at << ", expected " << expected;
}

TEST(Seeks, AreTheDemuxersToTranslate) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "behind.wav";
  {
    Pipeline film(
        "audiotestsrc wave=white-noise num-buffers=400 samplesperbuffer=441 ! audio/x-raw,rate=44100,channels=1 "
        "! wavenc ! filesink location=" +
        path);
    ASSERT_EQ(film.run(), "eos");
  }
  Pipeline pipeline(behind("filesrc location=" + path, "wavparse name=parse ! fakesink name=out sync=true", "parse"));
  ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING)) << pipeline.error();
  while (GstMessage* old = message(pipeline, GST_MESSAGE_ASYNC_DONE, 0ms)) gst_message_unref(old);
  for (const GstClockTime to : {2 * GST_SECOND, 1 * GST_SECOND, 3 * GST_SECOND}) {
    expect_seek(pipeline, to);
  }
  EXPECT_EQ(pipeline.wait(), "eos");
}

TEST(Seeks, AreTheMixersToMake) {
  Pipeline pipeline(
      behind("videotestsrc ! " + picture + "identity", "compositor name=mix ! fakesink name=out sync=true", "mix"));
  ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING)) << pipeline.error();
  while (GstMessage* old = message(pipeline, GST_MESSAGE_ASYNC_DONE, 0ms)) gst_message_unref(old);
  for (const GstClockTime to : {5 * GST_SECOND, 1 * GST_SECOND, 8 * GST_SECOND}) {
    expect_seek(pipeline, to);
  }
}

// The pipeline's, whose caller keeps it.
TEST(Seeks, OfWhoKeepsTheEventGoOnceToo) {
  Watch out;
  Pipeline pipeline(behind("videotestsrc ! " + picture + "identity", "fakesink name=out sync=true", "out"));
  out.on(pipeline.element("out"));
  ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING)) << pipeline.error();
  GstEvent* event = gst_event_new_seek(1.0, GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH, GST_SEEK_TYPE_SET, GST_SECOND,
                                       GST_SEEK_TYPE_NONE, 0);
  ASSERT_TRUE(gst_element_send_event(pipeline.get(), gst_event_ref(event)));
  gst_event_unref(event);
  EXPECT_TRUE(eventually([&] { return out.events(GST_EVENT_FLUSH_STOP) == 1; }));
  g_usleep(100000);
  EXPECT_EQ(out.events(GST_EVENT_FLUSH_STOP), 1U);
}

// To the element itself: there is no other that would do it.
TEST(Seeks, OfTheSinkAreItsOwn) {
  Watch out;
  Pipeline pipeline(behind("videotestsrc ! " + picture + "identity", "fakesink name=out sync=true", "out"));
  out.on(pipeline.element("out"));
  ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING)) << pipeline.error();
  ASSERT_TRUE(gst_element_seek_simple(pipeline.element("sink"), GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH, GST_SECOND));
  EXPECT_TRUE(eventually([&] { return out.events(GST_EVENT_FLUSH_STOP) == 1; }));
}

TEST(Queries, GoOnUpstream) {
  Pipeline pipeline(behind("videotestsrc ! " + picture + "identity name=before", "fakesink name=out sync=true", "out"));
  ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING)) << pipeline.error();
  static std::atomic<unsigned> seen;
  seen = 0;
  const Pad before(gst_element_get_static_pad(pipeline.element("before"), "src"));
  gst_pad_add_probe(
      before.get(), static_cast<GstPadProbeType>(GST_PAD_PROBE_TYPE_QUERY_UPSTREAM | GST_PAD_PROBE_TYPE_PUSH),
      [](GstPad*, GstPadProbeInfo*, gpointer) {
        ++seen;
        return GST_PAD_PROBE_OK;
      },
      nullptr, nullptr);
  const Pad out(gst_element_get_static_pad(pipeline.element("out"), "sink"));
  unsigned asked = 0;
  for (GstQuery* query : {gst_query_new_convert(GST_FORMAT_DEFAULT, 30, GST_FORMAT_TIME),
                          gst_query_new_segment(GST_FORMAT_TIME), gst_query_new_formats(), gst_query_new_uri(),
                          gst_query_new_context("other"), gst_query_new_duration(GST_FORMAT_TIME),
                          gst_query_new_position(GST_FORMAT_TIME), gst_query_new_seeking(GST_FORMAT_TIME),
                          gst_query_new_custom(GST_QUERY_CUSTOM, gst_structure_new_empty("question"))}) {
    const unsigned had = seen;
    (void)gst_pad_peer_query(out.get(), query);
    EXPECT_GT(seen, had) << gst_query_type_get_name(GST_QUERY_TYPE(query));
    gst_query_unref(query);
    ++asked;
  }
  EXPECT_EQ(asked, 9U);
  // What it says, too.
  GstQuery* convert = gst_query_new_convert(GST_FORMAT_DEFAULT, 30, GST_FORMAT_TIME);
  EXPECT_TRUE(gst_pad_peer_query(out.get(), convert));
  gint64 time = 0;
  gst_query_parse_convert(convert, nullptr, nullptr, nullptr, &time);
  EXPECT_EQ(time, static_cast<gint64>(GST_SECOND));
  gst_query_unref(convert);
}

// Streams of two channels that become one: each is of a group of its own.
TEST(StreamStart, IsToldOfSeveralChannels) {
  const std::string one = "videotestsrc num-buffers=5 ! " + picture;
  const auto channel = [] { return on_new_channel("gpumapsink $CHANNEL gpumapsrc $CHANNEL ! one. "); };
  Pipeline pipeline("concat name=one ! fakesink name=out " + one + channel() + one + channel());
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  GstMessage* start = message(pipeline, GST_MESSAGE_STREAM_START);
  EXPECT_NE(start, nullptr);
  if (start != nullptr) gst_message_unref(start);
  EXPECT_EQ(pipeline.wait(), "eos");
}

TEST(StreamStart, OfOneChannelKeepsItsGroup) {
  Pipeline pipeline(on_new_channel("videotestsrc num-buffers=5 ! " + picture +
                                   "gpumapsink $CHANNEL gpumapsrc $CHANNEL ! fakesink name=out"));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  GstMessage* start = message(pipeline, GST_MESSAGE_STREAM_START);
  ASSERT_NE(start, nullptr);
  guint group = 0;
  EXPECT_TRUE(gst_message_parse_group_id(start, &group));
  gst_message_unref(start);
}

// A GstBaseTransform answers with the time of what passed it last, which is ahead of what is shown.
TEST(Position, IsThatOfTheSinkBehindATransform) {
  Pipeline pipeline(behind("videotestsrc ! " + picture + "identity",
                           "identity name=mid ! queue max-size-buffers=100 ! fakesink name=out sync=true", "mid"));
  ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING)) << pipeline.error();
  g_usleep(700000);
  gint64 before = 0, all = 0, after = 0;
  ASSERT_TRUE(gst_element_query_position(pipeline.element("out"), GST_FORMAT_TIME, &before));
  ASSERT_TRUE(gst_element_query_position(pipeline.get(), GST_FORMAT_TIME, &all));
  ASSERT_TRUE(gst_element_query_position(pipeline.element("out"), GST_FORMAT_TIME, &after));
  constexpr auto tolerance = 50 * static_cast<gint64>(GST_MSECOND);
  EXPECT_GE(all, before - tolerance);
  EXPECT_LE(all, after + tolerance);
}

// What was made for the old caps still lies in the ring.
TEST(Caps, MayBeChangedFromDownstream) {
  Watch made, out;
  Pipeline pipeline(
      on_new_channel("videotestsrc name=from ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! capsfilter name=filter "
                     "caps=video/x-raw,width=64,height=64,framerate=30/1 ! fakesink name=out sync=true"));
  made.on(pipeline.element("from"), "src");
  out.on(pipeline.element("out"));
  ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING)) << pipeline.error();
  std::size_t changes = 1;
  const auto shown = [&] {
    return eventually(
        [&, before = out.count()] { return out.events(GST_EVENT_CAPS) >= changes && out.count() > before + 5; });
  };
  for (const int width : {128, 64, 130}) {
    ASSERT_TRUE(shown()) << out.order();
    ++changes;
    const Caps caps = new_caps("video/x-raw,height=64,framerate=30/1,width=" + std::to_string(width));
    g_object_set(pipeline.element("filter"), "caps", caps.get(), nullptr);
  }
  ASSERT_TRUE(shown()) << out.order();
  ASSERT_TRUE(gst_element_send_event(pipeline.get(), gst_event_new_eos()));
  EXPECT_EQ(pipeline.wait(), "eos");
  EXPECT_EQ(out.count(), made.count());
}

/// What `out` is told upstream can hold back, where upstream itself can hold 10 ms.
GstClockTime max_latency(const std::string& caps) {
  Pipeline pipeline(on_new_channel("videotestsrc is-live=true ! " + caps +
                                   "identity name=before ! gpumapsink slots=5 $CHANNEL gpumapsrc $CHANNEL ! fakesink "
                                   "name=out"));
  EXPECT_TRUE(pipeline.reach(GST_STATE_PLAYING)) << pipeline.error();
  const Pad before(gst_element_get_static_pad(pipeline.element("before"), "sink"));
  gst_pad_add_probe(
      before.get(), static_cast<GstPadProbeType>(GST_PAD_PROBE_TYPE_QUERY_UPSTREAM | GST_PAD_PROBE_TYPE_PUSH),
      [](GstPad*, GstPadProbeInfo* info, gpointer) {
        GstQuery* query = GST_PAD_PROBE_INFO_QUERY(info);
        if (GST_QUERY_TYPE(query) != GST_QUERY_LATENCY) return GST_PAD_PROBE_OK;
        gst_query_set_latency(query, TRUE, 10 * GST_MSECOND, 10 * GST_MSECOND);
        return GST_PAD_PROBE_HANDLED;
      },
      nullptr, nullptr);
  const Pad out(gst_element_get_static_pad(pipeline.element("out"), "sink"));
  GstQuery* query = gst_query_new_latency();
  EXPECT_TRUE(gst_pad_peer_query(out.get(), query));
  gboolean live = FALSE;
  GstClockTime least = 0, most = 0;
  gst_query_parse_latency(query, &live, &least, &most);
  gst_query_unref(query);
  EXPECT_TRUE(live);
  EXPECT_EQ(least, 10 * GST_MSECOND);
  return most;
}

TEST(Latency, CountsWhatTheRingHolds) {
  EXPECT_EQ(max_latency("video/x-raw,format=I420,width=64,height=48,framerate=25/1 ! "), 210 * GST_MSECOND);
}

TEST(Latency, HasNoEndWithoutAFrameRate) {
  EXPECT_EQ(max_latency("video/x-raw,format=I420,width=64,height=48,framerate=25/1 ! capssetter replace=true "
                        "caps=\"video/x-raw,format=I420,width=64,height=48,framerate=0/1\" ! "),
            GST_CLOCK_TIME_NONE);
}

// What elements ask across a channel and what an application sends into it: answered, and passed on, as with a queue in
// its place.

std::string gpumap_pair(const char* of_sink = "") {
  return on_new_channel("gpumapsink $CHANNEL " + std::string(of_sink) + " gpumapsrc $CHANNEL");
}

/// How downstream of `pad` answers. Takes the query.
std::string answer_at(GstPad* pad, GstQuery* query) {
  const bool answered = gst_pad_peer_query(pad, query) != 0;
  const GstStructure* structure = gst_query_get_structure(query);
  gchar* text = structure != nullptr ? gst_structure_to_string(structure) : g_strdup("");
  std::string answer = (answered ? "yes: " : "no: ") + std::string(text);
  g_free(text);
  gst_query_unref(query);
  return answer;
}

/// The answers to what muxers and others ask of downstream.
std::vector<std::string> answers_before(const std::string& passage, const std::string& file) {
  Pipeline pipeline("identity name=in ! " + passage + " ! filesink async=false location=" + file);
  EXPECT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  const Pad pad(gst_element_get_static_pad(pipeline.element("in"), "src"));
  return {answer_at(pad.get(), gst_query_new_seeking(GST_FORMAT_BYTES)),
          answer_at(pad.get(), gst_query_new_seeking(GST_FORMAT_TIME)),
          answer_at(pad.get(), gst_query_new_uri()),
          answer_at(pad.get(), gst_query_new_formats()),
          answer_at(pad.get(), gst_query_new_position(GST_FORMAT_BYTES)),
          answer_at(pad.get(), gst_query_new_duration(GST_FORMAT_BYTES)),
          answer_at(pad.get(), gst_query_new_context("gst.test.nobody"))};
}

TEST(Queries, UpstreamIsAnsweredByWhatFollows) {
  const TemporaryFolder folder;
  const std::string file = folder.path() / "out";
  const auto behind_a_queue = answers_before("queue", file);
  EXPECT_EQ(behind_a_queue[0].substr(0, 3), "yes");
  EXPECT_EQ(answers_before(gpumap_pair(), file), behind_a_queue);
}

// A muxer that may not go back to its header makes another file. One thread: x264's threads change the frames' sizes
// now and then.
TEST(Queries, AMuxerRewritesItsHeader) {
  const TemporaryFolder folder;
  for (const char* muxer : {"qtmux", "flvmux", "matroskamux"}) {
    SCOPED_TRACE(muxer);
    std::vector<std::uintmax_t> sizes;
    for (const std::string& passage : {std::string("queue"), gpumap_pair("slot-size=1048576")}) {
      const std::string file = folder.path() / muxer;
      std::string description = "videotestsrc num-buffers=20 ! video/x-raw,width=64,height=48 ! x264enc threads=1 ! ";
      description.append(muxer).append(" ! ").append(passage).append(" ! filesink location=").append(file);
      // matroskamux draws identifiers, whose leading zeros it does not write.
      g_random_set_seed(7);
      Pipeline pipeline(description);
      EXPECT_EQ(pipeline.run(), "eos");
      sizes.push_back(std::filesystem::file_size(file));
    }
    EXPECT_EQ(sizes[0], sizes[1]);
  }
}

gint64 duration_with(const std::string& passage) {
  Pipeline pipeline("videotestsrc num-buffers=100 ! video/x-raw,width=8,height=8,framerate=10/1 ! " + passage +
                    " ! videorate rate=2 ! fakesink");
  EXPECT_TRUE(pipeline.reach(GST_STATE_PAUSED)) << pipeline.error();
  gint64 duration = -1;
  EXPECT_TRUE(gst_element_query_duration(pipeline.get(), GST_FORMAT_TIME, &duration));
  return duration;
}

// A bin takes the longest of its sinks' answers; what follows gpumapsrc may have made it shorter.
TEST(Queries, DurationIsThatBehindTheSrc) {
  const gint64 behind_a_queue = duration_with("queue");
  EXPECT_EQ(behind_a_queue, 5 * GST_SECOND);
  EXPECT_EQ(duration_with(gpumap_pair()), behind_a_queue);
}

GstEvent* new_tag() {
  return gst_event_new_tag(gst_tag_list_new(GST_TAG_TITLE, "sent", nullptr));
}
GstEvent* new_custom(GstEventType type) {
  return gst_event_new_custom(type, gst_structure_new_empty("sent"));
}

/// Whether each was taken, and how many arrived.
std::vector<std::pair<bool, std::size_t>> sent_through(const std::string& passage) {
  Watch watch;
  Pipeline pipeline("videotestsrc is-live=true ! video/x-raw,width=8,height=8,framerate=50/1 ! " + passage +
                    " ! fakesink name=out sync=false");
  watch.on(pipeline.element("out"));
  EXPECT_TRUE(pipeline.reach(GST_STATE_PLAYING)) << pipeline.error();
  EXPECT_TRUE(eventually([&] { return watch.count() > 3; }));
  std::vector<std::pair<bool, std::size_t>> sent;
  for (const GstEventType type : {GST_EVENT_TAG, GST_EVENT_CUSTOM_DOWNSTREAM, GST_EVENT_CUSTOM_DOWNSTREAM_OOB}) {
    watch.forget();
    const bool taken =
        gst_element_send_event(pipeline.get(), type == GST_EVENT_TAG ? new_tag() : new_custom(type)) != 0;
    EXPECT_TRUE(eventually([&] { return watch.events(type) > 0; })) << gst_event_type_get_name(type);
    const std::size_t frames = watch.count();
    EXPECT_TRUE(eventually([&] { return watch.count() > frames + 3; }));
    sent.emplace_back(taken, watch.events(type));
  }
  return sent;
}

TEST(SentEvents, ArriveOnceThroughThePipeline) {
  const auto through_a_queue = sent_through("queue");
  EXPECT_EQ(through_a_queue, (std::vector<std::pair<bool, std::size_t>>(3, {true, 1})));
  EXPECT_EQ(sent_through(gpumap_pair()), through_a_queue);
}

// There the gpumapsrc is the only source.
TEST(SentEvents, ReachWhatFollowsInAPipelineOfItsOwn) {
  const std::string channel = "channel=" + new_channel();
  Watch watch;
  Pipeline in("videotestsrc is-live=true ! video/x-raw,width=8,height=8,framerate=50/1 ! gpumapsink " + channel);
  Pipeline out("gpumapsrc " + channel + " ! fakesink name=out sync=false");
  watch.on(out.element("out"));
  ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(out.reach(GST_STATE_PLAYING)) << out.error();
  for (const GstEventType type : {GST_EVENT_TAG, GST_EVENT_CUSTOM_DOWNSTREAM, GST_EVENT_CUSTOM_DOWNSTREAM_OOB}) {
    watch.forget();
    EXPECT_TRUE(gst_element_send_event(out.get(), type == GST_EVENT_TAG ? new_tag() : new_custom(type)));
    EXPECT_TRUE(eventually([&] { return watch.events(type) == 1; }));
  }
  EXPECT_TRUE(gst_element_send_event(out.get(), gst_event_new_flush_start()));
  EXPECT_TRUE(gst_element_send_event(out.get(), gst_event_new_flush_stop(TRUE)));
  watch.forget();
  EXPECT_TRUE(eventually([&] { return watch.count() > 3; })) << out.wait(1ms);
}

// GstBaseSink learns of the new rate by an event that the sinks behind gpumapsrc get, too.
TEST(SentEvents, InstantRateReachesASynchronisedSink) {
  const TemporaryFolder folder;
  const std::string file = folder.path() / "movie";
  Pipeline writer(
      "videotestsrc num-buffers=3000 ! video/x-raw,width=16,height=16,framerate=30/1 ! jpegenc ! qtmux ! "
      "filesink location=" +
      file);
  ASSERT_EQ(writer.run(), "eos");
  Watch watch;
  Pipeline pipeline("filesrc location=" + file + " ! qtdemux ! " + gpumap_pair("sync=true") +
                    " ! fakesink name=out sync=true");
  watch.on_rendered(pipeline.element("out"));
  ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING)) << pipeline.error();
  ASSERT_TRUE(eventually([&] { return watch.count() > 10; }));
  ASSERT_TRUE(gst_element_seek(pipeline.get(), 4.0, GST_FORMAT_TIME, GST_SEEK_FLAG_INSTANT_RATE_CHANGE,
                               GST_SEEK_TYPE_NONE, 0, GST_SEEK_TYPE_NONE, 0));
  // 24 frames in this time, and 6 at the old rate.
  EXPECT_TRUE(eventually([&] { return watch.counted_in(200ms) >= 15; }, 10s));
}

}  // namespace
}  // namespace gpumap::gst::test
