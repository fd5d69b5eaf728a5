// SPDX-License-Identifier: MIT
// Live latency across the channel: when the sink's side changes, the src's side is told, so that an application that
// handles latency messages loses no frame. Time is simulated.
#include <atomic>
#include <thread>

#include "simulated_time.hpp"
#include "watch.hpp"

namespace gpumap::gst::test {
namespace {

constexpr const char* caps = "video/x-raw,format=GRAY8,width=8,height=8,framerate=25/1";
constexpr Time frame_time = 40ms;

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
