// SPDX-License-Identifier: MIT
// The socket of a gpumapsink is there from PAUSED on: what is wrong with its path is an error of the change of state,
// and who comes before the first frame waits for it.
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "link_sides.hpp"
#include "test_helpers.hpp"
#include "thread_names.hpp"

namespace gpumap::gst::test {
namespace {

using ::testing::HasSubstr;

struct LinkPaths : LinkSides {
  /// What going to PAUSED says of the path; empty where it goes.
  [[nodiscard]] static std::string trouble_of(Pipeline& producer) {
    if (producer.set_state(GST_STATE_PAUSED) != GST_STATE_CHANGE_FAILURE) return {};
    return producer.wait();
  }
  [[nodiscard]] static std::string trouble_at(const std::string& path) {
    Pipeline producer(from_appsrc("", path));
    std::string trouble = trouble_of(producer);
    EXPECT_EQ(trouble.empty() ? "sink" : producer.culprit(), "sink");
    return trouble;
  }
};

TEST_F(LinkPaths, AClientThatNoDescriptorIsLeftForIsToldOf) {
  if (sanitized) GTEST_SKIP() << "a sanitizer's run time needs descriptors itself";
  Pipeline producer(from_appsrc());
  start(producer);
  push_frame(producer, 0);
  ASSERT_TRUE(handed_on(1));
  EXPECT_EQ(producer.wait(0ms), "timeout");
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit few = before;
  few.rlim_cur = 512;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<int> taken{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
  for (int one = dup(0); one >= 0; one = dup(0)) taken.push_back(one);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  EXPECT_EQ(connect(taken[0], reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_TRUE(eventually([&] {
    (void)producer.wait(0ms);
    return !producer.warnings().empty();
  }));
  for (const int one : taken) close(one);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_THAT(producer.warnings(),
              testing::ElementsAre(testing::AllOf(HasSubstr("a client waits"), HasSubstr(path), HasSubstr("ulimit"))));
}

TEST_F(LinkPaths, WhatIsWrongWithAPathIsToldInPaused) {
  EXPECT_THAT(trouble_at(folder.path() / "none" / "link"), HasSubstr("No such file"));
  EXPECT_THAT(trouble_at(folder.path() / std::string(108, 'x')), HasSubstr("1 to 107 allowed"));
  EXPECT_THAT(trouble_at("/proc/link"), HasSubstr("/proc/link"));
  // What is no text would not even be a message.
  Pipeline odd(from_appsrc());
  g_object_set(odd.element("sink"), "socket-path", std::string(folder.path() / "no\xff" / "link").c_str(), nullptr);
  EXPECT_THAT(trouble_of(odd), HasSubstr("/no\\xff/link"));
  std::ofstream(path) << "a file";
  EXPECT_THAT(trouble_at(path), HasSubstr("is no socket"));
  EXPECT_TRUE(std::filesystem::is_regular_file(path)) << "left alone";
}

// Of a thread that cannot be had "Resource temporarily unavailable" alone would tell nobody what to do.
TEST_F(LinkPaths, WhereNoThreadCanBeHadThatIsSaidInPaused) {
  for (const std::string& line : {from_appsrc(), from_appsrc("latency-interval=100"), to_appsink()}) {
    Pipeline pipeline(line);
    ASSERT_TRUE(pipeline.set_state(GST_STATE_READY) != GST_STATE_CHANGE_FAILURE);
    GstElement* const element = pipeline.element(line == to_appsink() ? "src" : "sink");
    GstStateChangeReturn changed{};
    {
      const gpumap::test::NoThreads none;
      changed = gst_element_set_state(element, GST_STATE_PAUSED);
    }
    EXPECT_EQ(changed, GST_STATE_CHANGE_FAILURE);
    EXPECT_THAT(pipeline.wait(), HasSubstr("no thread for"));
    // Nothing of the failed start is in the way of the next.
    EXPECT_NE(gst_element_set_state(element, GST_STATE_PAUSED), GST_STATE_CHANGE_FAILURE) << line;
  }
}

TEST_F(LinkPaths, ThreadsHaveNames) {
  Pipeline producer(from_appsrc("latency-interval=100 wait-for-connection=true"));
  Pipeline consumer(to_appsink());
  start(producer);
  start(consumer);
  push_frame(producer, 3);
  ASSERT_TRUE(pull(consumer.appsink())) << consumer.error();
  const auto missing = [] {
    std::set<std::string> names{"gpumap-upstream", "gpumap-inlet", "gpumap-connect", "gpumap-server", "gpumap-report"};
    for (const std::string& there : gpumap::test::thread_names()) names.erase(there);
    return names;
  };
  EXPECT_TRUE(eventually([&] { return missing().empty(); })) << testing::PrintToString(missing());
}

TEST_F(LinkPaths, WhoMayConnectIsCheckedInPaused) {
  for (const char* const wrong :
       {"socket-mode=\"\"", "socket-mode=rw", "socket-mode=0680", "socket-mode=01777", "socket-mode=-0600",
        "socket-mode=0600x", "allowed-users=\"0,no body,1\"", "allowed-users=0,,1", "allowed-users=,",
        "allowed-users=4294967295", "allowed-users=4294967296", "allowed-users=-1"}) {
    Pipeline producer(from_appsrc(wrong));
    const std::string_view text(wrong);
    const std::size_t equals = text.find('=');
    std::string value(text.substr(equals + 1));
    std::erase(value, '"');
    EXPECT_THAT(trouble_of(producer), HasSubstr(std::string(text.substr(0, equals)) + " \"" + value + "\"")) << wrong;
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  Pipeline consumer(to_appsink("allowed-users=root,nobody-at-all"));
  EXPECT_EQ(consumer.set_state(GST_STATE_PAUSED), GST_STATE_CHANGE_FAILURE);
  EXPECT_THAT(consumer.wait(), HasSubstr("there is no user \"nobody-at-all\""));

  for (const auto& [text, mode] : {std::pair("0660", 0660U), std::pair("777", 0777U), std::pair("0600", 0600U)}) {
    Pipeline producer(from_appsrc("allowed-users=\" root , 54321\" socket-mode=" + std::string(text)));
    EXPECT_EQ(trouble_of(producer), "");
    struct stat found {};
    ASSERT_EQ(lstat(path.c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 07777U, mode);
  }
}

// What kept an element from starting is mended, and it starts.
TEST_F(LinkPaths, AFailedStartIsFollowedByAnother) {
  Pipeline consumer(to_appsink("allowed-users=nobody-at-all"));
  Pipeline producer(from_appsrc("wait-for-connection=true allowed-users=nobody-at-all"));
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(consumer.set_state(GST_STATE_PAUSED), GST_STATE_CHANGE_FAILURE);
    EXPECT_THAT(consumer.wait(), HasSubstr("there is no user \"nobody-at-all\""));
    EXPECT_THAT(trouble_of(producer), HasSubstr("there is no user \"nobody-at-all\""));
  }
  g_object_set(consumer.element("src"), "allowed-users", "", nullptr);
  g_object_set(producer.element("sink"), "allowed-users", "", nullptr);
  start(producer);
  start(consumer);
  push_frame(producer, 3);
  EXPECT_TRUE(pull(consumer.appsink())) << consumer.error();
}

TEST_F(LinkPaths, AProducerThatHasNoFrameYetHasItsPath) {
  Pipeline first(from_appsrc());
  EXPECT_EQ(trouble_of(first), "");
  struct stat found {};
  ASSERT_EQ(lstat(path.c_str(), &found), 0);
  EXPECT_TRUE(S_ISSOCK(found.st_mode));
  EXPECT_EQ(found.st_mode & 07777U, 0600U);

  Pipeline second(from_appsrc("wait-for-connection=true"));
  EXPECT_THAT(trouble_of(second), HasSubstr("is served by process " + std::to_string(getpid())));
  first.stop();
  EXPECT_FALSE(std::filesystem::exists(path));
  second.stop();
  EXPECT_EQ(trouble_of(second), "") << "it goes once the first is gone";
  start(second);
  Pipeline consumer(to_appsink());
  start(consumer);
  push_frame(second, 3);
  EXPECT_TRUE(pull(consumer.appsink()));
}

TEST_F(LinkPaths, WhoComesBeforeTheFirstFrameGetsIt) {
  Pipeline producer(from_appsrc("wait-for-connection=true"));
  start(producer);
  Pipeline one(to_appsink());
  Pipeline two(to_appsink());
  for (Pipeline* consumer : {&one, &two}) start(*consumer);
  g_usleep(200'000);
  EXPECT_EQ(clients(producer), 0U) << "there is nothing to connect to yet";
  push_frame(producer, 5);
  ASSERT_TRUE(eventually([&] { return clients(producer) == 2; }));
  push_frame(producer, 6);
  push_eos(producer);
  bool first_came = false;
  for (Pipeline* consumer : {&one, &two}) {
    std::uint64_t last = 0;
    while (const Sample sample = pull(consumer->appsink())) {
      GstBuffer* buffer = gst_sample_get_buffer(sample.get());
      last = GST_BUFFER_PTS(buffer) / GST_MSECOND;
      first_came = first_came || last == 5;
      EXPECT_EQ(data_of(buffer), random_data(frame_size, last));
    }
    EXPECT_EQ(last, 6U);
  }
  EXPECT_TRUE(first_came) << "it waits for a client, if not for all";
}

TEST_F(LinkPaths, AProducerThatFailsLetsNobodyWait) {
  Pipeline producer(
      "appsrc name=in format=time caps=application/octet-stream ! gpumapsink name=sink sync=false "
      "transport=pinned " +
      socket());
  start(producer);
  EXPECT_TRUE(std::filesystem::exists(path));
  push_frame(producer, 0);
  EXPECT_THAT(producer.wait(), HasSubstr("transport=bar"));
  EXPECT_TRUE(eventually([&] { return !std::filesystem::exists(path); }));
}

// Of what a person has to change.
TEST_F(LinkPaths, WhoWaitsInVainIsTold) {
  const auto warning_of = [](Pipeline& consumer) {
    (void)eventually([&] {
      (void)consumer.wait(20ms);
      return !consumer.warnings().empty();
    });
    return consumer.warnings().empty() ? std::string() : consumer.warnings().front();
  };
  std::ofstream(path) << "text";
  {
    Pipeline consumer(to_appsink());
    start(consumer);
    EXPECT_THAT(warning_of(consumer), HasSubstr(path + ", which is there and is no socket"));
    std::filesystem::remove(path);
    Pipeline producer(from_appsrc("wait-for-connection=true"));
    start(producer);
    push_frame(producer, 0);
    EXPECT_TRUE(pull(consumer.appsink())) << "it goes on waiting";
  }
  if (geteuid() == 0) return;  // root has a right to everything
  Pipeline producer(from_appsrc("socket-mode=0000"));
  start(producer);
  Pipeline consumer(to_appsink());
  start(consumer);
  EXPECT_THAT(warning_of(consumer), HasSubstr(path + ", to which user"));
}

TEST_F(LinkPaths, StayThroughAChangeOfRing) {
  Pipeline producer(from_appsrc("wait-for-connection=true"));
  start(producer);
  Pipeline consumer(to_appsink("on-lost=eos"));
  start(consumer);
  push_frame(producer, 1);
  ASSERT_TRUE(pull(consumer.appsink()));
  struct stat before {};
  ASSERT_EQ(lstat(path.c_str(), &before), 0);
  push_frame(producer, 2, 77 * frame_size);
  const Sample grown = pull(consumer.appsink());
  ASSERT_TRUE(grown);
  EXPECT_EQ(gst_buffer_get_size(gst_sample_get_buffer(grown.get())), 77 * frame_size);
  struct stat after {};
  ASSERT_EQ(lstat(path.c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino) << "nobody could come between";
  push_eos(producer);
  EXPECT_EQ(consumer.wait(), "eos");
}

}  // namespace
}  // namespace gpumap::gst::test
