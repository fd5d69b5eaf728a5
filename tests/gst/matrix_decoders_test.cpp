// SPDX-License-Identifier: MIT
// Decoders and demuxers beside gpumap: frames of a decoder that keeps its reference frames, pads its rows and sends
// frames in another order than they came are those behind a queue; and an encoded stream through gpumap decodes to
// them.
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

}  // namespace
}  // namespace gpumap::gst::test
// NOLINTEND(performance-inefficient-string-concatenation)
