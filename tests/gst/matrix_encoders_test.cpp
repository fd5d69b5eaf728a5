// SPDX-License-Identifier: MIT
// Encoders, muxers and sinks that keep what they get, behind gpumap: the file is the one written without it.
#include <fstream>
#include <iterator>

#include "matrix.hpp"
#include "temporary_folder.hpp"

// Tables of pipelines, made once: how fast their texts grow does not matter.
// NOLINTBEGIN(performance-inefficient-string-concatenation)
namespace gpumap::gst::test {
namespace {

const std::string source =
    "videotestsrc num-buffers=60 pattern=ball ! video/x-raw,format=I420,width=96,height=64,framerate=25/1 ! ";
const std::string sound = "audiotestsrc num-buffers=60 samplesperbuffer=441 ! ";

struct Encoder {
  const char* name;
  const char* element;
  Compared compared = Compared::bytes;
};

// One thread, a fixed quantizer and no decision of the rate control: the same bytes each time. x264 as it comes has
// other ones in one run of a hundred. Some keep fifty frames before the first one leaves.
constexpr Encoder encoders[] = {
    {"x264", "x264enc threads=1 speed-preset=ultrafast pass=quant bframes=2 b-adapt=false"},
    {"x264 as it comes", "x264enc", Compared::times},
    {"x264 at once", "x264enc threads=1 speed-preset=ultrafast pass=quant tune=zerolatency"},
    {"x264 that looks far ahead", "x264enc rc-lookahead=60 bframes=4", Compared::times},
    {"x264 threads", "x264enc threads=2", Compared::times},
    {"x265", "x265enc speed-preset=ultrafast option-string=pools=none:frame-threads=1"},
    {"vp8", "vp8enc threads=1 deadline=0 lag-in-frames=20"},
    {"vp9", "vp9enc threads=1 deadline=0 lag-in-frames=25 cpu-used=8"},
    {"theora", "theoraenc speed-level=0"},
    {"mpeg4", "avenc_mpeg4"},
    {"jpeg", "jpegenc"},
    {"png", "videoconvert ! pngenc snapshot=false compression-level=1"},
    {"openh264", "openh264enc multi-thread=1"},
    {"ffv1", "avenc_ffv1"},
    {"y4m", "y4menc"},
};

std::vector<Case> of_encoders() {
  std::vector<Case> cases;
  for (const auto& [name, element, compared] : encoders) {
    const std::string behind = std::string(element) + " ! fakesink name=out";
    cases.push_back({name, source + "$MAP ! " + behind, "", compared});
    cases.push_back({std::string(name) + " two slots", source + "$MAP ! " + behind, "slots=2", compared});
    cases.push_back({std::string(name) + " queued", source + "$MAP ! queue ! " + behind, "", compared});
    cases.push_back({std::string(name) + " pinned", source + "$MAP ! " + behind, "transport=pinned", compared});
  }
  return cases;
}

std::vector<Case> of_muxers() {
  std::vector<Case> cases;
  const std::string video =
      "x264enc threads=1 speed-preset=ultrafast pass=quant bframes=2 b-adapt=false key-int-max=25 ! h264parse";
  // matroskamux gives each track a random number, which takes more bytes or fewer.
  for (const auto& [muxer, compared] : {std::pair{"mp4mux fragment-duration=400 streamable=true", Compared::sizes},
                                        {"matroskamux", Compared::times},
                                        {"matroskamux streamable=true", Compared::times},
                                        {"avimux", Compared::bytes},
                                        {"mpegtsmux", Compared::bytes},
                                        {"flvmux", Compared::sizes}}) {
    const std::string name = muxer;
    const std::string codec = name.starts_with("avimux") ? "lamemp3enc ! mpegaudioparse" : "avenc_aac ! aacparse";
    cases.push_back({name, source + "$MAP ! " + video + " ! " + muxer + " ! fakesink name=out", "", compared});
    cases.push_back({name + " encoded", source + video + " ! $MAP ! " + muxer + " ! fakesink name=out", "", compared});
    cases.push_back({name + " with sound",
                     source + "$MAP ! " + video + " ! queue ! m.  " + sound + "$MAP ! audioconvert ! " + codec +
                         " ! queue ! m.  " + muxer + " name=m ! fakesink name=out",
                     "", compared});
    cases.push_back({name + " with encoded sound",
                     source + video + " ! $MAP ! m.  " + sound + "audioconvert ! " + codec + " ! $MAP ! m.  " + muxer +
                         " name=m ! fakesink name=out",
                     "", compared});
  }
  return cases;
}

/// What holds frames back without encoding.
std::vector<Case> of_keepers() {
  std::vector<Case> cases;
  for (const char* keeper :
       {"queue min-threshold-buffers=10", "queue min-threshold-buffers=30 max-size-buffers=50",
        "queue2 max-size-buffers=40", "queue leaky=no max-size-buffers=100", "videorate ! video/x-raw,framerate=5/1",
        "deinterlace mode=interlaced",
        "tee name=t t. ! queue ! x264enc ! fakesink t. ! queue max-size-buffers=0 max-size-time=0 max-size-bytes=0",
        "videoconvert ! x264enc threads=1 speed-preset=ultrafast pass=quant bframes=2 b-adapt=false",
        "videoscale ! video/x-raw,width=48,height=32 ! x264enc threads=1 pass=quant b-adapt=false",
        "videoconvert ! video/x-raw,format=NV12 ! $MAP ! x264enc threads=1 pass=quant b-adapt=false"}) {
    for (const char* options : {"slots=2", "slots=8", "slots=8 transport=pinned"}) {
      cases.push_back(
          {std::string(keeper) + ' ' + options, source + "$MAP ! " + keeper + " ! fakesink name=out", options});
    }
  }
  return cases;
}

TEST_P(Matrix, SameAsQueue) {
  expect_same_as_queue(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Encoders, Matrix, testing::ValuesIn(of_encoders()), case_name);
INSTANTIATE_TEST_SUITE_P(Muxers, Matrix, testing::ValuesIn(of_muxers()), case_name);
INSTANTIATE_TEST_SUITE_P(Keepers, Matrix, testing::ValuesIn(of_keepers()), case_name);

Data bytes_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {bytes, bytes + text.size()};
}

// filesink writes a buffer as it is: rows that a decoder padded would be in the file.
class Written : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Sources, Written,
                         testing::Values("x264enc threads=1 ! h264parse ! avdec_h264", "theoraenc ! theoradec",
                                         "vp9enc deadline=0 threads=1 ! vp9dec", "avenc_mpeg4 ! avdec_mpeg4",
                                         "jpegenc ! jpegdec", "identity"),
                         [](const auto& test) { return as_name(test.param); });

TEST_P(Written, FilesAreTheSame) {
  const TemporaryFolder folder;
  for (const char* options : {"", "slots=2", "transport=pinned"}) {
    SCOPED_TRACE(options);
    const auto written = [&](const std::string& between) {
      const std::string file = folder.path() / "film";
      Pipeline pipeline("videotestsrc num-buffers=10 pattern=ball ! video/x-raw,format=I420,width=96,height=66 ! " +
                        std::string(GetParam()) + " ! " + between + " ! filesink location=" + file);
      EXPECT_EQ(pipeline.run(), "eos");
      pipeline.stop();
      return bytes_of(file);
    };
    const Data expected = written("queue");
    EXPECT_EQ(expected.size(), 10U * 96 * 66 * 3 / 2);
    const Data got = written(on_new_channel(std::string("gpumapsink $CHANNEL ") + options + " gpumapsrc $CHANNEL"));
    EXPECT_EQ(got.size(), expected.size());
    EXPECT_EQ(got == expected, true);
  }
}

}  // namespace
}  // namespace gpumap::gst::test
// NOLINTEND(performance-inefficient-string-concatenation)
