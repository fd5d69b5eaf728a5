// SPDX-License-Identifier: MIT
// Seeks: time begins anew at a flush, frames come at their pace afterwards, the position is where was sought, each
// frame comes once. Held to what a pipeline with a queue does. Time is simulated where it is the subject.
#include <cmath>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "matrix.hpp"
#include "temporary_folder.hpp"
#include "watch.hpp"

namespace gpumap::gst::test {
namespace {

const std::string source =
    "videotestsrc name=source pattern=ball ! video/x-raw,format=I420,width=64,height=48,framerate=30/1 ! ";
constexpr GstClockTime frame_time = GST_SECOND / 30;

bool seek(GstElement* element, double rate, unsigned flags, GstClockTime start,
          GstClockTime stop = GST_CLOCK_TIME_NONE) {
  return gst_element_seek(element, rate, GST_FORMAT_TIME, static_cast<GstSeekFlags>(flags), GST_SEEK_TYPE_SET,
                          static_cast<gint64>(start),
                          GST_CLOCK_TIME_IS_VALID(stop) ? GST_SEEK_TYPE_SET : GST_SEEK_TYPE_NONE,
                          static_cast<gint64>(stop)) != FALSE;
}

/// Wait for a message; false when the time is up or an error came.
bool await(Pipeline& pipeline, GstMessageType type, Time limit = patience) {
  GstBus* bus = gst_element_get_bus(pipeline.get());
  GstMessage* message =
      gst_bus_timed_pop_filtered(bus, static_cast<GstClockTime>(std::chrono::nanoseconds(limit).count()),
                                 static_cast<GstMessageType>(static_cast<unsigned>(type) | GST_MESSAGE_ERROR));
  const bool came = message != nullptr && GST_MESSAGE_TYPE(message) == type;
  if (message != nullptr) gst_message_unref(message);
  gst_object_unref(bus);
  return came;
}

void clear_bus(Pipeline& pipeline) {
  GstBus* bus = gst_element_get_bus(pipeline.get());
  gst_bus_set_flushing(bus, TRUE);
  gst_bus_set_flushing(bus, FALSE);
  gst_object_unref(bus);
}

GstClockTime position(GstElement* element) {
  gint64 at = -1;
  EXPECT_TRUE(gst_element_query_position(element, GST_FORMAT_TIME, &at));
  return static_cast<GstClockTime>(at);
}

double seconds(GstClockTime time) {
  return static_cast<double>(time) / GST_SECOND;
}

/// A seek to `to`, and the second behind it: a frame at once and thirty at their times, and all `pipelines` are where
/// the last one is shown.
void expect_pace(GstElement* sought, GstClockTime to, SimulatedTime& time, const Watch& rendered,
                 const std::vector<const Pipeline*>& pipelines) {
  const std::size_t before = rendered.count();
  ASSERT_TRUE(seek(sought, 1.0, GST_SEEK_FLAG_FLUSH | GST_SEEK_FLAG_ACCURATE, to)) << "refused";
  const auto shown = [&](std::size_t due) {
    return eventually([&] {
      const auto times = rendered.times();
      return times.size() > before && times.back() >= to + due * frame_time && times.back() < to + 2 * GST_SECOND;
    });
  };
  ASSERT_TRUE(shown(0)) << "no frame of where was sought";
  // A pipeline counts from when it plays again, which may be after its first frame was shown.
  for (const Pipeline* one : pipelines) {
    ASSERT_EQ(gst_element_get_state(one->get(), nullptr, nullptr, 20 * GST_SECOND), GST_STATE_CHANGE_SUCCESS);
  }
  const std::size_t first = rendered.count();  // what was due before the seek has come, or never will
  for (std::size_t due = 1; due <= 30; ++due) {
    time.pass(std::chrono::nanoseconds(frame_time + 1));
    ASSERT_TRUE(shown(due)) << "no frame " << due << " behind it";
    EXPECT_LE(rendered.count(), first + due) << "they come before their time";
  }
  for (std::size_t i = 0; i < pipelines.size(); ++i) {
    EXPECT_NEAR(seconds(position(pipelines[i]->get())), seconds(to) + 1, 0.1) << "pipeline " << i;
  }
}

// Whichever side keeps the clock.
class Pace : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(
    Synchronised, Pace,
    testing::Values("queue ! fakesink name=out sync=true",
                    "gpumapsink $CHANNEL gpumapsrc $CHANNEL ! fakesink name=out sync=true",
                    "gpumapsink $CHANNEL sync=true gpumapsrc $CHANNEL ! fakesink name=out sync=false",
                    "gpumapsink $CHANNEL sync=true gpumapsrc $CHANNEL ! fakesink name=out sync=true"),
    [](const auto& test) { return std::to_string(test.index) + '_' + as_name(test.param); });

TEST_P(Pace, IsKeptAfterAFlushingSeek) {
  SimulatedTime time;
  Watch rendered;
  Pipeline pipeline(on_new_channel(source + GetParam()));
  rendered.on_rendered(pipeline.element("out"));
  use(pipeline, time.clock(1'000 * GST_SECOND));
  ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING)) << pipeline.error();
  for (const int second : {100, 5, 0, 40}) {
    SCOPED_TRACE(second);
    time.pass(300ms);
    expect_pace(pipeline.get(), static_cast<GstClockTime>(second) * GST_SECOND, time, rendered, {&pipeline});
  }
}

// The producer is sought, or the consumer: the positions of both follow, and do not drift from seek to seek.
class TwoPipelines : public testing::TestWithParam<std::tuple<bool, bool>> {};
INSTANTIATE_TEST_SUITE_P(Sought, TwoPipelines, testing::Combine(testing::Bool(), testing::Bool()),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param) ? "Producer" : "Consumer") +
                                  (std::get<1>(test.param) ? "BothSynchronised" : "OneSynchronised");
                         });

TEST_P(TwoPipelines, PositionsDoNotDrift) {
  const auto [producer, both] = GetParam();
  const std::string channel = new_channel();
  SimulatedTime time;
  GstClock* const clock = time.clock(1'000 * GST_SECOND);
  Watch rendered;
  Pipeline in(source + "gpumapsink sync=true channel=" + channel);
  Pipeline out("gpumapsrc channel=" + channel + " ! fakesink name=out sync=" + (both ? "true" : "false"));
  rendered.on_rendered(out.element("out"));
  for (Pipeline* one : {&in, &out}) use(*one, clock);
  ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(out.reach(GST_STATE_PLAYING)) << out.error();
  ASSERT_TRUE(in.reach(GST_STATE_PLAYING)) << in.error();
  for (int round = 1; round <= 4; ++round) {
    SCOPED_TRACE(round);
    time.pass(300ms);
    expect_pace(producer ? in.get() : out.get(), static_cast<GstClockTime>(round) * 20 * GST_SECOND, time, rendered,
                {&in, &out});
  }
}

const std::vector<std::string> rings{"queue", "slots=2", "slots=8", "slots=32"};

std::string through(const std::string& ring) {
  return ring == "queue" ? with_queue("$MAP") : with_gpumap("$MAP", ring);
}

// What is shown is where the pipeline is, however many frames wait behind it.
TEST(Position, IsWhereWasSought) {
  side_by_side(rings, [](const std::string& ring) {
    Pipeline pipeline(source + through(ring) + " ! fakesink name=out sync=true");
    ASSERT_TRUE(pipeline.reach(GST_STATE_PAUSED)) << pipeline.error();
    for (const int second : {10, 7, 50, 0}) {
      const GstClockTime to = static_cast<GstClockTime>(second) * GST_SECOND;
      SCOPED_TRACE(second);
      clear_bus(pipeline);
      ASSERT_TRUE(seek(pipeline.get(), 1.0, GST_SEEK_FLAG_FLUSH | GST_SEEK_FLAG_ACCURATE, to));
      ASSERT_TRUE(await(pipeline, GST_MESSAGE_ASYNC_DONE));
      // That may have been the message of the state before, which comes after the state.
      const auto is_there = [&] {
        gint64 at = -1;
        return gst_element_query_position(pipeline.get(), GST_FORMAT_TIME, &at) != 0 &&
               std::abs(seconds(static_cast<GstClockTime>(at)) - seconds(to)) < 0.034;
      };
      EXPECT_TRUE(eventually(is_there));
      g_usleep(100000);
      EXPECT_NEAR(seconds(position(pipeline.get())), seconds(to), 0.034) << "a while later";
    }
  });
}

// One seek of the application's is one seek for the source, by whichever way it came, and one flush for who follows.
TEST(Position, SeeksGoUpstreamOnce) {
  side_by_side(rings, [](const std::string& ring) {
    Watch at_source, at_sink;
    Pipeline pipeline(source + through(ring) + " ! fakesink name=out sync=true");
    at_source.on(pipeline.element("source"), "src");
    at_sink.on(pipeline.element("out"));
    ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING)) << pipeline.error();
    for (int round = 1; round <= 3; ++round) {
      at_source.forget();
      at_sink.forget();
      ASSERT_TRUE(seek(pipeline.get(), 1.0, GST_SEEK_FLAG_FLUSH, static_cast<GstClockTime>(round) * 10 * GST_SECOND));
      // Some frames behind the new segment: those of before may have come since.
      EXPECT_TRUE(eventually([&] {
        const std::string order = at_sink.order();
        const std::size_t segment = order.rfind("segment ");
        return segment != std::string::npos && order.find("frame frame frame ", segment) != std::string::npos;
      })) << at_sink.order();
      EXPECT_EQ(at_sink.events(GST_EVENT_FLUSH_START), 1U);
      EXPECT_EQ(at_sink.events(GST_EVENT_FLUSH_STOP), 1U);
      EXPECT_EQ(at_sink.events(GST_EVENT_SEGMENT), 1U);
      EXPECT_EQ(at_source.events(GST_EVENT_FLUSH_START), 1U);
    }
  });
}

/// What comes behind the last flush, without what lay before it: how much was under way is chance.
Record behind_flush(Record record) {
  const auto last = std::find(record.lines.rbegin(), record.lines.rend(), "flush-stop");
  EXPECT_NE(last, record.lines.rend());
  record.lines.erase(record.lines.begin(), last.base());
  record.frames = 0;
  return record;
}

struct Kind {
  const char* name;
  double rate;
  unsigned flags;
  GstClockTime start, stop;
};
std::ostream& operator<<(std::ostream& out, const Kind& kind) {
  return out << kind.name;
}

TEST(Kinds, InPausedGiveWhatAQueueGives) {
  constexpr auto flush = static_cast<unsigned>(GST_SEEK_FLAG_FLUSH);
  const std::vector<Kind> kinds{
      {"plain", 1.0, flush, 3 * GST_SECOND, 5 * GST_SECOND},
      {"accurate", 1.0, flush | GST_SEEK_FLAG_ACCURATE, 3 * GST_SECOND + 10 * GST_MSECOND, 5 * GST_SECOND},
      {"key unit", 1.0, flush | GST_SEEK_FLAG_KEY_UNIT, 3 * GST_SECOND, 4 * GST_SECOND},
      {"double", 2.0, flush, 1 * GST_SECOND, 5 * GST_SECOND},
      {"half", 0.5, flush, 1 * GST_SECOND, 2 * GST_SECOND},
      {"reverse", -1.0, flush, 1 * GST_SECOND, 3 * GST_SECOND},
      {"trick", 4.0, flush | GST_SEEK_FLAG_TRICKMODE, 0, 8 * GST_SECOND},
      {"nothing", 1.0, flush, 2 * GST_SECOND, 2 * GST_SECOND}};
  side_by_side(kinds, [](const Kind& kind) {
    const auto act = [&](Pipeline& pipeline) -> std::string {
      EXPECT_TRUE(pipeline.reach(GST_STATE_PAUSED)) << pipeline.error();
      EXPECT_TRUE(seek(pipeline.get(), kind.rate, kind.flags, kind.start, kind.stop));
      return pipeline.run();
    };
    const std::string line = source + "$MAP ! video/x-raw ! fakesink name=out sync=false";
    const Record expected = behind_flush(record_of(with_queue(line), Compared::bytes, act));
    for (const char* options : {"", "slots=2", "transport=pinned"}) {
      SCOPED_TRACE(options);
      expect_same(expected, behind_flush(record_of(with_gpumap(line, options), Compared::bytes, act)));
    }
  });
}

// A loop as players make it: to the end of a segment, from its beginning again, without a flush. No frame twice.
TEST(Loops, OfSegmentsRepeatNoFrame) {
  const auto act = [](Pipeline& pipeline) -> std::string {
    EXPECT_TRUE(pipeline.reach(GST_STATE_PAUSED)) << pipeline.error();
    EXPECT_TRUE(seek(pipeline.get(), 1.0, GST_SEEK_FLAG_FLUSH | GST_SEEK_FLAG_SEGMENT, 0, GST_SECOND));
    pipeline.set_state(GST_STATE_PLAYING);
    for (int loop = 0; loop < 4; ++loop) {
      if (!await(pipeline, GST_MESSAGE_SEGMENT_DONE)) return "no segment-done in loop " + std::to_string(loop);
      EXPECT_TRUE(seek(pipeline.get(), 1.0, loop == 3 ? GST_SEEK_FLAG_NONE : GST_SEEK_FLAG_SEGMENT, 0, GST_SECOND));
    }
    return pipeline.wait();
  };
  const std::string line = source + "$MAP ! video/x-raw ! fakesink name=out sync=false";
  const Record expected = behind_flush(record_of(with_queue(line), Compared::bytes, act));
  EXPECT_EQ(expected.verdict, "eos");
  for (const char* options : {"", "slots=2"}) {
    SCOPED_TRACE(options);
    expect_same(expected, behind_flush(record_of(with_gpumap(line, options), Compared::bytes, act)));
  }
}

/// The same from a pipeline of its own, by channel or by socket: what made the frames tells its own pipeline of the end
/// of a segment, and the gpumapsrc the other one.
class LoopsOfAConsumer : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(By, LoopsOfAConsumer, testing::Bool(),
                         [](const auto& test) { return test.param ? "Socket" : "Channel"; });

TEST_P(LoopsOfAConsumer, HearOfTheEndOfEachSegment) {
  const TemporaryFolder folder;
  const std::string where =
      GetParam() ? "socket-path=" + (folder.path() / "link").string() : "channel=" + new_channel();
  Pipeline producer(source + "gpumapsink " + where);
  Pipeline consumer("gpumapsrc " + where + " ! fakesink name=out sync=false");
  ASSERT_NE(producer.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(consumer.reach(GST_STATE_PLAYING)) << consumer.error();
  ASSERT_TRUE(seek(consumer.get(), 1.0, GST_SEEK_FLAG_FLUSH | GST_SEEK_FLAG_SEGMENT, 0, GST_SECOND));
  for (int loop = 0; loop < 3; ++loop) {
    ASSERT_TRUE(await(consumer, GST_MESSAGE_SEGMENT_DONE)) << loop;
    EXPECT_TRUE(seek(consumer.get(), 1.0, loop == 2 ? GST_SEEK_FLAG_NONE : GST_SEEK_FLAG_SEGMENT, 0, GST_SECOND));
  }
  EXPECT_EQ(consumer.wait(), "eos");
}

// Seeks faster than frames, as a slider sends them: the last one counts.
TEST(Sliders, EndWhereTheyWereLetGo) {
  const std::string line = source + "$MAP ! fakesink name=out sync=true";
  side_by_side(std::vector<std::string>{with_queue(line), with_gpumap(line)}, [](const std::string& one) {
    Pipeline pipeline(one);
    ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING)) << pipeline.error();
    for (int step = 0; step < 60; ++step) {
      ASSERT_TRUE(seek(pipeline.get(), 1.0, GST_SEEK_FLAG_FLUSH | GST_SEEK_FLAG_KEY_UNIT,
                       static_cast<GstClockTime>(step) * GST_SECOND));
      g_usleep(step % 3 == 0 ? 15000 : 0);
    }
    const auto began = std::chrono::steady_clock::now();
    ASSERT_TRUE(seek(pipeline.get(), 1.0, GST_SEEK_FLAG_FLUSH | GST_SEEK_FLAG_ACCURATE, 500 * GST_SECOND));
    g_usleep(500000);
    double at = -1;
    const auto is_there = [&] {
      gint64 time = -1;
      if (gst_element_query_position(pipeline.get(), GST_FORMAT_TIME, &time) == 0) return false;
      at = seconds(static_cast<GstClockTime>(time));
      const std::chrono::duration<double> since = std::chrono::steady_clock::now() - began;
      return at > 499.6 && at < 500.4 + since.count();
    };
    EXPECT_TRUE(eventually(is_there, 10s)) << at;
  });
}

/// Calls `act` while `pipeline` goes to PLAYING, as soon as `element` is there: its bin has others to see to. Outlives
/// the pipeline.
class OnTheWay {
 public:
  OnTheWay(Pipeline& pipeline, GstElement* element, std::function<void()> act)
      : element_(element), act_(std::move(act)) {
    const Ptr<GstBus> bus(gst_element_get_bus(pipeline.get()));
    gst_bus_set_sync_handler(bus.get(), see, this, nullptr);
  }

 private:
  static GstBusSyncReply see(GstBus* /*bus*/, GstMessage* message, gpointer user) {
    auto* self = static_cast<OnTheWay*>(user);
    if (GST_MESSAGE_TYPE(message) != GST_MESSAGE_STATE_CHANGED) return GST_BUS_PASS;
    GstState now = GST_STATE_NULL;
    gst_message_parse_state_changed(message, nullptr, &now, nullptr);
    if (now == GST_STATE_PLAYING && GST_MESSAGE_SRC(message) == GST_OBJECT_CAST(self->element_) && self->act_) {
      std::exchange(self->act_, nullptr)();
    }
    return GST_BUS_PASS;
  }

  GstElement* element_;
  std::function<void()> act_;
};

/// A flush comes to `sink` while its pipeline goes to PLAYING, from a seek of the consumer.
struct AmidAChange : testing::TestWithParam<bool> {
  static bool plays(GstElement* element) {
    GstState state = GST_STATE_NULL;
    return gst_element_get_state(element, &state, nullptr, 0) == GST_STATE_CHANGE_SUCCESS && state == GST_STATE_PLAYING;
  }
};
INSTANTIATE_TEST_SUITE_P(Of, AmidAChange, testing::Bool(),
                         [](const auto& test) { return test.param ? "TheProducer" : "TheConsumer"; });

TEST_P(AmidAChange, AFlushLeavesNoSinkInPaused) {
  const std::string channel = " channel=" + new_channel();
  Watch flushed;
  std::thread seeks;
  std::optional<OnTheWay> on_the_way;
  Pipeline producer(source + "gpumapsink name=sink" + channel);
  Pipeline consumer("gpumapsrc" + channel + " ! fakesink name=out sync=false");
  Pipeline& changing = GetParam() ? producer : consumer;
  GstElement* const sink = changing.element(GetParam() ? "sink" : "out");
  flushed.on(sink);
  on_the_way.emplace(changing, sink, [&] {
    // At the pad: the element's own lock belongs to its change of state.
    seeks = std::thread([&] {
      const Pad pad(gst_element_get_static_pad(consumer.element("out"), "sink"));
      EXPECT_TRUE(
          gst_pad_push_event(pad.get(), gst_event_new_seek(1.0, GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH, GST_SEEK_TYPE_SET,
                                                           5 * GST_SECOND, GST_SEEK_TYPE_NONE, -1)));
    });
    EXPECT_TRUE(eventually([&] { return flushed.events(GST_EVENT_FLUSH_STOP) > 0; }));
  });
  Pipeline& other = GetParam() ? consumer : producer;
  other.set_state(GST_STATE_PLAYING);
  ASSERT_TRUE(changing.reach(GST_STATE_PAUSED)) << changing.error();
  changing.set_state(GST_STATE_PLAYING);
  EXPECT_TRUE(eventually([&] { return plays(sink) && plays(changing.get()); }, 10s));
  seeks.join();
}

}  // namespace
}  // namespace gpumap::gst::test
