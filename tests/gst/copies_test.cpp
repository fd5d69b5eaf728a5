// SPDX-License-Identifier: MIT
// How often a frame is copied on its way in, by the elements' own count: never where upstream writes into the slot.
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "pipeline.hpp"

namespace gpumap::gst::test {
namespace {

struct Counts {
  std::uint64_t frames = 0, zero_copy = 0, copied = 0, bytes_copied = 0, cpu_reads = 0;
};

Counts run_and_count(const std::string& upstream, const std::string& sink_options = "") {
  Pipeline pipeline(on_new_channel(upstream + " ! gpumapsink name=sink $CHANNEL " + sink_options +
                                   " gpumapsrc $CHANNEL ! gpumapkernel kernel=checksum ! fakesink"));
  EXPECT_EQ(pipeline.run(), "eos") << upstream;
  GstElement* sink = pipeline.element("sink");
  EXPECT_EQ(pipeline.results().size(), stat(sink, "frames")) << upstream;
  EXPECT_EQ(stat(sink, "drops"), 0U) << upstream;
  return {stat(sink, "frames"), stat(sink, "zero-copy-frames"), stat(sink, "copied-frames"), stat(sink, "bytes-copied"),
          stat(sink, "cpu-reads")};
}

void expect_none(const std::string& upstream, std::uint64_t frames) {
  const Counts counts = run_and_count(upstream);
  if (frames != 0) {
    EXPECT_EQ(counts.frames, frames) << upstream;
  }
  EXPECT_GT(counts.frames, 0U) << upstream;
  EXPECT_EQ(counts.zero_copy, counts.frames) << upstream;
  EXPECT_EQ(counts.copied, 0U) << upstream;
  EXPECT_EQ(counts.bytes_copied, 0U) << upstream;
  EXPECT_EQ(counts.cpu_reads, 0U) << upstream;
}

TEST(Copies, NoneForVideotestsrc) {
  for (const char* format : {"NV12", "I420", "RGB", "GRAY8", "AYUV", "YUY2"}) {
    expect_none(
        std::string("videotestsrc num-buffers=25 pattern=snow ! video/x-raw,width=333,height=77,format=") + format, 25);
  }
}

TEST(Copies, NoneForVideoconvert) {
  expect_none(
      "videotestsrc num-buffers=25 ! video/x-raw,format=RGB,width=333,height=77 ! videoconvert ! "
      "video/x-raw,format=NV12",
      25);
}

TEST(Copies, NoneForJpegdec) {
  expect_none("videotestsrc num-buffers=25 ! video/x-raw,format=I420,width=640,height=360 ! jpegenc ! jpegdec", 25);
}

TEST(Copies, NoneForAudiotestsrc) {
  expect_none("audiotestsrc num-buffers=25 wave=white-noise ! audio/x-raw,format=S16LE,channels=2", 25);
}

TEST(Copies, NoneThroughAQueue) {
  expect_none(
      "videotestsrc num-buffers=25 ! video/x-raw,format=NV12,width=333,height=77 ! queue max-size-buffers=3 ! "
      "identity",
      25);
}

TEST(Copies, OneForFilesrc) {
  const std::string path = testing::TempDir() + "gpumap-copies-" + std::to_string(getpid());
  const Data data = random_data(300001, 4);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(data.data()), static_cast<std::streamsize>(data.size()));
  const Counts counts = run_and_count("filesrc blocksize=40000 location=" + path);
  EXPECT_EQ(std::remove(path.c_str()), 0);
  EXPECT_EQ(counts.frames, 8U);
  EXPECT_EQ(counts.copied, 8U);
  EXPECT_EQ(counts.zero_copy, 0U);
  EXPECT_EQ(counts.bytes_copied, data.size());
  EXPECT_EQ(counts.cpu_reads, 0U);
}

// Slots that upstream asked for and dropped, here in a valve, come back.
TEST(Copies, DroppedUpstreamComesBack) {
  const Counts counts = run_and_count(
      "videotestsrc num-buffers=200 ! video/x-raw,width=64,height=32,format=NV12,framerate=60/1 ! "
      "videorate drop-only=true ! video/x-raw,framerate=7/1",
      "slots=2");
  EXPECT_GT(counts.frames, 15U);
  EXPECT_LT(counts.frames, 40U);
}

}  // namespace
}  // namespace gpumap::gst::test
