// SPDX-License-Identifier: MIT
// Audio, plain bytes and encoded streams through gpumap: whatever a frame is, it comes out as it went in.
#include "matrix.hpp"

namespace gpumap::gst::test {
namespace {

constexpr const char* picture =
    "videotestsrc num-buffers=20 pattern=ball ! video/x-raw,format=I420,width=96,height=64 ! ";
constexpr const char* sound = "audiotestsrc num-buffers=20 samplesperbuffer=441 ! ";

std::vector<Case> of_audio() {
  std::vector<Case> cases;
  for (const char* format : {"S8", "U8", "S16LE", "S16BE", "S24LE", "S24_32LE", "S32LE", "U16LE", "F32LE", "F64LE"}) {
    for (const char* channels : {"1", "2", "6"}) {
      for (const char* layout : {"interleaved", "non-interleaved"}) {
        if (std::string_view(channels) == "6" && std::string_view(format) != "S16LE") continue;
        const std::string caps = std::string("audio/x-raw,format=") + format + ",channels=" + channels +
                                 (std::string_view(channels) == "6" ? ",channel-mask=(bitmask)0x3f" : "") +
                                 ",rate=44100,layout=" + layout;
        cases.push_back({std::string(format) + ' ' + channels + ' ' + layout,
                         "audiotestsrc num-buffers=8 samplesperbuffer=333 ! audioconvert ! " + caps +
                             " ! $MAP ! fakesink name=out"});
      }
    }
  }
  for (const char* rate : {"8000", "11025", "96000", "2000000"}) {
    cases.push_back({std::string("rate ") + rate, std::string("audiotestsrc num-buffers=8 ! audio/x-raw,rate=") + rate +
                                                      " ! $MAP ! fakesink name=out"});
  }
  for (const char* samples : {"1", "7", "4096", "65536"}) {
    cases.push_back({std::string("samples ") + samples, std::string("audiotestsrc num-buffers=8 samplesperbuffer=") +
                                                            samples +
                                                            " ! audio/x-raw,format=F32LE ! $MAP ! "
                                                            "fakesink name=out"});
  }
  for (const char* behind : {"audioconvert ! audio/x-raw,format=U8", "audioresample ! audio/x-raw,rate=8000",
                             "audioconvert ! audio/x-raw,layout=non-interleaved", "volume volume=0.5", "audiorate",
                             "level", "audioecho delay=1000000", "queue ! audiobuffersplit", "deinterleave"}) {
    cases.push_back({std::string("behind ") + behind, std::string(sound) +
                                                          "audio/x-raw,format=F32LE,rate=44100,channels=2 ! $MAP ! " +
                                                          behind + " ! fakesink name=out"});
  }
  cases.push_back({"planar into audioconvert", std::string(sound) +
                                                   "audioconvert ! audio/x-raw,format=F32LE,channels=2,layout=non-"
                                                   "interleaved ! $MAP ! audioconvert ! audio/x-raw,format=S16LE,"
                                                   "layout=interleaved ! fakesink name=out"});
  return cases;
}

/// Bytes of no known structure, in blocks of sizes that no slot was made for.
std::vector<Case> of_bytes() {
  std::vector<Case> cases;
  for (const char* block : {"1", "13", "4095", "4096", "4097", "65537", "1000003"}) {
    for (const char* options : {"", "slots=2", "slot-size=2000000", "transport=pinned"}) {
      const std::string count = std::string_view(block) == "1" ? "50" : "7";
      cases.push_back({std::string("blocks of ") + block + ' ' + options,
                       "fakesrc sizetype=fixed filltype=pattern-span format=time num-buffers=" + count +
                           " sizemax=" + block + " ! application/octet-stream ! $MAP ! fakesink name=out",
                       options});
    }
  }
  cases.push_back(
      {"no caps", "fakesrc sizetype=fixed filltype=pattern num-buffers=9 sizemax=99 ! $MAP ! fakesink name=out"});
  cases.push_back(
      {"empty buffers",
       "fakesrc sizetype=empty datarate=1000 num-buffers=9 ! application/octet-stream ! $MAP ! fakesink name=out"});
  cases.push_back({"file", "filesrc location=" GPUMAP_EXAMPLES "/quickstart blocksize=777 ! $MAP ! fakesink name=out"});
  cases.push_back({"file in one block",
                   "filesrc location=" GPUMAP_EXAMPLES "/quickstart blocksize=10000000 ! $MAP ! fakesink name=out"});
  cases.push_back({"text", "filesrc location=" GPUMAP_EXAMPLES
                           "/quickstart blocksize=100 ! text/plain ! $MAP ! fakesink name=out"});
  return cases;
}

/// Encoded frames: of any size, with a header among them, with times for decoding and flags that decoders go by.
std::vector<Case> of_encoded() {
  std::vector<Case> cases;
  const auto add = [&](const std::string& name, const std::string& upstream, Compared compared = Compared::bytes) {
    cases.push_back({name, upstream + " ! $MAP ! fakesink name=out", "", compared});
    cases.push_back({name + " slots=2", upstream + " ! $MAP ! fakesink name=out", "slots=2", compared});
  };
  const std::string x264 = std::string(picture) +
                           "x264enc threads=1 speed-preset=ultrafast pass=quant bframes=2 b-adapt=false key-int-max=8";
  add("h264 byte-stream", x264 + " ! video/x-h264,stream-format=byte-stream,alignment=au");
  add("h264 nal", x264 + " ! video/x-h264,stream-format=byte-stream ! h264parse ! video/x-h264,alignment=nal");
  add("h264 avc", x264 + " ! video/x-h264,stream-format=avc ! h264parse");
  add("h265",
      std::string(picture) + "x265enc speed-preset=ultrafast option-string=pools=none:frame-threads=1 ! h265parse");
  add("vp8", std::string(picture) + "vp8enc threads=1 deadline=0");
  add("vp9", std::string(picture) + "vp9enc threads=1 deadline=0 ! vp9parse");
  add("mpeg4", std::string(picture) + "avenc_mpeg4");
  add("theora", std::string(picture) + "theoraenc speed-level=0");
  add("jpeg", std::string(picture) + "jpegenc ! jpegparse");
  add("png", std::string(picture) + "videoconvert ! pngenc snapshot=false");
  add("vorbis", std::string(sound) + "audioconvert ! vorbisenc");
  add("opus", std::string(sound) + "audioresample ! audioconvert ! opusenc ! opusparse");
  add("flac", std::string(sound) + "audioconvert ! flacenc ! flacparse");
  add("aac", std::string(sound) + "audioconvert ! avenc_aac ! aacparse");
  add("mp3", std::string(sound) + "audioconvert ! lamemp3enc ! mpegaudioparse");
  add("alaw", std::string(sound) + "audioresample ! audioconvert ! alawenc");
  add("wav", std::string(sound) + "audioconvert ! wavenc");
  add("mpegts", x264 + " ! mpegtsmux");
  add("matroska", x264 + " ! matroskamux streamable=true", Compared::times);
  add("avi", x264 + " ! avimux");
  add("flv", x264 + " ! flvmux streamable=true", Compared::sizes);
  add("mp4 in fragments", x264 + " ! mp4mux fragment-duration=200 streamable=true", Compared::sizes);
  add("rtp", x264 + " ! rtph264pay ssrc=1 seqnum-offset=0 timestamp-offset=0 mtu=300");
  add("rtp of raw video", std::string(picture) + "rtpvrawpay ssrc=1 seqnum-offset=0 timestamp-offset=0");
  add("y4m", std::string(picture) + "y4menc");
  add("subtitles", "filesrc location=" GPUMAP_EXAMPLES "/quickstart ! text/x-raw,format=utf8");
  return cases;
}

TEST_P(Matrix, SameAsQueue) {
  expect_same_as_queue(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Audio, Matrix, testing::ValuesIn(of_audio()), case_name);
INSTANTIATE_TEST_SUITE_P(Bytes, Matrix, testing::ValuesIn(of_bytes()), case_name);
INSTANTIATE_TEST_SUITE_P(Encoded, Matrix, testing::ValuesIn(of_encoded()), case_name);

}  // namespace
}  // namespace gpumap::gst::test
