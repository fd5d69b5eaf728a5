// SPDX-License-Identifier: MIT
// What a gpumapsrc says of its caps before anything starts: which media types upstream of its gpumapsink can give.
// Elements with pads of several kinds are linked by it. And what becomes of frames while nothing is linked.
#include <gmock/gmock.h>

#include <atomic>
#include <functional>

#include "pipeline.hpp"
#include "temporary_folder.hpp"
#include "watch.hpp"

namespace gpumap::gst::test {
namespace {

class Links : public testing::Test {
 protected:
  const std::string channel_ = new_channel();
  const std::string sink_ = "gpumapsink channel=" + channel_;
  Pipeline out_{"gpumapsrc name=src channel=" + channel_ + " ! fakesink"};

  /// What the src says, asked with `filter` (null: without).
  std::string says(const char* filter = nullptr) {
    const Pad pad(gst_element_get_static_pad(out_.element("src"), "src"));
    const Caps asked(filter != nullptr ? gst_caps_from_string(filter) : nullptr);
    const Caps said(gst_pad_query_caps(pad.get(), asked.get()));
    gchar* text = gst_caps_to_string(said.get());
    std::string copy = text;
    g_free(text);
    return copy;
  }
};

TEST_F(Links, NoSinkIsAnything) {
  EXPECT_EQ(says(), "ANY");
  EXPECT_EQ(says("audio/x-raw"), "audio/x-raw");
}

TEST_F(Links, MediaTypesThatUpstreamCanGiveInEitherMemory) {
  const Pipeline in("identity ! capsfilter caps=audio/x-raw,rate=8000;audio/x-raw,rate=9000;audio/mpeg ! " + sink_);
  EXPECT_EQ(says(), "audio/x-raw(memory:GPUMap); audio/mpeg(memory:GPUMap); audio/x-raw; audio/mpeg");
  EXPECT_EQ(says("audio/x-raw, channels=(int)2"), "audio/x-raw, channels=(int)2");
  EXPECT_EQ(says("audio/x-raw(memory:GPUMap), channels=(int)2"), "audio/x-raw(memory:GPUMap), channels=(int)2");
  EXPECT_EQ(says("video/x-raw"), "EMPTY");
}

TEST_F(Links, ASinkThatIsNotLinkedIsAnything) {
  const Pipeline in(sink_);
  EXPECT_EQ(says(), "ANY");
}

// Which of them will be there when it starts, no one knows.
TEST_F(Links, TwoSinksOfOneNameAreAnything) {
  const Pipeline in("capsfilter caps=audio/x-raw ! " + sink_);
  EXPECT_NE(says(), "ANY");
  {
    const Pipeline other("capsfilter caps=video/x-raw ! " + sink_);
    EXPECT_EQ(says(), "ANY");
  }
  EXPECT_EQ(says(), "audio/x-raw(memory:GPUMap); audio/x-raw");
}

TEST_F(Links, ARenamedSinkIsAnother) {
  const Pipeline in("capsfilter caps=audio/x-raw ! " + sink_ + " name=sink");
  g_object_set(in.element("sink"), "channel", new_channel().c_str(), nullptr);
  EXPECT_EQ(says(), "ANY");
}

// At a socket the channel does not count, which is "default" where nobody names one.
TEST_F(Links, SinksAtASocketHaveNoChannel) {
  const Pipeline in("capsfilter caps=audio/x-raw ! " + sink_ + " name=sink");
  GstElement* sink = in.element("sink");
  GstElement* src = out_.element("src");
  EXPECT_NE(says(), "ANY");
  g_object_set(sink, "socket-path", "/nowhere/mic", nullptr);
  EXPECT_EQ(says(), "ANY") << "the sink serves no channel";
  g_object_set(src, "socket-path", "/nowhere/cam", nullptr);
  EXPECT_EQ(says(), "ANY") << "two sockets";
  g_object_set(src, "socket-path", "/nowhere/mic", "channel", new_channel().c_str(), nullptr);
  EXPECT_EQ(says(), "audio/x-raw(memory:GPUMap); audio/x-raw") << "one socket, in one process";
  g_object_set(sink, "socket-path", "", nullptr);
  EXPECT_EQ(says(), "ANY") << "the src takes no channel";
}

TEST(Sockets, OfOtherMediaAreLinked) {
  const Pipeline pipeline(
      "audiotestsrc ! gpumapsink socket-path=/nowhere/mic gpumapsrc socket-path=/nowhere/cam ! videoconvert ! "
      "fakesink");
  EXPECT_EQ(pipeline.error(), "");
}

// Once caps are chosen they come first; upstream may give others, if a new link needs them.
TEST_F(Links, ChosenCapsComeFirst) {
  Pipeline in("videotestsrc num-buffers=3 ! video/x-raw,format=GRAY8,width=8,height=8 ! " + sink_);
  ASSERT_NE(out_.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_EQ(in.run(), "eos");
  EXPECT_TRUE(eventually([&] { return says().starts_with("video/x-raw(memory:GPUMap), format=(string)GRAY8"); }))
      << says();
  EXPECT_TRUE(says("video/x-raw").starts_with("video/x-raw, format=(string)GRAY8")) << says("video/x-raw");
  EXPECT_EQ(says("audio/x-raw"), "EMPTY");
}

/// A branch that counts what it gets, in `pipeline` and in its state; linked to nothing yet. Borrowed.
GstElement* add_branch(Pipeline& pipeline, const char* description, Watch& watch) {
  GstElement* branch = gst_parse_bin_from_description(description, TRUE, nullptr);
  gst_bin_add(GST_BIN(pipeline.get()), branch);
  const Element end(gst_bin_get_by_name(GST_BIN(branch), "end"));
  g_object_set(end.get(), "async", FALSE, "sync", FALSE, nullptr);
  watch.on(end.get());
  EXPECT_TRUE(gst_element_sync_state_with_parent(branch));
  return branch;
}

/// Puts `next` in the place of the branch `now`, behind `last` (null: the element of that name), while a frame is held
/// on its way there: `bring` brings one. The branch that is there then; borrowed.
GstElement* replace_branch(Pipeline& pipeline, GstElement* now, const char* next, Watch& watch,
                           GstElement* last = nullptr, const std::function<void()>& bring = {}) {
  if (last == nullptr) last = pipeline.element("last");
  const Pad pad(gst_element_get_static_pad(last, "src"));
  const gulong block = gst_pad_add_probe(
      pad.get(), static_cast<GstPadProbeType>(GST_PAD_PROBE_TYPE_BLOCK | GST_PAD_PROBE_TYPE_BUFFER),
      [](GstPad*, GstPadProbeInfo*, gpointer) { return GST_PAD_PROBE_OK; }, nullptr, nullptr);
  if (bring) bring();
  EXPECT_TRUE(eventually([&] { return gst_pad_is_blocking(pad.get()) != FALSE; })) << pipeline.wait(1ms);
  gst_element_unlink(last, now);
  gst_element_set_state(now, GST_STATE_NULL);
  gst_bin_remove(GST_BIN(pipeline.get()), now);
  watch.forget();
  now = add_branch(pipeline, next, watch);
  EXPECT_TRUE(gst_element_link(last, now));
  gst_pad_remove_probe(pad.get(), block);
  return now;
}

TEST(Relinking, ABranchOnTheCpuIsAddedBesideAKernel) {
  Watch first, late;
  Pipeline pipeline(
      on_new_channel("videotestsrc is-live=true ! video/x-raw,format=I420,width=64,height=48,framerate=50/1 ! "
                     "gpumapsink $CHANNEL gpumapsrc $CHANNEL ! tee name=tee ! queue ! gpumapkernel ! "
                     "fakesink name=out sync=false async=false"));
  first.on(pipeline.element("out"));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(eventually([&] { return first.count() > 3; })) << pipeline.wait(1ms);
  GstElement* branch = add_branch(pipeline, "queue ! jpegenc ! fakesink name=end", late);
  ASSERT_TRUE(gst_element_link(pipeline.element("tee"), branch));
  EXPECT_TRUE(eventually([&] { return late.count() > 3; })) << pipeline.wait(1ms);
  first.forget();
  EXPECT_TRUE(eventually([&] { return first.count() > 3; })) << pipeline.wait(1ms);
}

TEST(Relinking, AKernelIsReplacedByAnElementOnTheCpuAndBack) {
  Watch watch;
  Pipeline pipeline(
      on_new_channel("videotestsrc is-live=true ! video/x-raw,format=I420,width=64,height=48,framerate=50/1 ! "
                     "gpumapsink $CHANNEL gpumapsrc $CHANNEL ! identity name=last"));
  GstElement* now = add_branch(pipeline, "gpumapkernel ! fakesink name=end", watch);
  ASSERT_TRUE(gst_element_link(pipeline.element("last"), now));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(eventually([&] { return watch.count() > 3; })) << pipeline.wait(1ms);
  for (const char* next : {"jpegenc ! fakesink name=end", "gpumapkernel ! fakesink name=end",
                           "videoconvert ! fakesink name=end", "jpegenc ! fakesink name=end"}) {
    SCOPED_TRACE(next);
    now = replace_branch(pipeline, now, next, watch);
    ASSERT_TRUE(eventually([&] { return watch.count() > 3; })) << pipeline.wait(1ms);
  }
}

/// What stands before the branch, whose last element is `last`, and what is linked there, one after the other.
struct Swaps {
  const char* name;
  const char* before;
  std::vector<const char*> branches;
};
class SwappedBranches : public testing::TestWithParam<Swaps> {};
constexpr const char* kernel_branch = "gpumapkernel kernel=convert ! video/x-raw,format=RGBA ! fakesink name=end";
constexpr const char* cpu_branch = "queue ! videoscale ! video/x-raw,width=32,height=24 ! fakesink name=end";
constexpr const char* kernel_of_both =
    "tee name=tee tee. ! queue ! videoconvert ! fakesink async=false tee. ! queue ! gpumapkernel ! fakesink name=end";
constexpr const char* cpu_of_both =
    "tee name=tee tee. ! queue ! gpumapkernel ! fakesink async=false tee. ! queue ! videoconvert ! fakesink name=end";
INSTANTIATE_TEST_SUITE_P(
    Behind, SwappedBranches,
    testing::Values(
        Swaps{"Src", "gpumapsrc name=last", {kernel_branch, cpu_branch, kernel_branch, cpu_branch}},
        Swaps{"Kernel",
              "gpumapsrc ! gpumapkernel name=last",
              {"fakesink name=end", kernel_branch, cpu_branch, kernel_branch, "fakesink name=end"}},
        Swaps{"KernelAndTee",
              "gpumapsrc ! gpumapkernel name=last",
              {"fakesink name=end", kernel_of_both, cpu_branch, cpu_of_both, kernel_branch, kernel_of_both}},
        Swaps{"KernelAndQueue", "gpumapsrc ! gpumapkernel ! queue name=last", {"fakesink name=end", kernel_branch}},
        Swaps{"LeakySrc", "gpumapsrc name=last leaky=oldest", {cpu_branch, kernel_branch, cpu_branch, kernel_branch}},
        Swaps{"LeakySrcAndQueue", "gpumapsrc leaky=oldest ! queue name=last", {cpu_branch, kernel_branch}}),
    [](const auto& test) { return test.param.name; });

// A frame that was made for one element is on its way while another is linked: the other one gets none that it cannot
// read, and no caps that end its stream.
TEST_P(SwappedBranches, GoOn) {
  Watch watch;
  const TemporaryFolder folder;
  std::string before = GetParam().before;
  const bool crosses = before.find("leaky") != std::string::npos;
  const std::string where = crosses ? " socket-path=" + (folder.path() / "link").string() : " channel=" + new_channel();
  before.insert(std::string_view("gpumapsrc").size(), where);
  Pipeline pipeline(
      "videotestsrc is-live=true ! video/x-raw,format=NV12,width=66,height=50,framerate=50/1 ! gpumapsink" + where +
      ' ' + before);
  GstElement* now = nullptr;
  for (const char* next : GetParam().branches) {
    SCOPED_TRACE(next);
    if (now == nullptr) {
      now = add_branch(pipeline, next, watch);
      ASSERT_TRUE(gst_element_link(pipeline.element("last"), now));
      ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    } else {
      now = replace_branch(pipeline, now, next, watch);
    }
    ASSERT_TRUE(eventually([&] { return watch.count() > 3; })) << pipeline.wait(1ms);
  }
}

// An element in between says its old caps to a new neighbour, which does not take them. The caps of gpumapsrc are
// right.
TEST(Relinking, WhatAQueueHandsOnNamesTheRemedy) {
  for (const char* last : {"queue name=last", "gpumapkernel ! queue name=last"}) {
    SCOPED_TRACE(last);
    Watch watch;
    Pipeline pipeline(
        on_new_channel(std::string("videotestsrc is-live=true ! video/x-raw,format=I420,width=64,height=48,"
                                   "framerate=50/1 ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! ") +
                       last));
    GstElement* now = add_branch(pipeline, "gpumapkernel ! fakesink name=end", watch);
    ASSERT_TRUE(gst_element_link(pipeline.element("last"), now));
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    ASSERT_TRUE(eventually([&] { return watch.count() > 3; })) << pipeline.wait(1ms);
    replace_branch(pipeline, now, "jpegenc ! fakesink name=end", watch);
    const std::string error = pipeline.wait();
    EXPECT_THAT(error, testing::HasSubstr("put gpumapdownload before"));
    EXPECT_THAT(error, testing::Not(testing::HasSubstr("does not take")));
  }
}

// The frame itself is kept where the next element can read it: a stream may have one picture.
TEST(Relinking, TheFrameThatIsHeldReachesTheNextElement) {
  for (const char* last : {"", "! gpumapkernel name=kernel"}) {
    SCOPED_TRACE(last);
    const bool kernel = !std::string_view(last).empty();
    Watch watch;
    Pipeline pipeline(on_new_channel(std::string("appsrc name=in format=time ! gpumapsink $CHANNEL gpumapsrc "
                                                 "name=src $CHANNEL ") +
                                     last));
    GstElement* element = pipeline.element(kernel ? "kernel" : "src");
    GstElement* now = add_branch(pipeline, kernel_branch, watch);
    ASSERT_TRUE(gst_element_link(element, now));
    const Caps caps = video_caps("NV12", 66, 50);
    gst_app_src_set_caps(pipeline.appsrc(), caps.get());
    const Data data = random_data(frame_bytes(caps.get()), 8);
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    push(pipeline.appsrc(), new_buffer(data, 7 * GST_MSECOND));
    ASSERT_TRUE(eventually([&] { return watch.count() == 1; })) << pipeline.wait(1ms);
    now = replace_branch(pipeline, now, "queue ! videoscale ! video/x-raw,width=32,height=24 ! fakesink name=end",
                         watch, element, [&] { push(pipeline.appsrc(), new_buffer(data, 9 * GST_MSECOND)); });
    ASSERT_TRUE(eventually([&] { return watch.count() == 1; })) << pipeline.wait(1ms);
    EXPECT_EQ(watch.times(), std::vector<GstClockTime>{9 * GST_MSECOND});
  }
}

// A stop takes the caps from the pad of a kernel whose frame is on its way while what follows wants other caps.
TEST(Relinking, AKernelIsStoppedWhileItsFrameMeetsOtherCaps) {
  Pipeline pipeline(
      on_new_channel("videotestsrc ! video/x-raw,format=NV12,width=66,height=50 ! gpumapsink $CHANNEL "
                     "gpumapsrc $CHANNEL ! gpumapkernel name=kernel kernel=convert ! "
                     "capsfilter name=filter caps=video/x-raw,format=RGBA ! fakesink async=false"));
  struct Pads {
    GstElement* filter;
    Pad made;
    std::atomic<bool> asked{false};
    std::atomic<bool> stopped{false};
  } pads{pipeline.element("filter"), Pad(gst_element_get_static_pad(pipeline.element("kernel"), "src"))};
  const auto ask = [](GstPad*, GstPadProbeInfo*, gpointer user) {
    auto& [filter, made, asked, stopped] = *static_cast<Pads*>(user);
    asked = true;
    g_object_set(filter, "caps", new_caps("video/x-raw,format=GRAY8").get(), nullptr);
    return GST_PAD_PROBE_REMOVE;
  };
  const auto stop = [](GstPad*, GstPadProbeInfo* info, gpointer user) {
    auto& [filter, made, asked, stopped] = *static_cast<Pads*>(user);
    const bool caps = GST_EVENT_TYPE(GST_PAD_PROBE_INFO_EVENT(info)) == GST_EVENT_CAPS;
    if (caps && asked && !stopped.exchange(true)) gst_pad_set_active(made.get(), FALSE);
    return GST_PAD_PROBE_OK;
  };
  const Pad next(gst_element_get_static_pad(pads.filter, "sink"));
  const auto frames = static_cast<GstPadProbeType>(GST_PAD_PROBE_TYPE_BLOCK | GST_PAD_PROBE_TYPE_BUFFER);
  gst_pad_add_probe(pads.made.get(), frames, ask, &pads, nullptr);
  gst_pad_add_probe(next.get(), GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM, stop, &pads, nullptr);
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  EXPECT_TRUE(eventually([&] { return pads.stopped.load(); })) << pipeline.wait(1ms);
  pipeline.stop();
}

// What follows wants other caps while a frame is being made, and takes those that it has as well.
TEST(Renegotiation, LosesNoFrame) {
  constexpr int frames = 200;
  Watch watch;
  Pipeline pipeline(
      "appsrc name=in format=time caps=video/x-raw,format=NV12,width=64,height=48,framerate=30/1 ! gpumapupload ! "
      "gpumapkernel kernel=convert ! capsfilter name=wanted caps-change-mode=delayed "
      "caps=video/x-raw,format=RGBA,width=32,height=24 ! fakesink name=out sync=false");
  watch.on(pipeline.element("out"));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  for (int i = 0; i < frames; ++i) {
    ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(random_data(64 * 48 * 3 / 2, static_cast<std::uint64_t>(i)),
                                                   static_cast<GstClockTime>(i) * GST_MSECOND)));
    const Caps wanted = new_caps("video/x-raw,format=RGBA,height=24,width=" + std::to_string(32 + i % 2 * 16));
    g_object_set(pipeline.element("wanted"), "caps", wanted.get(), nullptr);
    // Some frames in each: on their way, and before.
    if (i % 3 != 0) continue;
    ASSERT_TRUE(eventually([&] { return watch.times().size() + 3 > static_cast<std::size_t>(i); }));
  }
  gst_app_src_end_of_stream(pipeline.appsrc());
  ASSERT_EQ(pipeline.wait(), "eos");
  EXPECT_GT(watch.events(GST_EVENT_CAPS), 1U);
  EXPECT_EQ(watch.times().size(), std::size_t{frames});
}

// A muxer's first pad is one for sound.
TEST_F(Links, AMuxerIsLinkedAtTheRightPad) {
  Pipeline whole(
      "videotestsrc num-buffers=10 ! video/x-raw,width=64,height=48 ! x264enc ! h264parse ! gpumapsink channel=" +
      channel_ + "v audiotestsrc num-buffers=10 ! avenc_aac ! aacparse ! gpumapsink channel=" + channel_ +
      "a mp4mux name=m ! fakesink gpumapsrc channel=" + channel_ + "a ! m. gpumapsrc channel=" + channel_ + "v ! m.");
  EXPECT_EQ(whole.run(), "eos");
}

/// What arrives where the link behind `passage` breaks while a frame is on it and three more wait, and another is made.
std::vector<GstClockTime> arrive_after_relink(const std::string& passage) {
  Watch watch;
  Pipeline pipeline("identity name=in ! " + passage + " ! identity name=first ! fakesink async=false");
  const Pad pad(gst_element_get_static_pad(pipeline.element("first"), "sink"));
  const gulong block = gst_pad_add_probe(
      pad.get(), static_cast<GstPadProbeType>(GST_PAD_PROBE_TYPE_BLOCK | GST_PAD_PROBE_TYPE_BUFFER),
      [](GstPad*, GstPadProbeInfo*, gpointer) { return GST_PAD_PROBE_OK; }, nullptr, nullptr);
  EXPECT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  const Pad in(gst_element_get_static_pad(pipeline.element("in"), "sink"));
  gst_pad_send_event(in.get(), gst_event_new_stream_start("frames"));
  gst_pad_send_event(in.get(), gst_event_new_caps(new_caps("application/octet-stream").get()));
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  gst_pad_send_event(in.get(), gst_event_new_segment(&segment));
  for (std::uint64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(gst_pad_chain(in.get(), new_buffer(random_data(1000, i), i * GST_MSECOND).release()), GST_FLOW_OK);
  }
  EXPECT_TRUE(eventually([&] { return gst_pad_is_blocking(pad.get()) != FALSE; }));
  const Pad peer(gst_pad_get_peer(pad.get()));
  const Element second(GST_ELEMENT(gst_object_ref(gst_element_factory_make("fakesink", nullptr))));
  g_object_set(second.get(), "async", FALSE, nullptr);
  gst_bin_add(GST_BIN(pipeline.get()), second.get());
  EXPECT_TRUE(gst_pad_unlink(peer.get(), pad.get()));
  gst_pad_remove_probe(pad.get(), block);
  // The second frame has found no link once its sender pauses, and a moment later waits for another link.
  EXPECT_TRUE(eventually([&] { return gst_pad_get_task_state(peer.get()) == GST_TASK_PAUSED; }));
  g_usleep(50000);
  watch.on(second.get());
  EXPECT_TRUE(gst_element_sync_state_with_parent(second.get()));
  const Pad other(gst_element_get_static_pad(second.get(), "sink"));
  EXPECT_EQ(gst_pad_link(peer.get(), other.get()), GST_PAD_LINK_OK);
  // Behind all that arrives.
  EXPECT_TRUE(gst_pad_send_event(in.get(), gst_event_new_eos()));
  EXPECT_TRUE(eventually([&] { return watch.events(GST_EVENT_EOS) > 0; }));
  EXPECT_EQ(pipeline.error(), "");
  return watch.times();
}

TEST(Relinking, FramesThatWaitGoToTheNextLink) {
  const auto behind_a_queue = arrive_after_relink("queue");
  ASSERT_EQ(behind_a_queue.size(), 2U);  // one went to the first link, and one to none
  EXPECT_EQ(arrive_after_relink(on_new_channel("gpumapsink $CHANNEL gpumapsrc $CHANNEL")), behind_a_queue);
}

// The question, or the event, would come back to the one who asked, without end.
TEST(Loops, AreAnErrorThatNamesTheRemedy) {
  Pipeline pipeline(on_new_channel("gpumapsrc $CHANNEL ! identity name=between ! gpumapsink $CHANNEL"));
  ASSERT_NE(pipeline.set_state(GST_STATE_PAUSED), GST_STATE_CHANGE_FAILURE);
  const Pad pad(gst_element_get_static_pad(pipeline.element("between"), "sink"));
  gint64 duration = 0;
  EXPECT_FALSE(gst_pad_peer_query_duration(pad.get(), GST_FORMAT_TIME, &duration));
  EXPECT_NE(pipeline.wait().find("give one of them another channel"), std::string::npos);
  GstStructure* said = gst_structure_new_empty("said");
  EXPECT_FALSE(gst_pad_push_event(pad.get(), gst_event_new_custom(GST_EVENT_CUSTOM_UPSTREAM, said)));
  said = gst_structure_new_empty("said");
  EXPECT_TRUE(gst_pad_send_event(pad.get(), gst_event_new_custom(GST_EVENT_CUSTOM_DOWNSTREAM_OOB, said)));
}

}  // namespace
}  // namespace gpumap::gst::test
