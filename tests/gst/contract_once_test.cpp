// SPDX-License-Identifier: MIT
// In one pipeline there are two elements where a queue is one: what a pipeline sends to all its sinks or sources
// happens once, and what downstream returns counts for as long as behind a queue.
#include <gst/check/gstharness.h>

#include <atomic>
#include <future>
#include <thread>

#include "gst/channel/channel.hpp"
#include "watch.hpp"

namespace gpumap::gst::test {
namespace {

const std::string source = "videotestsrc name=from ! video/x-raw,format=GRAY8,width=16,height=16,framerate=30/1 ! ";

/// `name`s both elements, so that tests find them.
std::string through(const std::string& upstream, const std::string& downstream, const std::string& of_src = "") {
  const std::string channel = " channel=" + new_channel();
  return upstream + "gpumapsink name=sink" + channel + " gpumapsrc name=src" + channel + " " + of_src + " ! " +
         downstream;
}

GstMessage* message(const Pipeline& pipeline, GstMessageType type, Time limit = patience) {
  const std::shared_ptr<GstBus> bus(gst_element_get_bus(pipeline.get()), gst_object_unref);
  return gst_bus_timed_pop_filtered(bus.get(), static_cast<GstClockTime>(std::chrono::nanoseconds(limit).count()),
                                    type);
}
int messages(const Pipeline& pipeline, GstMessageType type, Time limit) {
  int count = 0;
  while (GstMessage* one = message(pipeline, type, limit)) {
    ++count;
    gst_message_unref(one);
  }
  return count;
}

GstClockTime position(const Pipeline& pipeline) {
  gint64 at = -1;
  return gst_element_query_position(pipeline.get(), GST_FORMAT_TIME, &at) ? static_cast<GstClockTime>(at)
                                                                          : GST_CLOCK_TIME_NONE;
}

TEST(Once, AStep) {
  Pipeline pipeline(through(source, "fakesink name=out sync=true"));
  ASSERT_TRUE(pipeline.reach(GST_STATE_PAUSED));
  for (GstClockTime step = 1; step <= 3; ++step) {
    ASSERT_TRUE(gst_element_send_event(pipeline.get(), gst_event_new_step(GST_FORMAT_BUFFERS, 5, 1.0, TRUE, FALSE)));
    GstMessage* done = message(pipeline, GST_MESSAGE_STEP_DONE);
    ASSERT_NE(done, nullptr);
    gst_message_unref(done);
    EXPECT_EQ(messages(pipeline, GST_MESSAGE_STEP_DONE, 100ms), 0);
    // The step is done before the frame that it ends at is there.
    EXPECT_TRUE(eventually([&] { return position(pipeline) / GST_MSECOND == step * 5000 / 30; }))
        << position(pipeline) << " after step " << step;
  }
}

TEST(Once, TagsAndMessagesOfSinksAndWhatIsSentUpstream) {
  Watch out;
  Pipeline pipeline(through(source, "fakesink name=out sync=true"));
  out.on(pipeline.element("out"));
  ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING));
  static std::atomic<int> upstream;
  upstream = 0;
  const Pad from(gst_element_get_static_pad(pipeline.element("from"), "src"));
  gst_pad_add_probe(
      from.get(), GST_PAD_PROBE_TYPE_EVENT_UPSTREAM,
      [](GstPad*, GstPadProbeInfo* info, gpointer) {
        upstream += GST_EVENT_TYPE(GST_PAD_PROBE_INFO_EVENT(info)) == GST_EVENT_CUSTOM_UPSTREAM ? 1 : 0;
        return GST_PAD_PROBE_OK;
      },
      nullptr, nullptr);
  while (GstMessage* old = message(pipeline, GST_MESSAGE_TAG, 0ms)) gst_message_unref(old);
  gst_element_send_event(pipeline.get(), gst_event_new_tag(gst_tag_list_new(GST_TAG_TITLE, "title", nullptr)));
  gst_element_send_event(pipeline.get(),
                         gst_event_new_custom(GST_EVENT_CUSTOM_UPSTREAM, gst_structure_new_empty("up")));
  gst_pad_push_event(
      from.get(), gst_event_new_sink_message("told", gst_message_new_application(GST_OBJECT(pipeline.element("from")),
                                                                                 gst_structure_new_empty("told"))));
  // The source sends tags with its next frame: what its pad is told directly may overtake them. And the sink makes
  // messages of both only once they have been counted.
  int tags = 0;
  int told = 0;
  const auto take_messages = [&](Time limit) {
    while (GstMessage* one = message(pipeline, GST_MESSAGE_ANY, limit)) {
      tags += GST_MESSAGE_TYPE(one) == GST_MESSAGE_TAG ? 1 : 0;
      told += GST_MESSAGE_TYPE(one) == GST_MESSAGE_APPLICATION ? 1 : 0;
      gst_message_unref(one);
    }
  };
  EXPECT_TRUE(eventually([&] {
    take_messages(0ms);
    return tags >= 1 && told >= 1;
  }));
  take_messages(200ms);
  EXPECT_EQ(tags, 1);
  EXPECT_EQ(told, 1);
  EXPECT_EQ(upstream, 1);
  EXPECT_EQ(out.events(GST_EVENT_SINK_MESSAGE), 1U);
  EXPECT_EQ(out.events(GST_EVENT_TAG), 1U);
}

TEST(Once, ATableOfContents) {
  Watch out;
  Pipeline pipeline(through(source, "fakesink name=out sync=true"));
  out.on(pipeline.element("out"));
  ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING));
  GstToc* toc = gst_toc_new(GST_TOC_SCOPE_GLOBAL);
  gst_toc_append_entry(toc, gst_toc_entry_new(GST_TOC_ENTRY_TYPE_CHAPTER, "one"));
  const Pad from(gst_element_get_static_pad(pipeline.element("from"), "src"));
  gst_pad_push_event(from.get(), gst_event_new_toc(toc, FALSE));
  gst_toc_unref(toc);
  GstMessage* told = message(pipeline, GST_MESSAGE_TOC);
  ASSERT_NE(told, nullptr);
  gst_message_unref(told);
  EXPECT_EQ(messages(pipeline, GST_MESSAGE_TOC, 200ms), 0);
  EXPECT_EQ(out.events(GST_EVENT_TOC), 1U);
}

TEST(Once, TheSrcAloneCanBeToldToEnd) {
  Pipeline pipeline(through(source, "fakesink name=out sync=true"));
  ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING));
  ASSERT_TRUE(gst_element_send_event(pipeline.element("src"), gst_event_new_eos()));
  EXPECT_EQ(pipeline.wait(), "eos");
}

// What was sent before the end goes out before it, however busy what follows is.
TEST(Once, WhatTheSrcIsSentBeforeItsEndIsNotLost) {
  Watch watch;
  Pipeline pipeline(through(source, "identity sleep-time=100000 ! fakesink name=out sync=false"));
  watch.on(pipeline.element("out"));
  ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING));
  ASSERT_TRUE(eventually([&] { return watch.count() > 1; }));
  GstStructure* said = gst_structure_new_empty("said");
  ASSERT_TRUE(gst_element_send_event(pipeline.element("src"), gst_event_new_custom(GST_EVENT_CUSTOM_DOWNSTREAM, said)));
  ASSERT_TRUE(gst_element_send_event(pipeline.element("src"), gst_event_new_eos()));
  EXPECT_EQ(pipeline.wait(), "eos");
  EXPECT_EQ(watch.events(GST_EVENT_CUSTOM_DOWNSTREAM), 1U) << watch.order();
}

// As language bindings do.
TEST(Once, TheSrcAloneCanBeToldToEndByWhoKeepsTheEvent) {
  Pipeline pipeline(through(source, "fakesink name=out sync=true"));
  ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING));
  GstEvent* eos = gst_event_new_eos();
  ASSERT_TRUE(gst_element_send_event(pipeline.element("src"), gst_event_ref(eos)));
  EXPECT_EQ(pipeline.wait(), "eos");
  gst_event_unref(eos);
}

// Another thread changes the pipeline's state meanwhile, and has the lock by which an event for all is known.
TEST(Once, TheSrcAloneCanBeToldToEndWhileTheStateChanges) {
  Pipeline pipeline(through(source, "fakesink name=out sync=true"));
  ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING));
  std::atomic<bool> locked{false}, over{false};
  std::thread changes([&] {
    GST_STATE_LOCK(pipeline.get());
    locked = true;
    EXPECT_TRUE(eventually([&] { return over.load(); }));
    GST_STATE_UNLOCK(pipeline.get());
  });
  ASSERT_TRUE(eventually([&] { return locked.load(); }));
  Watch out;
  out.on(pipeline.element("out"));
  GstEvent* eos = gst_event_new_eos();
  EXPECT_TRUE(gst_element_send_event(pipeline.element("src"), gst_event_ref(eos)));
  EXPECT_TRUE(eventually([&] { return out.events(GST_EVENT_EOS) == 1; }));
  gst_event_unref(eos);
  over = true;
  changes.join();
  EXPECT_EQ(pipeline.wait(), "eos");
}

TEST(Once, ABinAroundTheSrcAloneCanBeToldToEnd) {
  const std::string channel = " channel=" + new_channel();
  Pipeline pipeline(source + "gpumapsink" + channel + " ( name=part gpumapsrc" + channel +
                    " ! identity ) ! fakesink name=out sync=true");
  ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING)) << pipeline.error();
  ASSERT_TRUE(gst_element_send_event(pipeline.element("part"), gst_event_new_eos()));
  EXPECT_EQ(pipeline.wait(), "eos");
}

TEST(Once, NumBuffersHoldAfterASeek) {
  for (const int count : {0, 1, 5}) {
    SCOPED_TRACE(count);
    Watch out;
    Pipeline pipeline(through(source, "fakesink name=out sync=false", "num-buffers=" + std::to_string(count)));
    out.on(pipeline.element("out"));
    EXPECT_EQ(pipeline.run(), "eos");
    EXPECT_EQ(out.count(), static_cast<std::size_t>(count));
    ASSERT_TRUE(gst_element_seek_simple(pipeline.get(), GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH, 0));
    EXPECT_EQ(pipeline.wait(), "eos");
    EXPECT_EQ(out.count(), static_cast<std::size_t>(count));
  }
}

/// What the src's pad gets for each frame from the sixth on, until this says otherwise.
class Flow : public testing::Test {
 protected:
  Flow() {
    const std::string channel = new_channel();
    in_.reset(gst_harness_new_parse(("gpumapsink slots=64 channel=" + channel).c_str()));
    out_ = std::make_unique<Pipeline>("gpumapsrc name=src channel=" + channel +
                                      " ! fakesink name=out sync=false async=false");
    watch_.on(out_->element("out"));
    const Pad pad(gst_element_get_static_pad(out_->element("src"), "src"));
    gst_pad_add_probe(
        pad.get(), GST_PAD_PROBE_TYPE_BUFFER,
        [](GstPad*, GstPadProbeInfo* info, gpointer user) {
          auto& flow = *static_cast<Flow*>(user);
          const GstFlowReturn returned = flow.returns_;
          if (returned == GST_FLOW_OK || ++flow.seen_ <= 5) return GST_PAD_PROBE_OK;
          if (flow.closed_) {
            (void)eventually([&] { return !flow.closed_; });
            flow.returns_ = GST_FLOW_OK;  // to what follows
          }
          gst_buffer_unref(GST_PAD_PROBE_INFO_BUFFER(info));
          GST_PAD_PROBE_INFO_DATA(info) = nullptr;
          GST_PAD_PROBE_INFO_FLOW_RETURN(info) = returned;
          return GST_PAD_PROBE_HANDLED;
        },
        this, nullptr);
  }
  void start(const char* stream) {
    GstSegment time;
    gst_segment_init(&time, GST_FORMAT_TIME);
    gst_harness_push_event(in_.get(), gst_event_new_stream_start(stream));
    gst_harness_push_event(in_.get(), gst_event_new_caps(video_caps("GRAY8", 8, 8).get()));
    gst_harness_push_event(in_.get(), gst_event_new_segment(&time));
  }
  GstFlowReturn push_frame() { return gst_harness_push(in_.get(), new_buffer(random_data(64, 1), 0).release()); }

  struct Teardown {
    void operator()(GstHarness* harness) const { gst_harness_teardown(harness); }
  };
  // What the probes write outlives the pipelines.
  Watch watch_;
  std::atomic<GstFlowReturn> returns_{GST_FLOW_OK};
  std::atomic<int> seen_{0};
  std::atomic<bool> closed_{false};  ///< the sixth frame waits
  std::unique_ptr<GstHarness, Teardown> in_;
  std::unique_ptr<Pipeline> out_;
};

TEST_F(Flow, EosFromDownstreamIsOfTheStream) {
  returns_ = GST_FLOW_EOS;
  ASSERT_NE(out_->set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  start("first");
  EXPECT_TRUE(eventually([&] { return push_frame() == GST_FLOW_EOS; }));
  EXPECT_EQ(watch_.count(), 5U);
  EXPECT_EQ(watch_.events(GST_EVENT_EOS), 0U);
  returns_ = GST_FLOW_OK;
  start("second");
  for (int i = 0; i < 20; ++i) ASSERT_EQ(push_frame(), GST_FLOW_OK);
  EXPECT_TRUE(eventually([&] { return watch_.count() == 25; })) << watch_.order();
  EXPECT_EQ(watch_.events(GST_EVENT_EOS), 0U);
}

// Frames of both wait when downstream has had enough of the first.
TEST_F(Flow, EosLeavesTheStreamAloneThatWaitsBehind) {
  returns_ = GST_FLOW_EOS;
  closed_ = true;
  ASSERT_NE(out_->set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  start("first");
  for (int i = 0; i < 7; ++i) ASSERT_EQ(push_frame(), GST_FLOW_OK);
  EXPECT_TRUE(eventually([&] { return seen_ == 6; }));
  start("second");
  for (int i = 0; i < 2; ++i) ASSERT_EQ(push_frame(), GST_FLOW_OK);
  closed_ = false;
  EXPECT_TRUE(eventually([&] { return watch_.count() == 7; })) << watch_.order();
  for (int i = 0; i < 10; ++i) ASSERT_EQ(push_frame(), GST_FLOW_OK);
  EXPECT_TRUE(eventually([&] { return watch_.count() == 17; })) << watch_.order();
}

// Nothing was linked, a flush, and then a downstream that has enough: that something is linked is no reason to go on.
TEST_F(Flow, AnEndIsNotUndoneByALink) {
  returns_ = GST_FLOW_NOT_LINKED;
  ASSERT_NE(out_->set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  start("first");
  EXPECT_TRUE(eventually([&] { return push_frame() == GST_FLOW_NOT_LINKED; }));
  returns_ = GST_FLOW_EOS;
  gst_harness_push_event(in_.get(), gst_event_new_flush_start());
  gst_harness_push_event(in_.get(), gst_event_new_flush_stop(TRUE));
  start("second");
  EXPECT_TRUE(eventually([&] { return push_frame() == GST_FLOW_EOS; }));
  returns_ = GST_FLOW_OK;
  const Pad pad(gst_element_get_static_pad(out_->element("out"), "sink"));
  EXPECT_TRUE(gst_pad_push_event(pad.get(), gst_event_new_reconfigure()));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(push_frame(), GST_FLOW_EOS);
  EXPECT_EQ(watch_.count(), 5U);
}

// The channel's part, where the flush and the end come while the link is being dealt with.
TEST(Relinked, LeavesAnyOtherFlowAsItIs) {
  const auto channel = std::make_shared<Channel>("relinked");
  for (const GstFlowReturn flow : {GST_FLOW_OK, GST_FLOW_EOS, GST_FLOW_NOT_NEGOTIATED, GST_FLOW_ERROR}) {
    channel->set_downstream_flow(flow);
    EXPECT_FALSE(channel->relinked());
    EXPECT_EQ(channel->downstream_flow(), flow);
  }
  channel->set_downstream_flow(GST_FLOW_NOT_LINKED);
  EXPECT_TRUE(channel->relinked());
  EXPECT_EQ(channel->downstream_flow(), GST_FLOW_OK);
}

// As on a pad, the last one of each name holds: else they grow without end.
TEST(Unlinked, KeepsOfStickyEventsTheLastOfEachName) {
  const auto channel = std::make_shared<Channel>("unlinked");
  channel->set_downstream_flow(GST_FLOW_NOT_LINKED);
  const Ptr<GstMessage> message(gst_message_new_element(nullptr, gst_structure_new_empty("mark")));
  for (int i = 0; i < 10'000; ++i) {
    const Ptr<GstEvent> event(gst_event_new_sink_message("mine", message.get()));
    ASSERT_TRUE(channel->push_event(event.get()));
  }
  int kept = 0;
  for (Channel::Next next; (next = channel->next(Deadline{})).kind == Channel::Next::Kind::event; ++kept) {
    gst_event_unref(next.event);
  }
  EXPECT_GT(kept, 0);
  EXPECT_LT(kept, 5000);
}

// A segment that comes at the moment at which downstream has had enough of the last one: it is refused before, or
// wanted.
TEST(Segment, IsNotTakenForTheOneThatDownstreamHadEnoughOf) {
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  GstEvent* event = gst_event_new_segment(&segment);
  constexpr int tries = 50000;
  const auto wait = [](int rounds) {
    for (int i = 0; i < rounds; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
  };
  std::shared_ptr<Channel> channel;
  std::atomic<int> begun{-1};
  std::atomic<int> had_enough{-1};
  std::thread src([&] {
    for (int i = 0; i < tries; ++i) {
      while (begun.load() < i) std::this_thread::yield();
      wait(i % 40);
      if (channel) channel->set_downstream_flow(GST_FLOW_EOS, true);
      had_enough = i;
    }
  });
  const auto end = std::chrono::steady_clock::now() + 1s;
  int lost = 0;
  for (int i = 0; i < tries; ++i) {
    // Where the two seldom run side by side a second is enough.
    channel = std::chrono::steady_clock::now() < end ? std::make_shared<Channel>("segment") : nullptr;
    begun = channel ? i : tries;
    if (!channel) break;
    wait(i / 40 % 40);
    EXPECT_TRUE(channel->push_event(event));
    while (had_enough.load() < i) std::this_thread::yield();
    lost += channel->downstream_flow() == GST_FLOW_OK ? 0 : 1;
  }
  src.join();
  EXPECT_EQ(lost, 0);
  gst_event_unref(event);
}

// As with a branch of a tee that is linked later.
TEST(Relinked, AnUnlinkedSrcGoesOnOnceItIsLinked) {
  Watch watch;
  const std::string channel = new_channel();
  Pipeline pipeline(
      source + "tee name=t ! queue ! fakesink sync=true t. ! queue leaky=downstream ! gpumapsink channel=" + channel +
      " async=false  gpumapsrc name=src channel=" + channel);
  ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING)) << pipeline.error();
  EXPECT_EQ(pipeline.wait(500ms), "timeout");
  GstElement* late = gst_element_factory_make("fakesink", "late");
  g_object_set(late, "async", FALSE, nullptr);
  watch.on(late);
  gst_bin_add(GST_BIN(pipeline.get()), late);
  gst_element_sync_state_with_parent(late);
  ASSERT_TRUE(gst_element_link(pipeline.element("src"), late));
  EXPECT_TRUE(eventually([&] { return watch.count() > 5; })) << pipeline.wait(1ms);
}

// Nor does a branch hold up the others by events that nothing takes. What holds arrives once something is linked.
TEST(Relinked, EventsThatNothingTakesHoldNobodyUp) {
  const std::string channel = " channel=" + new_channel();
  Watch watch;
  Pipeline pipeline("appsrc name=in format=time ! tee name=t ! queue ! fakesink t. ! gpumapsink async=false" + channel +
                    " gpumapsrc name=src" + channel);
  gst_app_src_set_caps(pipeline.appsrc(), new_caps("application/octet-stream").get());
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  const auto push_frame = [&] { return push(pipeline.appsrc(), new_buffer(random_data(64, 1))); };
  const Pad src(gst_element_get_static_pad(pipeline.element("src"), "src"));
  ASSERT_TRUE(push_frame());
  ASSERT_TRUE(eventually([&] { return gst_pad_get_task_state(src.get()) == GST_TASK_PAUSED; }));

  constexpr guint tags = 3000;
  const Pad in(gst_element_get_static_pad(pipeline.element("in"), "src"));
  auto pushed = std::async(std::launch::async, [&] {
    for (int i = 0; i < 6000; ++i) {
      GstStructure* said = gst_structure_new_empty("said");
      gst_pad_push_event(in.get(), gst_event_new_custom(GST_EVENT_CUSTOM_DOWNSTREAM, said));
    }
    for (guint i = 1; i <= tags; ++i) {
      gst_pad_push_event(in.get(), gst_event_new_tag(gst_tag_list_new(GST_TAG_TRACK_NUMBER, i, nullptr)));
    }
  });
  const bool in_time = pushed.wait_for(patience) == std::future_status::ready;
  if (!in_time) pipeline.stop();
  pushed.wait();
  ASSERT_TRUE(in_time);

  GstElement* late = gst_element_factory_make("fakesink", "late");
  g_object_set(late, "async", FALSE, nullptr);
  watch.on(late);
  gst_bin_add(GST_BIN(pipeline.get()), late);
  gst_element_sync_state_with_parent(late);
  ASSERT_TRUE(gst_element_link(pipeline.element("src"), late));
  EXPECT_TRUE(eventually([&] { return push_frame() && watch.count() > 1; })) << pipeline.wait(1ms);
  const Pad pad(gst_element_get_static_pad(late, "sink"));
  const Ptr<GstEvent> held(gst_pad_get_sticky_event(pad.get(), GST_EVENT_TAG, 0));
  ASSERT_TRUE(held);
  GstTagList* list = nullptr;
  guint track = 0;
  gst_event_parse_tag(held.get(), &list);
  EXPECT_TRUE(gst_tag_list_get_uint(list, GST_TAG_TRACK_NUMBER, &track));
  EXPECT_EQ(track, tags);
}

// Another gpumapsrc of the channel that is not started takes nothing away from the first.
TEST(Second, SrcInReadyLeavesTheFirstOneItsPlace) {
  const std::string channel = new_channel();
  Pipeline pipeline(source + "gpumapsink name=sink channel=" + channel + " gpumapsrc channel=" + channel +
                    " ! fakesink sync=true");
  ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING));
  // It is the sinks behind the first one that are asked.
  gint64 at = -1;
  ASSERT_FALSE(gst_element_query_position(pipeline.element("sink"), GST_FORMAT_TIME, &at));
  ASSERT_TRUE(gst_element_query_position(pipeline.get(), GST_FORMAT_TIME, &at));
  Pipeline second("gpumapsrc channel=" + channel + " ! fakesink");
  ASSERT_TRUE(second.reach(GST_STATE_READY));
  second.stop();
  EXPECT_FALSE(gst_element_query_position(pipeline.element("sink"), GST_FORMAT_TIME, &at));
  EXPECT_TRUE(gst_element_query_position(pipeline.get(), GST_FORMAT_TIME, &at));
}

// stats and the refusal of a second gpumapsrc each take two locks.
TEST(Second, SrcIsRefusedWhileStatsAreRead) {
  const std::string channel = new_channel();
  Pipeline pipeline(source + "gpumapsink name=sink channel=" + channel + " gpumapsrc name=src channel=" + channel +
                    " ! fakesink sync=false");
  ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING));
  std::atomic<bool> ends{false};
  std::thread reader([&] {
    while (!ends) (void)stat(pipeline.element("src"), "frames");
  });
  for (int i = 0; i < 300; ++i) {
    Pipeline second("gpumapsrc channel=" + channel + " ! fakesink");
    EXPECT_EQ(second.set_state(GST_STATE_PAUSED), GST_STATE_CHANGE_FAILURE);
  }
  ends = true;
  reader.join();
}

// Upstream may ask what is taken while it holds a lock that its own answer takes, as playbin does.
TEST(Caps, AreTakenWithoutAskingUpstream) {
  const std::string channel = new_channel();
  Pipeline out("gpumapsrc channel=" + channel + " ! jpegenc ! fakesink");
  ASSERT_NE(out.set_state(GST_STATE_PAUSED), GST_STATE_CHANGE_FAILURE);
  GstHarness* in = gst_harness_new_parse(("gpumapsink channel=" + channel).c_str());
  static std::atomic<int> asked;
  asked = 0;
  gst_pad_set_query_function(
      in->srcpad, +[](GstPad* pad, GstObject* parent, GstQuery* query) {
        asked += GST_QUERY_TYPE(query) == GST_QUERY_CAPS ? 1 : 0;
        return gst_pad_query_default(pad, parent, query);
      });
  const Caps raw = new_caps("video/x-raw,format={AYUV64,I420}");
  const Caps taken(gst_pad_peer_query_caps(in->srcpad, raw.get()));
  EXPECT_EQ(asked, 0);
  EXPECT_TRUE(gst_caps_is_subset(taken.get(), new_caps("video/x-raw,format=I420").get()));
  gst_harness_teardown(in);
}

// A mistyped channel, or a consumer that has not come.
TEST(Alone, AFullRingSaysThatNoSrcIsThere) {
  Pipeline pipeline(on_new_channel(source + "gpumapsink $CHANNEL"));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  for (int second = 0; second < 40 && pipeline.warnings().empty(); ++second) {
    ASSERT_EQ(pipeline.wait(1s), "timeout");
  }
  ASSERT_EQ(pipeline.warnings().size(), 1U);
  EXPECT_NE(pipeline.warnings().front().find("no gpumapsrc is there"), std::string::npos)
      << pipeline.warnings().front();
}

// A flush that comes while its consumer stops and starts.
TEST(Flushes, WhileTheConsumerStopsAndStarts) {
  const std::string channel = new_channel();
  GstHarness* in = gst_harness_new_parse(("gpumapsink channel=" + channel).c_str());
  Pipeline out("gpumapsrc channel=" + channel + " ! fakesink sync=false async=false");
  std::atomic<bool> ends{false};
  std::thread flusher([&] {
    while (!ends) {
      gst_harness_push_event(in, gst_event_new_flush_start());
      gst_harness_push_event(in, gst_event_new_flush_stop(TRUE));
    }
  });
  const auto end = std::chrono::steady_clock::now() + 3s;
  while (std::chrono::steady_clock::now() < end) {
    ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    EXPECT_LT(out.stop(), at_once);
  }
  ends = true;
  flusher.join();
  gst_harness_teardown(in);
}

}  // namespace
}  // namespace gpumap::gst::test
