// SPDX-License-Identifier: MIT
// A gpumapsink and gpumapsrcs that meet at a socket, here in one process, where both can be looked at: what arrives,
// what is known to be missing, and what neither side may do to the other. Processes that die: processes_test.cpp.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gst/channel/channel.hpp"
#include "link_sides.hpp"
#include "link_written.hpp"
#include "thread_names.hpp"
#include "watch.hpp"

namespace gpumap::gst::test {
namespace {

using ::testing::HasSubstr;

// No other thread wakes for a frame that nobody has to be waited for.
TEST_F(LinkSides, TheThreadThatBringsAFrameShowsIt) {
  Pipeline producer(from_appsrc());
  start(producer);
  push_frame(producer, 0);
  const auto client = LinkConsumer::connect(client_options());
  const auto comes = [&](std::uint64_t n) {
    push_frame(producer, n);
    ReadLease lease;
    LinkFrame frame;
    LinkNext next = LinkNext::message;
    while (next == LinkNext::message) next = client->next(lease, frame, Clock::now() + patience);
    return next == LinkNext::frame;
  };
  ASSERT_TRUE(comes(1));
  constexpr std::uint64_t frames = 200;
  const auto began = Clock::now();
  const auto sleeps_of_server = [] { return gpumap::test::thread_states("gpumap-server").at(0).sleeps; };
  const long before = sleeps_of_server();
  for (std::uint64_t n = 0; n < frames; ++n) ASSERT_TRUE(comes(n + 2));
  const long sleeps = sleeps_of_server() - before;
  const auto looks = (Clock::now() - began) / 10ms;  // of that thread after the clients
  EXPECT_LT(sleeps, static_cast<long>(frames) / 4 + looks);
}

TEST_F(LinkSides, TheThreadThatHandsAFrameOnTakesIt) {
  Pipeline producer(from_appsrc());
  start(producer);
  push_frame(producer, 0);
  Pipeline consumer(to_appsink());
  start(consumer);
  ASSERT_TRUE(eventually([&] { return clients(producer) == 1; }));
  const auto is = [](const Sample& sample, std::uint64_t n) {
    return sample && data_of(gst_sample_get_buffer(sample.get())) == random_data(frame_size, n);
  };
  const auto comes = [&](std::uint64_t n) {
    push_frame(producer, n);
    return is(pull(consumer.appsink()), n);
  };
  // Who was there when the first frame was shown gets that, too.
  push_frame(producer, 1);
  Sample first = pull(consumer.appsink());
  if (is(first, 0)) first = pull(consumer.appsink());
  ASSERT_TRUE(is(first, 1));
  constexpr std::uint64_t frames = 200;
  const auto began = Clock::now();
  const auto sleeps_of_inlet = [] { return gpumap::test::thread_states("gpumap-inlet").at(0).sleeps; };
  const long before = sleeps_of_inlet();
  for (std::uint64_t n = 0; n < frames; ++n) ASSERT_TRUE(comes(n + 2));
  const long sleeps = sleeps_of_inlet() - before;
  const auto looks = (Clock::now() - began) / 10ms;  // of that thread after the src
  EXPECT_LT(sleeps, static_cast<long>(frames) / 4 + 2 * looks);
}

TEST_F(LinkSides, WhoComesLaterGetsAllThatHolds) {
  Pipeline producer(from_appsrc());
  start(producer);
  const Pad pad(gst_element_get_static_pad(producer.element("sink"), "sink"));
  push_frame(producer, 0);
  const auto client = [&] { return std::make_unique<Pipeline>(to_appsink()); };
  auto first = client();
  start(*first);
  ASSERT_TRUE(eventually([&] { return clients(producer) == 1; }));
  for (const GstTagScope scope : {GST_TAG_SCOPE_STREAM, GST_TAG_SCOPE_GLOBAL}) {
    GstTagList* tags = gst_tag_list_new(GST_TAG_TITLE, scope == GST_TAG_SCOPE_STREAM ? "stream" : "global", nullptr);
    gst_tag_list_set_scope(tags, scope);
    gst_pad_send_event(pad.get(), gst_event_new_tag(tags));
  }
  for (const char* const name : {"one", "two"}) {
    gst_pad_send_event(pad.get(), gst_event_new_custom(GST_EVENT_CUSTOM_DOWNSTREAM_STICKY,
                                                       gst_structure_new(name, "n", G_TYPE_INT, 1, nullptr)));
  }
  gst_pad_send_event(pad.get(), gst_event_new_custom(GST_EVENT_CUSTOM_DOWNSTREAM_STICKY,
                                                     gst_structure_new("one", "n", G_TYPE_INT, 2, nullptr)));
  const std::vector<GstEvent*> others = events_with_objects();
  std::set<GstEventType> sticky;
  for (GstEvent* const event : others) {
    if (GST_EVENT_TYPE(event) == GST_EVENT_STREAM_START) {
      gst_event_unref(event);  // another stream
      continue;
    }
    sticky.insert(GST_EVENT_TYPE(event));
    gst_pad_send_event(pad.get(), event);
  }
  ASSERT_EQ(sticky.size(), 6U);
  push_frame(producer, 1);
  (void)pull(first->appsink());
  first.reset();
  ASSERT_TRUE(eventually([&] { return clients(producer) == 0; }));
  const auto late = client();
  start(*late);
  ASSERT_TRUE(eventually([&] { return clients(producer) == 1; }));
  push_frame(producer, 2);
  ASSERT_TRUE(pull(late->appsink()));
  const Pad out(gst_element_get_static_pad(late->element("src"), "src"));
  const auto count = [&](GstEventType type) {
    guint n = 0;
    while (GstEvent* event = gst_pad_get_sticky_event(out.get(), type, n)) {
      gst_event_unref(event);
      ++n;
    }
    return n;
  };
  EXPECT_EQ(count(GST_EVENT_TAG), 2U);
  sticky.erase(GST_EVENT_INSTANT_RATE_CHANGE);
  for (const GstEventType type : sticky) EXPECT_EQ(count(type), 1U) << gst_event_type_get_name(type);
  const Ptr<GstBus> bus(gst_element_get_bus(late->get()));
  const Ptr<GstMessage> mark(gst_bus_timed_pop_filtered(bus.get(), 5 * GST_SECOND, GST_MESSAGE_ELEMENT));
  ASSERT_TRUE(mark) << "the sink posts the message";
  EXPECT_TRUE(gst_message_has_name(mark.get(), "mark"));
  EXPECT_EQ(GST_MESSAGE_SRC(mark.get()), GST_OBJECT_CAST(late->element("src")));
  ASSERT_EQ(count(GST_EVENT_CUSTOM_DOWNSTREAM_STICKY), 2U);
  for (guint n = 0; n < 2; ++n) {
    const Ptr<GstEvent> event(gst_pad_get_sticky_event(out.get(), GST_EVENT_CUSTOM_DOWNSTREAM_STICKY, n));
    const GstStructure* said = gst_event_get_structure(event.get());
    gint value = 0;
    EXPECT_TRUE(gst_structure_get_int(said, "n", &value));
    EXPECT_EQ(value, gst_structure_has_name(said, "one") ? 2 : 1) << "what holds is what was said last";
  }
}

// Another stream has other tags, and none of the last one's.
TEST_F(LinkSides, WhoComesLaterGetsNothingOfTheLastStream) {
  Pipeline producer(from_appsrc());
  start(producer);
  const Pad pad(gst_element_get_static_pad(producer.element("sink"), "sink"));
  push_frame(producer, 0);
  ASSERT_TRUE(eventually([&] { return stat(producer.element("sink"), "frames") == 1; }));
  for (const char* const name : {"one", "two", "three"}) {
    gst_pad_send_event(pad.get(), gst_event_new_custom(GST_EVENT_CUSTOM_DOWNSTREAM_STICKY,
                                                       gst_structure_new(name, "n", G_TYPE_INT, 1, nullptr)));
  }
  gst_pad_send_event(pad.get(), gst_event_new_stream_start("next"));
  push_frame(producer, 1);
  ASSERT_TRUE(handed_on(2)) << "who comes before that hears of the last stream, too";
  Pipeline late(to_appsink());
  start(late);
  ASSERT_TRUE(eventually([&] { return clients(producer) == 1; }));
  push_frame(producer, 2);
  ASSERT_TRUE(pull(late.appsink()));
  const Pad out(gst_element_get_static_pad(late.element("src"), "src"));
  const Ptr<GstEvent> start_event(gst_pad_get_sticky_event(out.get(), GST_EVENT_STREAM_START, 0));
  ASSERT_TRUE(start_event);
  const gchar* id = nullptr;
  gst_event_parse_stream_start(start_event.get(), &id);
  EXPECT_STREQ(id, "next");
  EXPECT_FALSE(Ptr<GstEvent>(gst_pad_get_sticky_event(out.get(), GST_EVENT_CUSTOM_DOWNSTREAM_STICKY, 0)));
}

// The sink's ring knows of no frame that a client was not shown.
TEST_F(LinkSides, WhatAClientMissedIsMarked) {
  for (const char* const leaky : {"newest", "oldest"}) {
    SCOPED_TRACE(leaky);
    Pipeline producer(from_appsrc());
    start(producer);
    push_frame(producer, 0);
    Pipeline consumer("gpumapsrc name=src leaky=" + std::string(leaky) + " " + socket() +
                      " ! appsink name=out sync=false max-buffers=1");
    start(consumer);
    ASSERT_TRUE(eventually([&] { return clients(producer) == 1; }));
    std::uint64_t pushed = 1;
    const auto push_some = [&] {
      for (const std::uint64_t end = pushed + 20; pushed < end; ++pushed) push_frame(producer, pushed);
      EXPECT_TRUE(handed_on(pushed)) << "what is not may fit in once the client has read on";
    };
    push_some();
    std::uint64_t last = 0;
    std::size_t holes = 0;
    for (int n = 0; const Sample sample = pull(consumer.appsink()); ++n) {
      if (n == 2 || n == 4) push_some();
      if (n == 6) push_eos(producer);
      GstBuffer* buffer = gst_sample_get_buffer(sample.get());
      const std::uint64_t number = GST_BUFFER_PTS(buffer) / GST_MSECOND;
      if (n == 2 && std::string(leaky) == "newest") {
        EXPECT_LE(number, 3U) << "what came first stays";
      }
      const bool marked = GST_BUFFER_FLAG_IS_SET(buffer, GST_BUFFER_FLAG_DISCONT);
      if (last != 0) {
        EXPECT_EQ(marked, number != last + 1) << "frame " << number << " after " << last;
        holes += number != last + 1 ? 1U : 0U;
      }
      last = number;
    }
    EXPECT_GT(holes, 0U);
    // Of those that it can have, "oldest" has the last one. "newest" may have it, where the client was quick.
    if (std::string(leaky) == "oldest") {
      EXPECT_EQ(last, pushed - 1);
    }
  }
}

// An encoder that looks ahead keeps more frames than a client's share of the slots; of four clients each has a share of
// one, which a sink keeps as its last sample.
TEST_F(LinkSides, WhoMayMissFramesAndKeepsThoseThatCameGetsMore) {
  constexpr std::size_t enough = 20;
  for (const char* const leaky : {"leaky=oldest", "leaky=newest"}) {
    SCOPED_TRACE(leaky);
    Pipeline producer(from_appsrc());
    start(producer);
    push_frame(producer, 0);
    struct Keeper {
      std::unique_ptr<Pipeline> pipeline;
      std::vector<Sample> kept{};
    };
    std::vector<Keeper> keepers;
    for (guint n = 1; n <= 4; ++n) {
      keepers.push_back({std::make_unique<Pipeline>(to_appsink(leaky))});
      start(*keepers.back().pipeline);
      ASSERT_TRUE(eventually([&] { return clients(producer) == n; }));
    }
    std::uint64_t pushed = 1;
    const auto all_have_enough = [&] {
      push_frame(producer, pushed++);
      std::size_t least = enough;
      for (Keeper& one : keepers) {
        while (Sample sample = pull(one.pipeline->appsink(), 0ms)) one.kept.push_back(std::move(sample));
        least = std::min(least, one.kept.size());
      }
      return least == enough;
    };
    EXPECT_TRUE(eventually(all_have_enough)) << "after " << pushed << " frames";
    for (const Keeper& one : keepers) {
      for (const Sample& sample : one.kept) {
        GstBuffer* buffer = gst_sample_get_buffer(sample.get());
        EXPECT_EQ(data_of(buffer), random_data(frame_size, GST_BUFFER_PTS(buffer) / GST_MSECOND));
      }
    }
  }
}

// It keeps slots, for it reads GPU memory; so does a second one, which finds none left.
TEST_F(LinkSides, WhoGetsNoFramesForTheSlotsThatAreKeptIsTold) {
  const auto line_to = [](const std::string& at) {
    return "gpumapsrc leaky=oldest socket-path=" + at +
           " ! application/octet-stream(memory:GPUMap) ! appsink name=out sync=false";
  };
  // This one missed some, gives back what it kept, and then there is nothing to miss.
  const std::string other = path + "2";
  Pipeline pauses(from_appsrc("slots=4", other));
  start(pauses);
  push_frame(pauses, 0);
  Pipeline relieved(line_to(other));
  start(relieved);
  std::uint64_t given = 1;
  ASSERT_TRUE(eventually([&] {
    push_frame(pauses, given++);
    const auto sight = observe_links(std::span(&other, 1), Clock::now() + 1s).at(0);
    return sight.report && !sight.report->clients.empty() && sight.report->clients.front().who.dropped > 2;
  }));
  while (pull(relieved.appsink(), 100ms)) {
  }

  Pipeline producer(from_appsrc("slots=4"));
  start(producer);
  push_frame(producer, 0);
  std::uint64_t pushed = 1;
  const std::string line = line_to(path);
  const auto warning = [&](Pipeline& consumer) {
    EXPECT_TRUE(eventually([&] {
      push_frame(producer, pushed++);
      EXPECT_EQ(consumer.wait(0ms), "timeout");
      return !consumer.warnings().empty();
    })) << "after "
        << pushed << " frames";
    return consumer.warnings().empty() ? std::string() : consumer.warnings().front();
  };
  Pipeline keeper(line);
  start(keeper);
  EXPECT_THAT(warning(keeper),
              testing::AllOf(HasSubstr("no frame from socket-path " + path), HasSubstr("keeps 2 of the 4 slots")));
  Pipeline late(line);
  start(late);
  EXPECT_THAT(warning(late), HasSubstr("other clients keep the slots"));
  EXPECT_EQ(keeper.warnings().size(), 1U);
  keeper.stop();
  EXPECT_TRUE(eventually([&] {
    push_frame(producer, pushed++);
    return pull(late.appsink(), 0ms) != nullptr;
  }));
  EXPECT_EQ(relieved.wait(0ms), "timeout");
  EXPECT_THAT(relieved.warnings(), testing::IsEmpty());
}

TEST_F(LinkSides, AProducerThatDropsTheOldestDropsThemAtASlowClientToo) {
  Pipeline producer(from_appsrc("leaky=oldest slots=4"));
  start(producer);
  push_frame(producer, 0);
  Pipeline consumer("gpumapsrc name=src " + socket() + " ! appsink name=out sync=false max-buffers=1");
  start(consumer);
  ASSERT_TRUE(eventually([&] { return clients(producer) == 1; }));
  for (std::uint64_t n = 1; n <= 50; ++n) {
    push_frame(producer, n);
    g_usleep(2000);
  }
  push_eos(producer);
  EXPECT_EQ(producer.wait(), "eos") << "it was held up";
  GstClockTime last = 0;
  while (const Sample sample = pull(consumer.appsink())) last = GST_BUFFER_PTS(gst_sample_get_buffer(sample.get()));
  EXPECT_EQ(last, 50 * GST_MSECOND);
}

// Its connection stays, for a flush may begin it anew.
TEST_F(LinkSides, WhoHasEnoughStopsNobody) {
  Pipeline producer("videotestsrc ! video/x-raw,width=64,height=48 ! gpumapsink name=sink " + socket());
  start(producer);
  for (const std::string has_enough :
       {"num-buffers=3 ! fakesink", "! identity eos-after=3 ! fakesink",
        "! tee name=t  t. ! identity eos-after=3 ! queue ! fakesink  t. ! queue ! fakesink num-buffers=5"}) {
    SCOPED_TRACE(has_enough);
    Pipeline enough("gpumapsrc " + socket() + " " + has_enough);
    EXPECT_EQ(enough.run(), "eos");
    const std::uint64_t before = stat(producer.element("sink"), "frames");
    EXPECT_TRUE(eventually([&] { return stat(producer.element("sink"), "frames") > before + 50; }));
  }
}

// As one that runs in a streaming thread, which cannot wait for its own end either.
TEST_F(LinkSides, AHandlerThatStopsThePipelineInTheThreadOfTheLinkIsRefused) {
  std::optional<Pipeline> producer(from_appsrc());
  start(*producer);
  push_frame(*producer, 0);
  Pipeline consumer(to_appsink("on-lost=error"));
  struct Refusals {
    GstElement* pipeline;
    std::atomic<int> told{0};  ///< in a warning
  } refusals{.pipeline = consumer.get()};
  const Ptr<GstBus> bus(gst_element_get_bus(consumer.get()));
  gst_bus_set_sync_handler(
      bus.get(),
      [](GstBus*, GstMessage* message, gpointer user) {
        auto& refused = *static_cast<Refusals*>(user);
        if (GST_MESSAGE_TYPE(message) == GST_MESSAGE_WARNING) ++refused.told;
        if (GST_MESSAGE_TYPE(message) != GST_MESSAGE_ERROR) return GST_BUS_PASS;
        EXPECT_EQ(gst_element_set_state(refused.pipeline, GST_STATE_NULL), GST_STATE_CHANGE_FAILURE);
        return GST_BUS_PASS;
      },
      &refusals, nullptr);
  start(consumer);
  ASSERT_TRUE(eventually([&] { return clients(*producer) == 1; }));
  producer.reset();
  EXPECT_THAT(consumer.wait(), HasSubstr("went without EOS"));
  EXPECT_EQ(refusals.told, 1);
  consumer.stop();
}

// Frames of the next ring, which it never comes to, wait at its side when it has enough.
TEST_F(LinkSides, WhoHasEnoughOfOneRingStopsNobodyInTheNext) {
  Pipeline producer(from_appsrc("slots=8"));
  start(producer);
  push_frame(producer, 0);
  Pipeline enough("gpumapsrc num-buffers=2 " + socket() + " ! fakesink sync=false");
  ASSERT_EQ(enough.set_state(GST_STATE_PAUSED), GST_STATE_CHANGE_ASYNC);
  ASSERT_TRUE(eventually([&] { return clients(producer) == 1; }));
  for (std::uint64_t n = 1; n < 4; ++n) push_frame(producer, n);
  for (std::uint64_t n = 4; n < 60; ++n) push_frame(producer, n, 50 * frame_size);
  ASSERT_TRUE(eventually([&] {
    const auto sight = observe_links(std::span(&path, 1), Clock::now() + 1s).at(0);
    return sight.report && sight.report->busy == sight.report->slots && clients(producer) == 1;
  }));
  EXPECT_EQ(enough.run(), "eos");
  EXPECT_TRUE(eventually([&] { return stat(producer.element("sink"), "frames") == 60; }))
      << stat(producer.element("sink"), "frames");
}

// A gpumapsrc that has given all its frames comes to no further ring.
TEST_F(LinkSides, WhoHasEnoughStopsNobodyHoweverManyRingsFollow) {
  Pipeline producer(from_appsrc("slots=4 wait-for-connection=true"));
  start(producer);
  push_frame(producer, 0);
  Pipeline enough("gpumapsrc num-buffers=1 " + socket() + " ! fakesink sync=false");
  EXPECT_EQ(enough.run(), "eos");
  constexpr std::uint64_t rings = 9, frames = 6;
  for (std::uint64_t n = 0; n < rings * frames; ++n) push_frame(producer, n, (n / frames + 2) * frame_size);
  EXPECT_TRUE(eventually([&] { return stat(producer.element("sink"), "frames") == rings * frames + 1; }))
      << stat(producer.element("sink"), "frames");
  EXPECT_EQ(clients(producer), 1U);
}

// The other one says when the producer's end is known.
TEST_F(LinkSides, WhoHasEnoughLosesNothingWithTheProducer) {
  auto producer = std::make_unique<Pipeline>("videotestsrc ! video/x-raw,width=64,height=48 ! gpumapsink " + socket());
  start(*producer);
  Pipeline enough("gpumapsrc on-lost=error " + socket() + " ! identity eos-after=3 ! fakesink");
  Pipeline other("gpumapsrc on-lost=error " + socket() + " ! fakesink");
  start(other);
  EXPECT_EQ(enough.run(), "eos");
  ASSERT_TRUE(other.reach(GST_STATE_PLAYING)) << other.error();
  producer.reset();
  EXPECT_NE(other.wait().find("went without EOS"), std::string::npos);
  EXPECT_EQ(enough.wait(500ms), "timeout");
}

// Nobody upstream of it hears what it has, and so sends its EOS.
TEST_F(LinkSides, WhoHasEnoughOfOneStreamTakesTheNext) {
  Pipeline producer(from_appsrc());
  start(producer);
  push_frame(producer, 0);
  Watch watch;
  Pipeline consumer("gpumapsrc " + socket() + " ! identity name=one eos-after=2 ! fakesink name=out sync=false");
  watch.on(consumer.element("one"));
  start(consumer);
  ASSERT_TRUE(eventually([&] { return clients(producer) == 1; }));
  push_frame(producer, 1);
  push_frame(producer, 2);
  ASSERT_TRUE(eventually([&] { return watch.events(GST_EVENT_EOS) == 1; })) << watch.order();
  ASSERT_TRUE(eventually([&] { return stat(producer.element("sink"), "frames") == 3; }))
      << "one would follow the flush";
  const Pad pad(gst_element_get_static_pad(producer.element("in"), "src"));
  g_object_set(consumer.element("one"), "eos-after", -1, nullptr);
  gst_pad_push_event(pad.get(), gst_event_new_flush_start());
  gst_pad_push_event(pad.get(), gst_event_new_flush_stop(TRUE));
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  gst_pad_push_event(pad.get(), gst_event_new_segment(&segment));
  const std::size_t before = watch.count();
  push_frame(producer, 3);
  EXPECT_TRUE(eventually([&] { return watch.count() == before + 1; })) << watch.order();
  push_eos(producer);
  EXPECT_TRUE(eventually([&] { return watch.events(GST_EVENT_EOS) == 2; })) << watch.order();
}

// Whether its producer waits or drops frames. What it holds when it is cut off is not to be read any more.
TEST_F(LinkSides, WhoTakesNothingIsCutOffAtTheLimit) {
  for (const char* const leaky : {"no", "newest"}) {
    SCOPED_TRACE(leaky);
    Pipeline producer(from_appsrc("slots=4 stall-limit=300 leaky=" + std::string(leaky)));
    start(producer);
    push_frame(producer, 0);
    Pipeline consumer(to_appsink("on-lost=eos") + " max-buffers=1");
    start(consumer);
    ASSERT_TRUE(eventually([&] { return clients(producer) == 1; }));
    push_frame(producer, 1);
    const Sample held = pull(consumer.appsink());
    ASSERT_TRUE(held);
    std::uint64_t pushed = 2;
    EXPECT_TRUE(eventually([&] {
      push_frame(producer, pushed++);
      return clients(producer) == 0;
    }));
    const std::uint64_t before = stat(producer.element("sink"), "frames");
    EXPECT_TRUE(eventually([&] {
      push_frame(producer, pushed++);
      return stat(producer.element("sink"), "frames") > before + 20;
    })) << "the producer stands";
    GstMapInfo map;
    EXPECT_FALSE(gst_buffer_map(gst_sample_get_buffer(held.get()), &map, GST_MAP_READ));
    for (const char* const reader : {"gpumapkernel kernel=checksum", "gpumapdownload"}) {
      Pipeline late(std::string("appsrc name=in format=time caps=application/octet-stream(memory:GPUMap) ! ") + reader +
                    " ! appsink name=out sync=false");
      start(late);
      EXPECT_TRUE(push(late.appsrc(), Buffer(gst_buffer_ref(gst_sample_get_buffer(held.get())))));
      push_eos(late);
      EXPECT_EQ(late.wait(), "eos") << reader;
      EXPECT_THAT(late.results(), ::testing::IsEmpty());
      EXPECT_FALSE(pull(late.appsink())) << reader;
      EXPECT_THAT(late.warnings(), ::testing::ElementsAre(HasSubstr("its producer has taken back"))) << reader;
    }
    while (const Sample sample = pull(consumer.appsink())) {
      EXPECT_FALSE(gst_buffer_map(gst_sample_get_buffer(sample.get()), &map, GST_MAP_READ));
    }
    EXPECT_EQ(consumer.wait(), "eos");
  }
}

// They are written in the thread that flushes, in which nobody catches what is thrown.
TEST_F(LinkSides, CapsThatCannotCrossAreAnErrorBehindAFlushToo) {
  Pipeline producer(from_appsrc());
  start(producer);
  push_frame(producer, 0);
  const auto client = LinkConsumer::connect(client_options());  // which reads nothing
  ASSERT_TRUE(eventually([&] { return clients(producer) == 1; }));
  const Pad pad(gst_element_get_static_pad(producer.element("sink"), "sink"));
  const auto flush = [&] {
    gst_pad_send_event(pad.get(), gst_event_new_flush_start());
    gst_pad_send_event(pad.get(), gst_event_new_flush_stop(FALSE));
  };
  for (int n = 0; n < 3000; ++n) {
    gst_pad_send_event(pad.get(), gst_event_new_custom(GST_EVENT_CUSTOM_DOWNSTREAM, gst_structure_new_empty("much")));
  }
  g_usleep(200'000);
  flush();
  const Caps caps(gst_caps_new_simple("application/octet-stream", "mine", G_TYPE_POINTER, &producer, nullptr));
  EXPECT_TRUE(gst_pad_send_event(pad.get(), gst_event_new_caps(caps.get())));
  g_usleep(200'000);
  flush();
  EXPECT_THAT(producer.wait(), testing::HasSubstr("caps that cannot be written"));
}

TEST_F(LinkSides, WhoIsCutOffAndConnectsAgainSaysSo) {
  Pipeline producer(from_appsrc("slots=4 stall-limit=300"));
  start(producer);
  push_frame(producer, 0);
  Pipeline consumer(to_appsink() + " max-buffers=1");
  start(consumer);
  std::uint64_t pushed = 1;
  EXPECT_TRUE(eventually([&] {
    push_frame(producer, pushed++);
    (void)consumer.wait(0ms);
    return !consumer.warnings().empty();
  }));
  ASSERT_FALSE(consumer.warnings().empty());
  EXPECT_THAT(consumer.warnings()[0], testing::AllOf(HasSubstr(path + " is lost"), HasSubstr("it kept frame")));
}

// A producer that waits for a slot then is not waiting for the client.
TEST_F(LinkSides, APausedProducerCutsNobodyOff) {
  const std::string problem = best_of_longer_limits([this](Time limit) -> std::string {
    Pipeline producer("videotestsrc ! video/x-raw,format=GRAY8,width=34,height=15 ! gpumapsink name=sink slots=4 " +
                      socket() + " stall-limit=" + std::to_string(limit.count()));
    GstElement* const sink = producer.element("sink");
    start(producer);
    Pipeline consumer(to_appsink("is-live=true on-lost=eos"));
    if (!consumer.reach(GST_STATE_PAUSED)) return "no consumer: " + consumer.error();
    if (!eventually([&] { return clients(producer) == 1; })) return "not connected";
    const auto stands = [&] {
      const std::uint64_t before = stat(sink, "frames");
      g_usleep(100'000);
      return stat(sink, "frames") == before;
    };
    if (!eventually(stands)) return "the producer does not wait";
    if (!producer.reach(GST_STATE_PAUSED)) return "not paused: " + producer.error();
    g_usleep(static_cast<gulong>(std::chrono::microseconds(limit * 4 / 3).count()));
    if (clients(producer) != 1) return "cut off";
    const auto resumed = std::chrono::steady_clock::now();
    start(producer);
    if (!eventually([&] { return clients(producer) == 0; })) return "it waits for ever";
    return std::chrono::steady_clock::now() - resumed >= limit ? "" : "the pause counted";
  });
  EXPECT_EQ(problem, "");
}

// A client's name has room for 50 bytes of it, of which these characters take two.
TEST_F(LinkSides, ALongNameIsCutBetweenCharacters) {
  Pipeline producer(from_appsrc());
  std::string name;
  std::mutex mutex;
  auto told = std::pair(&name, &mutex);
  g_signal_connect(producer.element("sink"), "client-connected",
                   G_CALLBACK(+[](GstElement*, guint, gint, const gchar* text, decltype(told)* to) {
                     const std::lock_guard lock(*to->second);
                     *to->first = text;
                   }),
                   &told);
  start(producer);
  push_frame(producer, 0);
  std::string many = "x";
  for (int n = 0; n < 40; ++n) many += "ä";
  Pipeline consumer("gpumapsrc name=\"" + many + "\" " + socket() + " ! fakesink");
  start(consumer);
  EXPECT_TRUE(eventually([&] {
    const std::lock_guard lock(mutex);
    return name == many.substr(0, 49) + "...";
  })) << consumer.error();
}

TEST_F(LinkSides, ANameThatCannotBePrintedIsWrittenSo) {
  std::string told;
  Pipeline producer(from_appsrc());
  const auto connected = [](GstElement*, guint, gint, const char* name, gpointer own) {
    *static_cast<std::string*>(own) = name;
  };
  g_signal_connect(producer.element("sink"), "client-connected",
                   G_CALLBACK(static_cast<void (*)(GstElement*, guint, gint, const char*, gpointer)>(connected)),
                   &told);
  start(producer);
  push_frame(producer, 0);
  Pipeline consumer("gpumapsrc name=\"cam\x1b[2J\" " + socket() + " ! fakesink");
  start(consumer);
  ASSERT_TRUE(eventually([&] { return clients(producer) == 1; }));
  EXPECT_EQ(consumer.error(), "");
  producer.stop();
  EXPECT_EQ(told, "cam\\x1b[2J");
}

// Caps of a format with a table, or with the whole header of a stream.
TEST_F(LinkSides, CapsOfAnyLengthCrossOrAreAnError) {
  const std::string header = std::string(200'000, 'x') + "E:\\100photos";
  const Caps caps(gst_caps_new_simple("application/x-mine", "header", G_TYPE_STRING, header.c_str(), nullptr));
  Pipeline producer(from_appsrc("wait-for-connection=true"));
  gst_app_src_set_caps(producer.appsrc(), caps.get());
  start(producer);
  Pipeline consumer(to_appsink());
  start(consumer);
  push_frame(producer, 0);
  const Sample sample = pull(consumer.appsink());
  ASSERT_TRUE(sample && gst_sample_get_caps(sample.get()) != nullptr);
  EXPECT_TRUE(gst_caps_is_equal(gst_sample_get_caps(sample.get()), caps.get()));
  producer.stop();

  const Caps longer(gst_caps_new_simple("application/x-mine", "header", G_TYPE_STRING,
                                        std::string(max_link_message, 'x').c_str(), nullptr));
  Pipeline other(from_appsrc());
  gst_app_src_set_caps(other.appsrc(), longer.get());
  start(other);
  push_frame(other, 0);
  EXPECT_THAT(other.wait(), HasSubstr("caps that cannot be written"));
}

// Gaps, tags and the application's own events come without frames, too, and have no end. The producer waits for a
// client that may miss nothing.
TEST_F(LinkSides, EventsForAClientThatStandsAreHeldBack) {
  constexpr int events = 6000;
  constexpr std::uint64_t frames = 7;
  struct Seen {
    std::atomic<int> events{0};
    std::atomic<bool> in_order{true}, open{false};
  } seen;
  Pipeline producer(from_appsrc());
  start(producer);
  push_frame(producer, 0);
  Pipeline consumer("gpumapsrc name=src " + socket() + " ! fakesink name=out sync=false");
  const Pad out(gst_element_get_static_pad(consumer.element("out"), "sink"));
  gst_pad_add_probe(
      out.get(), static_cast<GstPadProbeType>(GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM | GST_PAD_PROBE_TYPE_BUFFER),
      [](GstPad*, GstPadProbeInfo* info, gpointer own) {
        auto& all = *static_cast<Seen*>(own);
        if ((GST_PAD_PROBE_INFO_TYPE(info) & GST_PAD_PROBE_TYPE_BUFFER) != 0) {
          EXPECT_TRUE(eventually([&] { return all.open.load(); }));
          return GST_PAD_PROBE_OK;
        }
        GstEvent* event = GST_PAD_PROBE_INFO_EVENT(info);
        if (GST_EVENT_TYPE(event) != GST_EVENT_CUSTOM_DOWNSTREAM) return GST_PAD_PROBE_OK;
        gint number = -1;
        gst_structure_get_int(gst_event_get_structure(event), "n", &number);
        if (number != all.events++) all.in_order = false;
        return GST_PAD_PROBE_OK;
      },
      &seen, nullptr);
  start(consumer);
  ASSERT_TRUE(eventually([&] { return clients(producer) == 1; }));
  for (std::uint64_t n = 1; n < frames; ++n) push_frame(producer, n);
  ASSERT_TRUE(eventually([&] { return stat(producer.element("sink"), "frames") == frames; }));
  const Pad in(gst_element_get_static_pad(producer.element("in"), "src"));
  std::atomic<int> sent{0};
  std::thread sender([&] {
    for (; sent < events; ++sent) {
      gst_pad_push_event(in.get(),
                         gst_event_new_custom(GST_EVENT_CUSTOM_DOWNSTREAM,
                                              gst_structure_new("mine", "n", G_TYPE_INT, sent.load(), nullptr)));
    }
  });
  // Either the producer has to wait, or all are on their way: the client stays.
  int before = -1;
  EXPECT_TRUE(eventually(
      [&] {
        g_usleep(1'000'000);
        return std::exchange(before, sent.load()) == sent && sent > 0;
      },
      20s));
  EXPECT_EQ(clients(producer), 1U) << sent;
  seen.open = true;
  EXPECT_TRUE(eventually([&] { return seen.events == events; })) << seen.events << " of " << sent;
  EXPECT_TRUE(seen.in_order);
  EXPECT_EQ(clients(producer), 1U);
  sender.join();
}

TEST_F(LinkSides, AnApplicationsEventsArriveOnce) {
  Watch watch;
  Pipeline producer(from_appsrc());
  start(producer);
  push_frame(producer, 0);
  Pipeline consumer("gpumapsrc name=src " + socket() + " ! fakesink name=out sync=false");
  watch.on(consumer.element("out"));
  start(consumer);
  ASSERT_TRUE(eventually([&] { return clients(producer) == 1; }));
  constexpr GstEventType types[] = {GST_EVENT_CUSTOM_DOWNSTREAM, GST_EVENT_CUSTOM_DOWNSTREAM_STICKY,
                                    GST_EVENT_CUSTOM_DOWNSTREAM_OOB, GST_EVENT_CUSTOM_BOTH, GST_EVENT_CUSTOM_BOTH_OOB};
  const Pad in(gst_element_get_static_pad(producer.element("in"), "src"));
  for (const GstEventType type : types) {
    EXPECT_TRUE(gst_pad_push_event(in.get(), gst_event_new_custom(type, gst_structure_new_empty("mine"))));
  }
  push_frame(producer, 1);
  EXPECT_TRUE(eventually([&] { return watch.count() == 1; }));
  for (const GstEventType type : types) {
    EXPECT_TRUE(eventually([&] { return watch.events(type) == 1; })) << gst_event_type_get_name(type);
  }
}

/// How many of these a connection takes whose client reads nothing, until the producer waits for that one.
int messages_until_wait(const std::string& path, const std::function<GstEvent*()>& event) {
  OwnProducer producer(path);
  const auto client =
      LinkConsumer::connect({.path = path, .leak = LinkLeak::no, .patience = std::chrono::nanoseconds(patience)});
  int sent = 0;
  for (; producer.server->wait_until_read(Deadline{}); ++sent) {
    producer.server->send(text_of(Ptr<GstEvent>(event()).get()));
  }
  return sent;
}

// Its own thread waits there. The one that brings frames has a lock that changes of state take, however little is
// missing to a wait when a frame comes with a new time and a new layout ahead of it.
TEST_F(LinkSides, WhoBringsFramesWaitsForNoClientToRead) {
  const auto event = [] { return gst_event_new_custom(GST_EVENT_CUSTOM_DOWNSTREAM, gst_structure_new_empty("mine")); };
  constexpr int frames = 40;
  const int events = messages_until_wait(path + "-2", event) - 3 * frames / 2;
  const auto channel = Channel::open("socket " + path);
  for (const int more : {0, 1}) {
    Pipeline producer(from_appsrc("slots=64"));
    start(producer);
    push_frame(producer, 0);
    auto client =
        LinkConsumer::connect({.path = path, .leak = LinkLeak::no, .patience = std::chrono::nanoseconds(patience)});
    const Pad in(gst_element_get_static_pad(producer.element("in"), "src"));
    for (int n = 0; n < events + more; ++n) EXPECT_TRUE(gst_pad_push_event(in.get(), event()));
    ASSERT_TRUE(eventually([&] { return !channel->has_waiting(); }));
    GstElement* sink = producer.element("sink");
    for (int n = 1; n <= frames && !HasFailure(); ++n) {
      Buffer buffer = new_buffer(random_data(frame_size, n), n * GST_MSECOND);
      gst_buffer_add_video_meta(buffer.get(), GST_VIDEO_FRAME_FLAG_NONE, GST_VIDEO_FORMAT_GRAY8, 4 * (1 + n % 2), 4);
      gst_element_set_base_time(sink, gst_element_get_base_time(sink) + GST_SECOND);
      EXPECT_TRUE(push(producer.appsrc(), std::move(buffer)));
      // The thread counts a frame before it is shown.
      EXPECT_TRUE(eventually([&] { return stat(sink, "frames") == static_cast<std::uint64_t>(n) + 1; })) << n;
    }
    EXPECT_TRUE(eventually([&] { return channel->has_waiting(); })) << "the client reads nothing";
    client.reset();
    EXPECT_LT(producer.stop(), at_once);
  }
}

// However much waits for it, here and at the producer.
TEST_F(LinkSides, AFlushReachesAClientThatStands) {
  Watch watch;
  Pipeline producer(from_appsrc());
  start(producer);
  push_frame(producer, 0);
  ASSERT_TRUE(handed_on(1));
  Pipeline consumer("gpumapsrc name=src is-live=true " + socket() + " ! fakesink name=out sync=false");
  watch.on(consumer.element("out"));
  ASSERT_TRUE(consumer.reach(GST_STATE_PAUSED));
  ASSERT_TRUE(eventually([&] { return clients(producer) == 1; }));
  const Pad in(gst_element_get_static_pad(producer.element("in"), "src"));
  std::atomic<int> sent{0};
  std::thread sender([&] {
    constexpr int events = 20'000;
    for (; sent < events; ++sent) {
      gst_pad_push_event(in.get(), gst_event_new_custom(GST_EVENT_CUSTOM_DOWNSTREAM, gst_structure_new_empty("mine")));
    }
  });
  int before = -1;
  EXPECT_TRUE(eventually([&] {
    g_usleep(500'000);
    return std::exchange(before, sent.load()) == sent && sent > 0;
  }));
  gst_pad_push_event(in.get(), gst_event_new_flush_start());
  EXPECT_TRUE(eventually([&] { return watch.events(GST_EVENT_FLUSH_START) == 1; }));
  sender.join();
  gst_pad_push_event(in.get(), gst_event_new_flush_stop(TRUE));
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  gst_pad_push_event(in.get(), gst_event_new_segment(&segment));
  EXPECT_TRUE(eventually([&] { return watch.events(GST_EVENT_FLUSH_STOP) == 1; }));
  EXPECT_EQ(gst_pad_push(in.get(), new_buffer(random_data(frame_size, 7), 7 * GST_MSECOND).release()), GST_FLOW_OK);
  start(consumer);
  EXPECT_TRUE(eventually([&] { return watch.count() == 1; }));
  EXPECT_EQ(watch.times(), std::vector<GstClockTime>{7 * GST_MSECOND});
  EXPECT_EQ(watch.events(GST_EVENT_CUSTOM_DOWNSTREAM), 0U);
  EXPECT_EQ(clients(producer), 1U);
}

TEST_F(LinkSides, ATimeoutNamesTheSocket) {
  Pipeline consumer("gpumapsrc timeout=100 " + socket() + " ! fakesink");
  EXPECT_THAT(consumer.run(), HasSubstr("socket-path " + path));
}

// An upstream that asks for buffers looks for a slot twice.
TEST_F(LinkSides, AnObserverIsToldOfEachDroppedFrameOnce) {
  constexpr std::uint64_t frames = 50;
  Pipeline producer("videotestsrc num-buffers=" + std::to_string(frames) +
                    " ! video/x-raw,format=GRAY8,width=34,height=15 ! gpumapsink name=sink slots=4 leaky=newest "
                    "wait-for-connection=true " +
                    socket());
  start(producer);
  GstElement* const sink = producer.element("sink");
  EXPECT_TRUE(eventually([&] { return stat(sink, "frames") + stat(sink, "drops") == frames; }));
  EXPECT_GT(stat(sink, "drops"), 0U);
  EXPECT_TRUE(eventually([&] {
    const auto sight = observe_links(std::span(&path, 1), Clock::now() + 1s).at(0);
    return sight.report && sight.report->dropped == stat(sink, "drops");
  }));
}

TEST_F(LinkSides, AnObserverSeesTheElementsAndIsNobodyToThem) {
  Pipeline producer(from_appsrc("slots=8 stamps=true"));
  std::atomic<int> connected{0};  // by the link's thread
  g_signal_connect(producer.element("sink"), "client-connected",
                   G_CALLBACK(+[](GstElement*, guint, gint, const gchar*, std::atomic<int>* count) { ++*count; }),
                   &connected);
  start(producer);
  push_frame(producer, 0);
  const auto look = [&] { return observe_links(std::span(&path, 1), Clock::now() + 1s).at(0); };
  ASSERT_TRUE(handed_on(1)) << "else a client is shown that frame, too";
  EXPECT_THAT(find_links(), ::testing::Contains(path));
  EXPECT_EQ(clients(producer), 0U);
  Pipeline quick(to_appsink());
  start(quick);
  ASSERT_TRUE(eventually([&] { return clients(producer) == 1; }));
  Pipeline slow("gpumapsrc name=idle leaky=newest " + socket() + " ! appsink name=out sync=false max-buffers=1");
  start(slow);
  ASSERT_TRUE(eventually([&] { return clients(producer) == 2; }));
  constexpr std::uint64_t frames = 30;
  for (std::uint64_t n = 1; n <= frames; ++n) {
    push_frame(producer, n);
    ASSERT_TRUE(pull(quick.appsink())) << n;
    EXPECT_TRUE(n % 10 != 0 || eventually([&] { return look().report.has_value(); }));
  }
  LinkReport report;
  EXPECT_TRUE(eventually([&] {
    report = look().report.value_or(LinkReport{});
    return report.frames == frames + 1 && report.clients.size() == 2 && report.clients[0].timed > 0;
  }));
  EXPECT_EQ(report.pid, getpid());
  EXPECT_EQ(report.program, g_get_prgname());
  EXPECT_EQ(report.transport, Transport::bar);
  EXPECT_GE(report.slots, 8U);
  EXPECT_EQ(report.bytes, (frames + 1) * frame_size);
  EXPECT_TRUE(report.stamps);
  ASSERT_EQ(report.clients.size(), 2U);
  EXPECT_EQ(report.clients[0].who.name, "src");
  EXPECT_EQ(report.clients[0].who.leak, LinkLeak::no);
  EXPECT_EQ(report.clients[0].who.shown, frames);
  EXPECT_EQ(report.clients[0].who.dropped, 0U);
  EXPECT_GT(report.clients[0].timed_ns, 0);
  EXPECT_EQ(report.clients[1].who.name, "idle");
  EXPECT_EQ(report.clients[1].who.leak, LinkLeak::newest);
  EXPECT_GT(report.clients[1].who.dropped, 0U);
  EXPECT_EQ(report.clients[1].who.shown + report.clients[1].who.dropped, frames);
  EXPECT_GT(report.clients[1].lag, 0U);
  EXPECT_TRUE(eventually([&] { return connected >= 2; }));
  EXPECT_EQ(connected, 2);
  EXPECT_EQ(clients(producer), 2U);
}

}  // namespace
}  // namespace gpumap::gst::test
