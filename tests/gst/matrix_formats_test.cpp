// SPDX-License-Identifier: MIT
// Raw video in every format, in sizes that leave half pixels and odd rows, over every transport and in rings of few and
// of many slots: the frames that come out are those that went in.
#include "matrix.hpp"

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

}  // namespace
}  // namespace gpumap::gst::test
