// SPDX-License-Identifier: MIT
// A gpumapsink and a gpumapsrc in two processes: what comes out is what comes out in one, in content, caps, times,
// segment and tags; producers and consumers that are killed cost the other side nothing but their frames.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "launched.hpp"
#include "pipeline.hpp"
#include "temporary_folder.hpp"
#include "test_helpers.hpp"

namespace gpumap::gst::test {
namespace {

using ::testing::HasSubstr;

struct Seen {
  std::string caps;
  std::vector<Data> frames;
  std::vector<GstClockTime> times;
  bool operator==(const Seen&) const = default;
};

Seen all_of(GstAppSink* sink) {
  Seen seen;
  while (const Sample sample = pull(sink)) {
    gchar* caps = gst_caps_to_string(gst_sample_get_caps(sample.get()));
    seen.caps = caps;
    g_free(caps);
    GstBuffer* buffer = gst_sample_get_buffer(sample.get());
    seen.frames.push_back(data_of(buffer));
    seen.times.push_back(GST_BUFFER_PTS(buffer));
  }
  return seen;
}

struct Processes : testing::Test {
  void SetUp() override {
    if (sanitized) GTEST_SKIP() << "gst-launch-1.0 has no sanitizer's run time";
  }
  [[nodiscard]] std::string socket() const { return "socket-path=" + path; }

  const TemporaryFolder folder;
  const std::string path = folder.path() / "link";
};

TEST_F(Processes, WhatComesOutIsWhatComesOutInOne) {
  // Odd sizes: rows are padded in the slot, and that must cross, too.
  for (const char* const caps :
       {"video/x-raw,format=I420,width=321,height=241", "video/x-raw,format=NV12,width=64,height=48"}) {
    const std::string source = std::string("videotestsrc pattern=snow num-buffers=25 ! ") + caps + " ! gpumapsink ";
    Pipeline one(on_new_channel(source + "$CHANNEL gpumapsrc $CHANNEL ! appsink name=out sync=false"));
    EXPECT_NE(one.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    const Seen wanted = all_of(one.appsink());
    ASSERT_EQ(wanted.frames.size(), 25U);

    Launched producer(source + "wait-for-connection=true " + socket());
    Pipeline consumer("gpumapsrc " + socket() + " ! appsink name=out sync=false");
    EXPECT_NE(consumer.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    const Seen seen = all_of(consumer.appsink());
    EXPECT_EQ(seen.caps, wanted.caps);
    EXPECT_EQ(seen.times, wanted.times);
    EXPECT_TRUE(seen.frames == wanted.frames) << seen.frames.size() << " frames";
    EXPECT_TRUE(producer.succeeded());
  }
}

// They put types into caps that their plugins, or GStreamer's libraries, register at their first use. This process has
// used none when the caps come. Whole blocks of 16 by 16 pixels: jpegenc fills others up with what lies behind the
// rows.
TEST_F(Processes, CapsOfDecodersArrive) {
  const std::string source =
      "videotestsrc pattern=ball num-buffers=7 ! video/x-raw,format=I420,width=320,height=240 ! jpegenc ! jpegdec ! "
      "gpumapsink ";
  Launched producer(source + "wait-for-connection=true " + socket());
  Pipeline consumer("gpumapsrc " + socket() + " ! appsink name=out sync=false");
  EXPECT_NE(consumer.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  const Seen seen = all_of(consumer.appsink());
  EXPECT_TRUE(producer.succeeded());
  Pipeline one(on_new_channel(source + "$CHANNEL gpumapsrc $CHANNEL ! appsink name=out sync=false"));
  EXPECT_NE(one.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  const Seen wanted = all_of(one.appsink());
  ASSERT_EQ(wanted.frames.size(), 7U);
  EXPECT_THAT(wanted.caps, HasSubstr("GstVideoMultiviewFlagsSet"));
  EXPECT_EQ(seen.caps, wanted.caps);
  EXPECT_TRUE(seen.frames == wanted.frames) << seen.frames.size() << " frames";
}

// A name that is longer than a peer's may be, and that this process does not know.
TEST_F(Processes, CapsThatCannotBeTakenAreAnError) {
  Launched producer("fakesrc format=time sizetype=fixed sizemax=1003 filltype=random ! application/x-mine,n=1," +
                    std::string(300, 'x') + "=2 ! gpumapsink wait-for-connection=true " + socket());
  Pipeline consumer("gpumapsrc name=src " + socket() + " ! fakesink");
  const std::string error = consumer.run();
  for (const std::string& part : {path, "field " + std::string(90, 'x'), std::string("on both sides")}) {
    EXPECT_THAT(error, HasSubstr(part));
  }
  EXPECT_EQ(consumer.culprit(), "src");
}

TEST_F(Processes, KernelsRunOnFramesOfAnotherProcess) {
  Launched producer(
      "videotestsrc num-buffers=20 ! video/x-raw,format=NV12,width=64,height=48 ! gpumapsink "
      "wait-for-connection=true " +
      socket());
  Pipeline consumer("gpumapsrc " + socket() + " ! gpumapkernel kernel=checksum ! fakesink");
  EXPECT_EQ(consumer.run(), "eos");
  EXPECT_EQ(consumer.results().size(), 20U);
  EXPECT_TRUE(producer.succeeded());
}

TEST_F(Processes, TwoClientsAndTheirTags) {
  Launched producer("videotestsrc ! video/x-raw,width=64,height=48 ! taginject tags=title=across ! gpumapsink " +
                    socket());
  Pipeline one("gpumapsrc name=src " + socket() + " ! fakesink");
  Pipeline two("gpumapsrc name=src leaky=oldest " + socket() + " ! fakesink");
  for (Pipeline* client : {&one, &two}) {
    EXPECT_NE(client->set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    EXPECT_TRUE(eventually([&] { return stat(client->element("src"), "frames") > 20; }));
  }
  const Pad pad(gst_element_get_static_pad(one.element("src"), "src"));
  GstEvent* event = gst_pad_get_sticky_event(pad.get(), GST_EVENT_TAG, 0);
  ASSERT_NE(event, nullptr);
  GstTagList* tags = nullptr;
  gchar* title = nullptr;
  gst_event_parse_tag(event, &tags);
  EXPECT_TRUE(gst_tag_list_get_string(tags, GST_TAG_TITLE, &title));
  EXPECT_STREQ(title, "across");
  g_free(title);
  gst_event_unref(event);
}

TEST_F(Processes, AProducerThatIsKilledIsWaitedForOrIsTheEndOrAnError) {
  const DebugLog warnings("gpumapsrc", GST_LEVEL_WARNING);
  const std::string source = "videotestsrc ! video/x-raw,width=64,height=48 ! gpumapsink " + socket();
  auto producer = std::make_unique<Launched>(source);
  Pipeline waits("gpumapsrc name=src " + socket() + " ! fakesink");
  Pipeline ends("gpumapsrc name=src on-lost=eos " + socket() + " ! fakesink");
  Pipeline fails("gpumapsrc name=src on-lost=error " + socket() + " ! fakesink");
  for (Pipeline* one : {&waits, &ends, &fails}) {
    EXPECT_NE(one->set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    EXPECT_TRUE(eventually([&] { return stat(one->element("src"), "frames") > 10; }));
  }
  EXPECT_THAT(warnings.lines(), ::testing::IsEmpty());
  for (int round = 0; round < 3; ++round) {
    producer->kill_it();
    if (round == 0) {
      EXPECT_EQ(ends.wait(), "eos");
      const std::string error = fails.wait();
      for (const std::string& part : {path, std::string("went without EOS (the server"), std::string("on-lost=wait")}) {
        EXPECT_THAT(error, HasSubstr(part));
      }
      EXPECT_EQ(fails.culprit(), "src");
      EXPECT_EQ(ends.error(), "");
      EXPECT_TRUE(eventually([&] { return warnings.lines().size() >= 3; }));
      EXPECT_THAT(warnings.lines(), ::testing::Each(HasSubstr(path + " is closed: the server")));
    }
    const std::uint64_t before = stat(waits.element("src"), "frames");
    producer = std::make_unique<Launched>(source);
    EXPECT_TRUE(eventually([&] { return stat(waits.element("src"), "frames") > before + 20; }));
  }
  EXPECT_EQ(waits.wait(0ms), "timeout");
}

TEST_F(Processes, AConsumerThatIsKilledIsHeardOfAndMissedByNobody) {
  std::atomic<int> came{0};
  std::atomic<int> went{0};
  Pipeline producer("videotestsrc ! video/x-raw,width=64,height=48 ! gpumapsink name=sink " + socket());
  GstElement* const sink = producer.element("sink");
  const auto count =
      +[](GstElement*, guint, gint, const gchar*, gpointer to) { ++*static_cast<std::atomic<int>*>(to); };
  const auto count_why = +[](GstElement*, guint, gint, const gchar*, const gchar* why, gpointer to) {
    EXPECT_STRNE(why, "");
    ++*static_cast<std::atomic<int>*>(to);
  };
  g_signal_connect(sink, "client-connected", G_CALLBACK(count), &came);
  g_signal_connect(sink, "client-disconnected", G_CALLBACK(count_why), &went);
  const auto clients = [&] {
    guint number = 0;
    g_object_get(sink, "num-clients", &number, nullptr);
    return number;
  };
  EXPECT_NE(producer.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  for (int round = 1; round <= 3; ++round) {
    Launched consumer("gpumapsrc " + socket() + " ! fakesink");
    EXPECT_TRUE(eventually([&] { return clients() == 1; }));
    consumer.kill_it();
    EXPECT_TRUE(eventually([&] { return clients() == 0; }));
    EXPECT_TRUE(eventually([&] { return came == round && went == round; }));
    const std::uint64_t before = stat(sink, "frames");
    EXPECT_TRUE(eventually([&] { return stat(sink, "frames") > before + 50; })) << "the producer stands";
  }
}

/// What another process writes into a pipe, which stops that process where nobody reads.
class Fifo {
 public:
  explicit Fifo(std::string path) : path_(std::move(path)) {
    if (mkfifo(path_.c_str(), 0600) != 0) throw std::runtime_error("no pipe at " + path_);
    fd_ = open(path_.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  }
  ~Fifo() { close(fd_); }
  Fifo(const Fifo&) = delete;
  Fifo& operator=(const Fifo&) = delete;

  /// The writer waits: for what is larger than the pipe, in the first write.
  [[nodiscard]] bool is_full() const {
    int bytes = 0;
    return ioctl(fd_, FIONREAD, &bytes) == 0 && bytes >= fcntl(fd_, F_GETPIPE_SZ);
  }
  [[nodiscard]] const Data& read_all() {
    std::array<std::byte, 65536> part;
    for (ssize_t got = 0; (got = read(fd_, part.data(), part.size())) > 0;) {
      seen_.insert(seen_.end(), part.begin(), part.begin() + got);
    }
    return seen_;
  }

 private:
  std::string path_;
  int fd_ = -1;
  Data seen_;
};

// It holds all slots when it is stopped, half of them taken already. Continued, it has none of them any more.
TEST_F(Processes, AConsumerThatIsStoppedIsCutOffAndSeesNoTornFrame) {
  constexpr std::size_t width = 331, height = 247, bytes = 332 * height;  // more than a pipe has room for
  constexpr std::uint64_t frames = 60, more = 20;
  for (const bool reconnects : {true, false}) {
    SCOPED_TRACE(reconnects);
    std::mutex mutex;  // these outlive the pipeline, whose last client may go with it
    std::string reason;
    auto told = std::pair(&reason, &mutex);
    Pipeline producer("appsrc name=in format=time caps=video/x-raw,format=GRAY8,width=" + std::to_string(width) +
                      ",height=" + std::to_string(height) +
                      ",framerate=100/1 ! gpumapsink name=sink sync=false slots=8 stall-limit=10000 " + socket());
    GstElement* const sink = producer.element("sink");
    g_signal_connect(sink, "client-disconnected",
                     G_CALLBACK(+[](GstElement*, guint, gint, const gchar*, const gchar* why, decltype(told)* to) {
                       const std::lock_guard lock(*to->second);
                       *to->first = why;
                     }),
                     &told);
    const auto clients = [&] {
      guint number = 0;
      g_object_get(sink, "num-clients", &number, nullptr);
      return number;
    };
    // The lines are 331 bytes and one that nobody shows.
    const auto mirrored = [&](std::uint64_t n) {
      Data picture = random_data(bytes, n);
      for (std::size_t y = 0; y < height; ++y) {
        const auto line = picture.begin() + static_cast<std::ptrdiff_t>(y * (width + 1));
        std::reverse(line, line + width);
        *(line + width) = std::byte{};
      }
      return picture;
    };
    const auto push_frames = [&](std::uint64_t from, std::uint64_t to) {
      for (std::uint64_t n = from; n < to; ++n) {
        EXPECT_TRUE(push(producer.appsrc(), new_buffer(random_data(bytes, n), n * 10 * GST_MSECOND)));
      }
    };
    EXPECT_NE(producer.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    push_frames(0, 1);  // makes the ring, and is nobody's
    ASSERT_TRUE(eventually([&] { return stat(sink, "frames") == 1; }));

    const std::string pipe = folder.path() / ("pipe" + std::to_string(static_cast<int>(reconnects)));
    Fifo fifo(pipe);
    Launched consumer("gpumapsrc " + std::string(reconnects ? "" : "on-lost=eos ") + socket() +
                      " ! videoflip video-direction=horiz ! filesink buffer-mode=unbuffered location=" + pipe);
    ASSERT_TRUE(eventually([&] { return clients() == 1; }));
    push_frames(1, frames);
    ASSERT_TRUE(eventually([&] { return fifo.is_full(); }));
    ASSERT_TRUE(eventually([&] { return stat(sink, "frames") == 2 + 8; }));
    consumer.stop_it();
    EXPECT_TRUE(eventually([&] { return stat(sink, "frames") == frames; })) << "the producer stands";
    EXPECT_TRUE(eventually([&] {
      const std::lock_guard lock(mutex);
      return reason.find("kept frame 2 while the producer found no slot") != std::string::npos;
    })) << reason;
    EXPECT_EQ(clients(), 0U);

    consumer.continue_it();
    std::vector<std::uint64_t> wanted{1};
    if (reconnects) {
      ASSERT_TRUE(eventually([&] {
        (void)fifo.read_all();
        return clients() == 1;
      }));
      push_frames(frames, frames + more);
      for (std::uint64_t n = frames; n < frames + more; ++n) wanted.push_back(n);
    }
    gst_app_src_end_of_stream(producer.appsrc());
    EXPECT_TRUE(eventually([&] { return fifo.read_all().size() >= wanted.size() * bytes; }));
    EXPECT_TRUE(consumer.succeeded());
    const Data seen = fifo.read_all();
    ASSERT_EQ(seen.size(), wanted.size() * bytes);
    for (std::size_t at = 0; at < wanted.size(); ++at) {
      Data frame(seen.begin() + static_cast<std::ptrdiff_t>(at * bytes),
                 seen.begin() + static_cast<std::ptrdiff_t>((at + 1) * bytes));
      for (std::size_t y = 1; y <= height; ++y) frame[y * (width + 1) - 1] = std::byte{};
      EXPECT_TRUE(frame == mirrored(wanted[at])) << "frame " << wanted[at];
    }
  }
}

TEST_F(Processes, WhoHasEnoughMissesNoProducer) {
  Launched producer("videotestsrc is-live=true ! video/x-raw,width=64,height=48 ! gpumapsink " + socket());
  Pipeline consumer("gpumapsrc num-buffers=3 " + socket() + " ! fakesink");
  ASSERT_EQ(consumer.run(), "eos");
  EXPECT_THAT(consumer.warnings(), testing::IsEmpty());
  producer.kill_it();
  EXPECT_EQ(consumer.wait(3s), "timeout");  // the warning of a wait for a producer comes after 2 s
  EXPECT_THAT(consumer.warnings(), testing::IsEmpty());
}

/// What a process of another user meets at the socket.
enum class Met { welcome, refusal, closed_door, trouble };
Met meet_as(uid_t user, const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const pid_t child = fork();
  if (child == 0) {  // nothing that allocates: other threads had locks
    alarm(20);
    const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET, 0);
    if (setgroups(0, nullptr) != 0 || setgid(user) != 0 || setuid(user) != 0 || fd < 0) {
      _exit(static_cast<int>(Met::trouble));
    }
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      _exit(static_cast<int>(errno == EACCES ? Met::closed_door : Met::trouble));
    }
    // Who is let in is waited for a while, and then hung up on.
    char text[4096];
    const ssize_t got = recv(fd, text, sizeof text, 0);
    const bool refused = got > 0 && memmem(text, static_cast<std::size_t>(got), "may not connect", 15) != nullptr;
    _exit(static_cast<int>(refused ? Met::refusal : got == 0 ? Met::welcome : Met::trouble));
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? static_cast<Met>(WEXITSTATUS(status)) : Met::trouble;
}

TEST_F(Processes, AnotherUserIsLetInWhereBothPropertiesSaySo) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
  constexpr uid_t other = 54321;
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0755));
  for (const auto& [properties, met] :
       {std::pair("socket-mode=0666 allowed-users=nobody,54321", Met::welcome),
        std::pair("socket-mode=666", Met::refusal), std::pair("allowed-users=54321", Met::closed_door)}) {
    Pipeline producer("videotestsrc ! video/x-raw,width=64,height=48 ! gpumapsink name=sink " + socket() + " " +
                      properties);
    EXPECT_NE(producer.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    ASSERT_TRUE(eventually([&] { return stat(producer.element("sink"), "frames") > 2; }));
    EXPECT_EQ(meet_as(other, path), met) << properties;
  }
}

TEST_F(Processes, WhatCannotBeIsAnError) {
  // No end: that could be there before the first frame is found to have nowhere to go.
  const std::string source = "videotestsrc ! video/x-raw,width=64,height=48 ! gpumapsink ";
  Pipeline pinned(source + "transport=pinned " + socket());
  EXPECT_THAT(pinned.run(), HasSubstr("transport=bar"));
  pinned.stop();
  std::ofstream(path) << "a file";
  Pipeline taken(source + socket());
  EXPECT_THAT(taken.run(), HasSubstr("is no socket"));
  Pipeline unreachable("gpumapsrc socket-path=" + std::string(200, 'x') + " ! fakesink");
  EXPECT_THAT(unreachable.run(), HasSubstr("200 bytes"));
}

}  // namespace
}  // namespace gpumap::gst::test
