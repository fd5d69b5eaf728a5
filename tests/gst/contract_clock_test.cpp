// SPDX-License-Identifier: MIT
// Two pipelines with two clocks and two base times: a frame that is due now on one side is due now on the other. Time
// is simulated, but where one says otherwise.
#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>

#include "temporary_folder.hpp"
#include "watch.hpp"

namespace gpumap::gst::test {
namespace {

constexpr Time frame_time = 40ms;

/// In the producer's time: how long behind the moment at which it is due there each frame is shown here.
class Shown {
 public:
  void on(GstElement* fakesink, Pipeline& producer) {
    producer_ = producer.get();
    g_object_set(fakesink, "signal-handoffs", TRUE, nullptr);
    g_signal_connect(fakesink, "handoff", G_CALLBACK(+[](GstElement*, GstBuffer* buffer, GstPad*, gpointer user) {
                       static_cast<Shown*>(user)->note(buffer);
                     }),
                     this);
  }
  [[nodiscard]] std::size_t count() const { return count_; }
  /// Of the last frame. A live source gives one at its end: so the next one's time is still in time, and one more for
  /// steps of the simulated time.
  [[nodiscard]] testing::AssertionResult in_time(Time tolerance = 3 * frame_time) const {
    const std::chrono::nanoseconds late(late_);
    if (late > -frame_time && late < tolerance) return testing::AssertionSuccess();
    return testing::AssertionFailure() << "shown " << late / 1us << " us after it was due";
  }

 private:
  void note(GstBuffer* buffer) {
    const Ptr<GstClock> clock(gst_element_get_clock(producer_));
    if (clock == nullptr) return;
    const GstClockTime due = gst_element_get_base_time(producer_) + GST_BUFFER_PTS(buffer);
    late_ = GST_CLOCK_DIFF(due, gst_clock_get_time(clock.get()));
    ++count_;
  }

  GstElement* producer_ = nullptr;
  std::atomic<std::size_t> count_{0};
  std::atomic<GstClockTimeDiff> late_{0};
};

std::string camera(bool live) {
  return std::string("videotestsrc is-live=") + (live ? "true" : "false") +
         " ! video/x-raw,format=I420,width=64,height=48,framerate=25/1 ! gpumapsink name=sink leaky=oldest " +
         (live ? "" : "sync=true ") + "channel=";
}

enum class Realtime { nobody, producer, consumer, both };

/// Both sides by clocks of their own: seconds since 1970 and seconds since the machine started, 50 years apart.
struct Sides {
  explicit Sides(Realtime who, bool live = true)
      : channel(new_channel()),
        in(camera(live) + channel),
        out("gpumapsrc is-live=true channel=" + channel + " ! fakesink name=out sync=true") {
    GstClock* const usual = time.clock(5'000 * GST_SECOND);
    GstClock* const realtime = time.clock(1'700'000'000 * GST_SECOND);
    use(in, who == Realtime::producer || who == Realtime::both ? realtime : usual);
    use(out, who == Realtime::consumer || who == Realtime::both ? realtime : usual);
    shown.on(out.element("out"), in);
  }
  /// The time of a frame passes, and one is shown.
  [[nodiscard]] bool step(Time limit = patience) {
    const std::size_t before = shown.count();
    time.pass(frame_time);
    return eventually([&] { return shown.count() > before; }, limit);
  }
  /// What lay in the ring is shown late, and the latency passes once; then come a second's frames when they are due.
  void expect_pace() {
    int in_time = 0;
    ASSERT_TRUE(eventually([&] {
      if (step(100ms) && shown.in_time()) ++in_time;
      return in_time >= 3;
    })) << shown.count()
        << " frames, the last " << shown.in_time();
    const std::size_t before = shown.count();
    for (int i = 0; i < 25; ++i) {
      ASSERT_TRUE(step()) << "no frame was due";
      EXPECT_TRUE(shown.in_time());
    }
    EXPECT_LE(shown.count(), before + 27);
  }

  std::string channel;
  SimulatedTime time;
  Shown shown;
  Pipeline in, out;
};

struct Case {
  Realtime realtime;
  bool live;      ///< the producer, or it is paced by gpumapsink
  bool in_first;  ///< the producer plays first
};
std::ostream& operator<<(std::ostream& out, const Case& one) {
  constexpr const char* names[] = {"nobody", "the producer", "the consumer", "both"};
  return out << names[static_cast<int>(one.realtime)] << " by the real-time clock, a " << (one.live ? "live" : "paced")
             << " producer that plays " << (one.in_first ? "first" : "second");
}

TEST(Clocks, KeepTheStreamsPace) {
  std::vector<Case> cases;
  for (const Realtime who : {Realtime::nobody, Realtime::producer, Realtime::consumer, Realtime::both}) {
    for (const bool live : {true, false}) {
      for (const bool in_first : {true, false}) cases.push_back({who, live, in_first});
    }
  }
  side_by_side(cases, [](const Case& one) {
    Sides sides(one.realtime, one.live);
    ASSERT_NE((one.in_first ? sides.in : sides.out).set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    sides.time.pass(500ms);  // base times differ by this
    ASSERT_NE((one.in_first ? sides.out : sides.in).set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    sides.expect_pace();
  });
}

// A consumer whose clock is another and who comes again and again gets frames at once each time.
TEST(ClocksAgain, AConsumerThatComesAgain) {
  Sides sides(Realtime::producer);
  ASSERT_NE(sides.in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  for (int round = 0; round < 3; ++round) {
    SCOPED_TRACE(round);
    ASSERT_NE(sides.out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    sides.expect_pace();
    ASSERT_TRUE(sides.out.reach(round % 2 == 0 ? GST_STATE_NULL : GST_STATE_READY));
    sides.time.pass(700ms);
  }
}

// Paused and played again, a pipeline's base time moves on by the pause.
TEST(ClocksAgain, AConsumerThatPauses) {
  Sides sides(Realtime::consumer);
  ASSERT_NE(sides.in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  for (int round = 0; round < 3; ++round) {
    SCOPED_TRACE(round);
    ASSERT_NE(sides.out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    sides.expect_pace();
    ASSERT_TRUE(sides.out.reach(GST_STATE_PAUSED));
    sides.time.pass(500ms);
  }
}

// By GStreamer's own clocks, which nobody stops while they are compared. A busy machine is late, but not always.
TEST(ClocksOfTheSystem, AreCompared) {
  const Ptr<GstClock> realtime(GST_CLOCK(gst_object_ref_sink(
      g_object_new(GST_TYPE_SYSTEM_CLOCK, "name", "realtime", "clock-type", GST_CLOCK_TYPE_REALTIME, nullptr))));
  const std::string channel = new_channel();
  Shown shown;
  Pipeline in(camera(true) + channel);
  Pipeline out("gpumapsrc is-live=true channel=" + channel + " ! fakesink name=out sync=true");
  shown.on(out.element("out"), in);
  use(out, realtime.get());
  ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  EXPECT_TRUE(eventually([&] { return shown.count() > 10 && shown.in_time(500ms); })) << shown.in_time(500ms);
}

/// When frames are due at the pad of an element, in its pipeline. Outlives the pipeline.
class Due {
 public:
  explicit Due(GstElement* element) : pad_(gst_element_get_static_pad(element, "sink")) {
    gst_pad_add_probe(pad_.get(), GST_PAD_PROBE_TYPE_BUFFER, note, this, nullptr);
    gst_pad_add_probe(pad_.get(), GST_PAD_PROBE_TYPE_EVENT_FLUSH, forget, this, nullptr);
  }
  /// Running times since the last flush, in the order in which the frames came; those before the pipeline began count
  /// down from 0.
  [[nodiscard]] std::vector<GstClockTimeDiff> times() const {
    const std::lock_guard lock(mutex_);
    return times_;
  }

 private:
  static GstPadProbeReturn forget(GstPad*, GstPadProbeInfo* info, gpointer user) {
    auto* self = static_cast<Due*>(user);
    const std::lock_guard lock(self->mutex_);
    if (GST_EVENT_TYPE(GST_PAD_PROBE_INFO_EVENT(info)) == GST_EVENT_FLUSH_STOP) self->times_.clear();
    return GST_PAD_PROBE_OK;
  }
  static GstPadProbeReturn note(GstPad* pad, GstPadProbeInfo* info, gpointer user) {
    auto* self = static_cast<Due*>(user);
    const Ptr<GstEvent> event(gst_pad_get_sticky_event(pad, GST_EVENT_SEGMENT, 0));
    const GstSegment* segment = nullptr;
    if (event) gst_event_parse_segment(event.get(), &segment);
    guint64 time = 0;
    const int sign = segment == nullptr
                         ? 0
                         : gst_segment_to_running_time_full(segment, GST_FORMAT_TIME,
                                                            GST_BUFFER_PTS(GST_PAD_PROBE_INFO_BUFFER(info)), &time);
    const std::lock_guard lock(self->mutex_);
    self->times_.push_back(sign * static_cast<GstClockTimeDiff>(time));
    return GST_PAD_PROBE_OK;
  }

  Pad pad_;
  mutable std::mutex mutex_;
  std::vector<GstClockTimeDiff> times_;
};

GstClockTimeDiff running_time(Pipeline& pipeline) {
  return static_cast<GstClockTimeDiff>(gst_element_get_current_running_time(pipeline.get()));
}

class LateProducer : public testing::TestWithParam<std::tuple<const char*, bool>> {};
INSTANTIATE_TEST_SUITE_P(Starts, LateProducer, testing::Combine(testing::Values("true", "false"), testing::Bool()),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param)[0] == 't' ? "Live" : "NotLive") +
                                  (std::get<1>(test.param) ? "AtASocket" : "OnAChannel");
                         });

// A live consumer does not wait for its first frame. When the producer comes, its first frame is not late by
// the consumer's age: it may be the only one.
TEST_P(LateProducer, ItsFirstFrameIsDueWhenItStarts) {
  const TemporaryFolder folder;
  const std::string at = std::get<1>(GetParam()) ? "socket-path=" + (folder.path() / "link").string() + " "
                                                 : "channel=" + new_channel() + " ";
  const std::string wait = std::get<1>(GetParam()) ? "wait-for-connection=true " : "";
  Pipeline out("videotestsrc is-live=true ! fakesink sync=true  gpumapsrc " + at + " ! fakesink name=out sync=true");
  Due due(out.element("out"));
  ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(eventually([&] { return running_time(out) > 2 * static_cast<GstClockTimeDiff>(GST_SECOND); }));
  Pipeline in(std::string("videotestsrc num-buffers=1 is-live=") + std::get<0>(GetParam()) +
              " ! video/x-raw,format=GRAY8,width=33,height=7 ! gpumapsink " + wait + at);
  const GstClockTimeDiff before = running_time(out);
  ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(eventually([&] { return !due.times().empty(); })) << out.wait(1ms) << in.wait(1ms);
  const GstClockTimeDiff after = running_time(out);
  EXPECT_GE(due.times().front(), before);
  EXPECT_LE(due.times().front(), after);
}

// What it has sent is due when it was, also where this side looks at it once the producer is gone.
TEST(GoneProducers, FramesAreDueWhenTheyWere) {
  const TemporaryFolder folder;
  const std::string at = "socket-path=" + (folder.path() / "link").string() + " ";
  Pipeline out("videotestsrc is-live=true ! fakesink sync=true  gpumapsrc name=src " + at +
               " on-lost=eos ! fakesink name=out sync=true");
  Due due(out.element("out"));
  const Pad pad(gst_element_get_static_pad(out.element("src"), "src"));
  const gulong blocked = gst_pad_add_probe(
      pad.get(), static_cast<GstPadProbeType>(GST_PAD_PROBE_TYPE_BLOCK | GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM),
      [](GstPad*, GstPadProbeInfo*, gpointer) { return GST_PAD_PROBE_OK; }, nullptr, nullptr);
  ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(eventually([&] { return running_time(out) > static_cast<GstClockTimeDiff>(GST_SECOND) / 2; }));
  const GstClockTimeDiff before = running_time(out);
  {
    Pipeline in("videotestsrc num-buffers=3 ! video/x-raw,format=GRAY8,width=33,height=7 ! gpumapsink " + at +
                "wait-for-connection=true");
    ASSERT_EQ(in.run(), "eos");
  }
  gst_pad_remove_probe(pad.get(), blocked);
  ASSERT_TRUE(eventually([&] { return due.times().size() == 3; })) << out.wait(1ms);
  EXPECT_GE(due.times().front(), before);
  EXPECT_LE(due.times().front(), running_time(out));
}

constexpr auto accurate_flush = static_cast<GstSeekFlags>(static_cast<unsigned>(GST_SEEK_FLAG_FLUSH) |
                                                          static_cast<unsigned>(GST_SEEK_FLAG_ACCURATE));

std::string film(const char* sync) {
  return std::string("videotestsrc ! video/x-raw,format=GRAY8,width=33,height=7,framerate=25/1 ! gpumapsink sync=") +
         sync + " channel=";
}

// Backwards the running time counts from the end of the segment on, however much earlier the producer began. A busy
// machine takes longer, but no machine less.
TEST(Backwards, FramesKeepTheirPaceAcrossPipelines) {
  for (const char* sync : {"false", "true"}) {
    SCOPED_TRACE(sync);
    const std::string channel = new_channel();
    Pipeline in(film(sync) + channel);
    Pipeline out("gpumapsrc channel=" + channel + " ! fakesink name=out sync=true");
    Due due(out.element("out"));
    ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    ASSERT_TRUE(eventually([&] { return running_time(in) > static_cast<GstClockTimeDiff>(GST_SECOND) / 2; }));
    ASSERT_TRUE(out.reach(GST_STATE_PLAYING)) << out.error();
    ASSERT_TRUE(eventually([&] { return due.times().size() > 10; }));
    const GstClockTimeDiff before = running_time(out);
    ASSERT_TRUE(gst_element_seek(out.get(), -1.0, GST_FORMAT_TIME, accurate_flush, GST_SEEK_TYPE_SET, 0,
                                 GST_SEEK_TYPE_SET, static_cast<gint64>(GST_SECOND)));
    ASSERT_EQ(out.wait(), "eos");
    EXPECT_GE(due.times().size(), 25U);
    EXPECT_GT(running_time(out) - before, static_cast<GstClockTimeDiff>(8 * GST_SECOND / 10));
  }
}

// The same where the producer has played for a while: its running time is then ahead of the consumer's.
TEST(Backwards, FramesKeepTheirPaceForAConsumerThatComesLater) {
  const std::string channel = new_channel();
  Pipeline in(film("false") + channel);
  ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(in.reach(GST_STATE_PLAYING)) << in.error();
  ASSERT_TRUE(gst_element_seek(in.get(), -1.0, GST_FORMAT_TIME, accurate_flush, GST_SEEK_TYPE_SET, 0, GST_SEEK_TYPE_SET,
                               static_cast<gint64>(2 * GST_SECOND)));
  ASSERT_TRUE(in.reach(GST_STATE_PLAYING)) << in.error();
  ASSERT_TRUE(eventually([&] { return running_time(in) > static_cast<GstClockTimeDiff>(GST_SECOND) / 2; }));
  Pipeline out("gpumapsrc channel=" + channel + " ! fakesink name=out sync=true");
  ASSERT_EQ(out.run(), "eos");
  EXPECT_GT(running_time(in), static_cast<GstClockTimeDiff>(19 * GST_SECOND / 10))
      << "the last one is due after 1.96 s";
}

// The producer's pipeline has its old base time for a while behind a flush, and gpumapsink plays before it has another.
TEST(Flushed, NoFrameIsDueBeforeTheSeek) {
  for (const double rate : {1.0, -1.0}) {
    SCOPED_TRACE(rate);
    const std::string channel = new_channel();
    Pipeline in(film("false") + channel);
    Pipeline out("gpumapsrc channel=" + channel + " ! fakesink name=out sync=true");
    Due due(out.element("out"));
    ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    ASSERT_TRUE(out.reach(GST_STATE_PLAYING)) << out.error();
    for (int round = 0; round < 20; ++round) {
      ASSERT_TRUE(eventually([&] { return due.times().size() > 4; }));
      const GstClockTimeDiff before = running_time(out);
      ASSERT_TRUE(gst_element_seek(out.element("out"), rate, GST_FORMAT_TIME, accurate_flush, GST_SEEK_TYPE_SET, 0,
                                   GST_SEEK_TYPE_SET, static_cast<gint64>(100 * GST_SECOND)));
      ASSERT_TRUE(eventually([&] { return due.times().size() > 2; }));
      const auto times = due.times();
      EXPECT_GE(*std::min_element(times.begin(), times.end()), before) << "round " << round;
    }
  }
}

// Live latency across the channel: when the sink's side changes, the src's side is told, so that an application that
// handles latency messages loses no frame. Time is simulated.

constexpr const char* caps = "video/x-raw,format=GRAY8,width=8,height=8,framerate=25/1";

GstClockTime ns(Time time) {
  return static_cast<GstClockTime>(std::chrono::nanoseconds(time).count());
}

/// A live source whose frames are there `late` after the moment they show, and which says so.
class Camera {
 public:
  Camera(GstClock* clock, const std::string& channel, Time late)
      : pipeline_("appsrc name=in format=time is-live=true min-latency=" + std::to_string(ns(late)) + " caps=" + caps +
                  " ! gpumapsink leaky=oldest channel=" + channel),
        late_(late) {
    use(pipeline_, clock);
    EXPECT_NE(pipeline_.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  }
  [[nodiscard]] Time late() const { return late_; }
  /// The frame of this moment. False: there is none yet.
  [[nodiscard]] bool film() const {
    const GstClockTime now = gst_element_get_current_running_time(pipeline_.get());
    if (!GST_CLOCK_TIME_IS_VALID(now) || now < ns(late_)) return false;
    return push(pipeline_.appsrc(), new_buffer(random_data(64, 1), now - ns(late_)));
  }

 private:
  Pipeline pipeline_;
  Time late_;
};

/// A consumer that drops what is late, and an application that handles latency messages.
class Screen {
 public:
  Screen(GstClock* clock, const std::string& channel)
      : pipeline_("gpumapsrc name=src is-live=true channel=" + channel +
                  " ! fakesink name=out sync=true max-lateness=60000000 qos=true") {
    rendered.on_rendered(pipeline_.element("out"));
    arrived.on(pipeline_.element("out"));
    use(pipeline_, clock);
    EXPECT_NE(pipeline_.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  }
  ~Screen() {
    thread_.request_stop();
    thread_.join();
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  [[nodiscard]] GstClockTime latency() const {
    return gst_base_sink_get_latency(GST_BASE_SINK(pipeline_.element("out")));
  }

  std::atomic<int> messages{0};
  Watch rendered, arrived;

 private:
  void listen(const std::stop_token& over) {
    GstBus* bus = gst_element_get_bus(pipeline_.get());
    while (!over.stop_requested()) {
      GstMessage* message = gst_bus_timed_pop_filtered(bus, 20 * GST_MSECOND, GST_MESSAGE_LATENCY);
      if (message == nullptr) continue;
      gst_message_unref(message);
      ++messages;
      gst_bin_recalculate_latency(GST_BIN(pipeline_.get()));
    }
    gst_object_unref(bus);
  }

  Pipeline pipeline_;
  std::jthread thread_{[this](const std::stop_token& over) { listen(over); }};
};

struct Latency : testing::Test {
  [[nodiscard]] std::unique_ptr<Screen> screen() const { return std::make_unique<Screen>(clock, channel); }
  [[nodiscard]] std::unique_ptr<Camera> camera(Time late) const {
    return std::make_unique<Camera>(clock, channel, late);
  }
  /// The time of a frame passes, and one comes to the screen.
  [[nodiscard]] bool step(const Camera& camera, const Screen& screen, Time limit = patience) {
    const std::size_t before = screen.arrived.count();
    time.pass(frame_time);
    return camera.film() && eventually([&] { return screen.arrived.count() > before; }, limit);
  }
  /// Once the screen knows how late its frames are, and has waited for that time, all of two seconds are shown.
  void expect_shown(const Camera& camera, const Screen& screen) {
    int in_a_row = 0;
    ASSERT_TRUE(eventually([&] {
      in_a_row = step(camera, screen, 100ms) && screen.latency() >= ns(camera.late()) ? in_a_row + 1 : 0;
      return in_a_row >= 3;
    })) << "it knows of "
        << screen.latency() << " ns";
    const std::size_t shown = screen.rendered.count();
    for (int i = 0; i < 50; ++i) ASSERT_TRUE(step(camera, screen)) << "frame " << i << " does not come";
    EXPECT_TRUE(eventually([&] { return screen.rendered.count() >= shown + 49; }))
        << screen.rendered.count() - shown << " of 50 are shown";
  }

  SimulatedTime time;
  GstClock* const clock = time.clock(1'000 * GST_SECOND);
  const std::string channel = new_channel();
};

TEST_F(Latency, OfAProducerThatWasThereFirst) {
  const auto camera = this->camera(300ms);
  const auto screen = this->screen();
  expect_shown(*camera, *screen);
}

TEST_F(Latency, OfAProducerThatComesLater) {
  const auto screen = this->screen();
  time.pass(300ms);
  const auto camera = this->camera(300ms);
  expect_shown(*camera, *screen);
}

TEST_F(Latency, OfASlowerProducerInItsPlace) {
  const auto screen = this->screen();
  expect_shown(*camera(0ms), *screen);
  const int before = screen->messages;
  expect_shown(*camera(400ms), *screen);
  EXPECT_GT(screen->messages, before);
  expect_shown(*camera(800ms), *screen);
}

}  // namespace
}  // namespace gpumap::gst::test
