// SPDX-License-Identifier: MIT
// Memory that is short. The window: auto takes pinned memory in its place and says so, bar is an error with the
// figures, and a ring that follows another fits where both would not. Page-locked memory: an error with figures and
// remedy.
#include <gmock/gmock.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "link_sides.hpp"
#include "result_stream.hpp"

namespace gpumap::gst::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// 30 MB, before anything looks at the device.
const bool limited = setenv("GPUMAP_WINDOW_LIMIT", "30000000", 1) == 0;

constexpr const char* large_frames =
    "videotestsrc ! video/x-raw,format=RGBA,width=1280,height=720 ! gpumapsink name=faulty slots=16 $CHANNEL "
    "gpumapsrc $CHANNEL ! fakesink";

/// Frames of 3.7 MB that arrive as they were sent.
void expect_whole(Pipeline& pipeline, std::uint64_t frames) {
  const Caps caps = video_caps("RGBA", 1280, 720);
  gst_app_src_set_caps(pipeline.appsrc(), caps.get());
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  std::vector<std::uint64_t> sums;
  for (std::uint64_t i = 0; i < frames; ++i) {
    const Data data = random_data(frame_bytes(caps.get()), i);
    sums.push_back(checksum_of(data));
    push(pipeline.appsrc(), new_buffer(data));
  }
  gst_app_src_end_of_stream(pipeline.appsrc());
  ASSERT_EQ(pipeline.wait(), "eos");
  ASSERT_EQ(pipeline.results().size(), sums.size());
  for (std::size_t i = 0; i < sums.size(); ++i) EXPECT_EQ(pipeline.results()[i].checksum, sums[i]) << i;
}

constexpr const char* summed =
    "appsrc name=in format=time ! gpumapsink name=sink slots=7 $CHANNEL gpumapsrc $CHANNEL ! "
    "gpumapkernel kernel=checksum ! fakesink enable-last-sample=false";

TEST(Window, TooSmallForTheRing) {
  ASSERT_TRUE(limited);
  Pipeline pipeline(on_new_channel(on_transport(large_frames, "bar")));
  // 16 slots of 3.7 MB.
  EXPECT_THAT(pipeline.run(30s),
              AllOf(HasSubstr("56"), HasSubstr("window"), HasSubstr("28"), HasSubstr("lower slots")));
  EXPECT_EQ(pipeline.culprit(), "faulty");
  EXPECT_LT(pipeline.stop(), 20s);
}

TEST(Window, AutoTakesPinnedInsteadAndSaysSo) {
  Pipeline pipeline(
      on_new_channel("appsrc name=in format=time ! gpumapsink name=sink slots=16 $CHANNEL gpumapsrc $CHANNEL ! "
                     "gpumapkernel kernel=checksum ! fakesink"));
  expect_whole(pipeline, 40);
  EXPECT_EQ(stat_text(pipeline.element("sink"), "transport"), "pinned");
  ASSERT_EQ(pipeline.warnings().size(), 1U);
  EXPECT_THAT(pipeline.warnings()[0],
              AllOf(HasSubstr("16 slots"), HasSubstr("window 28.6 MiB"), HasSubstr("0 bytes in use"),
                    HasSubstr("56.3 MiB asked"), HasSubstr("lower slots"), HasSubstr("transport=pinned")));
}

TEST(Window, FullOfAnotherPipelinesRing) {
  Pipeline first(on_new_channel(summed));
  gst_app_src_set_caps(first.appsrc(), video_caps("RGBA", 1280, 720).get());
  ASSERT_NE(first.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  push(first.appsrc(), new_buffer(random_data(std::size_t{4} * 1280 * 720, 1)));
  ASSERT_TRUE(eventually([&] { return stat(first.element("sink"), "frames") == 1; }));
  EXPECT_EQ(stat_text(first.element("sink"), "transport"), "bar");

  Pipeline second(on_new_channel(summed));
  expect_whole(second, 20);
  EXPECT_EQ(stat_text(second.element("sink"), "transport"), "pinned");
  ASSERT_EQ(second.warnings().size(), 1U);
  EXPECT_THAT(second.warnings()[0], HasSubstr("24.6 MiB in use"));

  Pipeline third(on_new_channel(on_transport(large_frames, "bar")));
  EXPECT_THAT(third.run(30s), AllOf(HasSubstr("24.6 MiB in use"), HasSubstr("another transport")));

  first.stop();
  Pipeline fourth(on_new_channel(on_transport(summed, "bar")));
  expect_whole(fourth, 20);
  EXPECT_TRUE(fourth.warnings().empty());
}

// Downstream keeps all of them, and there is no room for more: the stream stands, and the warning says why.
TEST(Window, TooSmallForMoreSlots) {
  for (const char* way : {"gpumapsink slots=6 $CHANNEL gpumapsrc $CHANNEL", "gpumapupload slots=6"}) {
    SCOPED_TRACE(way);
    Pipeline pipeline(
        on_new_channel(std::string("videotestsrc ! video/x-raw,format=RGBA,width=1280,height=720 ! ") + way +
                       " ! queue min-threshold-buffers=30 max-size-buffers=60 max-size-bytes=0 max-size-time=0 ! "
                       "gpumapkernel kernel=checksum ! fakesink"));
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    EXPECT_TRUE(eventually([&] {
      EXPECT_EQ(pipeline.wait(10ms), "timeout");
      return pipeline.warnings().size() == 2;
    }));
    // Two threads say so.
    EXPECT_THAT(pipeline.warnings(),
                testing::UnorderedElementsAre(
                    HasSubstr("keeps 5 of the 6 slots"),
                    AllOf(HasSubstr("no memory for 12 slots instead of 6"), HasSubstr("window 28.6 MiB"))));
    EXPECT_LT(pipeline.stop(), at_once);
  }
}

TEST(PageLocked, TooLittleForTheRing) {
  ASSERT_EQ(setenv("GPUMAP_PINNED_LIMIT", "30000000", 1), 0);
  for (const char* transport : {"pinned", "zero-copy"}) {
    Pipeline pipeline(on_new_channel(on_transport(large_frames, transport)));
    EXPECT_THAT(pipeline.run(30s),
                AllOf(HasSubstr("56.3 MiB asked"), HasSubstr("page-locked"), HasSubstr("GPUMAP_PINNED_LIMIT 28.6 MiB"),
                      HasSubstr("ulimit -l"), HasSubstr("lower slots"), HasSubstr("transport=pageable")));
    EXPECT_EQ(pipeline.culprit(), "faulty");
  }
  {
    Pipeline pipeline(on_new_channel(large_frames));
    EXPECT_THAT(pipeline.run(30s), AllOf(HasSubstr("BAR window"), HasSubstr("page-locked"))) << "neither fits";
  }
  {
    Pipeline pipeline(on_new_channel(on_transport(summed, "pageable")));
    expect_whole(pipeline, 20);
  }
  unsetenv("GPUMAP_PINNED_LIMIT");
}

TEST(Window, LargeEnoughAgainAndAgain) {
  for (int i = 0; i < 5; ++i) {
    Pipeline pipeline(
        on_new_channel("videotestsrc num-buffers=10 ! video/x-raw,format=RGBA,width=1280,height=720 ! "
                       "gpumapsink slots=6 $CHANNEL gpumapsrc $CHANNEL ! "
                       "gpumapkernel kernel=checksum ! fakesink"));
    ASSERT_EQ(pipeline.run(), "eos") << i;
    EXPECT_EQ(pipeline.results().size(), 10U);
  }
}

/// Rings wait for one another for 2 s, and for clients to come along for 1 s. A busy machine may not come to read the
/// frames of the old one in that time: then what is tried is tried again.
constexpr int attempts = 3;

/// The rings before the last one `stayed` in the window.
void change_caps(bool& stayed) {
  Pipeline pipeline(
      on_new_channel("appsrc name=in format=time ! gpumapsink name=sink slots=4 $CHANNEL gpumapsrc $CHANNEL ! "
                     "gpumapkernel kernel=checksum ! fakesink enable-last-sample=false"));
  const Messages messages(pipeline);
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  stayed = true;
  std::vector<std::uint64_t> sums;
  // 4 slots of 5 MB each; those of the last caps, 12 MB, fit no window of this size.
  for (const int width : {1600, 1601, 1602, 3840}) {
    const Caps caps = video_caps("RGBA", width, 800);
    gst_app_src_set_caps(pipeline.appsrc(), caps.get());
    for (std::uint64_t i = 0; i < 4; ++i) {
      const Data data = random_data(frame_bytes(caps.get()), i);
      sums.push_back(checksum_of(data));
      push(pipeline.appsrc(), new_buffer(data));
      // The driver compiles the kernel for the first frame.
      if (sums.size() == 1) {
        ASSERT_TRUE(eventually([&] { return messages.count() == 1; }));
      }
    }
    if (width > 1602) continue;
    ASSERT_TRUE(eventually([&] { return stat(pipeline.element("sink"), "frames") == sums.size(); }));
    stayed = stayed && stat_text(pipeline.element("sink"), "transport") == "bar";
  }
  gst_app_src_end_of_stream(pipeline.appsrc());
  ASSERT_EQ(pipeline.wait(), "eos");
  EXPECT_EQ(stat_text(pipeline.element("sink"), "transport"), "pinned");
  if (stayed) {
    EXPECT_EQ(pipeline.warnings().size(), 1U);
  }
  ASSERT_EQ(pipeline.results().size(), sums.size());
  for (std::size_t i = 0; i < sums.size(); ++i) EXPECT_EQ(pipeline.results()[i].checksum, sums[i]) << i;
}

// Old and new ring together do not fit: the new one waits until the old one's frames have been read.
TEST(Window, CapsChangeWaitsForTheOldRing) {
  bool stayed = false;
  for (int i = 0; i < attempts && !stayed; ++i) {
    ASSERT_NO_FATAL_FAILURE(change_caps(stayed)) << "attempt " << i;
  }
  EXPECT_TRUE(stayed);
}

class LinkedRings : public LinkSides {
 protected:
  /// Rings of three sizes. Empty where each frame arrived, else what happened.
  std::string frames_get_larger() {
    Pipeline producer(from_appsrc("transport=bar slots=4"));
    gst_app_src_set_caps(producer.appsrc(), video_caps("RGBA", 1600, 800).get());
    start(producer);
    push_frame(producer, 0, std::size_t{4} * 1600 * 800);
    Pipeline consumer("gpumapsrc " + socket() + " on-lost=eos ! gpumapkernel kernel=checksum ! fakesink sync=false");
    const Messages messages(consumer);
    start(consumer);
    EXPECT_TRUE(eventually([&] { return clients(producer) == 1; }));
    std::uint64_t frames = 1;
    for (const int width : {1600, 1601, 1602}) {
      const Caps caps = video_caps("RGBA", width, 800);
      gst_app_src_set_caps(producer.appsrc(), caps.get());
      for (int i = 0; i < 4; ++i) {
        // None is taken once an error has come.
        push(producer.appsrc(), new_buffer(random_data(frame_bytes(caps.get()), frames), frames * GST_MSECOND));
        // The driver compiles the kernel for the first frame.
        if (++frames == 2) {
          EXPECT_TRUE(eventually([&] { return messages.count() > 0; }));
        }
      }
    }
    push_eos(producer);
    const std::string sent = producer.wait();
    producer.stop();
    const std::string got = consumer.wait();
    if (sent != "eos" || got != "eos") return "the producer says " + sent + ", the consumer " + got;
    std::vector<std::uint64_t> sums;
    for (const auto& result : consumer.results()) sums.push_back(result.checksum);
    std::uint64_t n = sums.size() == frames ? 0 : 1;  // it may have come when the first had gone out
    if (sums.size() != frames - n) return std::to_string(sums.size()) + " frames of " + std::to_string(frames);
    for (const std::uint64_t sum : sums) {
      const int width = n < 5 ? 1600 : n < 9 ? 1601 : 1602;
      EXPECT_EQ(sum, checksum_of(random_data(std::size_t{4} * width * 800, n))) << "frame " << n;
      ++n;
    }
    return {};
  }
};

// The same where another side reads the old ring: at its end nothing here holds its memory.
TEST_F(LinkedRings, ALargerOneWaitsForTheOldOneThere) {
  std::string trouble = "none yet";
  for (int i = 0; i < attempts && !trouble.empty(); ++i) {
    trouble = frames_get_larger();
    if (!trouble.empty()) std::printf("attempt %d: %s\n", i + 1, trouble.c_str());
  }
  EXPECT_EQ(trouble, "");
}

}  // namespace
}  // namespace gpumap::gst::test
