// SPDX-License-Identifier: MIT
// Raw video in every format, in sizes that leave half pixels and odd rows, over every transport and in rings of few and
// of many slots: the frames that come out are those that went in.
#include "matrix.hpp"

// Tables of pipelines, made once: how fast their texts grow does not matter.
// NOLINTBEGIN(performance-inefficient-string-concatenation)
namespace gpumap::gst::test {
namespace {

constexpr const char* formats[] = {
    "NV12",      "NV21",      "NV16",      "NV24",      "I420",   "YV12",       "Y42B", "Y444", "Y41B",
    "YUV9",      "YUY2",      "UYVY",      "YVYU",      "AYUV",   "VUYA",       "v308", "v210", "v216",
    "Y210",      "Y410",      "P010_10LE", "I420_10LE", "RGB",    "BGR",        "RGBA", "BGRA", "ARGB",
    "ABGR",      "RGBx",      "xBGR",      "RGB16",     "BGR15",  "GRAY8",      "GBR",  "GBRA", "A420",
    "I422_10LE", "Y444_12LE", "GRAY16_LE", "GRAY16_BE", "ARGB64", "BGR10A2_LE",
};

std::string video(const std::string& format, const std::string& size, int frames = 4, const char* rate = "30/1") {
  const auto by = size.find('x');
  return "videotestsrc num-buffers=" + std::to_string(frames) + " pattern=smpte ! video/x-raw,format=" + format +
         ",width=" + size.substr(0, by) + ",height=" + size.substr(by + 1) + ",framerate=" + rate + " ! ";
}

/// Into an element that names ordinary memory.
std::vector<Case> of_named_memory() {
  std::vector<Case> cases;
  for (const char* format : formats) {
    cases.push_back({format, video(format, "33x7") + "$MAP ! video/x-raw ! fakesink name=out"});
  }
  return cases;
}

/// Straight into the last element, which takes any caps and reads no GstVideoMeta, as filesink does.
Case straight(const std::string& format, const std::string& size, const std::string& options = "", int frames = 4) {
  std::string name = format + ' ' + size;
  if (!options.empty()) name += ' ' + options;
  return {name, video(format, size, frames) + "$MAP ! fakesink name=out", options};
}

std::vector<Case> of_all_formats(std::initializer_list<const char*> sizes) {
  std::vector<Case> cases;
  for (const char* size : sizes) {
    for (const char* format : formats) cases.push_back(straight(format, size));
  }
  return cases;
}

std::vector<Case> of_sizes_and_slots() {
  std::vector<Case> cases;
  for (const char* format : {"NV12", "I420", "RGB", "YUY2", "v210", "GRAY8"}) {
    for (const char* size : {"1x1", "2x2", "319x241", "1917x1081", "1x480", "640x1"}) {
      cases.push_back(straight(format, size));
    }
  }
  for (const char* format : {"NV12", "I420", "BGRA", "GRAY8", "v210"}) {
    for (const char* transport : transports()) {
      for (const char* slots : {"2", "8"}) {
        const std::string options = std::string("slots=") + slots + " transport=" + transport;
        cases.push_back(straight(format, "65x33", options, 20));
      }
    }
  }
  return cases;
}

std::vector<Case> of_rates() {
  std::vector<Case> cases;
  for (const char* rate : {"1/10", "24000/1001", "25/1", "30000/1001", "60/1", "1000/1", "0/1"}) {
    cases.push_back({std::string("rate ") + rate, video("NV12", "32x18", 12, rate) + "$MAP ! fakesink name=out"});
  }
  for (const char* mode : {"interleaved", "mixed"}) {
    cases.push_back({std::string("interlaced ") + mode,
                     std::string("videotestsrc num-buffers=6 ! video/x-raw,format=I420,width=32,height=18,"
                                 "framerate=25/1 ! capssetter caps=video/x-raw,interlace-mode=") +
                         mode + " ! $MAP ! fakesink name=out"});
  }
  for (const char* colours : {"bt601", "bt709", "bt2020", "sRGB", "1:4:0:0"}) {
    cases.push_back(
        {std::string("colours ") + colours,
         std::string("videotestsrc num-buffers=3 ! video/x-raw,format=I420,width=32,height=18,colorimetry=") + colours +
             ",chroma-site=mpeg2,pixel-aspect-ratio=4/3 ! $MAP ! fakesink name=out"});
  }
  // Times that do not begin at 0, buffers without times, gaps between them.
  const std::string small = "video/x-raw,format=GRAY8,width=8,height=8,framerate=25/1 ! ";
  cases.push_back({"timestamp offset", "videotestsrc num-buffers=5 timestamp-offset=3600000000000 ! " + small +
                                           "$MAP ! fakesink name=out"});
  cases.push_back({"without times", "videotestsrc num-buffers=5 ! " + small +
                                        "identity single-segment=true ! $MAP ! fakesink name=out"});
  cases.push_back({"every other dropped", "videotestsrc num-buffers=20 ! " + small +
                                              "videorate max-rate=12 drop-only=true ! $MAP ! fakesink name=out"});
  cases.push_back({"times before zero", "videotestsrc num-buffers=5 pattern=snow ! " + small +
                                            "identity ts-offset=-20000000 ! $MAP ! fakesink name=out"});
  return cases;
}

TEST_P(Matrix, SameAsQueue) {
  expect_same_as_queue(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Formats, Matrix, testing::ValuesIn(of_all_formats({"17x9", "64x32"})), case_name);
INSTANTIATE_TEST_SUITE_P(NamedMemory, Matrix, testing::ValuesIn(of_named_memory()), case_name);
INSTANTIATE_TEST_SUITE_P(SizesAndSlots, Matrix, testing::ValuesIn(of_sizes_and_slots()), case_name);
INSTANTIATE_TEST_SUITE_P(RatesAndCaps, Matrix, testing::ValuesIn(of_rates()), case_name);

// Audio, plain bytes and encoded streams through gpumap: whatever a frame is, it comes out as it went in.

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

INSTANTIATE_TEST_SUITE_P(Audio, Matrix, testing::ValuesIn(of_audio()), case_name);
INSTANTIATE_TEST_SUITE_P(Bytes, Matrix, testing::ValuesIn(of_bytes()), case_name);
INSTANTIATE_TEST_SUITE_P(Encoded, Matrix, testing::ValuesIn(of_encoded()), case_name);

// Filters before and behind gpumap, and pipelines of several branches: what an element makes of a stream is as behind a
// queue, in whatever memory, layout and number it takes its frames.

const std::string source = "videotestsrc num-buffers=12 ! video/x-raw,format=I420,width=66,height=50,framerate=25/1 ! ";

constexpr const char* filters[] = {
    "identity",
    "videoconvert ! video/x-raw,format=RGBA",
    "videoconvert ! video/x-raw,format=NV12",
    "videoscale ! video/x-raw,width=31,height=17",
    "videoscale add-borders=true ! video/x-raw,width=40,height=80",
    "videoconvertscale ! video/x-raw,format=GRAY8,width=30",
    "videorate ! video/x-raw,framerate=15/1",
    "videorate ! video/x-raw,framerate=60/1",
    "videorate drop-only=true max-rate=10",
    "videocrop left=3 right=4 top=1 bottom=6",
    "videobox left=-3 top=5",
    "videoflip method=clockwise",
    "videoflip method=horizontal-flip",
    "textoverlay text=hello",
    "timeoverlay",
    "deinterlace mode=interlaced",
    "deinterlace",
    "interlace",
    "videobalance saturation=0",
    "gamma gamma=2",
    "queue max-size-buffers=1",
    "queue2",
    "valve",
    "imagefreeze num-buffers=7",
    "videoconvert ! alpha alpha=0.5",
    "compositor",
    "funnel",
    "input-selector",
    "concat",
    "videomedian",
    "navigationtest",
    "capssetter caps=video/x-raw,pixel-aspect-ratio=2/1",
};

std::vector<Case> of_filters() {
  std::vector<Case> cases;
  for (const std::string filter : filters) {
    cases.push_back({"behind " + filter, source + "$MAP ! " + filter + " ! fakesink name=out"});
    cases.push_back({"before " + filter, source + filter + " ! $MAP ! fakesink name=out"});
    cases.push_back({"two slots " + filter, source + "$MAP ! " + filter + " ! fakesink name=out", "slots=2"});
  }
  return cases;
}

std::vector<Case> of_branches() {
  const std::string tone = "audiotestsrc num-buffers=20 samplesperbuffer=441 ! ";
  return {
      {"tee before", source + "tee name=t t. ! queue ! $MAP ! fakesink name=out t. ! queue ! fakesink"},
      {"tee behind", source + "$MAP ! tee name=t t. ! queue ! fakesink name=out t. ! queue ! fakesink"},
      {"tee behind into a converter",
       source + "$MAP ! tee name=t t. ! queue ! videoconvert ! video/x-raw,format=RGB ! fakesink name=out "
                "t. ! queue ! fakesink"},
      {"tee behind into converters",
       source + "$MAP ! tee name=t t. ! queue ! videoconvert ! video/x-raw,format=RGB ! fakesink name=out "
                "t. ! queue ! videoscale ! video/x-raw,width=20 ! fakesink"},
      {"tee before into two", source + "tee name=t t. ! queue ! $MAP ! fakesink name=out t. ! queue ! $MAP ! fakesink"},
      {"three in a row", source + "$MAP ! $MAP ! $MAP ! fakesink name=out"},
      {"three in a row, converters between", source + "$MAP ! videoconvert ! video/x-raw,format=RGB ! $MAP ! "
                                                      "videoscale ! video/x-raw,width=33 ! $MAP ! fakesink name=out"},
      {"queues around", source + "queue ! $MAP ! queue ! fakesink name=out"},
      {"sound beside", source + "$MAP ! fakesink name=out " + tone + "$MAP ! fakesink"},
      {"synchronised", source + "$MAP ! fakesink name=out sync=true"},
      {"sink of one frame", source + "$MAP ! fakesink name=out num-buffers=5 sync=false"},
      {"into compositor", source +
                              "$MAP ! compositor name=c sink_1::xpos=66 ! video/x-raw,width=132,height=50 ! "
                              "fakesink name=out " +
                              source + "$MAP ! c."},
      {"into audiomixer", tone + "$MAP ! audiomixer name=m ! fakesink name=out " + tone + "$MAP ! m."},
      {"from deinterleave",
       tone + "audio/x-raw,channels=2,rate=44100 ! deinterleave name=d d.src_0 ! $MAP ! "
              "fakesink name=out d.src_1 ! $MAP ! fakesink",
       "", Compared::bytes, true},
      {"spectrum beside", tone + "tee name=t t. ! queue ! $MAP ! audioconvert ! fakesink name=out t. ! queue ! "
                                 "spectrum ! fakesink"},
  };
}

/// Caps that change in the middle of a stream.
std::vector<Case> of_changes() {
  const auto part = [](const char* caps) {
    return std::string("videotestsrc num-buffers=5 ! video/x-raw,framerate=25/1,") + caps + " ! c. ";
  };
  std::vector<Case> cases;
  const auto add = [&](const char* name, const std::string& parts, const char* options = "") {
    cases.push_back({name, "concat name=c ! $MAP ! fakesink name=out " + parts, options});
    cases.push_back({std::string(name) + " converted",
                     "concat name=c ! $MAP ! videoconvert ! videoscale ! video/x-raw,format=RGB,width=30,height=20 ! "
                     "fakesink name=out " +
                         parts,
                     options});
  };
  add("larger", part("format=NV12,width=32,height=18") + part("format=NV12,width=320,height=180"));
  add("smaller", part("format=NV12,width=320,height=180") + part("format=NV12,width=32,height=18"));
  add("format", part("format=NV12,width=64,height=36") + part("format=RGB,width=64,height=36") +
                    part("format=GRAY8,width=64,height=36"));
  add("format in few slots", part("format=NV12,width=64,height=36") + part("format=RGB,width=64,height=36"), "slots=2");
  add("there and back", part("format=I420,width=64,height=36") + part("format=I420,width=66,height=36") +
                            part("format=I420,width=64,height=36"));
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Filters, Matrix, testing::ValuesIn(of_filters()), case_name);
INSTANTIATE_TEST_SUITE_P(Branches, Matrix, testing::ValuesIn(of_branches()), case_name);
INSTANTIATE_TEST_SUITE_P(CapsChanges, Matrix, testing::ValuesIn(of_changes()), case_name);

}  // namespace
}  // namespace gpumap::gst::test
// NOLINTEND(performance-inefficient-string-concatenation)
