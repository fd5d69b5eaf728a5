// SPDX-License-Identifier: MIT
// GstHarness's stress: threads that push frames, change caps, flush, send events of every kind, ask, set properties and
// change states, all at once. Nothing hangs, nothing crashes, and afterwards a frame goes through as before.
#include <gst/check/gstharness.h>

#include <atomic>
#include <functional>
#include <list>
#include <mutex>

#include "matrix.hpp"

namespace gpumap::gst::test {
namespace {

constexpr gulong stress_us = 800000;

/// A thread of GstHarness's that does something again and again, for as long as it lives.
class Stress {
 public:
  Stress(GstHarness* harness, gulong pause_us, std::function<void()> what) : what_(std::move(what)) {
    thread_ = gst_harness_stress_custom_start(harness, nullptr, run, this, pause_us);
  }
  explicit Stress(GstHarnessThread* thread) : thread_(thread) {}
  ~Stress() { gst_harness_stress_thread_stop(thread_); }
  Stress(const Stress&) = delete;
  Stress& operator=(const Stress&) = delete;

 private:
  static void run(gpointer /*thread*/, gpointer user) { static_cast<Stress*>(user)->what_(); }

  std::function<void()> what_;
  GstHarnessThread* thread_;
};
using Stresses = std::list<Stress>;

constexpr const char* first_caps = "video/x-raw,format=GRAY8,width=32,height=32,framerate=30/1";

GstSegment time_segment() {
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  return segment;
}

/// Frames of these caps, from GstHarness's own thread. It lets go between two of them: without a pause it has the pad's
/// lock again before another thread, which waits for it, wakes.
GstHarnessThread* push_frames(GstHarness* harness) {
  const GstSegment segment = time_segment();
  const Caps caps = new_caps(first_caps);
  const Buffer buffer = new_buffer(random_data(1024, 1), 0);
  return gst_harness_stress_push_buffer_start_full(harness, caps.get(), &segment, buffer.get(), 20);
}

void change_caps(GstHarness* harness) {
  static std::atomic<unsigned> changes{0};
  const int size = changes++ % 2 == 0 ? 16 : 32;
  gst_harness_push_event(harness, gst_event_new_caps(video_caps("GRAY8", size, size).get()));
}

/// Flushes of one stream come one after the other in GStreamer: a FLUSH_STOP that overtakes another's FLUSH_START would
/// leave elements downstream waiting.
std::mutex flush_order;

void start_flush(GstHarness* harness) {
  const std::lock_guard lock(flush_order);
  gst_harness_push_event(harness, gst_event_new_flush_start());
}
void flush(GstHarness* harness) {
  const GstSegment segment = time_segment();
  {
    const std::lock_guard lock(flush_order);
    gst_harness_push_event(harness, gst_event_new_flush_start());
    gst_harness_push_event(harness, gst_event_new_flush_stop(TRUE));
  }
  gst_harness_push_event(harness, gst_event_new_segment(&segment));
}

void send_events(GstHarness* harness) {
  gst_harness_push_event(harness, gst_event_new_custom(GST_EVENT_CUSTOM_DOWNSTREAM, gst_structure_new_empty("a")));
  gst_harness_push_event(harness, gst_event_new_custom(GST_EVENT_CUSTOM_DOWNSTREAM_OOB, gst_structure_new_empty("b")));
  gst_harness_push_event(harness, gst_event_new_custom(GST_EVENT_CUSTOM_BOTH_OOB, gst_structure_new_empty("c")));
  gst_harness_push_event(harness,
                         gst_event_new_custom(GST_EVENT_CUSTOM_DOWNSTREAM_STICKY, gst_structure_new_empty("d")));
  gst_harness_push_event(harness, gst_event_new_tag(gst_tag_list_new(GST_TAG_TITLE, "title", nullptr)));
  gst_harness_push_event(harness, gst_event_new_gap(0, 1));
}

void start(GstHarness* harness) {
  const GstSegment segment = time_segment();
  gst_harness_push_event(harness, gst_event_new_stream_start("again"));
  gst_harness_push_event(harness, gst_event_new_caps(new_caps(first_caps).get()));
  gst_harness_push_event(harness, gst_event_new_segment(&segment));
}
void end_and_start(GstHarness* harness) {
  gst_harness_push_event(harness, gst_event_new_eos());
  start(harness);
}

/// Those that go both ways, and where the peer is downstream those that have to be in order. GStreamer's transforms, a
/// capsfilter also, answer for the position by a segment that a flush changes meanwhile: beside flushes that is a
/// critical warning, in one run of a thousand.
void query(const Pad& pad, bool beside_flushes = false) {
  std::vector<GstQuery*> queries = {gst_query_new_caps(nullptr), gst_query_new_latency(),
                                    gst_query_new_duration(GST_FORMAT_TIME), gst_query_new_seeking(GST_FORMAT_TIME)};
  if (!beside_flushes) queries.push_back(gst_query_new_position(GST_FORMAT_TIME));
  if (GST_PAD_IS_SRC(pad.get())) {
    queries.push_back(gst_query_new_allocation(video_caps("GRAY8", 32, 32).get(), TRUE));
    queries.push_back(gst_query_new_drain());
  }
  for (GstQuery* query : queries) {
    gst_pad_peer_query(pad.get(), query);
    gst_query_unref(query);
  }
}

/// What is done to an element at once with the frames, each a bit.
enum With : unsigned {
  states = 1,
  caps = 2,
  flushes = 4,
  events = 8,
  restarts = 16,
  properties = 32,
  queries = 64,
  other_side = 128,  ///< the states of the element at the other end of the channel
  all = 255,
};
std::string name_of(unsigned with) {
  if (with == all) return "All";
  constexpr const char* names[] = {"States",   "Caps",       "Flushes", "Events",
                                   "Restarts", "Properties", "Queries", "OtherSide"};
  std::string name;
  for (std::size_t bit = 0; bit < std::size(names); ++bit) name += (with >> bit & 1U) != 0 ? names[bit] : "";
  return name;
}

/// gpumapsrc, alone and with a kernel behind it, from the consumer's side.
class StressSrc : public testing::TestWithParam<std::tuple<unsigned, const char*>> {};
std::string src_name(const testing::TestParamInfo<StressSrc::ParamType>& test) {
  const std::string_view behind = std::get<1>(test.param);
  const char* kernel = behind.empty() ? "Alone" : behind.find("convert") != behind.npos ? "Convert" : "Identity";
  return name_of(std::get<0>(test.param)) + kernel;
}
INSTANTIATE_TEST_SUITE_P(
    With, StressSrc,
    testing::Combine(
        testing::Values(states, flushes, events, properties, queries, other_side, flushes | states,
                        flushes | other_side, states | other_side, flushes | states | other_side, all),
        testing::Values("", " ! gpumapkernel name=kernel kernel=identity",
                        " ! gpumapkernel name=kernel kernel=convert ! capsfilter caps=video/x-raw,format=RGBA")),
    src_name);

TEST_P(StressSrc, GoesOnAfterwards) {
  const auto& [with, behind] = GetParam();
  const auto is = [with = with](With what) { return (with & what) != 0; };
  const std::string channel = new_channel();
  Pipeline in(
      "videotestsrc ! video/x-raw,format=NV12,width=32,height=32,framerate=30/1 ! gpumapsink name=sink slots=4 "
      "channel=" +
      channel);
  GstHarness* out = gst_harness_new_parse(("gpumapsrc name=src channel=" + channel + behind).c_str());
  // Frames that come out are counted and forgotten, and so are events.
  gst_harness_set_drop_buffers(out, TRUE);
  ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  gst_harness_play(out);
  {
    Stresses stresses;
    if (is(other_side)) {
      stresses.emplace_back(out, 7000, [&] {
        in.set_state(g_random_boolean() ? GST_STATE_PAUSED : GST_STATE_READY);
        in.set_state(GST_STATE_PLAYING);
      });
    }
    if (is(states)) stresses.emplace_back(gst_harness_stress_statechange_start_full(out, 5000));
    if (is(flushes)) {
      stresses.emplace_back(out, 5000, [&] {
        gst_harness_push_upstream_event(out, gst_event_new_seek(1.0, GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH,
                                                                GST_SEEK_TYPE_SET, 0, GST_SEEK_TYPE_NONE, 0));
      });
    }
    if (is(events)) {
      stresses.emplace_back(out, 500, [&] {
        gst_harness_push_upstream_event(out, gst_event_new_reconfigure());
        gst_harness_push_upstream_event(out, gst_event_new_latency(GST_MSECOND));
        gst_harness_push_upstream_event(out, gst_event_new_qos(GST_QOS_TYPE_UNDERFLOW, 1.0, 0, 0));
        gst_harness_push_upstream_event(out,
                                        gst_event_new_custom(GST_EVENT_CUSTOM_UPSTREAM, gst_structure_new_empty("a")));
      });
    }
    if (is(properties)) {
      const bool kernel = *behind != '\0';
      const std::shared_ptr<GstElement> element(gst_bin_get_by_name(GST_BIN(out->element), kernel ? "kernel" : "src"),
                                                gst_object_unref);
      stresses.emplace_back(out, 500, [element, kernel] {
        GstStructure* stats = nullptr;
        g_object_get(element.get(), "stats", &stats, nullptr);
        if (stats != nullptr) gst_structure_free(stats);
        g_object_set(element.get(), "timeout", kernel ? 20000U : 0U, nullptr);
      });
    }
    if (is(queries)) {
      stresses.emplace_back(out, 500, [&] {
        const Pad peer(GST_PAD(gst_object_ref(out->sinkpad)));
        query(peer, is(flushes));
      });
    }
    g_usleep(stress_us);
  }
  // A pipeline whose state is changed again and again may stay in PAUSED on a busy machine, also one with a fakesink (5
  // of 720); one whose sinks are flushed meanwhile may leave one of them behind in READY.
  if (is(other_side)) in.set_state(GST_STATE_NULL);
  ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  if (is(states) && is(flushes)) {
    // A FLUSH_STOP does not get through an element that is stopped, and GstHarness's own pad, which does not stop with
    // it, stays in the flush. Sinks of a pipeline do stop.
    gst_element_set_state(out->element, GST_STATE_READY);
    gst_pad_send_event(out->sinkpad, gst_event_new_flush_stop(TRUE));
  }
  gst_harness_play(out);
  const auto received = [&] { return gst_harness_buffers_received(out); };
  EXPECT_TRUE(eventually([&, before = received()] { return received() > before + 5; }))
      << received() << " frames; the producer says " << in.wait(1ms);
  in.stop();
  gst_harness_teardown(out);
}

// gpumapsink under GstHarness's stress, with a gpumapsrc that takes what it gets.

class StressSink : public testing::TestWithParam<std::tuple<unsigned, const char*>> {};
INSTANTIATE_TEST_SUITE_P(With, StressSink,
                         testing::Combine(testing::Values(states, caps, flushes, events, restarts, properties, queries,
                                                          other_side, flushes | states, flushes | other_side,
                                                          flushes | restarts, states | other_side, all),
                                          testing::Values("slots=8", "slots=8 leaky=oldest")),
                         [](const auto& test) {
                           return name_of(std::get<0>(test.param)) + '_' + as_name(std::get<1>(test.param));
                         });

TEST_P(StressSink, GoesOnAfterwards) {
  const auto& [with, options] = GetParam();
  const auto is = [with = with](With what) { return (with & what) != 0; };
  const std::string channel = new_channel();
  GstHarness* in = gst_harness_new_parse(("gpumapsink " + std::string(options) + " channel=" + channel).c_str());
  Pipeline out("gpumapsrc name=src channel=" + channel + " ! fakesink async=false sync=false");
  ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  const Element sink(gst_harness_find_element(in, "gpumapsink"));
  const Pad src_pad(gst_element_get_static_pad(out.element("src"), "src"));
  const Pad out_pad(gst_pad_get_peer(src_pad.get()));
  {
    Stresses stresses;
    stresses.emplace_back(push_frames(in));
    // GstHarness takes it for a failure if something gets in the way of its first events.
    ASSERT_TRUE(eventually([&] { return stat(sink.get(), "frames") > 0; }));
    if (is(other_side)) {
      stresses.emplace_back(in, 7000, [&] {
        out.set_state(g_random_boolean() ? GST_STATE_PAUSED : GST_STATE_READY);
        out.set_state(GST_STATE_PLAYING);
      });
    }
    if (is(states)) stresses.emplace_back(gst_harness_stress_statechange_start_full(in, 5000));
    if (is(caps)) stresses.emplace_back(in, 3000, [&] { change_caps(in); });
    if (is(flushes)) stresses.emplace_back(in, 2000, [&] { flush(in); });
    if (is(events)) stresses.emplace_back(in, 500, [&] { send_events(in); });
    if (is(restarts)) stresses.emplace_back(in, 4000, [&] { end_and_start(in); });
    if (is(queries)) stresses.emplace_back(in, 500, [&] { query(out_pad); });
    if (is(properties)) {
      stresses.emplace_back(in, 500, [&] {
        g_object_set(sink.get(), "sync", static_cast<gboolean>(g_random_boolean()), "busy-poll", 5U, nullptr);
        EXPECT_GE(stat(sink.get(), "frames") + 1, 1U);
      });
    }
    g_usleep(stress_us);
    // With a consumer that hangs, pushes wait for a slot: they are woken until the last thread has ended.
    const Stress wakes(in, 2000, [&] { start_flush(in); });
    stresses.clear();
  }
  g_object_set(sink.get(), "sync", FALSE, nullptr);
  flush(in);
  start(in);
  ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  const std::uint64_t before = stat(out.element("src"), "frames");
  // Fewer than there are slots: a consumer that hangs is reported, and hangs no push.
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(gst_harness_push(in, new_buffer(random_data(1024, 1), 0).release()), GST_FLOW_OK) << i;
  }
  EXPECT_TRUE(eventually([&] { return stat(out.element("src"), "frames") == before + 4; }))
      << stat(out.element("src"), "frames") - before << " frames; " << out.wait(1ms);
  out.stop();
  gst_harness_teardown(in);
}

}  // namespace
}  // namespace gpumap::gst::test
