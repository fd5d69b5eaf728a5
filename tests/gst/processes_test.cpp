// SPDX-License-Identifier: MIT
// A gpumapsink and a gpumapsrc in two processes: what comes out is what comes out in one, in content, caps, times,
// segment and tags; producers and consumers that are killed cost the other side nothing but their frames.
#include <gmock/gmock.h>
#include <atomic>
#include <fstream>
#include <string>
#include <vector>

#include "launched.hpp"
#include "pipeline.hpp"
#include "sanitizers.hpp"
#include "temporary_folder.hpp"

namespace gpumap::gst::test {
namespace {

using ::testing::HasSubstr;

struct Seen {
  std::string caps;
  std::vector<Data> frames;
  std::vector<GstClockTime> times;
  bool operator==(const Seen&) const = default;
};

Seen all_of(GstAppSink* sink) {
  Seen seen;
  while (const Sample sample = pull(sink)) {
    gchar* caps = gst_caps_to_string(gst_sample_get_caps(sample.get()));
    seen.caps = caps;
    g_free(caps);
    GstBuffer* buffer = gst_sample_get_buffer(sample.get());
    seen.frames.push_back(data_of(buffer));
    seen.times.push_back(GST_BUFFER_PTS(buffer));
  }
  return seen;
}

struct Processes : testing::Test {
  void SetUp() override {
    if (sanitized) GTEST_SKIP() << "gst-launch-1.0 has no sanitizer's run time";
  }
  [[nodiscard]] std::string socket() const { return "socket-path=" + path; }

  const TemporaryFolder folder;
  const std::string path = folder.path() / "link";
};

TEST_F(Processes, WhatComesOutIsWhatComesOutInOne) {
  // Odd sizes: rows are padded in the slot, and that must cross, too.
  for (const char* const caps :
       {"video/x-raw,format=I420,width=321,height=241", "video/x-raw,format=NV12,width=64,height=48"}) {
    const std::string source = std::string("videotestsrc pattern=snow num-buffers=25 ! ") + caps + " ! gpumapsink ";
    Pipeline one(on_new_channel(source + "$CHANNEL gpumapsrc $CHANNEL ! appsink name=out sync=false"));
    EXPECT_NE(one.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    const Seen wanted = all_of(one.appsink());
    ASSERT_EQ(wanted.frames.size(), 25U);

    Launched producer(source + "wait-for-connection=true " + socket());
    Pipeline consumer("gpumapsrc " + socket() + " ! appsink name=out sync=false");
    EXPECT_NE(consumer.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    const Seen seen = all_of(consumer.appsink());
    EXPECT_EQ(seen.caps, wanted.caps);
    EXPECT_EQ(seen.times, wanted.times);
    EXPECT_TRUE(seen.frames == wanted.frames) << seen.frames.size() << " frames";
    EXPECT_TRUE(producer.succeeded());
  }
}

TEST_F(Processes, KernelsRunOnFramesOfAnotherProcess) {
  Launched producer(
      "videotestsrc num-buffers=20 ! video/x-raw,format=NV12,width=64,height=48 ! gpumapsink "
      "wait-for-connection=true " +
      socket());
  Pipeline consumer("gpumapsrc " + socket() + " ! gpumapkernel kernel=checksum ! fakesink");
  EXPECT_EQ(consumer.run(), "eos");
  EXPECT_EQ(consumer.results().size(), 20U);
  EXPECT_TRUE(producer.succeeded());
}

TEST_F(Processes, TwoClientsAndTheirTags) {
  Launched producer("videotestsrc ! video/x-raw,width=64,height=48 ! taginject tags=title=across ! gpumapsink " +
                    socket());
  Pipeline one("gpumapsrc name=src " + socket() + " ! fakesink");
  Pipeline two("gpumapsrc name=src leaky=oldest " + socket() + " ! fakesink");
  for (Pipeline* client : {&one, &two}) {
    EXPECT_NE(client->set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    EXPECT_TRUE(eventually([&] { return stat(client->element("src"), "frames") > 20; }));
  }
  const Pad pad(gst_element_get_static_pad(one.element("src"), "src"));
  GstEvent* event = gst_pad_get_sticky_event(pad.get(), GST_EVENT_TAG, 0);
  ASSERT_NE(event, nullptr);
  GstTagList* tags = nullptr;
  gchar* title = nullptr;
  gst_event_parse_tag(event, &tags);
  EXPECT_TRUE(gst_tag_list_get_string(tags, GST_TAG_TITLE, &title));
  EXPECT_STREQ(title, "across");
  g_free(title);
  gst_event_unref(event);
}

TEST_F(Processes, AProducerThatIsKilledIsWaitedForOrIsTheEnd) {
  const std::string source = "videotestsrc ! video/x-raw,width=64,height=48 ! gpumapsink " + socket();
  auto producer = std::make_unique<Launched>(source);
  Pipeline patient("gpumapsrc name=src " + socket() + " ! fakesink");
  Pipeline other("gpumapsrc name=src reconnect=false " + socket() + " ! fakesink");
  for (Pipeline* one : {&patient, &other}) {
    EXPECT_NE(one->set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    EXPECT_TRUE(eventually([&] { return stat(one->element("src"), "frames") > 10; }));
  }
  for (int round = 0; round < 3; ++round) {
    producer->kill_it();
    if (round == 0) {
      EXPECT_EQ(other.wait(), "eos");
    }
    const std::uint64_t before = stat(patient.element("src"), "frames");
    producer = std::make_unique<Launched>(source);
    EXPECT_TRUE(eventually([&] { return stat(patient.element("src"), "frames") > before + 20; }));
  }
}

TEST_F(Processes, AConsumerThatIsKilledIsHeardOfAndMissedByNobody) {
  std::atomic<int> came{0};
  std::atomic<int> went{0};
  Pipeline producer("videotestsrc ! video/x-raw,width=64,height=48 ! gpumapsink name=sink " + socket());
  GstElement* const sink = producer.element("sink");
  const auto count =
      +[](GstElement*, guint, gint, const gchar*, gpointer to) { ++*static_cast<std::atomic<int>*>(to); };
  const auto count_why = +[](GstElement*, guint, gint, const gchar*, const gchar* why, gpointer to) {
    EXPECT_STRNE(why, "");
    ++*static_cast<std::atomic<int>*>(to);
  };
  g_signal_connect(sink, "client-connected", G_CALLBACK(count), &came);
  g_signal_connect(sink, "client-disconnected", G_CALLBACK(count_why), &went);
  const auto clients = [&] {
    guint number = 0;
    g_object_get(sink, "num-clients", &number, nullptr);
    return number;
  };
  EXPECT_NE(producer.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  for (int round = 1; round <= 3; ++round) {
    Launched consumer("gpumapsrc " + socket() + " ! fakesink");
    EXPECT_TRUE(eventually([&] { return clients() == 1; }));
    consumer.kill_it();
    EXPECT_TRUE(eventually([&] { return clients() == 0; }));
    EXPECT_TRUE(eventually([&] { return came == round && went == round; }));
    const std::uint64_t before = stat(sink, "frames");
    EXPECT_TRUE(eventually([&] { return stat(sink, "frames") > before + 50; })) << "the producer stands";
  }
}

TEST_F(Processes, WhatCannotBeIsAnError) {
  // No end: that could be there before the first frame is found to have nowhere to go.
  const std::string source = "videotestsrc ! video/x-raw,width=64,height=48 ! gpumapsink ";
  Pipeline pinned(source + "transport=pinned " + socket());
  EXPECT_THAT(pinned.run(), HasSubstr("transport=bar"));
  pinned.stop();
  std::ofstream(path) << "a file";
  Pipeline taken(source + socket());
  EXPECT_THAT(taken.run(), HasSubstr("is no socket"));
  Pipeline unreachable("gpumapsrc socket-path=" + std::string(200, 'x') + " ! fakesink");
  EXPECT_THAT(unreachable.run(), HasSubstr("200 bytes"));
}

}  // namespace
}  // namespace gpumap::gst::test
