// SPDX-License-Identifier: MIT
// What elements ask across a channel and what an application sends into it: answered, and passed on, as with a queue in
// its place.
#include <filesystem>

#include "pipeline.hpp"
#include "temporary_folder.hpp"
#include "watch.hpp"

namespace gpumap::gst::test {
namespace {

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
