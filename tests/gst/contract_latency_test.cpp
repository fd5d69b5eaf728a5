// SPDX-License-Identifier: MIT
// Live latency across the channel: when the sink's side changes, the src's side is told, so that an application that
// handles latency messages loses no frame.
#include <atomic>
#include <thread>

#include "watch.hpp"

namespace gpumap::gst::test {
namespace {

constexpr const char* caps = "video/x-raw,format=GRAY8,width=8,height=8,framerate=25/1";

/// A live source whose frames are there `late` after the moment they show, and which says so.
class Camera {
 public:
  Camera(const std::string& channel, Time late)
      : pipeline_(std::string("appsrc name=in format=time is-live=true min-latency=") +
                  std::to_string(std::chrono::nanoseconds(late).count()) + " caps=" + caps +
                  " ! gpumapsink leaky=oldest channel=" + channel),
        late_(late) {
    EXPECT_NE(pipeline_.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    thread_ = std::jthread([this](const std::stop_token& over) { film(over); });
  }
  ~Camera() {
    thread_.request_stop();
    thread_.join();
  }
  Camera(const Camera&) = delete;
  Camera& operator=(const Camera&) = delete;

 private:
  void film(const std::stop_token& over) {
    while (!over.stop_requested()) {
      g_usleep(40000);
      const GstClockTime now = gst_element_get_current_running_time(pipeline_.get());
      const auto late = static_cast<GstClockTime>(std::chrono::nanoseconds(late_).count());
      if (!GST_CLOCK_TIME_IS_VALID(now) || now < late) continue;
      push(pipeline_.appsrc(), new_buffer(random_data(64, 1), now - late));
    }
  }

  Pipeline pipeline_;
  Time late_;
  std::jthread thread_;
};

/// A consumer that drops what is late, and an application that handles latency messages.
class Screen {
 public:
  explicit Screen(const std::string& channel)
      : pipeline_("gpumapsrc name=src is-live=true channel=" + channel +
                  " ! fakesink name=out sync=true max-lateness=60000000 qos=true") {
    rendered.on_rendered(pipeline_.element("out"));
    arrived.on(pipeline_.element("out"));
    EXPECT_NE(pipeline_.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  }
  ~Screen() {
    thread_.request_stop();
    thread_.join();
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  /// Of two seconds: how many frames came and how many of them were shown.
  [[nodiscard]] std::pair<std::size_t, std::size_t> two_seconds() const {
    const std::size_t came = arrived.count(), shown = rendered.count();
    g_usleep(2000000);
    return {arrived.count() - came, rendered.count() - shown};
  }

  std::atomic<int> messages{0};

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

  Watch rendered, arrived;
  Pipeline pipeline_;
  std::jthread thread_{[this](const std::stop_token& over) { listen(over); }};
};

/// Of some two seconds: a busy machine may bring frames later than a screen takes them.
void expect_shown(const Screen& screen) {
  g_usleep(700000);  // until the pipeline knows
  auto failure = testing::AssertionFailure() << "shown of those that came:";
  for (int i = 0; i < 6; ++i) {
    const auto [came, shown] = screen.two_seconds();
    if (came >= 20 && shown * 10 >= came * 7) return;
    failure << ' ' << shown << " of " << came;
  }
  EXPECT_TRUE(failure);
}

TEST(Latency, OfAProducerThatWasThereFirst) {
  const std::string channel = new_channel();
  Camera camera(channel, 300ms);
  Screen screen(channel);
  expect_shown(screen);
}

TEST(Latency, OfAProducerThatComesLater) {
  const std::string channel = new_channel();
  Screen screen(channel);
  g_usleep(300000);
  Camera camera(channel, 300ms);
  expect_shown(screen);
}

TEST(Latency, OfASlowerProducerInItsPlace) {
  const std::string channel = new_channel();
  Screen screen(channel);
  {
    Camera camera(channel, 0ms);
    expect_shown(screen);
  }
  const int before = screen.messages;
  {
    Camera camera(channel, 400ms);
    expect_shown(screen);
  }
  EXPECT_GT(screen.messages, before);
  Camera camera(channel, 800ms);
  expect_shown(screen);
}

}  // namespace
}  // namespace gpumap::gst::test
