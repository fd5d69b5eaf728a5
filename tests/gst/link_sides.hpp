// SPDX-License-Identifier: MIT
// What the tests of two sides at a socket share.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "gpumap/link.hpp"
#include "gpumap/link_report.hpp"
#include "gst/channel/event_text.hpp"
#include "pipeline.hpp"
#include "temporary_folder.hpp"

namespace gpumap::gst::test {

struct LinkSides : testing::Test {
  static constexpr std::size_t frame_size = 1003;

  [[nodiscard]] std::string socket() const { return "socket-path=" + path; }
  [[nodiscard]] static std::string from_appsrc(const std::string& more, const std::string& path) {
    return "appsrc name=in format=time caps=application/octet-stream ! gpumapsink name=sink sync=false socket-path=" +
           path + " " + more;
  }
  [[nodiscard]] std::string from_appsrc(const std::string& more = "") const { return from_appsrc(more, path); }
  [[nodiscard]] std::string to_appsink(const std::string& more = "") const {
    return "gpumapsrc name=src " + socket() + " " + more + " ! appsink name=out sync=false";
  }
  static void start(Pipeline& pipeline) { ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE); }
  /// Frame `n`, of random bytes, at `n` ms.
  static void push_frame(const Pipeline& producer, std::uint64_t n, std::size_t bytes = frame_size) {
    EXPECT_TRUE(push(producer.appsrc(), new_buffer(random_data(bytes, n), n * GST_MSECOND)));
  }
  /// Stops the pipeline in the thread that posts an error, which is refused.
  static void expect_no_stop_at_error(const Pipeline& pipeline) {
    const Ptr<GstBus> bus(gst_element_get_bus(pipeline.get()));
    gst_bus_set_sync_handler(
        bus.get(),
        [](GstBus*, GstMessage* message, gpointer stopped) {
          if (GST_MESSAGE_TYPE(message) != GST_MESSAGE_ERROR) return GST_BUS_PASS;
          EXPECT_EQ(gst_element_set_state(GST_ELEMENT(stopped), GST_STATE_NULL), GST_STATE_CHANGE_FAILURE);
          return GST_BUS_PASS;
        },
        pipeline.get(), nullptr);
  }
  static void push_eos(const Pipeline& producer) { gst_app_src_end_of_stream(producer.appsrc()); }
  [[nodiscard]] static guint clients(const Pipeline& producer) {
    guint number = 0;
    g_object_get(producer.element("sink"), "num-clients", &number, nullptr);
    return number;
  }

  /// Of a client that is no gpumapsrc, and may miss nothing.
  [[nodiscard]] LinkConsumerOptions client_options() const {
    LinkConsumerOptions options;
    options.path = path;
    options.patience = patience;
    options.leak = LinkLeak::no;
    return options;
  }

  /// The producer's thread has shown the clients so many frames, or has passed them over: gpumapsink counts a frame,
  /// and posts EOS, before that.
  [[nodiscard]] bool handed_on(std::uint64_t frames) const {
    return eventually([&] {
      const auto sight = observe_links(std::span(&path, 1), Clock::now() + 1s).at(0);
      return sight.report && sight.report->frames == frames;
    });
  }

  const TemporaryFolder folder;
  const std::string path = folder.path() / "link";
};

/// A producer that is not a gpumapsink. It sends what the test gives it.
struct OwnProducer {
  explicit OwnProducer(const std::string& path)
      : ring(Ring::create(Device::open(), {.slots = 4, .slot_bytes = LinkSides::frame_size})),
        server(LinkServer::serve(ring, {.path = path})) {}
  /// For clients that come later, too. Takes `event`.
  void send(GstEvent* event) {
    const Ptr<GstEvent> owned(event);
    server->send(text_of(event), ++key);
  }
  void show(std::span<const std::byte> note = {}, FrameInfo info = {}) {
    WriteLease written;
    ASSERT_EQ(server->acquire(written, WhenFull::block, Clock::now() + patience), RingStatus::ok);
    info.bytes = LinkSides::frame_size;
    ring->publish(written, info);
    written = {};
    ReadLease frame;
    ASSERT_EQ(ring->receive(frame, Deadline{}), RingStatus::ok);
    server->show(std::move(frame), note);
  }

  const std::shared_ptr<Ring> ring;
  const std::unique_ptr<LinkServer> server;
  std::uint32_t key = 0;
};

}  // namespace gpumap::gst::test
