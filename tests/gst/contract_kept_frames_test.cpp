// SPDX-License-Identifier: MIT
// Elements downstream may keep frames, as many as they like: an encoder that looks ahead, a queue that fills up first,
// an application. The pipeline runs as with a queue in gpumap's place; where slots run short it says so, once.
#include <regex>

#include "matrix.hpp"

namespace gpumap::gst::test {
namespace {

const std::string source =
    "videotestsrc num-buffers=100 ! video/x-raw,format=I420,width=160,height=120,framerate=30/1 ! ";
constexpr const char* x264 = "x264enc speed-preset=ultrafast rc-lookahead=40 mb-tree=true";

/// Encoders count by frames and times: how they divide their work may depend on the machine.
class Keepers : public testing::TestWithParam<Case> {};

TEST_P(Keepers, RunWithTheDefaults) {
  expect_same_as_queue(GetParam());
}

TEST_P(Keepers, Preroll) {
  Pipeline pipeline(with_gpumap(GetParam().pipeline, GetParam().options));
  ASSERT_TRUE(pipeline.reach(GST_STATE_PAUSED)) << pipeline.error();
  ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING)) << pipeline.error();
  EXPECT_EQ(pipeline.wait(), "eos");
}

std::vector<Case> of_keepers() {
  std::vector<Case> cases;
  const auto add = [&](const char* name, const std::string& behind, const char* options = "") {
    cases.push_back({name, source + "$MAP ! " + behind + " ! fakesink name=out", options, Compared::times});
  };
  add("x264enc", "x264enc");
  add("x264enc pinned", "x264enc", "transport=pinned");
  add("x264enc two slots", "x264enc", "slots=2");
  add("x264enc far ahead", "x264enc rc-lookahead=90 bframes=8");
  add("x265enc", "x265enc speed-preset=ultrafast");
  add("vp9enc", "vp9enc deadline=1 cpu-used=8 lag-in-frames=25");
  // One thread: offsets in the file go by the frames' sizes, which x264's threads change now and then.
  add("mp4mux", std::string(x264) + " threads=1 ! h264parse ! mp4mux fragment-duration=1000 streamable=true");
  add("videoconvert x264enc", std::string("videoconvert ! ") + x264);
  add("queue x264enc", std::string("queue ! ") + x264);
  add("videorate", "videorate ! video/x-raw,framerate=10/1", "slots=2");
  add("queue of ten", "queue min-threshold-buffers=10");
  add("queue of fifty", "queue min-threshold-buffers=50 max-size-buffers=60 max-size-bytes=0 max-size-time=0",
      "slots=2");
  add("pinned queue of fifty", "queue min-threshold-buffers=50 max-size-buffers=60 max-size-bytes=0 max-size-time=0",
      "transport=pinned");
  cases.push_back({"tee with one encoder",
                   source + "$MAP ! tee name=t t. ! queue max-size-time=0 ! " + x264 +
                       " ! fakesink t. ! queue max-size-time=0 ! fakesink name=out",
                   "", Compared::times});
  cases.push_back(
      {"decoder with threads",
       source + "x264enc speed-preset=ultrafast ! h264parse ! $MAP ! avdec_h264 max-threads=4 ! fakesink name=out", "",
       Compared::times});
  // filesink gathers 64 KiB before it writes: many small frames.
  cases.push_back({"filesink",
                   "videotestsrc num-buffers=100 ! video/x-raw,format=GRAY8,width=16,height=16 ! $MAP ! "
                   "filesink name=out location=/dev/null"});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Downstream, Keepers, testing::ValuesIn(of_keepers()), case_name);

TEST(KeepersKernel, RunsIntoAnEncoder) {
  for (const char* between :
       {"gpumapkernel kernel=identity ! video/x-raw", "gpumapkernel kernel=checksum ! video/x-raw",
        "gpumapkernel kernel=identity ! gpumapkernel kernel=checksum ! video/x-raw"}) {
    SCOPED_TRACE(between);
    std::string behind = " ! ";
    behind.append(x264).append(" ! fakesink name=out");
    std::string plain = source;
    plain.append("queue").append(behind);
    std::string mapped = source;
    mapped.append("$MAP ! ").append(between).append(behind);
    const Record expected = record_of(plain, Compared::times);
    const Record got = record_of(with_gpumap(mapped), Compared::times);
    EXPECT_EQ(got.verdict, "eos");
    EXPECT_EQ(got.frames, expected.frames);
  }
}

// An application that keeps all it pulls: each frame is what it was, however many there are.
TEST(KeepersApplication, GetsEachFrameItself) {
  for (const char* options : {"slots=2", "slots=8", "slots=8 transport=pinned"}) {
    SCOPED_TRACE(options);
    const std::string line =
        "videotestsrc num-buffers=40 pattern=ball ! video/x-raw,format=I420,width=64,height=48 ! "
        "$MAP ! video/x-raw ! appsink name=out sync=false max-buffers=1";
    std::vector<Data> expected;
    for (const bool mapped : {false, true}) {
      Pipeline pipeline(mapped ? with_gpumap(line, options) : with_queue(line));
      ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
      std::vector<Sample> kept;
      while (Sample sample = pull(pipeline.appsink())) kept.push_back(std::move(sample));
      ASSERT_EQ(kept.size(), 40U);
      for (std::size_t i = 0; i < kept.size(); ++i) {
        Data data = data_of(gst_sample_get_buffer(kept[i].get()));
        if (mapped) {
          EXPECT_EQ(data == expected[i], true) << i;
        } else {
          expected.push_back(std::move(data));
        }
      }
    }
  }
}

// Copies cost what slots are there to save: the user, who can give more slots, is told once, and how many.
TEST(KeepersWarning, SaysOnceWhatToDo) {
  Pipeline pipeline(with_gpumap(source + "$MAP ! queue min-threshold-buffers=30 max-size-buffers=40 max-size-bytes=0 "
                                         "max-size-time=0 ! fakesink name=out",
                                "slots=4"));
  ASSERT_EQ(pipeline.run(), "eos");
  ASSERT_EQ(pipeline.warnings().size(), 1U);
  EXPECT_TRUE(std::regex_search(pipeline.warnings()[0], std::regex("[0-9]+.*slots|slots.*[0-9]+")))
      << pipeline.warnings()[0];
}

// Who says in ALLOCATION how many frames it needs gets them without a word.
TEST(KeepersWarning, IsNotNeededWhereDownstreamSaysItsMinimum) {
  Pipeline pipeline(with_gpumap(source + "$MAP ! x264enc ! fakesink name=out"));
  ASSERT_EQ(pipeline.run(), "eos");
  EXPECT_EQ(pipeline.warnings().size(), 0U);
}

}  // namespace
}  // namespace gpumap::gst::test
