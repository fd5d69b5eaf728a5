// SPDX-License-Identifier: MIT
// What goes against the frames between two processes: seeks, QoS and other events, questions, and what a flush takes
// with it; whose events count, and what a producer that does not answer costs.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <future>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gpumap/link.hpp"
#include "gst/channel/ends.hpp"
#include "gst/channel/upstream_requests.hpp"
#include "gst/channel/upstream_text.hpp"
#include "launched.hpp"
#include "link_sides.hpp"
#include "link_written.hpp"
#include "watch.hpp"

namespace gpumap::gst::test {
namespace {

using namespace std::chrono_literals;

/// Events that pass a pad, by name.
class Seen {
 public:
  Seen(GstElement* element, const char* pad, GstPadProbeType types) {
    const Pad at(gst_element_get_static_pad(element, pad));
    gst_pad_add_probe(
        at.get(), types,
        [](GstPad*, GstPadProbeInfo* info, gpointer kept) {
          Kept& events = **static_cast<std::shared_ptr<Kept>*>(kept);
          const std::lock_guard lock(events.mutex);
          events.list.emplace_back(gst_event_ref(GST_PAD_PROBE_INFO_EVENT(info)));
          return GST_PAD_PROBE_OK;
        },
        new std::shared_ptr<Kept>(kept_), [](gpointer kept) { delete static_cast<std::shared_ptr<Kept>*>(kept); });
  }
  [[nodiscard]] GstEvent* find(GstEventType type, const char* name = nullptr) {
    const std::lock_guard lock(kept_->mutex);
    for (const auto& event : kept_->list) {
      const GstStructure* structure = gst_event_get_structure(event.get());
      if (GST_EVENT_TYPE(event.get()) == type && (name == nullptr || gst_structure_has_name(structure, name) != 0)) {
        return event.get();
      }
    }
    return nullptr;
  }
  [[nodiscard]] bool comes(GstEventType type, const char* name = nullptr, Time limit = patience) {
    return eventually([&] { return find(type, name) != nullptr; }, limit);
  }

 private:
  /// The pad may outlive this.
  struct Kept {
    std::mutex mutex;
    std::vector<Ptr<GstEvent>> list;
  };
  const std::shared_ptr<Kept> kept_ = std::make_shared<Kept>();
};

constexpr auto flushes_too =
    static_cast<GstPadProbeType>(GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM | GST_PAD_PROBE_TYPE_EVENT_FLUSH);

struct LinkUpstream : LinkSides {
  [[nodiscard]] std::string from_video(const std::string& more = "") const {
    return "videotestsrc name=in ! video/x-raw,width=16,height=16,framerate=100/1 ! gpumapsink name=sink " + socket() +
           " " + more;
  }
  [[nodiscard]] static bool seek(Pipeline& pipeline, GstClockTime to) {
    return gst_element_seek_simple(pipeline.get(), GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH, static_cast<gint64>(to)) != 0;
  }
  /// Questions go without an answer after half a second, and a busy machine may need more for one of them.
  [[nodiscard]] static bool gets_answer(GstPad* pad, GstQuery* query) {
    return eventually([&] { return gst_pad_query(pad, query) != 0; });
  }
};

TEST_F(LinkUpstream, ASeekFlushesAndBeginsElsewhere) {
  Pipeline producer(from_video());
  start(producer);
  Pipeline consumer(to_appsink() + " max-buffers=2");
  Seen seen(consumer.element("out"), "sink", flushes_too);
  start(consumer);
  ASSERT_TRUE(pull(consumer.appsink()));
  for (const GstClockTime to : {100 * GST_SECOND, 7 * GST_SECOND, 3000 * GST_SECOND}) {
    ASSERT_TRUE(seek(consumer, to));
    const Sample sample = pull(consumer.appsink());
    ASSERT_TRUE(sample);
    GstBuffer* buffer = gst_sample_get_buffer(sample.get());
    EXPECT_EQ(GST_BUFFER_PTS(buffer), to);
    EXPECT_TRUE(GST_BUFFER_FLAG_IS_SET(buffer, GST_BUFFER_FLAG_DISCONT));
    EXPECT_EQ(gst_segment_to_stream_time(gst_sample_get_segment(sample.get()), GST_FORMAT_TIME, to), to);
    EXPECT_TRUE(pull(consumer.appsink()));
  }
  EXPECT_TRUE(seen.comes(GST_EVENT_FLUSH_START) && seen.comes(GST_EVENT_FLUSH_STOP));
  EXPECT_EQ(consumer.error(), "");
}

// The src takes nothing within a flush: the end does not wait until it has been away for a while.
TEST_F(LinkUpstream, AFlushIsOverAsSoonAsItsEndIsThere) {
  Pipeline producer(from_video());
  start(producer);
  Pipeline consumer("gpumapsrc " + socket() + " ! fakesink sync=false");
  Watch watch;
  start(consumer);
  // The shortest of some: others use this machine, too. With such a wait all are longer.
  const Deadline end = Clock::now() + patience;
  Time shortest = patience;
  for (int i = 0; shortest >= 10ms && Clock::now() < end; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_TRUE(eventually([&] { return seek(consumer, i * GST_SECOND); }));
    shortest = std::min(shortest, std::chrono::duration_cast<Time>(std::chrono::steady_clock::now() - begin));
  }
  EXPECT_LT(shortest, 10ms);
}

// A demuxer flushes both branches at the seek that comes by one of them. The same seek then comes by the other, whose
// pads take none while they are being flushed.
TEST_F(LinkUpstream, ASeekBySeveralSocketsFindsNoneWithinItsFlush) {
  const std::string other = "socket-path=" + path + "b";
  Pipeline producer(
      "videotestsrc is-live=true ! video/x-raw,width=16,height=16,framerate=50/1 ! tee name=t ! queue ! "
      "gpumapsink " +
      socket() + " t. ! queue ! gpumapsink " + other);
  start(producer);
  for (const char* slow : {"one", "two"}) {  // whichever comes first
    Pipeline consumer("gpumapsrc name=one " + socket() + " ! fakesink sync=false gpumapsrc name=two " + other +
                      " ! fakesink sync=false");
    start(consumer);
    for (const char* src : {"one", "two"}) {
      ASSERT_TRUE(eventually([&] { return stat(consumer.element(src), "frames") > 2; }));
    }
    const Pad pad(gst_element_get_static_pad(consumer.element(slow), "src"));
    gst_pad_add_probe(
        pad.get(), GST_PAD_PROBE_TYPE_EVENT_FLUSH,
        [](GstPad*, GstPadProbeInfo* info, gpointer) {
          if (GST_EVENT_TYPE(GST_PAD_PROBE_INFO_EVENT(info)) == GST_EVENT_FLUSH_STOP) g_usleep(100'000);
          return GST_PAD_PROBE_OK;
        },
        nullptr, nullptr);
    EXPECT_TRUE(seek(consumer, GST_SECOND));
  }
}

// A client that is paused takes no end that lies behind frames.
TEST_F(LinkUpstream, ASeekThatIsRefusedWaitsForNothing) {
  Pipeline producer(
      "videotestsrc num-buffers=6 ! video/x-raw,width=16,height=16,framerate=100/1 ! gpumapsink name=sink " + socket() +
      " wait-for-connection=true upstream-events=none");
  start(producer);
  Pipeline consumer("gpumapsrc name=src " + socket() + " ! fakesink");
  ASSERT_TRUE(consumer.reach(GST_STATE_PAUSED));
  ASSERT_TRUE(handed_on(6));
  ASSERT_EQ(producer.wait(), "eos");
  Time shortest = patience;
  for (int i = 0; i < 3; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_FALSE(seek(consumer, 0));
    shortest = std::min(shortest, std::chrono::duration_cast<Time>(std::chrono::steady_clock::now() - begin));
  }
  EXPECT_LT(shortest, 5s) << "such a seek waits so long for its answer";
}

// The seek that has its turn may wait for the state lock that the application's has: it would never end.
TEST_F(LinkUpstream, ASeekThatGetsNoTurnIsRefused) {
  Pipeline producer(from_video());
  start(producer);
  Pipeline consumer(to_appsink() + " max-buffers=2");
  start(consumer);
  ASSERT_TRUE(pull(consumer.appsink()));
  const Ptr<GstEvent> other(
      gst_event_new_seek(1, GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH, GST_SEEK_TYPE_SET, 0, GST_SEEK_TYPE_NONE, 0));
  {
    const SeekTurn turn(producer.element("sink"), other.get());
    EXPECT_FALSE(std::async(std::launch::async, [&] { return seek(producer, GST_SECOND); }).get());
  }
  EXPECT_TRUE(eventually([&] { return seek(producer, GST_SECOND); }));
}

// As demuxers of bytes do: the thread has the locks that the flush takes, and the flush is over when the seek returns.
TEST_F(LinkUpstream, AStreamingThreadMaySeek) {
  Pipeline producer(from_video("upstream-events=all"));
  start(producer);
  GstClockTime to = 0;
  for (const char* const between : {"", "queue ! "}) {
    SCOPED_TRACE(between);
    struct {
      Watch watch;
      GstClockTime to = 0;
      std::atomic<int> frames{0};
      std::atomic<bool> handled{false};
      std::atomic<std::size_t> stops{0};
    } way;
    way.to = to += 1'000'000 * GST_SECOND;  // where no frame is so soon
    Pipeline consumer("gpumapsrc name=src " + socket() + " ! " + between + "appsink name=out sync=false max-buffers=2");
    way.watch.on(consumer.element("out"));
    const Pad pad(gst_element_get_static_pad(consumer.element("out"), "sink"));
    const auto seek_once = [](GstPad* sink, GstPadProbeInfo*, gpointer user) {
      auto& seeks = *static_cast<decltype(way)*>(user);
      if (++seeks.frames != 3) return GST_PAD_PROBE_OK;
      seeks.handled =
          gst_pad_push_event(sink, gst_event_new_seek(1, GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH, GST_SEEK_TYPE_SET,
                                                      static_cast<gint64>(seeks.to), GST_SEEK_TYPE_NONE, -1)) != FALSE;
      seeks.stops = seeks.watch.events(GST_EVENT_FLUSH_STOP);
      return GST_PAD_PROBE_DROP;
    };
    gst_pad_add_probe(pad.get(), GST_PAD_PROBE_TYPE_BUFFER, seek_once, &way, nullptr);
    start(consumer);
    GstClockTime came = 0;
    while (came < to) {  // appsink writes into the last sample, which is therefore not kept
      const Sample sample = pull(consumer.appsink());
      ASSERT_TRUE(sample) << way.watch.order();
      came = GST_BUFFER_PTS(gst_sample_get_buffer(sample.get()));
    }
    EXPECT_EQ(came, to);
    EXPECT_TRUE(way.handled);
    EXPECT_EQ(way.stops, 1U) << way.watch.order();
    EXPECT_EQ(consumer.error(), "");
  }
}

bool seek_to_part(Pipeline& consumer, GstSeekFlags flags, GstClockTime start, GstClockTime stop) {
  return gst_element_seek(consumer.get(), 1.0, GST_FORMAT_TIME, flags, GST_SEEK_TYPE_SET, static_cast<gint64>(start),
                          GST_SEEK_TYPE_SET, static_cast<gint64>(stop)) != 0;
}

// The producer is on its way back to PLAYING when the second seek waits for its streaming thread, which waits for
// PLAYING.
TEST_F(LinkUpstream, SeeksOfAClientLeaveTheProducerItsStates) {
  Pipeline producer("audiotestsrc ! audio/x-raw,format=S16LE ! gpumapsink name=sink leaky=oldest " + socket());
  Pipeline consumer("gpumapsrc leaky=oldest " + socket() + " ! fakesink sync=false");
  start(producer);
  ASSERT_TRUE(consumer.reach(GST_STATE_PLAYING)) << consumer.error();
  for (int round = 0; round < 8; ++round) {
    (void)seek_to_part(consumer, GST_SEEK_FLAG_FLUSH, 5 * GST_SECOND, 5 * GST_SECOND);
    (void)seek_to_part(consumer, GST_SEEK_FLAG_NONE, 0, 10 * GST_SECOND);
  }
  EXPECT_TRUE(producer.reach(GST_STATE_PLAYING)) << producer.error();
  EXPECT_LT(producer.stop(), at_once);
}

// A seek without a flush would wait until the producer plays, and all questions behind it.
TEST_F(LinkUpstream, APausedProducerRefusesWhatWouldWaitForIt) {
  Pipeline producer(from_video());
  start(producer);
  Pipeline consumer(to_appsink() + " max-buffers=2");
  start(consumer);
  ASSERT_TRUE(pull(consumer.appsink()));
  ASSERT_TRUE(producer.reach(GST_STATE_PAUSED));
  EXPECT_FALSE(seek_to_part(consumer, GST_SEEK_FLAG_NONE, 0, 10 * GST_SECOND));
  const Pad pad(gst_element_get_static_pad(consumer.element("src"), "src"));
  const Ptr<GstQuery> query(gst_query_new_seeking(GST_FORMAT_TIME));
  EXPECT_TRUE(gets_answer(pad.get(), query.get()));
  EXPECT_TRUE(seek(consumer, 9 * GST_SECOND));
}

// It waits for the producer's streaming thread, which waits for another client.
TEST_F(LinkUpstream, ASeekThatWaitsForAClientKeepsNobodyFromAnswers) {
  Pipeline producer(from_video("slots=4 upstream-events=all"));
  start(producer);
  Pipeline stands("gpumapsrc is-live=true leaky=no " + socket() + " ! fakesink sync=false");
  ASSERT_TRUE(stands.reach(GST_STATE_PAUSED));
  Pipeline seeker(to_appsink("leaky=oldest") + " drop=true max-buffers=1");
  start(seeker);
  ASSERT_TRUE(eventually([&] { return clients(producer) == 2; }));
  std::uint64_t before = 0;
  ASSERT_TRUE(eventually([&] {
    g_usleep(200'000);
    const std::uint64_t now = stat(producer.element("sink"), "frames");
    return std::exchange(before, now) == now && now > 0;
  })) << "the producer does not wait";
  EXPECT_FALSE(seek_to_part(seeker, GST_SEEK_FLAG_NONE, 0, 10 * GST_SECOND)) << "it is answered once it is done";
  const Pad src(gst_element_get_static_pad(seeker.element("src"), "src"));
  const Ptr<GstQuery> query(gst_query_new_seeking(GST_FORMAT_TIME));
  EXPECT_TRUE(gets_answer(src.get(), query.get()));
  EXPECT_FALSE(seek_to_part(seeker, GST_SEEK_FLAG_NONE, 0, 9 * GST_SECOND)) << "one at a time";
  EXPECT_TRUE(gets_answer(src.get(), query.get()));
  start(stands);
  EXPECT_TRUE(eventually([&] { return stat(producer.element("sink"), "frames") > before + 4; }));
  EXPECT_TRUE(eventually([&] { return seek_to_part(seeker, GST_SEEK_FLAG_NONE, 0, 8 * GST_SECOND); }));
}

// The streaming thread that it waits for waits for a sink of another branch. Which sink stops first, their bin decides.
TEST_F(LinkUpstream, ASeekThatWaitsForAnotherBranchLetsTheProducerStop) {
  const std::string sink = " t. ! gpumapsink leaky=oldest " + socket();
  for (const std::string& sinks : {sink + " t. ! fakesink name=other sync=true", sink + " t. ! other."}) {
    SCOPED_TRACE(sinks);
    const bool is_first = sinks.find("fakesink") == std::string::npos;
    Pipeline producer(std::string(is_first ? "fakesink name=other sync=true " : "") +
                      "videotestsrc name=in ! video/x-raw,width=16,height=16,framerate=100/1 ! tee name=t" + sinks);
    start(producer);
    Pipeline seeker(to_appsink("leaky=oldest") + " drop=true max-buffers=1");
    start(seeker);
    ASSERT_TRUE(pull(seeker.appsink()));
    Seen seen(producer.element("in"), "src", GST_PAD_PROBE_TYPE_EVENT_UPSTREAM);
    g_object_set(producer.element("other"), "ts-offset", 3600 * GST_SECOND, nullptr);
    g_usleep(300'000);  // the next frame waits
    auto sought =
        std::async(std::launch::async, [&] { return seek_to_part(seeker, GST_SEEK_FLAG_NONE, 0, 10 * GST_SECOND); });
    ASSERT_TRUE(seen.comes(GST_EVENT_SEEK));
    EXPECT_LT(producer.stop(), at_once);
    sought.wait();
  }
}

TEST_F(LinkUpstream, AFlushOfTheProducerTakesWhatIsOnItsWay) {
  Watch watch;
  Pipeline producer(from_appsrc("slots=8"));
  start(producer);
  push_frame(producer, 0);
  Pipeline consumer(to_appsink() + " max-buffers=1");
  Seen seen(consumer.element("out"), "sink", flushes_too);
  watch.on(consumer.element("out"));
  start(consumer);
  ASSERT_TRUE(eventually([&] { return clients(producer) == 1; }));
  for (std::uint64_t n = 1; n < 6; ++n) push_frame(producer, n);
  ASSERT_TRUE(eventually([&] { return stat(producer.element("sink"), "frames") == 6; }));
  const Pad pad(gst_element_get_static_pad(producer.element("in"), "src"));
  gst_pad_push_event(pad.get(), gst_event_new_flush_start());
  EXPECT_TRUE(seen.comes(GST_EVENT_FLUSH_START)) << "before the flush ends";
  gst_pad_push_event(pad.get(), gst_event_new_flush_stop(TRUE));
  ASSERT_TRUE(seen.comes(GST_EVENT_FLUSH_STOP));
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  gst_pad_push_event(pad.get(), gst_event_new_segment(&segment));
  EXPECT_EQ(gst_pad_push(pad.get(), new_buffer(random_data(frame_size, 9), 9 * GST_MSECOND).release()), GST_FLOW_OK);
  // The flush is seen at the pad, before the appsink lets go of what it has: a frame comes there only after that.
  ASSERT_TRUE(eventually([&] { return watch.count() > 0 && watch.times().back() == 9 * GST_MSECOND; }));
  const Sample sample = pull(consumer.appsink());
  ASSERT_TRUE(sample);
  EXPECT_EQ(GST_BUFFER_PTS(gst_sample_get_buffer(sample.get())), 9 * GST_MSECOND);
  EXPECT_EQ(data_of(gst_sample_get_buffer(sample.get())), random_data(frame_size, 9));
}

TEST_F(LinkUpstream, TheRuleSaysWhoseEventsCount) {
  struct Case {
    const char* rule;
    bool first, second;
  };
  for (const Case& one : {Case{"first", true, false}, Case{"none", false, false}, Case{"all", true, true}}) {
    SCOPED_TRACE(one.rule);
    Pipeline producer(from_video(std::string("upstream-events=") + one.rule));
    start(producer);
    auto first = std::make_unique<Pipeline>(to_appsink("leaky=oldest") + " drop=true max-buffers=1");
    start(*first);
    Buffer kept;
    {
      const Sample sample = pull(first->appsink());
      ASSERT_TRUE(sample);
      kept.reset(gst_buffer_ref(gst_sample_get_buffer(sample.get())));  // appsink writes into the sample once more
    }
    Pipeline second(to_appsink("leaky=oldest") + " drop=true max-buffers=1");
    start(second);
    ASSERT_TRUE(pull(second.appsink()));
    EXPECT_EQ(seek(*first, 10 * GST_SECOND), one.first);
    // While it is still flushed it cannot send anything.
    const auto second_seeks = [&](GstClockTime to, bool wanted) {
      return eventually([&] { return seek(second, to); }, wanted ? patience : 100ms);
    };
    EXPECT_EQ(second_seeks(20 * GST_SECOND, one.second), one.second);
    gint64 position = -1;
    EXPECT_TRUE(gst_element_query_position(producer.element("in"), GST_FORMAT_TIME, &position));
    first.reset();  // a frame of it is still there, and so is its connection
    const bool counts_now = std::string(one.rule) != "none";
    EXPECT_EQ(second_seeks(30 * GST_SECOND, counts_now), counts_now) << "it is the first now";
  }
}

// An element of the producer's would complain of it (G_DEBUG=fatal-criticals ends this program then).
TEST_F(LinkUpstream, ASeekToNowhereIsRefused) {
  Pipeline producer(from_video());
  start(producer);
  Pipeline consumer(to_appsink("leaky=oldest") + " drop=true max-buffers=1");
  start(consumer);
  ASSERT_TRUE(pull(consumer.appsink()));
  const Pad pad(gst_element_get_static_pad(consumer.element("src"), "src"));
  const auto sends = [&](gdouble rate, GstFormat format, GstSeekType start_type, gint64 start, GstSeekType stop_type,
                         gint64 stop) {
    return gst_pad_send_event(pad.get(), gst_event_new_seek(rate, format, GST_SEEK_FLAG_FLUSH, start_type, start,
                                                            stop_type, stop)) != 0;
  };
  constexpr auto set = GST_SEEK_TYPE_SET;
  constexpr auto none = GST_SEEK_TYPE_NONE;
  constexpr gint64 second = GST_SECOND;
  ASSERT_TRUE(eventually([&] { return sends(1, GST_FORMAT_TIME, set, second, set, 20 * second); }));
  EXPECT_FALSE(sends(1, GST_FORMAT_TIME, set, 50 * second, none, 0)) << "behind its stop";
  EXPECT_FALSE(sends(1, GST_FORMAT_TIME, set, 5 * second, GST_SEEK_TYPE_END, 3)) << "it has no end";
  EXPECT_FALSE(sends(-1, GST_FORMAT_TIME, set, 0, set, -1)) << "backwards from no end";
  EXPECT_FALSE(sends(-1, GST_FORMAT_BYTES, set, 0, set, 5000));
  EXPECT_FALSE(sends(1, GST_FORMAT_BYTES, set, 5 * second, none, 0));
  EXPECT_TRUE(eventually([&] { return sends(1, GST_FORMAT_TIME, set, 5 * second, none, 0); })) << "before it";
  EXPECT_TRUE(eventually([&] { return sends(-1, GST_FORMAT_TIME, set, 0, set, 3 * second); }));
  EXPECT_TRUE(eventually([&] { return sends(1, GST_FORMAT_TIME, set, 50 * second, set, -1); })) << "with another stop";
  // A live source waits for it, and no stop ends that any more.
  constexpr gint64 never = std::numeric_limits<gint64>::max() - second;
  EXPECT_FALSE(sends(1, GST_FORMAT_TIME, set, never, set, -1));
  EXPECT_FALSE(sends(1, GST_FORMAT_DEFAULT, set, never, set, -1)) << "frames of 10 ms";
  EXPECT_FALSE(sends(1e-300, GST_FORMAT_TIME, set, 0, set, -1)) << "the second frame is never due";
}

TEST_F(LinkUpstream, ASeekFromTheEndStaysWithin) {
  const std::string file = folder.path() / "bytes";
  const Data data = random_data(100'000, 1);
  ASSERT_TRUE(g_file_set_contents(file.c_str(), reinterpret_cast<const gchar*>(data.data()), 100'000, nullptr));
  Pipeline producer("filesrc location=" + file + " blocksize=1000 ! gpumapsink name=sink wait-for-connection=true " +
                    socket());
  start(producer);
  Pipeline consumer(to_appsink() + " max-buffers=1");
  start(consumer);
  ASSERT_TRUE(pull(consumer.appsink()));
  const auto sends = [&](gint64 from, GstSeekType stop_type, gint64 stop) {
    return gst_element_seek(consumer.element("out"), 1, GST_FORMAT_BYTES, GST_SEEK_FLAG_FLUSH, GST_SEEK_TYPE_END, from,
                            stop_type, stop) != 0;
  };
  EXPECT_FALSE(sends(0, GST_SEEK_TYPE_END, G_MAXINT64)) << "GStreamer's sum would be below its start";
  EXPECT_FALSE(sends(1, GST_SEEK_TYPE_NONE, 0));
  EXPECT_FALSE(sends(-100'001, GST_SEEK_TYPE_SET, 5)) << "before the beginning";
  EXPECT_TRUE(eventually([&] { return sends(-3'000, GST_SEEK_TYPE_END, -1'000); }));
  const Sample sample = pull(consumer.appsink());
  ASSERT_TRUE(sample);
  EXPECT_EQ(data_of(gst_sample_get_buffer(sample.get())), Data(data.begin() + 97'000, data.begin() + 98'000));
}

// The one that waits would be done on the segment of the other, whose stop may be before its start.
TEST_F(LinkUpstream, ASeekBesideOneThatWaitsLeavesNothingToTheSegment) {
  Pipeline producer(from_video("upstream-events=all"));
  start(producer);
  Pipeline seeker(to_appsink("leaky=oldest") + " drop=true max-buffers=1");
  start(seeker);
  ASSERT_TRUE(pull(seeker.appsink()));
  // The streaming thread stands, which seeks without a flush wait for.
  const Pad in(gst_element_get_static_pad(producer.element("in"), "src"));
  std::atomic<bool> stands{false};
  const gulong block = gst_pad_add_probe(
      in.get(), static_cast<GstPadProbeType>(GST_PAD_PROBE_TYPE_BLOCK | GST_PAD_PROBE_TYPE_BUFFER),
      [](GstPad*, GstPadProbeInfo*, gpointer blocked) {
        *static_cast<std::atomic<bool>*>(blocked) = true;
        return GST_PAD_PROBE_OK;
      },
      &stands, nullptr);
  ASSERT_TRUE(eventually([&] { return stands.load(); }));
  const Pad pad(gst_element_get_static_pad(seeker.element("src"), "src"));
  const auto sends = [&](GstSeekFlags flags, gint64 start, gint64 stop) {
    return gst_pad_send_event(pad.get(), gst_event_new_seek(1, GST_FORMAT_TIME, flags, GST_SEEK_TYPE_SET, start,
                                                            stop < 0 ? GST_SEEK_TYPE_NONE : GST_SEEK_TYPE_SET, stop)) !=
           0;
  };
  const auto arrives = [&](Seen& seen, gint64 start) {
    ASSERT_TRUE(seen.comes(GST_EVENT_SEEK));
    GstSeekType types[2]{};
    gint64 ends[2]{};
    gst_event_parse_seek(seen.find(GST_EVENT_SEEK), nullptr, nullptr, nullptr, &types[0], &ends[0], &types[1],
                         &ends[1]);
    EXPECT_EQ(types[1], GST_SEEK_TYPE_SET);
    EXPECT_EQ(ends[0], start);
    EXPECT_EQ(ends[1], -1) << "it had no stop";
  };
  Seen first(producer.element("in"), "src", GST_PAD_PROBE_TYPE_EVENT_UPSTREAM);
  auto waits = std::async(std::launch::async, [&] { return sends(GST_SEEK_FLAG_NONE, 5 * GST_SECOND, -1); });
  arrives(first, 5 * GST_SECOND);
  Seen second(producer.element("in"), "src", GST_PAD_PROBE_TYPE_EVENT_UPSTREAM);
  EXPECT_TRUE(sends(GST_SEEK_FLAG_FLUSH, 3 * GST_SECOND, -1));
  arrives(second, 3 * GST_SECOND);
  gst_pad_remove_probe(in.get(), block);
  waits.wait();
}

// Such a sink would answer with the lock of its pipeline's state, and keep that from who stops the producer.
TEST_F(LinkUpstream, AnInstantRateWaitsForNoSinkThatTheApplicationHolds) {
  Pipeline producer(
      "videotestsrc name=in ! video/x-raw,width=16,height=16,framerate=100/1 ! tee name=t ! "
      "queue leaky=downstream max-size-buffers=2 ! appsink name=out max-buffers=1 sync=false "
      "t. ! queue ! gpumapsink name=sink sync=true " +
      socket());
  start(producer);
  Pipeline consumer("gpumapsrc name=src " + socket() + " ! fakesink");
  start(consumer);
  ASSERT_TRUE(eventually([&] { return stat(consumer.element("src"), "frames") > 10; }));
  ASSERT_TRUE(consumer.reach(GST_STATE_PLAYING));
  Seen seen(producer.element("in"), "src", GST_PAD_PROBE_TYPE_EVENT_UPSTREAM);
  const auto seek = [&] {
    return gst_element_seek(consumer.get(), 4, GST_FORMAT_TIME, GST_SEEK_FLAG_INSTANT_RATE_CHANGE, GST_SEEK_TYPE_NONE,
                            0, GST_SEEK_TYPE_NONE, 0);
  };
  EXPECT_FALSE(seek());
  EXPECT_EQ(seen.find(GST_EVENT_SEEK), nullptr);
  g_object_set(producer.element("out"), "drop", TRUE, nullptr);
  EXPECT_TRUE(pull(producer.appsink()));
  (void)seek();
  EXPECT_TRUE(seen.comes(GST_EVENT_SEEK));
}

/// Two sinks, of which one always renders: each ends its frame when the other one has begun its next.
class RenderInTurn {
 public:
  RenderInTurn(GstElement* first, GstElement* second) {
    for (GstElement* sink : {first, second}) {
      g_object_set(sink, "signal-handoffs", TRUE, nullptr);
      g_signal_connect(sink, "handoff", G_CALLBACK(sink == first ? render<0> : render<1>), this);
    }
  }
  void end() {
    const std::lock_guard lock(mutex_);
    over_ = true;
    changed_.notify_all();
  }

 private:
  template <int own>
  static void render(GstElement*, GstBuffer*, GstPad*, gpointer user) {
    auto& [mutex, changed, begun, over] = *static_cast<RenderInTurn*>(user);
    std::unique_lock lock(mutex);
    const int number = ++begun[own];
    changed.notify_all();
    while (!over && begun[1 - own] < number + own && changed.wait_for(lock, at_once) == std::cv_status::no_timeout) {
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int begun_[2] = {};
  bool over_ = false;
};

TEST_F(LinkUpstream, AnInstantRateNeedsNoMomentInWhichNoSinkRenders) {
  Pipeline producer(
      "videotestsrc name=in ! video/x-raw,width=16,height=16,framerate=100/1 ! tee name=t ! "
      "queue ! fakesink name=one sync=false t. ! queue ! fakesink name=other sync=false "
      "t. ! queue ! gpumapsink name=sink sync=true " +
      socket());
  RenderInTurn turns(producer.element("one"), producer.element("other"));
  start(producer);
  Pipeline consumer("gpumapsrc name=src " + socket() + " ! fakesink");
  start(consumer);
  ASSERT_TRUE(eventually([&] { return stat(consumer.element("src"), "frames") > 10; }));
  ASSERT_TRUE(consumer.reach(GST_STATE_PLAYING));
  Seen seen(producer.element("in"), "src", GST_PAD_PROBE_TYPE_EVENT_UPSTREAM);
  (void)gst_element_seek(consumer.get(), 4, GST_FORMAT_TIME, GST_SEEK_FLAG_INSTANT_RATE_CHANGE, GST_SEEK_TYPE_NONE, 0,
                         GST_SEEK_TYPE_NONE, 0);
  EXPECT_TRUE(seen.find(GST_EVENT_SEEK));
  turns.end();
  producer.stop();
}

/// How many of the names "PREFIX-0", "PREFIX-1", … this process has come to know.
int known_names(const std::string& prefix, int count) {
  int known = 0;
  for (int n = 0; n < count; ++n) known += NewNames::knows((prefix + "-" + std::to_string(n)).c_str()) ? 1 : 0;
  return known;
}

// GLib keeps each for ever.
TEST_F(LinkUpstream, NamesOfAClientTakeNoMoreThanTheirRoom) {
  for (const char* const rule : {"none", "all"}) {
    SCOPED_TRACE(rule);
    Pipeline producer(from_video(std::string("upstream-events=") + rule));
    start(producer);
    ASSERT_TRUE(eventually([&] { return stat(producer.element("sink"), "frames") > 0; }));
    LinkConsumerOptions options;
    options.path = path;
    options.patience = patience;
    const auto client = LinkConsumer::connect(options);
    const std::string prefix = std::string("names-of-rule-") + rule;
    constexpr int names = 20'000;
    Ptr<GstQuery> question(gst_query_new_position(GST_FORMAT_TIME));
    const LinkText position = text_of(question.get());
    std::vector<std::byte> answer;
    for (int n = 0; n < names; ++n) {
      LinkText text = event_head(GST_EVENT_CUSTOM_UPSTREAM);
      const LinkText name = bytes_of(prefix + "-" + std::to_string(n));
      text.insert(text.end(), name.begin(), name.end());
      put(text, std::uint32_t{0});
      // The queue has room for so many, and what is told beyond that is lost.
      if (n % 100 == 0) {
        ASSERT_TRUE(eventually([&] { return client->ask(position, answer, Clock::now() + 1s); }));
      }
      ASSERT_TRUE(eventually([&] { return client->tell(text); }));
    }
    // Questions have names, too.
    LinkText custom{std::byte{2}};
    put(custom, static_cast<std::uint32_t>(GST_QUERY_CUSTOM));
    put(custom, std::uint32_t{0});
    put(custom, std::uint8_t{1});
    put_text(custom, prefix + "-0");
    put(custom, std::uint32_t{0});
    ASSERT_TRUE(eventually([&] { return client->ask(custom, answer, Clock::now() + 1s); }));
    ASSERT_TRUE(eventually([&] { return client->ask(position, answer, Clock::now() + 1s); }));
    const int known = known_names(prefix, names);
    if (std::string(rule) == "none") {
      EXPECT_EQ(known, 0) << "it is not asked what the event says";
    } else {
      EXPECT_GT(known, 1000);
      EXPECT_LT(known, 4000);
    }
  }
}

TEST_F(LinkUpstream, EventsArriveAsTheyWereSent) {
  Pipeline producer(from_appsrc());
  start(producer);
  Seen seen(producer.element("in"), "src", GST_PAD_PROBE_TYPE_EVENT_UPSTREAM);
  push_frame(producer, 0);
  Pipeline consumer(to_appsink());
  start(consumer);
  ASSERT_TRUE(eventually([&] { return clients(producer) == 1; }));
  push_frame(producer, 1);
  ASSERT_TRUE(pull(consumer.appsink()));
  const Pad pad(gst_element_get_static_pad(consumer.element("src"), "src"));
  EXPECT_TRUE(gst_pad_send_event(
      pad.get(),
      gst_event_new_custom(GST_EVENT_CUSTOM_UPSTREAM, gst_structure_new("mine", "n", G_TYPE_INT, 17, nullptr))));
  EXPECT_TRUE(gst_pad_send_event(pad.get(), gst_event_new_navigation(gst_structure_new_empty("key"))));
  EXPECT_TRUE(
      gst_pad_send_event(pad.get(), gst_event_new_custom(GST_EVENT_CUSTOM_BOTH_OOB, gst_structure_new_empty("both"))));
  GstEvent* qos = gst_event_new_qos(GST_QOS_TYPE_OVERFLOW, 0.75, -12345, 40 * GST_SECOND);
  EXPECT_TRUE(gst_pad_send_event(pad.get(), qos));
  ASSERT_TRUE(seen.comes(GST_EVENT_CUSTOM_UPSTREAM, "mine") && seen.comes(GST_EVENT_NAVIGATION, "key") &&
              seen.comes(GST_EVENT_CUSTOM_BOTH_OOB, "both") && seen.comes(GST_EVENT_QOS));
  gint n = 0;
  gst_structure_get_int(gst_event_get_structure(seen.find(GST_EVENT_CUSTOM_UPSTREAM)), "n", &n);
  EXPECT_EQ(n, 17);
  GstQOSType type{};
  gdouble proportion = 0;
  GstClockTimeDiff late = 0;
  gst_event_parse_qos(seen.find(GST_EVENT_QOS), &type, &proportion, &late, nullptr);
  EXPECT_EQ(type, GST_QOS_TYPE_OVERFLOW);
  EXPECT_EQ(proportion, 0.75);
  EXPECT_EQ(late, -12345);
}

TEST_F(LinkUpstream, QuestionsAreAnsweredFromUpstream) {
  Pipeline producer(
      "appsrc name=in format=time is-live=true min-latency=30000000 caps=application/octet-stream duration=77000000000 "
      "! gpumapsink name=sink sync=false " +
      socket());
  start(producer);
  push_frame(producer, 0);
  Pipeline consumer(to_appsink());
  start(consumer);
  ASSERT_TRUE(eventually([&] { return clients(producer) == 1; }));
  push_frame(producer, 1);
  ASSERT_TRUE(pull(consumer.appsink()));
  const Pad pad(gst_element_get_static_pad(consumer.element("src"), "src"));
  gint64 duration = 0;
  const Ptr<GstQuery> length(gst_query_new_duration(GST_FORMAT_TIME));
  EXPECT_TRUE(gets_answer(pad.get(), length.get()));
  gst_query_parse_duration(length.get(), nullptr, &duration);
  EXPECT_EQ(duration, 77 * static_cast<gint64>(GST_SECOND));
  const auto ask_latency = [&] {
    GstQuery* latency = gst_query_new_latency();
    gboolean live = FALSE;
    GstClockTime least = 0;
    EXPECT_TRUE(gets_answer(pad.get(), latency));
    gst_query_parse_latency(latency, &live, &least, nullptr);
    gst_query_unref(latency);
    return live != 0 ? least : GST_CLOCK_TIME_NONE;
  };
  EXPECT_EQ(ask_latency(), 30 * GST_MSECOND);
  // Another latency there is told here.
  GstBus* bus = gst_element_get_bus(consumer.get());
  while (GstMessage* old = gst_bus_pop_filtered(bus, GST_MESSAGE_LATENCY)) gst_message_unref(old);
  g_object_set(producer.element("in"), "min-latency", 50 * static_cast<gint64>(GST_MSECOND), nullptr);
  EXPECT_TRUE(gst_bin_recalculate_latency(GST_BIN(producer.get())));
  GstMessage* told = gst_bus_timed_pop_filtered(bus, 40 * GST_SECOND, GST_MESSAGE_LATENCY);
  EXPECT_NE(told, nullptr);
  if (told != nullptr) gst_message_unref(told);
  gst_object_unref(bus);
  EXPECT_EQ(ask_latency(), 50 * GST_MSECOND);
}

TEST_F(LinkUpstream, AProducerThatDoesNotAnswerIsNotWaitedForLong) {
  if (sanitized) GTEST_SKIP() << "gst-launch-1.0 has no sanitizer's run time";
  Launched producer("videotestsrc ! video/x-raw,width=16,height=16 ! gpumapsink " + socket());
  Pipeline consumer("gpumapsrc name=src " + socket() + " ! fakesink");
  start(consumer);
  ASSERT_TRUE(eventually([&] { return stat(consumer.element("src"), "frames") > 5; }));
  const Pad pad(gst_element_get_static_pad(consumer.element("src"), "src"));
  const Ptr<GstQuery> where(gst_query_new_position(GST_FORMAT_TIME));
  EXPECT_TRUE(gets_answer(pad.get(), where.get()));
  producer.stop_it();
  gint64 nowhere = 0;
  const auto asked = std::chrono::steady_clock::now();
  EXPECT_FALSE(gst_pad_query_position(pad.get(), GST_FORMAT_TIME, &nowhere));
  EXPECT_LT(std::chrono::steady_clock::now() - asked, 5s);
  producer.kill_it();
  ASSERT_TRUE(eventually([&] {
    gint64 position = 0;
    const auto began = std::chrono::steady_clock::now();
    return gst_pad_query_position(pad.get(), GST_FORMAT_TIME, &position) == 0 &&
           std::chrono::steady_clock::now() - began < 100ms;
  }));
}

// What does not fit into a message is not answered, and the producer goes on.
TEST_F(LinkUpstream, AnAnswerThatIsTooLongIsNone) {
  Pipeline producer(from_video());
  const Pad entry(gst_element_get_static_pad(producer.element("in"), "src"));
  gst_pad_add_probe(
      entry.get(), static_cast<GstPadProbeType>(GST_PAD_PROBE_TYPE_QUERY_UPSTREAM | GST_PAD_PROBE_TYPE_PUSH),
      [](GstPad*, GstPadProbeInfo* info, gpointer) {
        GstQuery* query = GST_PAD_PROBE_INFO_QUERY(info);
        if (GST_QUERY_TYPE(query) != GST_QUERY_CUSTOM) return GST_PAD_PROBE_OK;
        const bool is_long = gst_structure_has_name(gst_query_get_structure(query), "long") != 0;
        const std::string text(is_long ? max_link_answer : 1000, 'a');
        gst_structure_set(gst_query_writable_structure(query), "text", G_TYPE_STRING, text.c_str(), nullptr);
        return GST_PAD_PROBE_HANDLED;
      },
      nullptr, nullptr);
  start(producer);
  Pipeline consumer("gpumapsrc name=src " + socket() + " ! fakesink");
  start(consumer);
  ASSERT_TRUE(eventually([&] { return stat(consumer.element("src"), "frames") > 2; }));
  const Pad pad(gst_element_get_static_pad(consumer.element("src"), "src"));
  const auto answered = [&](const char* name) {
    GstQuery* query = gst_query_new_custom(GST_QUERY_CUSTOM, gst_structure_new_empty(name));
    const bool is_answered = gst_pad_query(pad.get(), query) != 0;
    gst_query_unref(query);
    return is_answered;
  };
  EXPECT_TRUE(eventually([&] { return answered("short"); }));
  EXPECT_FALSE(answered("long"));
  EXPECT_TRUE(eventually([&] { return answered("short"); }));
}

// Handlers of the signals are called in the link's thread, which ends where frames change their size.
TEST_F(LinkUpstream, AHandlerThatSeeksWhileTheRingChangesHoldsNothingUp) {
  Pipeline producer(
      "appsrc name=in format=time stream-type=seekable ! identity name=i "
      "! gpumapsink name=sink " +
      socket());
  const auto any_place = [](GstElement*, guint64, gpointer) { return gboolean{TRUE}; };
  g_signal_connect(producer.element("in"), "seek-data",
                   G_CALLBACK(static_cast<gboolean (*)(GstElement*, guint64, gpointer)>(any_place)), nullptr);
  const auto seek = [](GstElement*, guint, gint, const char*, const char*, gpointer before) {
    const Pad pad(gst_element_get_static_pad(GST_ELEMENT(before), "src"));
    gst_pad_send_event(pad.get(), gst_event_new_seek(1, GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH, GST_SEEK_TYPE_SET, 0,
                                                     GST_SEEK_TYPE_NONE, 0));
  };
  g_signal_connect(
      producer.element("sink"), "client-disconnected",
      G_CALLBACK(static_cast<void (*)(GstElement*, guint, gint, const char*, const char*, gpointer)>(seek)),
      producer.element("i"));
  std::atomic<bool> stop{false};
  std::atomic<int> width{16};
  std::thread frames([&] {
    while (!stop) {
      const Caps caps = video_caps("GRAY8", width, 16);
      const Buffer buffer = new_buffer(random_data(frame_bytes(caps.get()), 1));
      const Sample sample(gst_sample_new(buffer.get(), caps.get(), nullptr, nullptr));
      (void)gst_app_src_push_sample(producer.appsrc(), sample.get());
      g_usleep(1000);
    }
  });
  start(producer);
  Pipeline consumer("gpumapsrc name=src " + socket() + " ! fakesink sync=false");
  start(consumer);
  for (int turn = 1; turn < 6; ++turn) {
    const auto before = stat(consumer.element("src"), "frames");
    EXPECT_TRUE(eventually([&] { return stat(consumer.element("src"), "frames") > before + 3; })) << turn;
    width = 16 << turn;
  }
  stop = true;
  producer.stop();
  frames.join();
}

TEST(LinkText, OfALiarHasNoFieldOfAnotherTypeAndNoRateThatCannotBe) {
  GstEvent* seek =
      gst_event_new_seek(2.5, GST_FORMAT_TIME, GST_SEEK_FLAG_ACCURATE, GST_SEEK_TYPE_SET, 17, GST_SEEK_TYPE_END, -1);
  const Ptr<GstEvent> owned(seek);
  const LinkText text = text_of_upstream(seek);
  NewNames names;
  const auto read = [&names](const LinkText& one) { return Ptr<GstEvent>(asked_of(one, names).event); };
  /// The same with another value.
  const auto changed = [&](const char* field, GType type, auto value) {
    const Ptr<GstStructure> structure(gst_structure_copy(gst_event_get_structure(seek)));
    gst_structure_set(structure.get(), field, type, value, nullptr);
    LinkText lie = event_head(GST_EVENT_SEEK);
    EXPECT_EQ(put_structure(lie, structure.get(), max_link_question), 0U);
    return lie;
  };
  ASSERT_TRUE(read(text));
  gdouble rate = 0;
  GstSeekFlags flags{};
  gint64 first = 0;
  gst_event_parse_seek(read(text).get(), &rate, nullptr, &flags, nullptr, &first, nullptr, nullptr);
  EXPECT_EQ(rate, 2.5);
  EXPECT_EQ(flags, GST_SEEK_FLAG_ACCURATE);
  EXPECT_EQ(first, 17);
  EXPECT_FALSE(read(changed("rate", G_TYPE_DOUBLE, 0.0)));
  EXPECT_FALSE(read(changed("rate", G_TYPE_DOUBLE, std::numeric_limits<double>::infinity())));
  const auto other = read(changed("cur", G_TYPE_STRING, "x"));
  ASSERT_TRUE(other);
  gst_event_parse_seek(other.get(), nullptr, nullptr, nullptr, nullptr, &first, nullptr, nullptr);
  EXPECT_EQ(first, 0) << "what was there before";
  for (std::size_t length = 0; length < text.size(); ++length) {
    EXPECT_FALSE(read({text.begin(), text.begin() + static_cast<std::ptrdiff_t>(length)})) << length;
  }
  EXPECT_TRUE(text_of_upstream(Ptr<GstEvent>(gst_event_new_step(GST_FORMAT_TIME, 1, 1, 1, 1)).get()).empty());
}

/// Questions of clients that are gone may fill the queue while one is answered.
TEST_F(LinkUpstream, AFullQueueTakesNoMore) {
  Pipeline elements("fakesink name=sink");
  struct Peer {
    std::atomic<bool> asked{false}, open{false};
    std::atomic<int> answered{0};
  } peer;
  const Pad entry(gst_element_get_static_pad(elements.element("sink"), "sink"));
  const Pad pad(gst_pad_new("src", GST_PAD_SRC));
  gst_object_ref_sink(pad.get());
  g_object_set_data(G_OBJECT(pad.get()), "peer", &peer);
  gst_pad_set_query_function(pad.get(), [](GstPad* self, GstObject* parent, GstQuery* query) -> gboolean {
    if (GST_QUERY_TYPE(query) != GST_QUERY_POSITION) return gst_pad_query_default(self, parent, query);
    auto* const own = static_cast<Peer*>(g_object_get_data(G_OBJECT(self), "peer"));
    own->asked = true;
    EXPECT_TRUE(eventually([own] { return own->open.load(); }));
    ++own->answered;
    return FALSE;
  });
  ASSERT_EQ(gst_pad_link(pad.get(), entry.get()), GST_PAD_LINK_OK);
  ASSERT_TRUE(gst_pad_set_active(pad.get(), TRUE));
  GstQuery* const position = gst_query_new_position(GST_FORMAT_TIME);
  const LinkText text = text_of(position);
  gst_query_unref(position);
  const auto question = [&text](std::uint64_t number) {
    return LinkQuestion{.who = {}, .server = 1, .number = number, .text = {text.begin(), text.end()}};
  };
  UpstreamRequests requests(elements.element("sink"), Channel::open("requests"), UpstreamEvents::none,
                            [] { return nullptr; });
  LinkQuestion first = question(1);
  ASSERT_TRUE(requests.take(first));
  ASSERT_TRUE(eventually([&] { return peer.asked.load(); }));
  // What is left out of events, of which no client hears, is told once.
  const LinkText reconfigure = text_of_upstream(Ptr<GstEvent>(gst_event_new_reconfigure()).get());
  const auto event = [&reconfigure] {
    return LinkQuestion{.who = {}, .server = 1, .number = 0, .text = {reconfigure.begin(), reconfigure.end()}};
  };
  int events = 0;
  for (LinkQuestion told = event(); events < 1'000 && requests.take(told); ++events) told = event();
  EXPECT_EQ(events, 256);
  int taken = 0;
  LinkQuestion next = question(2);
  for (; taken < 100'000 && requests.take(next); ++taken) next = question(2);
  EXPECT_EQ(taken + events, 4096);
  EXPECT_EQ(next.text.size(), text.size()) << "who is refused keeps it, to be answered";
  peer.open = true;
  EXPECT_TRUE(eventually([&] { return peer.answered == taken + 1; }));
  EXPECT_TRUE(requests.take(next)) << "there is room again";
  EXPECT_TRUE(eventually([&] { return peer.answered == taken + 2; }));
  const Ptr<GstBus> bus(gst_element_get_bus(elements.get()));
  const Ptr<GstMessage> told(gst_bus_pop_filtered(bus.get(), GST_MESSAGE_WARNING));
  ASSERT_TRUE(told);
  GError* warning = nullptr;
  gst_message_parse_warning(told.get(), &warning, nullptr);
  EXPECT_NE(std::string(warning->message).find("events that clients of gpumapsink sent upstream are left out"),
            std::string::npos)
      << warning->message;
  g_error_free(warning);
  EXPECT_FALSE(Ptr<GstMessage>(gst_bus_pop_filtered(bus.get(), GST_MESSAGE_WARNING)));
  gst_pad_set_active(pad.get(), FALSE);
  gst_pad_unlink(pad.get(), entry.get());
}

}  // namespace
}  // namespace gpumap::gst::test
