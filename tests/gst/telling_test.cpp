// SPDX-License-Identifier: MIT
// What the elements say while nothing has failed yet: whom they wait for and who is there, who keeps them waiting, what
// was dropped, what has no effect; and what a message says beside its text.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "link_sides.hpp"

namespace gpumap::gst::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

constexpr const char* source = "videotestsrc ! video/x-raw,format=NV12,width=63,height=47 ! ";

using Message = Ptr<GstMessage>;

/// Messages of these types, in order, up to EOS, an error, or the `wanted`th of them.
std::vector<Message> messages_of(const Pipeline& pipeline, int types, std::size_t wanted) {
  const Ptr<GstBus> bus(gst_element_get_bus(pipeline.get()));
  std::vector<Message> found;
  const auto end = std::chrono::steady_clock::now() + patience;
  while (found.size() < wanted && std::chrono::steady_clock::now() < end) {
    Message message(gst_bus_timed_pop_filtered(
        bus.get(), 100 * GST_MSECOND, static_cast<GstMessageType>(types | GST_MESSAGE_EOS | GST_MESSAGE_ERROR)));
    if (!message) continue;
    const bool last = (GST_MESSAGE_TYPE(message.get()) & (GST_MESSAGE_EOS | GST_MESSAGE_ERROR)) != 0;
    if ((GST_MESSAGE_TYPE(message.get()) & types) != 0) found.push_back(std::move(message));
    if (last) break;
  }
  return found;
}

struct Told {
  std::string by, text, debug;
  GQuark domain = 0;
  gint code = 0;
  std::string details;  ///< of a warning; as text
};
Told parse(GstMessage* message) {
  GError* error = nullptr;
  gchar* debug = nullptr;
  switch (GST_MESSAGE_TYPE(message)) {
    case GST_MESSAGE_ERROR:
      gst_message_parse_error(message, &error, &debug);
      break;
    case GST_MESSAGE_WARNING:
      gst_message_parse_warning(message, &error, &debug);
      break;
    default:
      gst_message_parse_info(message, &error, &debug);
  }
  const Ptr<GError> owned(error);
  const Ptr<gchar> text(debug);
  const GstStructure* details = nullptr;
  if (GST_MESSAGE_TYPE(message) == GST_MESSAGE_WARNING) gst_message_parse_warning_details(message, &details);
  const Ptr<gchar> fields(details != nullptr ? gst_structure_to_string(details) : nullptr);
  return {GST_MESSAGE_SRC_NAME(message), error->message, debug != nullptr ? debug : "", error->domain, error->code,
          fields ? fields.get() : ""};
}

std::vector<Told> warnings_of(const Pipeline& pipeline, std::size_t wanted) {
  std::vector<Told> told;
  for (const Message& message : messages_of(pipeline, GST_MESSAGE_WARNING, wanted))
    told.push_back(parse(message.get()));
  std::ranges::sort(told, {}, &Told::by);
  return told;
}

/// The first error of a pipeline.
std::pair<Told, Message> error_of(const std::string& line) {
  Pipeline pipeline(on_new_channel(line));
  pipeline.set_state(GST_STATE_PLAYING);
  auto found = messages_of(pipeline, GST_MESSAGE_ERROR, 1);
  EXPECT_EQ(found.size(), 1U) << line;
  if (found.empty()) return {};
  return {parse(found[0].get()), std::move(found[0])};
}

// Neither side ever plays: both say so, with the other's name, and an application that ends it all gets its end.
TEST(Telling, TwoChannelsInOnePipeline) {
  const std::string one = new_channel();
  const std::string other = new_channel();
  Pipeline pipeline(std::string(source) + "gpumapsink name=a-sink channel=" + one +
                    " gpumapsrc name=b-src channel=" + other + " ! fakesink");
  ASSERT_EQ(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_ASYNC);
  const auto told = warnings_of(pipeline, 2);
  ASSERT_EQ(told.size(), 2U);
  EXPECT_EQ(told[0].by, "a-sink");
  EXPECT_THAT(told[0].text, AllOf(HasSubstr("no gpumapsrc is there to take a frame from channel \"" + one + '"'),
                                  HasSubstr("gpumapsrc channel=\"" + other + '"'), HasSubstr("same channel")));
  EXPECT_EQ(told[1].by, "b-src");
  EXPECT_THAT(told[1].text, AllOf(HasSubstr("no gpumapsink has channel \"" + other + '"'),
                                  HasSubstr("gpumapsink channel=\"" + one + '"'), HasSubstr("same channel")));
  for (const Told& warning : told) EXPECT_EQ(warning.code, GST_RESOURCE_ERROR_NOT_FOUND);
  EXPECT_THAT(told[0].details, AllOf(HasSubstr("channel=(string)" + one), HasSubstr("slots=(guint64)8"),
                                     HasSubstr("code=(string)not_found"), HasSubstr("remedy=(string)")));
  EXPECT_THAT(told[1].details, HasSubstr("channel=(string)" + other));
  ASSERT_TRUE(gst_element_send_event(pipeline.get(), gst_event_new_eos()));
  EXPECT_EQ(pipeline.wait(), "eos");
  EXPECT_LT(pipeline.stop(), at_once);
}

// What follows a gpumapsrc starts before it, and may take long, as a kernel that is compiled.
TEST(Telling, OfAGpumapsrcThatIsOnItsWayNothing) {
  const std::string channel = "channel=" + new_channel();
  Pipeline consumer("gpumapsrc " + channel + " ! queue name=slow ! fakesink async=false");
  struct Start {
    GstElement* slow;
    std::atomic<bool> waits{false}, goes_on{false};
  } slow{.slow = consumer.element("slow")};
  const Ptr<GstBus> bus(gst_element_get_bus(consumer.get()));
  gst_bus_set_sync_handler(
      bus.get(),
      [](GstBus*, GstMessage* message, gpointer user) {
        auto& start = *static_cast<Start*>(user);
        GstState now{};
        if (GST_MESSAGE_SRC(message) != GST_OBJECT(start.slow)) return GST_BUS_PASS;
        if (GST_MESSAGE_TYPE(message) != GST_MESSAGE_STATE_CHANGED) return GST_BUS_PASS;
        gst_message_parse_state_changed(message, nullptr, &now, nullptr);
        if (now != GST_STATE_PAUSED || start.waits.exchange(true)) return GST_BUS_PASS;
        EXPECT_TRUE(eventually([&] { return start.goes_on.load(); }));
        return GST_BUS_PASS;
      },
      &slow, nullptr);
  std::thread starts([&] { EXPECT_NE(consumer.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE); });
  EXPECT_TRUE(eventually([&] { return slow.waits.load(); }));
  Pipeline producer(std::string(source) + "gpumapsink " + channel);
  ASSERT_NE(producer.set_state(GST_STATE_PAUSED), GST_STATE_CHANGE_FAILURE);
  const Ptr<GstBus> told(gst_element_get_bus(producer.get()));
  constexpr GstClockTime longer_than_it_waits = 4 * GST_SECOND;
  const Message warning(gst_bus_timed_pop_filtered(told.get(), longer_than_it_waits, GST_MESSAGE_WARNING));
  EXPECT_FALSE(warning) << parse(warning.get()).text;
  slow.goes_on = true;
  starts.join();
  gst_bus_set_sync_handler(bus.get(), nullptr, nullptr, nullptr);
}

// The source's thread waits for a slot, and the source for its thread before it takes EOS.
TEST(Telling, ASinkAloneEndsWithItsPipeline) {
  const std::string copied = "filesrc location=/dev/zero blocksize=1001 ! ";
  for (const std::string& upstream : {std::string(source), copied, copied + "queue ! "}) {
    SCOPED_TRACE(upstream);
    Pipeline pipeline(on_new_channel(upstream + "gpumapsink $CHANNEL"));
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    ASSERT_EQ(warnings_of(pipeline, 1).size(), 1U);
    ASSERT_TRUE(gst_element_send_event(pipeline.get(), gst_event_new_eos()));
    EXPECT_EQ(pipeline.wait(), "eos");
    EXPECT_LT(pipeline.stop(), at_once);
  }
}

// A wait is none for EOS where nobody sends one.
TEST(Telling, ASinkAloneKeepsItsFrames) {
  const std::string channel = "channel=" + new_channel();
  Pipeline pipeline("filesrc location=/dev/zero num-buffers=30 blocksize=1001 ! gpumapsink slots=4 " + channel);
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_EQ(warnings_of(pipeline, 1).size(), 1U);
  EXPECT_EQ(pipeline.wait(1s), "timeout");
  Pipeline consumer("gpumapsrc name=src " + channel + " ! fakesink");
  EXPECT_EQ(consumer.run(), "eos");
  EXPECT_EQ(stat(consumer.element("src"), "frames"), 30U);
}

// A seek that waits for the source's thread ends that wait, as EOS does: what is dropped then is counted, and marked.
TEST(Telling, ASinkAloneSaysWhatItDropped) {
  const std::string channel = "channel=" + new_channel();
  Pipeline pipeline("videotestsrc ! video/x-raw,format=GRAY8,width=16,height=16 ! gpumapsink name=sink slots=4 " +
                    channel);
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_EQ(warnings_of(pipeline, 1).size(), 1U);
  ASSERT_TRUE(gst_element_seek(pipeline.get(), 1, GST_FORMAT_TIME, GST_SEEK_FLAG_NONE, GST_SEEK_TYPE_SET,
                               1000 * GST_SECOND, GST_SEEK_TYPE_NONE, -1));
  EXPECT_TRUE(eventually([&] { return stat(pipeline.element("sink"), "drops") > 10; }));
  Pipeline consumer("gpumapsrc " + channel + " ! appsink name=out sync=false max-buffers=2");
  ASSERT_NE(consumer.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  Sample sample = pull(consumer.appsink());
  while (sample && GST_BUFFER_PTS(gst_sample_get_buffer(sample.get())) < 1000 * GST_SECOND) {
    sample = pull(consumer.appsink());
  }
  ASSERT_TRUE(sample);
  EXPECT_GT(GST_BUFFER_PTS(gst_sample_get_buffer(sample.get())), 1000 * GST_SECOND);
  EXPECT_TRUE(GST_BUFFER_FLAG_IS_SET(gst_sample_get_buffer(sample.get()), GST_BUFFER_FLAG_DISCONT));
}

// The same sink serves its src after all, once that has come: its refusal was for the stream that was ended.
TEST(Telling, AnEndedSinkServesTheNextSrc) {
  const std::string one = new_channel();
  Pipeline pipeline(std::string(source) + "gpumapsink name=sink channel=" + one +
                    " gpumapsrc channel=" + new_channel() + " ! fakesink");
  ASSERT_EQ(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_ASYNC);
  ASSERT_TRUE(eventually([&] { return stat(pipeline.element("sink"), "frames") > 0; }));
  ASSERT_TRUE(gst_element_send_event(pipeline.get(), gst_event_new_eos()));
  ASSERT_EQ(pipeline.wait(), "eos");
  pipeline.stop();
  Pipeline consumer("gpumapsrc num-buffers=1 channel=" + one + " ! fakesink");
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  EXPECT_EQ(consumer.run(), "eos");
}

TEST(Telling, ASrcAloneInAnyState) {
  for (const GstState state : {GST_STATE_PAUSED, GST_STATE_PLAYING}) {
    Pipeline pipeline("gpumapsrc is-live=true channel=" + new_channel() + " ! fakesink");
    ASSERT_NE(pipeline.set_state(state), GST_STATE_CHANGE_FAILURE);
    const auto told = warnings_of(pipeline, 1);
    ASSERT_EQ(told.size(), 1U);
    EXPECT_THAT(told[0].text, HasSubstr("this process has no gpumapsink"));
  }
}

// Two elements that have met post no warning, though no frame comes.
TEST(Telling, TwoThatHaveMetSayNothing) {
  Pipeline pipeline(on_new_channel("appsrc ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! fakesink"));
  ASSERT_EQ(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_ASYNC);
  EXPECT_EQ(pipeline.wait(4s), "timeout");
  EXPECT_THAT(pipeline.warnings(), ElementsAre());
}

struct TellingLink : LinkSides {
  [[nodiscard]] Told first_warning(Pipeline& pipeline) const {
    start(pipeline);
    const auto told = warnings_of(pipeline, 1);
    EXPECT_EQ(told.size(), 1U);
    return told.empty() ? Told() : told.front();
  }
  /// A socket of somebody else's.
  [[nodiscard]] int listen_at_path(int type) const {
    const int fd = ::socket(AF_UNIX, type, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(fd, 5), 0);
    return fd;
  }
};

TEST_F(TellingLink, NobodyServes) {
  Pipeline consumer(to_appsink());
  EXPECT_THAT(first_warning(consumer).text,
              AllOf(HasSubstr("nobody serves " + path), HasSubstr("start a gpumapsink with this socket-path")));
  // It waits on, and says so again where the next one is missing.
  {
    Pipeline producer(from_appsrc("wait-for-connection=true"));
    start(producer);
    push_frame(producer, 3);
    ASSERT_TRUE(pull(consumer.appsink()));
  }
  const auto told = warnings_of(consumer, 1);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_THAT(told.front().text, HasSubstr("nobody serves " + path));
}

TEST_F(TellingLink, AServerThatDoesNotAnswer) {
  const int fd = listen_at_path(SOCK_SEQPACKET);
  Pipeline consumer(to_appsink());
  EXPECT_THAT(first_warning(consumer).text,
              AllOf(HasSubstr("the process that listens at " + path + " does not answer"), HasSubstr("gpumapsink")));
  close(fd);
}

TEST_F(TellingLink, AStrangersSocket) {
  const int fd = listen_at_path(SOCK_STREAM);
  Pipeline consumer(to_appsink());
  EXPECT_THAT(first_warning(consumer).text, AllOf(HasSubstr(path), HasSubstr("rotocol")));
  close(fd);
}

TEST_F(TellingLink, TheSeventeenthClient) {
  Pipeline producer(from_appsrc("wait-for-connection=true slots=64"));
  start(producer);
  push_frame(producer, 1);
  std::vector<std::unique_ptr<Pipeline>> here;
  for (unsigned i = 0; i < max_link_clients; ++i) {
    here.push_back(std::make_unique<Pipeline>("gpumapsrc leaky=oldest " + socket() + " ! fakesink"));
    start(*here.back());
  }
  ASSERT_TRUE(eventually([&] { return clients(producer) == max_link_clients; }));
  Pipeline waits(to_appsink());
  const Told told = first_warning(waits);
  EXPECT_THAT(told.text, AllOf(HasSubstr("waits for a place at socket-path " + path), HasSubstr("16")));
  EXPECT_EQ(told.code, GST_RESOURCE_ERROR_BUSY);
  EXPECT_THAT(told.details, HasSubstr("most-clients=(guint64)16"));
  Pipeline fails(to_appsink("on-lost=error"));
  start(fails);
  const auto errors = messages_of(fails, GST_MESSAGE_ERROR, 1);
  ASSERT_EQ(errors.size(), 1U);
  const Told error = parse(errors[0].get());
  EXPECT_THAT(error.text, AllOf(HasSubstr("no place at socket-path " + path), HasSubstr("16")));
  EXPECT_EQ(error.code, GST_RESOURCE_ERROR_BUSY);
}

TEST_F(TellingLink, AClientThatKeepsTheProducerWaiting) {
  Pipeline producer(from_appsrc("wait-for-connection=true slots=4"));
  start(producer);
  Pipeline consumer("gpumapsrc name=viewer " + socket() + " ! fakesink");
  consumer.set_state(GST_STATE_PAUSED);
  for (std::uint64_t n = 0; n < 12; ++n) push_frame(producer, n);
  const auto told = warnings_of(producer, 1);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_THAT(told[0].text, AllOf(HasSubstr("has waited 3 s for a slot"), HasSubstr("client \"viewer\""),
                                  HasSubstr(fmt::format("process {}, leaky=no", getpid())), HasSubstr("stall-limit")));
  EXPECT_EQ(told[0].code, GST_RESOURCE_ERROR_BUSY);
  EXPECT_THAT(told[0].details, AllOf(HasSubstr("slots=(guint64)4"), HasSubstr("waited-ms=(guint64)3000"),
                                     HasSubstr("stall-limit=(guint64)0"), HasSubstr(path)));
  // It says who, and not again and again.
  EXPECT_EQ(producer.wait(4s), "timeout");
  EXPECT_THAT(producer.warnings(), ElementsAre());
}

// Each frame is a drop, which is no wait.
TEST_F(TellingLink, AClientThatKeepsAllSlotsOfALeakyProducer) {
  for (const char* leaky : {"newest", "oldest"}) {
    SCOPED_TRACE(leaky);
    Pipeline producer(
        "videotestsrc is-live=true ! video/x-raw,width=63,height=47,framerate=50/1 ! gpumapsink name=sink "
        "slots=4 leaky=" +
        std::string(leaky) + " " + socket());
    start(producer);
    LinkConsumerOptions options = client_options();
    options.name = "viewer";
    const auto consumer = LinkConsumer::connect(Device::open(), options);
    std::vector<ReadLease> kept(4);
    for (ReadLease& lease : kept) {
      LinkFrame frame;
      while (consumer->next(lease, frame, Clock::now() + patience) == LinkNext::message) continue;
      ASSERT_TRUE(lease);
    }
    const auto told = warnings_of(producer, 1);
    ASSERT_EQ(told.size(), 1U);
    EXPECT_THAT(told[0].text,
                AllOf(HasSubstr("has dropped each frame for 3 s"), HasSubstr("client \"viewer\""),
                      HasSubstr(fmt::format("process {}, leaky=no", getpid())), HasSubstr("stall-limit")));
    EXPECT_EQ(told[0].code, GST_RESOURCE_ERROR_BUSY);
    EXPECT_EQ(producer.wait(1s), "timeout");
    EXPECT_THAT(producer.warnings(), ElementsAre());
  }
}

TEST_F(TellingLink, AProducerThatHoldsFramesBackForNobody) {
  Pipeline producer(from_appsrc("wait-for-connection=true slots=4"));
  start(producer);
  for (std::uint64_t n = 0; n < 12; ++n) push_frame(producer, n);
  const auto told = warnings_of(producer, 1);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_THAT(told[0].text, AllOf(HasSubstr("no client is connected"), HasSubstr("wait-for-connection")));
}

// Of all that leaky gave up, by the time at which it happened, with the counts.
TEST(Telling, DropsAreQualityOfService) {
  for (const char* leaky : {"newest", "oldest"}) {
    SCOPED_TRACE(leaky);
    Pipeline pipeline(on_new_channel(
        std::string("videotestsrc num-buffers=31 ! video/x-raw,format=NV12,width=63,height=47,framerate=25/1 ! "
                    "gpumapsink name=sink slots=4 $CHANNEL leaky=") +
        leaky));
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    const auto messages = messages_of(pipeline, GST_MESSAGE_QOS, 1000);
    ASSERT_EQ(messages.size(), 27U);
    guint64 number = 4;  // of the first frame that finds a full ring
    for (const Message& message : messages) {
      guint64 running = 0;
      guint64 timestamp = 0;
      gst_message_parse_qos(message.get(), nullptr, &running, nullptr, &timestamp, nullptr);
      EXPECT_EQ(timestamp, number * 40 * GST_MSECOND);
      EXPECT_EQ(running, timestamp);
      GstFormat format{};
      guint64 dropped = 0;
      gst_message_parse_qos_stats(message.get(), &format, nullptr, &dropped);
      EXPECT_EQ(format, GST_FORMAT_BUFFERS);
      EXPECT_EQ(dropped, number - 3);
      ++number;
    }
    EXPECT_EQ(stat(pipeline.element("sink"), "drops"), 27U);
  }
}

/// How often `stats` of an element was notified.
struct Notified {
  Notified(const Pipeline& pipeline, const char* name) {
    g_signal_connect(pipeline.element(name), "notify::stats",
                     G_CALLBACK(+[](GObject*, GParamSpec*, gpointer self) { ++static_cast<Notified*>(self)->times; }),
                     this);
  }
  std::atomic<int> times{0};
};

TEST(Telling, OneLineSaysWhatBecameOfTheFrames) {
  Pipeline pipeline(
      on_new_channel("videotestsrc num-buffers=13 ! video/x-raw,format=NV12,width=64,height=48 ! gpumapsink name=sink "
                     "$CHANNEL gpumapsrc name=src $CHANNEL ! gpumapkernel name=kernel kernel=checksum ! fakesink"));
  Notified sink(pipeline, "sink");
  Notified src(pipeline, "src");
  Notified kernel(pipeline, "kernel");
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  const auto messages = messages_of(pipeline, GST_MESSAGE_INFO, 2);
  ASSERT_EQ(messages.size(), 1U) << "and then EOS";
  const std::string line = "13 frames: 13 written in place, 0 copied, 0 dropped; transport " +
                           stat_text(pipeline.element("sink"), "transport");
  EXPECT_EQ(parse(messages[0].get()).text, line);
  EXPECT_EQ(parse(messages[0].get()).debug, "sink: " + line) << "all that gst-launch-1.0 prints";
  EXPECT_GE(sink.times, 1);
  EXPECT_GE(src.times, 1);
  EXPECT_GE(kernel.times, 1);
}

TEST(Telling, StatsOfBothWaysInOneThread) {
  Pipeline pipeline(
      "videotestsrc num-buffers=3 ! video/x-raw,format=NV12,width=64,height=48 ! gpumapupload name=upload ! "
      "gpumapkernel kernel=checksum ! gpumapdownload name=download ! fakesink");
  const Notified upload(pipeline, "upload");
  const Notified download(pipeline, "download");
  EXPECT_EQ(pipeline.run(), "eos");
  EXPECT_GE(upload.times, 1);
  EXPECT_GE(download.times, 1);
}

// What a timeout waited for, and where.
TEST(Telling, ATimeoutHasItsCodeAndItsFigures) {
  const auto [told, message] =
      error_of("appsrc ! gpumapsink async=false $CHANNEL gpumapsrc timeout=100 $CHANNEL ! fakesink async=false");
  ASSERT_TRUE(message);
  EXPECT_EQ(told.code, GST_RESOURCE_ERROR_OPEN_READ);
  const GstStructure* details = nullptr;
  gst_message_parse_error_details(message.get(), &details);
  guint64 limit = 0;
  EXPECT_TRUE(details != nullptr && gst_structure_get_uint64(details, "timeout-ms", &limit) != 0);
  EXPECT_EQ(limit, 100U);
}

TEST(Telling, WhyFramesWereCopied) {
  Pipeline pipeline(
      on_new_channel("filesrc location=/dev/zero num-buffers=7 blocksize=1001 ! gpumapsink $CHANNEL "
                     "gpumapsrc $CHANNEL ! fakesink"));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  const auto messages = messages_of(pipeline, GST_MESSAGE_INFO, 2);
  ASSERT_EQ(messages.size(), 1U);
  EXPECT_THAT(parse(messages[0].get()).text,
              HasSubstr("7 frames: 0 written in place, 7 copied (upstream brings memory of its own), 0 dropped"));
}

// Without EOS it comes with the stop, where an application looks.
TEST(Telling, WhatIsStoppedSaysItToo) {
  Pipeline pipeline(
      on_new_channel(std::string(source) + "gpumapsink name=sink $CHANNEL gpumapsrc $CHANNEL ! fakesink"));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(eventually([&] { return stat(pipeline.element("sink"), "frames") > 5; }));
  ASSERT_EQ(pipeline.set_state(GST_STATE_READY), GST_STATE_CHANGE_SUCCESS);
  const auto messages = messages_of(pipeline, GST_MESSAGE_INFO, 1);
  ASSERT_EQ(messages.size(), 1U);
  EXPECT_THAT(parse(messages[0].get()).text, HasSubstr("0 copied, 0 dropped"));
}

TEST(Telling, PropertiesWithoutEffect) {
  Pipeline pipeline(
      on_new_channel(std::string(source) +
                     "gpumapsink name=a stall-limit=100 socket-mode=0660 leaky=oldest $CHANNEL gpumapsrc name=b "
                     "leaky=oldest on-lost=eos $CHANNEL ! fakesink"));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  const auto told = warnings_of(pipeline, 2);
  ASSERT_EQ(told.size(), 2U);
  EXPECT_THAT(told[0].text, HasSubstr("socket-mode, stall-limit has no effect without socket-path"));
  EXPECT_THAT(told[1].text, HasSubstr("on-lost, leaky has no effect without socket-path"));
  EXPECT_EQ(told[0].code, GST_RESOURCE_ERROR_SETTINGS);
}

TEST_F(TellingLink, PropertiesThatHaveAnEffect) {
  Pipeline producer(from_appsrc("stall-limit=60000 socket-mode=0660"));
  Pipeline consumer(to_appsink("leaky=oldest on-lost=eos"));
  start(producer);
  start(consumer);
  push_frame(producer, 1);
  push_eos(producer);
  EXPECT_EQ(producer.wait(), "eos");
  EXPECT_THAT(producer.warnings(), ElementsAre());
}

// Before and behind the property that says which kernel it is.
TEST(Telling, AChildThatNoKernelHas) {
  const std::string file = testing::TempDir() + fmt::format("gpumap-telling-{}.comp", getpid());
  std::ofstream(file)
      << "#version 460\n// gpumap: params gain=1.5,taps=[1,2]\n#include <gpumap.glsl>\nvoid main() {}\n";
  for (const std::string& given : {"gian::value=2 location=" + file, "location=" + file + " gian::value=2"}) {
    Pipeline pipeline(on_new_channel(std::string(source) + "gpumapsink $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel " +
                                     given + " ! fakesink"));
    ASSERT_NE(pipeline.set_state(GST_STATE_PAUSED), GST_STATE_CHANGE_FAILURE);
    const auto told = warnings_of(pipeline, 1);
    ASSERT_EQ(told.size(), 1U) << given;
    EXPECT_THAT(told[0].text, AllOf(HasSubstr("gian::value has no effect"), HasSubstr("gain, taps"))) << given;
  }
  // One that it has, in either place, is no reason to say anything.
  for (const std::string& given : {"gain::value=2 location=" + file, "location=" + file + " gain::value=2"}) {
    Pipeline pipeline(
        on_new_channel("videotestsrc num-buffers=2 ! video/x-raw,format=NV12 ! gpumapsink $CHANNEL "
                       "gpumapsrc $CHANNEL ! gpumapkernel " +
                       given + " ! fakesink"));
    EXPECT_EQ(pipeline.run(), "eos") << given;
    EXPECT_THAT(pipeline.warnings(), ElementsAre()) << given;
  }
  EXPECT_EQ(std::remove(file.c_str()), 0);
}

// Code, place and details: what a program reads instead of the text.
TEST(Telling, AnErrorSaysItsKindAndItsPlace) {
  const std::string pair = std::string(source) + "gpumapsink $CHANNEL gpumapsrc $CHANNEL ! ";
  const struct {
    std::string line;
    gint code;
    const char* name;
    const char* file;
  } cases[] = {
      {pair + "gpumapkernel location=/nowhere/kernel.comp ! fakesink", GST_RESOURCE_ERROR_NOT_FOUND, "not_found",
       "kernel_plan.cpp"},
      {pair + "gpumapkernel location=/dev/null.comp ! fakesink", GST_RESOURCE_ERROR_NOT_FOUND, "not_found",
       "kernel_plan.cpp"},
      {pair + "gpumapkernel device=77 ! fakesink", GST_RESOURCE_ERROR_NOT_FOUND, "no_device", "inventory.cpp"},
      {pair + "gpumapkernel kernel=nothing ! fakesink", GST_RESOURCE_ERROR_SETTINGS, "invalid", ".cpp"},
      {std::string(source) + "gpumapsink socket-path=/nowhere/camera", GST_RESOURCE_ERROR_NOT_FOUND, "not_found",
       "socket.cpp"},
      {std::string(source) + "gpumapsink socket-path=/sys/camera", GST_RESOURCE_ERROR_OPEN_WRITE, "open_write",
       "socket.cpp"},
      {std::string(source) + "gpumapsink slots=250 slot-size=1000000000000", GST_RESOURCE_ERROR_NO_SPACE_LEFT,
       "no_memory", ".cpp"},
  };
  for (const auto& one : cases) {
    const auto [told, message] = error_of(one.line);
    if (!message) continue;
    EXPECT_EQ(told.domain, GST_RESOURCE_ERROR) << one.line;
    EXPECT_EQ(told.code, one.code) << one.line << "\n" << told.text;
    EXPECT_THAT(told.debug, AllOf(HasSubstr(one.file), Not(HasSubstr("gst_error.cpp")))) << one.line;
    const GstStructure* details = nullptr;
    gst_message_parse_error_details(message.get(), &details);
    ASSERT_NE(details, nullptr);
    EXPECT_STREQ(gst_structure_get_string(details, "code"), one.name);
    EXPECT_THAT(told.text, HasSubstr(gst_structure_get_string(details, "cause")));
    EXPECT_THAT(told.text, HasSubstr(gst_structure_get_string(details, "remedy")));
    if (one.code == GST_RESOURCE_ERROR_NO_SPACE_LEFT) {
      for (const char* figure : {"slots", "slot-bytes", "asked-bytes"}) {
        EXPECT_NE(gst_structure_get_string(details, "remedy"), std::string());
        EXPECT_EQ(gst_structure_has_field_typed(details, figure, G_TYPE_UINT64), TRUE) << told.text;
      }
    }
  }
}

// What is asked again and again, as caps are, fails once as far as the application hears.
TEST(Telling, OneMistakeIsOneError) {
  for (const char* kernel : {"kernel=convert params=crop=[300,0,100,100] ! video/x-raw,format=RGBA",
                             "kernel=convert params=crop=[319,0,9,9]"}) {
    Pipeline pipeline(on_new_channel(
        std::string(
            "videotestsrc name=in ! video/x-raw,format=NV12,width=320,height=240 ! gpumapsink $CHANNEL gpumapsrc "
            "name=src $CHANNEL ! gpumapkernel name=kernel ") +
        kernel + " ! fakesink"));
    const Ptr<GstBus> bus(gst_element_get_bus(pipeline.get()));
    for (int start = 0; start < 2; ++start) {  // each start says it anew
      pipeline.set_state(GST_STATE_PLAYING);
      // Nothing is asked after upstream has stopped, which says so last. An error that it posts while the pipeline
      // goes down would make that fail.
      std::vector<std::string> by;
      bool stopped = false;
      const auto pop = [&] {
        const GstClockTime limit = stopped ? 0 : 60 * GST_SECOND;
        return Message(gst_bus_timed_pop_filtered(bus.get(), limit, GST_MESSAGE_ERROR));
      };
      while (const Message message = pop()) {
        const Told told = parse(message.get());
        stopped = stopped || told.by == "in";
        if (told.by != "in") by.push_back(told.by);
        if (told.by == "kernel") {
          EXPECT_THAT(told.text, HasSubstr("outside the picture of 320"));
        }
      }
      ASSERT_TRUE(stopped);
      EXPECT_THAT(by, ElementsAre("kernel")) << kernel;
      // Not to NULL, which empties the bus.
      ASSERT_NE(gst_element_set_state(pipeline.get(), GST_STATE_READY), GST_STATE_CHANGE_FAILURE);
    }
  }
}

TEST(Telling, AFunctionThatIsNotThere) {
  const std::string line = std::string(source) + "gpumapsink $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel ";
  const auto [told, message] =
      error_of(line + "location=" GPUMAP_EXAMPLES "/kernels/invert.comp function=nope ! fakesink");
  EXPECT_THAT(told.text, HasSubstr("no function 'nope' in it: it has main"));
}

}  // namespace
}  // namespace gpumap::gst::test
