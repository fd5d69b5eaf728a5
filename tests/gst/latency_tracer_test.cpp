// SPDX-License-Identifier: MIT
// GST_TRACERS="gpumaplatency" on a pipeline that says nothing of latency, run as a user does: gst-launch-1.0, and
// gst-stats-1.0 on its log.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "test_helpers.hpp"

namespace gpumap::gst::test {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

/// What a command prints, on both streams. The plugin of this build is found.
std::string output_of(const std::string& environment, const std::string& command) {
  const std::string plugin = std::filesystem::path(std::getenv("GPUMAP_PLUGIN")).parent_path();
  const std::string registry = testing::TempDir() + "gpumap-tracer-registry-" + std::to_string(getpid());
  const std::string line = "env GST_PLUGIN_PATH='" + plugin + "' GST_REGISTRY='" + registry +
                           "' GST_DEBUG_NO_COLOR=1 " + environment + " timeout 60 " + command + " 2>&1";
  FILE* pipe = popen(line.c_str(), "r");
  std::string text;
  std::array<char, 4096> part{};
  while (const std::size_t got = std::fread(part.data(), 1, part.size(), pipe)) text.append(part.data(), got);
  const int status = pclose(pipe);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << line << "\n" << text;
  return text;
}

std::string pipeline(const std::string& channel, int frames) {
  return "gst-launch-1.0 videotestsrc num-buffers=" + std::to_string(frames) +
         " ! video/x-raw,format=NV12,width=64,height=48 ! gpumapsink channel=" + channel +
         "  gpumapsrc channel=" + channel + " ! gpumapkernel kernel=checksum ! fakesink enable-last-sample=false";
}

/// The same, of a run that says `wanted` where one of a few does: what is told at the end leaves out frames of whose
/// kernels the times are not known yet, for which busy cores that play a GPU take a while.
std::string output_with(const std::string& wanted, const std::string& environment, const std::string& command) {
  std::string text;
  for (int turn = 0; turn < 5; ++turn) {
    text = output_of(environment, command);
    if (text.find(wanted) != std::string::npos) break;
  }
  return text;
}

class LatencyTracer : public testing::Test {
 protected:
  void SetUp() override {
    if (sanitized) GTEST_SKIP() << "a plugin with a sanitizer does not load into a gst-launch-1.0 without";
  }
};

TEST_F(LatencyTracer, PrintsEveryStageAtTheEnd) {
  const std::string wanted = "channel \"traced\": 25 frames, 0 dropped";
  const std::string text = output_with(wanted, "GST_TRACERS='gpumaplatency(interval=0)'", pipeline("traced", 25));
  EXPECT_THAT(text, HasSubstr(wanted));
  for (const char* row :
       {"hold", "write", "publish", "queue", "dispatch", "start", "kernel", "notice", "release", "whole", "result"}) {
    EXPECT_THAT(text, ContainsRegex("\n +" + std::string(row) + " +25 +[0-9.]+ +[0-9.]+"));
  }
  EXPECT_EQ(text.find("channel \"traced\""), text.rfind("channel \"traced\"")) << "once, at the end";
}

// It goes on, with what holds where nothing is given.
TEST_F(LatencyTracer, NamesWhatItDoesNotKnow) {
  const std::string text =
      output_of("GST_TRACERS='gpumaplatency(intervall=3,channel=misspelt)'", pipeline("misspelt", 3));
  EXPECT_THAT(text,
              HasSubstr("there is no parameter \"intervall\", which has no effect: there are interval and channel"));
  EXPECT_THAT(text, Not(HasSubstr("no parameter \"channel\"")));
}

TEST_F(LatencyTracer, PrintsAtIntervals) {
  const std::string slow = pipeline("paced", 40) + " sync=true";
  const std::string all = "channel \"paced\": 40 frames";
  // On a busy machine what prints may sleep through one run.
  bool twice = false;
  for (int turn = 0; turn < 5 && !twice; ++turn) {
    const std::string text = output_with(all, "GST_TRACERS='gpumaplatency(interval=200)'", slow);
    EXPECT_THAT(text, HasSubstr(all));
    twice = text.find("channel \"paced\"") != text.rfind("channel \"paced\"");
  }
  EXPECT_TRUE(twice);
}

// A pipeline that is not live runs ahead of its clock: results are there before their frames are due.
TEST_F(LatencyTracer, TellsTimesBelowZeroApart) {
  const std::string early =
      "gst-launch-1.0 videotestsrc num-buffers=25 ! video/x-raw,format=NV12,width=64,height=48,framerate=1/100 ! "
      "gpumapsink channel=early async=false  gpumapsrc channel=early ! gpumapkernel kernel=checksum ! fakesink "
      "async=false enable-last-sample=false";
  const std::string wanted = "channel \"early\": 25 frames, 0 dropped";
  const std::string text = output_with(wanted, "GST_TRACERS='gpumaplatency(interval=0)'", early);
  EXPECT_THAT(text, ContainsRegex("\n +lateness +[01] +[0-9.]+ .* and [1-9][0-9]* below 0, in none of these"))
      << "all but the first are due in minutes";
  EXPECT_THAT(text, ContainsRegex("\n +whole +25 +[0-9. ]+\n"));
}

TEST_F(LatencyTracer, FollowsTheChannelThatIsAskedFor) {
  const std::string wanted = "channel \"mine\": 5 frames";
  EXPECT_THAT(output_with(wanted, "GST_TRACERS='gpumaplatency(interval=0,channel=mine)'", pipeline("mine", 5)),
              HasSubstr(wanted));
  EXPECT_THAT(output_of("GST_TRACERS='gpumaplatency(interval=0,channel=mine)'", pipeline("other", 5)),
              Not(HasSubstr("gpumap latency")));
}

TEST_F(LatencyTracer, SaysWhatItCannotRead) {
  EXPECT_THAT(output_of("GST_TRACERS='gpumaplatency(interval=often)'", pipeline("wrong", 2)),
              HasSubstr("interval is a number of milliseconds"));
}

TEST_F(LatencyTracer, GstStatsReadsItsRecords) {
  const std::string log = testing::TempDir() + "gpumap-tracer-" + std::to_string(getpid()) + ".log";
  static_cast<void>(
      output_with("channel \"stats\": 20 frames",
                  "GST_TRACERS='gpumaplatency(interval=0)' GST_DEBUG=GST_TRACER:7 GST_DEBUG_FILE='" + log + "'",
                  pipeline("stats", 20)));
  const std::string text = output_of("", "gst-stats-1.0 '" + log + "'");
  EXPECT_THAT(text, ContainsRegex("gpumap:stats.acquired\\|.*gpumap:stats.released: mean="));
  for (const char* stage : {"hold", "write", "publish", "queue", "dispatch", "start", "kernel", "notice", "release"}) {
    EXPECT_THAT(text, HasSubstr("gpumap:stats." + std::string(stage) + ": mean="));
  }
  std::filesystem::remove(log);
}

}  // namespace
}  // namespace gpumap::gst::test
