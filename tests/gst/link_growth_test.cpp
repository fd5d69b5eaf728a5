// SPDX-License-Identifier: MIT
// Where the ring at a socket is too small: a larger one follows without a word in the stream, with all frames of both;
// where none can, that is said.
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gst/channel/channel.hpp"
#include "link_sides.hpp"
#include "watch.hpp"

namespace gpumap::gst::test {
namespace {

using ::testing::HasSubstr;

TEST_F(LinkSides, ANewRingSaysNothingTwice) {
  Watch watch;
  Pipeline producer(from_appsrc());
  start(producer);
  const Pad pad(gst_element_get_static_pad(producer.element("sink"), "sink"));
  push_frame(producer, 0);
  Pipeline consumer(to_appsink());
  watch.on(consumer.element("out"));
  start(consumer);
  ASSERT_TRUE(eventually([&] { return clients(producer) == 1; }));
  push_frame(producer, 1);
  ASSERT_TRUE(pull(consumer.appsink()));
  // Both: a base time that changes is a segment more.
  ASSERT_TRUE(consumer.reach(GST_STATE_PLAYING));
  ASSERT_TRUE(producer.reach(GST_STATE_PLAYING));
  for (const char* const name : {"one", "two"}) {
    gst_pad_send_event(pad.get(), gst_event_new_custom(GST_EVENT_CUSTOM_DOWNSTREAM_STICKY,
                                                       gst_structure_new(name, "n", G_TYPE_INT, 1, nullptr)));
  }
  // The producer's thread looks at the times and then waits for a frame: before the second one it has looked by now.
  for (std::uint64_t n = 2; n < 4; ++n) {
    push_frame(producer, n);
    ASSERT_TRUE(eventually([&] { return watch.count() > 0 && watch.times().back() == n * GST_MSECOND; }));
  }
  watch.forget();
  for (std::uint64_t n = 4; n < 7; ++n) push_frame(producer, n, n * 77 * frame_size);
  ASSERT_TRUE(eventually([&] { return watch.count() == 3; }));
  EXPECT_EQ(watch.order(), "frame frame frame ");
  // What is new is told, and what a flush took away.
  gst_pad_send_event(pad.get(), gst_event_new_custom(GST_EVENT_CUSTOM_DOWNSTREAM_STICKY,
                                                     gst_structure_new("one", "n", G_TYPE_INT, 2, nullptr)));
  push_frame(producer, 7, 999 * frame_size);
  push_eos(producer);
  EXPECT_TRUE(eventually([&] { return watch.events(GST_EVENT_EOS) == 1; }));
  EXPECT_EQ(watch.order(), "frame frame frame custom-downstream-sticky frame eos ");
}

// The ring is the producer's, in another process, and grows for nobody.
TEST_F(LinkSides, AKernelBehindWhatKeepsAllSlotsIsToldSo) {
  Pipeline producer(from_appsrc("slots=4"));
  start(producer);
  push_frame(producer, 0);
  Pipeline consumer("gpumapsrc name=src " + socket() +
                    " ! queue min-threshold-buffers=9 ! gpumapkernel ! appsink name=out sync=false");
  start(consumer);
  ASSERT_TRUE(eventually([&] { return clients(producer) == 1; }));
  for (std::uint64_t n = 1; n < 8; ++n) push_frame(producer, n);
  EXPECT_TRUE(eventually([&] {
    (void)consumer.wait(20ms);
    return !consumer.warnings().empty();
  }));
  ASSERT_FALSE(consumer.warnings().empty());
  const std::string& warning = consumer.warnings().front();
  EXPECT_THAT(warning, HasSubstr("3 of the 4 slots"));
  EXPECT_THAT(warning, HasSubstr("of socket-path " + path + ": no frame comes until it gives one back"));
  EXPECT_THAT(warning, HasSubstr("put gpumapkernel before"));
}

// Each size has a ring of its own, and downstream may keep frames of them all.
TEST_F(LinkSides, FramesThatGrowLeaveNobodyBehind) {
  auto producer = std::make_unique<Pipeline>(from_appsrc());
  start(*producer);
  push_frame(*producer, 0);
  Pipeline consumer(to_appsink("on-lost=eos"));
  start(consumer);
  ASSERT_TRUE(eventually([&] { return clients(*producer) == 1; }));
  const auto bytes_of = [](std::uint64_t n) { return frame_size * (n / 5 * 9 + 1); };
  for (std::uint64_t n = 1; n < 20; ++n) push_frame(*producer, n, bytes_of(n));
  push_eos(*producer);
  EXPECT_EQ(producer->wait(), "eos");
  producer.reset();
  std::vector<Sample> kept;
  while (Sample sample = pull(consumer.appsink())) kept.push_back(std::move(sample));
  EXPECT_EQ(consumer.wait(), "eos");
  std::uint64_t n = 1;
  bool had_first = false;
  for (const Sample& sample : kept) {
    GstBuffer* buffer = gst_sample_get_buffer(sample.get());
    if (n == 1 && GST_BUFFER_PTS(buffer) == 0) {  // the client came before it went out
      had_first = true;
      continue;
    }
    ASSERT_EQ(GST_BUFFER_PTS(buffer), n * GST_MSECOND);
    EXPECT_EQ(data_of(buffer), random_data(bytes_of(n), n)) << "frame " << n;
    // A demuxer drops what it has of a part at each mark.
    EXPECT_EQ(GST_BUFFER_FLAG_IS_SET(buffer, GST_BUFFER_FLAG_DISCONT), n == 1 && !had_first) << "frame " << n;
    ++n;
  }
  EXPECT_EQ(n, 20U);
}

// A demuxer drops what it has at a mark, so there is none where nothing is missing; the test before this one sees that.
TEST_F(LinkSides, WhatAClientMissedOfSeveralRingsIsMarked) {
  for (const std::string leaky : {"newest", "oldest"}) {
    SCOPED_TRACE(leaky);
    Pipeline producer(from_appsrc("slots=8"));
    start(producer);
    push_frame(producer, 0);
    Pipeline consumer(to_appsink("leaky=" + leaky) + " max-buffers=1");
    start(consumer);
    ASSERT_TRUE(eventually([&] { return clients(producer) == 1; }));
    for (std::uint64_t n = 1; n < 40; ++n) push_frame(producer, n, frame_size * (n / 13 * 9 + 1));
    push_eos(producer);
    EXPECT_EQ(producer.wait(), "eos");
    std::uint64_t last = 0;
    std::size_t holes = 0;
    while (const Sample sample = pull(consumer.appsink())) {
      GstBuffer* buffer = gst_sample_get_buffer(sample.get());
      const std::uint64_t number = GST_BUFFER_PTS(buffer) / GST_MSECOND;
      if (last != 0) {
        const bool marked = GST_BUFFER_FLAG_IS_SET(buffer, GST_BUFFER_FLAG_DISCONT);
        EXPECT_EQ(marked, number != last + 1) << "frame " << number << " after " << last;
        holes += number != last + 1 ? 1U : 0U;
      }
      last = number;
    }
    EXPECT_GT(holes, 1U);
  }
}

// A ring that is made for a gap holds the frames that follow.
TEST_F(LinkSides, AGapBeforeAudioMakesARingForIt) {
  Pipeline producer(
      "appsrc name=in format=time caps=audio/x-raw,format=F32LE,rate=48000,channels=2,layout=interleaved ! "
      "gpumapsink name=sink sync=false wait-for-connection=true " +
      socket());
  start(producer);
  const Pad pad(gst_element_get_static_pad(producer.element("sink"), "sink"));
  gst_pad_send_event(pad.get(), gst_event_new_stream_start("audio"));
  gst_pad_send_event(
      pad.get(),
      gst_event_new_caps(new_caps("audio/x-raw,format=F32LE,rate=48000,channels=2,layout=interleaved").get()));
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  gst_pad_send_event(pad.get(), gst_event_new_segment(&segment));
  const auto channel = Channel::open("socket " + path);
  gst_pad_send_event(pad.get(), gst_event_new_sink_message("mine", gst_message_new_eos(nullptr)));
  EXPECT_EQ(channel->slots(), 0U) << "it does not cross";
  std::thread gap([&] { gst_pad_send_event(pad.get(), gst_event_new_gap(0, GST_MSECOND)); });
  const auto client = LinkConsumer::connect(client_options());
  gap.join();
  constexpr std::size_t bytes = std::size_t{1024} * 8;
  EXPECT_TRUE(push(producer.appsrc(), new_buffer(random_data(bytes, 1), GST_MSECOND)));
  LinkFrame frame;
  ReadLease lease;
  LinkNext next = LinkNext::timeout;
  EXPECT_TRUE(eventually([&] {
    next = client->next(lease, frame, Clock::now() + 1s);
    return next == LinkNext::frame || next == LinkNext::closed;
  }));
  EXPECT_EQ(next, LinkNext::frame) << "another ring came: " << client->why();
  EXPECT_EQ(frame.info.bytes, bytes);
}

/// Has a client that takes nothing, while frames come on two rings.
struct Growth : LinkSides {
  std::unique_ptr<LinkConsumer> grow_before_idle_client(Pipeline& producer) const {
    start(producer);
    push_frame(producer, 0);
    auto client = LinkConsumer::connect(client_options());
    EXPECT_TRUE(eventually([&] { return clients(producer) == 1; }));
    push_frame(producer, 1, 77 * frame_size);
    push_frame(producer, 2, 77 * frame_size);
    EXPECT_TRUE(handed_on(3));
    return client;
  }
  /// Takes what is next, without messages.
  static std::string take(LinkConsumer& client, LinkFrame& frame) {
    ReadLease lease;
    LinkNext next = LinkNext::timeout;
    static_cast<void>(eventually([&] {
      next = client.next(lease, frame, Clock::now() + 1s);
      return next != LinkNext::message && next != LinkNext::timeout;
    }));
    if (next == LinkNext::ring) return "ring";
    return next == LinkNext::frame ? std::to_string(frame.info.pts / GST_MSECOND) : "?";
  }
};

TEST_F(Growth, AClientThatTakesNothingMeanwhileMissesNothing) {
  Pipeline producer(from_appsrc());
  const auto client = grow_before_idle_client(producer);
  LinkFrame frame;
  std::string order;
  for (std::string next; next != "2" && next != "?"; order += next + " ") next = take(*client, frame);
  // The first frame may have gone out before the client came.
  EXPECT_THAT(order, testing::AnyOf("0 ring 1 2 ", "ring 1 2 "));
  EXPECT_EQ(frame.info.bytes, 77 * frame_size);
  EXPECT_EQ(frame.info.sequence, 2U);
}

// A third ring waits for it, and so does the end, but no stop does.
TEST_F(Growth, AProducerThatStopsBeforeItsEndWentOutSaysSo) {
  Pipeline producer(from_appsrc());
  const auto client = grow_before_idle_client(producer);
  push_frame(producer, 3, 777 * frame_size);
  push_eos(producer);
  ASSERT_EQ(producer.wait(), "eos");
  EXPECT_THAT(producer.warnings(), testing::IsEmpty());
  ASSERT_TRUE(producer.reach(GST_STATE_READY));
  EXPECT_EQ(producer.wait(1s), "timeout");
  EXPECT_THAT(producer.warnings(), testing::ElementsAre(AllOf(HasSubstr("the end of its stream"),
                                                              HasSubstr("process " + std::to_string(getpid())))));
  LinkFrame frame;
  std::string order;
  for (std::string next; next != "?"; order += next + " ") next = take(*client, frame);
  EXPECT_THAT(order, testing::AnyOf("0 ring 1 2 ? ", "ring 1 2 ? "));
}

// The third ring waits for the client, and so does the stop: the end of the stream before is not this one's.
TEST_F(Growth, AProducerThatStopsSendsAllOfALaterStreamBefore) {
  Pipeline producer("identity name=in ! gpumapsink name=sink sync=false " + socket());
  start(producer);
  const Pad pad(gst_element_get_static_pad(producer.element("in"), "sink"));
  const auto begin = [&](const char* id) {
    gst_pad_send_event(pad.get(), gst_event_new_stream_start(id));
    gst_pad_send_event(pad.get(), gst_event_new_caps(new_caps("application/octet-stream").get()));
    GstSegment segment;
    gst_segment_init(&segment, GST_FORMAT_TIME);
    gst_pad_send_event(pad.get(), gst_event_new_segment(&segment));
  };
  const auto chain = [&](std::uint64_t n, std::size_t bytes) {
    EXPECT_EQ(gst_pad_chain(pad.get(), new_buffer(random_data(bytes, n), n * GST_MSECOND).release()), GST_FLOW_OK);
  };
  begin("first");
  chain(0, frame_size);
  gst_pad_send_event(pad.get(), gst_event_new_eos());
  ASSERT_TRUE(handed_on(1));
  const auto client = LinkConsumer::connect(client_options());
  ASSERT_TRUE(eventually([&] { return clients(producer) == 1; }));
  begin("second");
  chain(1, 77 * frame_size);
  chain(2, 777 * frame_size);
  gst_pad_send_event(pad.get(), gst_event_new_eos());
  std::thread stopping([&] { EXPECT_TRUE(producer.reach(GST_STATE_READY)); });
  GstElement* const sink = producer.element("sink");
  EXPECT_TRUE(
      eventually([&] { return GST_STATE_NEXT(sink) == GST_STATE_READY || GST_STATE(sink) == GST_STATE_READY; }));
  LinkFrame frame;
  std::string order;
  for (std::string next; next != "2" && next != "?"; order += next + " ") next = take(*client, frame);
  EXPECT_EQ(order, "ring 1 ring 2 ");
  stopping.join();
  EXPECT_THAT(producer.warnings(), testing::IsEmpty());
}

// It overtakes the frames of both rings.
TEST_F(Growth, AClientThatTakesNothingMeanwhileHearsOfAFlush) {
  Pipeline producer(from_appsrc());
  const auto client = grow_before_idle_client(producer);
  const Pad pad(gst_element_get_static_pad(producer.element("in"), "src"));
  gst_pad_push_event(pad.get(), gst_event_new_flush_start());
  gst_pad_push_event(pad.get(), gst_event_new_flush_stop(TRUE));
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  gst_pad_push_event(pad.get(), gst_event_new_segment(&segment));
  EXPECT_EQ(gst_pad_push(pad.get(), new_buffer(random_data(77 * frame_size, 3), 3 * GST_MSECOND).release()),
            GST_FLOW_OK);
  LinkFrame frame;
  ReadLease lease;
  std::string order;
  const auto hear = [&](LinkConsumer& from) {
    const LinkNext next = from.next(lease, frame, Clock::now() + 1s);
    if (next == LinkNext::message) order += gst_event_type_get_name(type_of_event(frame.message)) + std::string(" ");
    if (next == LinkNext::frame) order += std::to_string(frame.info.pts / GST_MSECOND) + " ";
    return next == LinkNext::frame && frame.info.pts == 3 * GST_MSECOND;
  };
  ASSERT_TRUE(eventually([&] { return hear(*client); })) << order;
  // The pipeline's latency may come at any time.
  EXPECT_LT(order.find("flush-start "), order.find("stream-start ")) << order;
  EXPECT_EQ(order.find(" 1 "), std::string::npos) << "the server took it back: " << order;
  EXPECT_EQ(order.find(" 2 "), std::string::npos) << "the server took it back: " << order;
  EXPECT_LT(order.find("flush-stop "), order.rfind("segment ")) << order;
  // Who comes later has heard of nothing that ends.
  order.clear();
  auto late = LinkConsumer::connect(client_options());
  ASSERT_TRUE(eventually([&] { return clients(producer) == 2; }));
  push_frame(producer, 3, 77 * frame_size);
  ASSERT_TRUE(eventually([&] { return hear(*late); })) << order;
  EXPECT_EQ(order.find("flush-"), std::string::npos) << order;
}

// Its application keeps a frame, so that it is still connected.
TEST_F(LinkSides, AClientThatHasEndedHoldsNobodyUpAtTheNextRing) {
  Pipeline producer(from_appsrc());
  start(producer);
  push_frame(producer, 0);
  auto client = LinkConsumer::connect(client_options());
  push_frame(producer, 1);
  LinkFrame frame;
  ReadLease kept;
  ASSERT_TRUE(eventually([&] { return client->next(kept, frame, Clock::now() + 1s) == LinkNext::frame; }));
  ASSERT_TRUE(handed_on(2));
  client.reset();
  for (std::uint64_t n = 2; n < 20; ++n) push_frame(producer, n, n * 10 * frame_size);
  EXPECT_TRUE(handed_on(20));
}

// A new ring is no new client.
TEST_F(LinkSides, AnApplicationCanCountItsClients) {
  struct Counts {
    std::atomic<int> came{0}, went{0};
    std::atomic<int> stopped{0};
  } counts;
  Pipeline producer(from_appsrc());
  const auto came = [](GstElement*, guint, gint, const char*, gpointer own) { ++static_cast<Counts*>(own)->came; };
  const auto went = [](GstElement*, guint, gint, const char*, const char* why, gpointer own) {
    auto& all = *static_cast<Counts*>(own);
    ++all.went;
    if (std::string(why).find("stopped") != std::string::npos) ++all.stopped;
  };
  g_signal_connect(producer.element("sink"), "client-connected",
                   G_CALLBACK(static_cast<void (*)(GstElement*, guint, gint, const char*, gpointer)>(came)), &counts);
  g_signal_connect(
      producer.element("sink"), "client-disconnected",
      G_CALLBACK(static_cast<void (*)(GstElement*, guint, gint, const char*, const char*, gpointer)>(went)), &counts);
  start(producer);
  push_frame(producer, 0);
  Pipeline stays(to_appsink() + " drop=true max-buffers=1");
  start(stays);
  auto leaves = std::make_unique<Pipeline>(to_appsink() + " drop=true max-buffers=1");
  start(*leaves);
  ASSERT_TRUE(eventually([&] { return clients(producer) == 2 && counts.came == 2; }));
  for (std::uint64_t n = 1; n < 6; ++n) {
    push_frame(producer, n, n * 77 * frame_size);
    ASSERT_TRUE(eventually([&] {
      const Sample sample = pull(stays.appsink());
      return sample && GST_BUFFER_PTS(gst_sample_get_buffer(sample.get())) == n * GST_MSECOND;
    }));
    ASSERT_TRUE(eventually([&] { return clients(producer) == 2; })) << n;
  }
  EXPECT_EQ(counts.came - counts.went, 2);
  leaves.reset();
  ASSERT_TRUE(eventually([&] { return counts.came - counts.went == 1 && clients(producer) == 1; }));
  EXPECT_EQ(counts.came, 2);
  producer.stop();
  EXPECT_EQ(counts.came, counts.went);
  EXPECT_EQ(counts.stopped, 1);
}

/// What the signals of a gpumapsink said, in their order. Outlives the pipeline.
class Signals {
 public:
  void of(GstElement* sink) {
    const auto came = [](GstElement*, guint index, gint, const char* name, gpointer own) {
      static_cast<Signals*>(own)->add("+", index, name);
    };
    const auto went = [](GstElement*, guint index, gint, const char* name, const char*, gpointer own) {
      static_cast<Signals*>(own)->add("-", index, name);
    };
    g_signal_connect(sink, "client-connected",
                     G_CALLBACK(static_cast<void (*)(GstElement*, guint, gint, const char*, gpointer)>(came)), this);
    g_signal_connect(
        sink, "client-disconnected",
        G_CALLBACK(static_cast<void (*)(GstElement*, guint, gint, const char*, const char*, gpointer)>(went)), this);
  }
  [[nodiscard]] std::vector<std::string> all() const {
    const std::lock_guard lock(mutex_);
    return all_;
  }

 private:
  void add(const char* what, guint index, const std::string& name) {
    const std::lock_guard lock(mutex_);
    all_.push_back(what + std::to_string(index) + name);
  }
  mutable std::mutex mutex_;
  std::vector<std::string> all_;
};

TEST_F(LinkSides, ClientsKeepTheirNumbersFromRingToRing) {
  constexpr std::uint64_t rings = 8;
  constexpr std::size_t number = 4;
  Signals signals;
  Pipeline producer(from_appsrc());
  signals.of(producer.element("sink"));
  start(producer);
  push_frame(producer, 0);
  std::vector<std::unique_ptr<Pipeline>> consumers;
  while (consumers.size() < number) {
    consumers.push_back(std::make_unique<Pipeline>("gpumapsrc name=client" + std::to_string(consumers.size()) + " " +
                                                   socket() + " ! fakesink sync=false"));
    start(*consumers.back());
    ASSERT_TRUE(eventually([&] { return signals.all().size() == consumers.size(); }));
  }
  const std::vector<std::string> before = signals.all();
  for (std::uint64_t n = 1; n <= rings; ++n) {
    push_frame(producer, n, n * 77 * frame_size);
    ASSERT_TRUE(eventually([&] {
      return std::all_of(consumers.begin(), consumers.end(), [&](const auto& one) {
        return stat(one->element(("client" + std::to_string(&one - consumers.data())).c_str()), "frames") >= n;
      });
    })) << "ring "
        << n;
    EXPECT_EQ(clients(producer), number);
  }
  EXPECT_EQ(signals.all(), before);
  producer.stop();
  std::vector<std::string> wanted = before;
  for (std::string one : before) wanted.push_back(one.replace(0, 1, "-"));
  std::vector<std::string> seen = signals.all();
  std::sort(seen.begin(), seen.end());
  std::sort(wanted.begin(), wanted.end());
  EXPECT_EQ(seen, wanted);
}

}  // namespace
}  // namespace gpumap::gst::test
