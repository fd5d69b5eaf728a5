// SPDX-License-Identifier: MIT
// Decoders and demuxers beside gpumap: frames of a decoder that keeps its reference frames, pads its rows and sends
// frames in another order than they came are those behind a queue; and an encoded stream through gpumap decodes to
// them.
#include <fstream>
#include <iterator>

#include "matrix.hpp"
#include "temporary_folder.hpp"

// Tables of pipelines, made once: how fast their texts grow does not matter.
// NOLINTBEGIN(performance-inefficient-string-concatenation)
namespace gpumap::gst::test {
namespace {

// Not a multiple of any block's size, so that decoders pad.
const std::string moving =
    "videotestsrc num-buffers=24 pattern=ball ! video/x-raw,format=I420,width=96,height=66,framerate=25/1 ! ";
const std::string sound = "audiotestsrc num-buffers=20 samplesperbuffer=441 ! ";

/// Encoder, what frames the stream, decoder.
struct Codec {
  const char* name;
  std::string encode, decode;
};

const std::vector<Codec>& video_codecs() {
  static const std::vector<Codec> codecs = {
      {"h264", "x264enc threads=1 speed-preset=ultrafast pass=quant bframes=2 b-adapt=false key-int-max=8 ! h264parse",
       "avdec_h264 max-threads=1"},
      {"h264 threads", "x264enc threads=1 speed-preset=ultrafast pass=quant bframes=2 b-adapt=false ! h264parse",
       "avdec_h264 max-threads=4"},
      {"openh264",
       "x264enc threads=1 speed-preset=ultrafast pass=quant ! video/x-h264,profile=constrained-baseline ! h264parse",
       "openh264dec"},
      {"h265", "x265enc speed-preset=ultrafast option-string=pools=none:frame-threads=1 ! h265parse",
       "avdec_h265 max-threads=1"},
      {"vp8", "vp8enc threads=1 deadline=0", "vp8dec threads=1"},
      {"vp9", "vp9enc threads=1 deadline=0", "vp9dec threads=1"},
      {"theora", "theoraenc speed-level=0", "theoradec"},
      {"jpeg", "jpegenc", "jpegdec"},
      {"jpeg of libav", "jpegenc ! jpegparse", "avdec_mjpeg"},
      {"png", "videoconvert ! pngenc snapshot=false compression-level=1", "pngdec"},
      {"mpeg4", "avenc_mpeg4 ! mpeg4videoparse", "avdec_mpeg4 max-threads=1"},
  };
  return codecs;
}

const std::vector<Codec>& sound_codecs() {
  static const std::vector<Codec> codecs = {
      {"vorbis", "audioconvert ! vorbisenc", "vorbisdec"},
      {"opus", "audioresample ! audioconvert ! opusenc", "opusdec"},
      {"flac", "audioconvert ! flacenc ! flacparse", "flacdec"},
      {"flac of libav", "audioconvert ! flacenc ! flacparse", "avdec_flac"},
      {"aac", "audioconvert ! avenc_aac ! aacparse", "avdec_aac"},
      {"mp3", "audioconvert ! lamemp3enc ! mpegaudioparse", "avdec_mp3"},
      {"mulaw", "audioresample ! audioconvert ! mulawenc", "mulawdec"},
  };
  return codecs;
}

std::vector<Case> of_video() {
  std::vector<Case> cases;
  for (const auto& [name, encode, decode] : video_codecs()) {
    const std::string frames = moving + encode + " ! " + decode + " ! $MAP ! ";
    cases.push_back({name, frames + "fakesink name=out"});
    cases.push_back({std::string(name) + " named", frames + "video/x-raw ! fakesink name=out"});
    cases.push_back({std::string(name) + " two slots", frames + "video/x-raw ! fakesink name=out", "slots=2"});
    for (const char* transport : {"pinned", "zero-copy", "pageable"}) {
      cases.push_back({std::string(name) + ' ' + transport,
                       frames + "videoconvert ! video/x-raw,format=RGB ! fakesink name=out",
                       std::string("slots=16 transport=") + transport});
    }
    cases.push_back(
        {std::string(name) + " before decoder", moving + encode + " ! $MAP ! " + decode + " ! fakesink name=out"});
    cases.push_back({std::string(name) + " on both sides", moving + "$MAP ! " + encode + " ! $MAP ! " + decode +
                                                               " ! $MAP ! video/x-raw ! fakesink name=out"});
  }
  return cases;
}

std::vector<Case> of_sound() {
  std::vector<Case> cases;
  for (const auto& [name, encode, decode] : sound_codecs()) {
    const std::string frames = sound + encode + " ! " + decode + " ! $MAP ! ";
    cases.push_back({name, frames + "fakesink name=out"});
    cases.push_back(
        {std::string(name) + " converted",
         frames + "audioconvert ! audioresample ! audio/x-raw,format=S16LE,rate=22050 ! fakesink name=out"});
    cases.push_back(
        {std::string(name) + " before decoder", sound + encode + " ! $MAP ! " + decode + " ! fakesink name=out"});
  }
  return cases;
}

TEST_P(Matrix, SameAsQueue) {
  expect_same_as_queue(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Video, Matrix, testing::ValuesIn(of_video()), case_name);
INSTANTIATE_TEST_SUITE_P(Sound, Matrix, testing::ValuesIn(of_sound()), case_name);

/// What writes a file and what reads it; and how the reader is found.
struct Container {
  const char *muxer, *demuxer;
};
class Files : public testing::TestWithParam<std::tuple<Container, const char*>> {};
// MP4 in fragments can be read without seeking.
INSTANTIATE_TEST_SUITE_P(
    Containers, Files,
    testing::Combine(testing::Values(Container{"avimux", "avidemux"}, Container{"matroskamux", "matroskademux"},
                                     Container{"mp4mux fragment-duration=200", "qtdemux"},
                                     Container{"mpegtsmux", "tsdemux"}, Container{"flvmux", "flvdemux"}),
                     testing::Values("", "typefind ! ", "decodebin")),
    [](const auto& test) { return as_name(std::get<1>(test.param) + std::string(std::get<0>(test.param).demuxer)); });

// Bytes of a file have no caps: who follows looks at them to tell what they are.
TEST_P(Files, AreReadThroughGpumap) {
  const auto& [container, reader] = GetParam();
  const TemporaryFolder folder;
  const std::string file = folder.path() / "film";
  Pipeline writer(moving + "x264enc threads=1 speed-preset=ultrafast pass=quant key-int-max=8 ! h264parse ! " +
                  container.muxer + " ! filesink location=" + file);
  ASSERT_EQ(writer.run(), "eos");
  const std::string read = std::string_view(reader) == "decodebin" ? reader : std::string(reader) + container.demuxer;
  for (const char* block : {"500", "4096"}) {
    SCOPED_TRACE(block);
    expect_same_as_queue(
        {"file", "filesrc location=" + file + " blocksize=" + block + " ! $MAP ! " + read + " ! fakesink name=out"});
  }
}

// Encoders, muxers and sinks that keep what they get, behind gpumap: the file is the one written without it.

const std::string source =
    "videotestsrc num-buffers=60 pattern=ball ! video/x-raw,format=I420,width=96,height=64,framerate=25/1 ! ";
const std::string long_sound = "audiotestsrc num-buffers=60 samplesperbuffer=441 ! ";

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
                     source + "$MAP ! " + video + " ! queue ! m.  " + long_sound + "$MAP ! audioconvert ! " + codec +
                         " ! queue ! m.  " + muxer + " name=m ! fakesink name=out",
                     "", compared});
    cases.push_back({name + " with encoded sound",
                     source + video + " ! $MAP ! m.  " + long_sound + "audioconvert ! " + codec + " ! $MAP ! m.  " +
                         muxer + " name=m ! fakesink name=out",
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
