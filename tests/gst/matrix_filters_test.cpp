// SPDX-License-Identifier: MIT
// Filters before and behind gpumap, and pipelines of several branches: what an element makes of a stream is as behind a
// queue, in whatever memory, layout and number it takes its frames.
#include "matrix.hpp"

// Tables of pipelines, made once: how fast their texts grow does not matter.
// NOLINTBEGIN(performance-inefficient-string-concatenation)
namespace gpumap::gst::test {
namespace {

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
  const std::string sound = "audiotestsrc num-buffers=20 samplesperbuffer=441 ! ";
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
      {"sound beside", source + "$MAP ! fakesink name=out " + sound + "$MAP ! fakesink"},
      {"synchronised", source + "$MAP ! fakesink name=out sync=true"},
      {"sink of one frame", source + "$MAP ! fakesink name=out num-buffers=5 sync=false"},
      {"into compositor", source +
                              "$MAP ! compositor name=c sink_1::xpos=66 ! video/x-raw,width=132,height=50 ! "
                              "fakesink name=out " +
                              source + "$MAP ! c."},
      {"into audiomixer", sound + "$MAP ! audiomixer name=m ! fakesink name=out " + sound + "$MAP ! m."},
      {"from deinterleave",
       sound + "audio/x-raw,channels=2,rate=44100 ! deinterleave name=d d.src_0 ! $MAP ! "
               "fakesink name=out d.src_1 ! $MAP ! fakesink",
       "", Compared::bytes, true},
      {"spectrum beside", sound + "tee name=t t. ! queue ! $MAP ! audioconvert ! fakesink name=out t. ! queue ! "
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

TEST_P(Matrix, SameAsQueue) {
  expect_same_as_queue(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Filters, Matrix, testing::ValuesIn(of_filters()), case_name);
INSTANTIATE_TEST_SUITE_P(Branches, Matrix, testing::ValuesIn(of_branches()), case_name);
INSTANTIATE_TEST_SUITE_P(CapsChanges, Matrix, testing::ValuesIn(of_changes()), case_name);

}  // namespace
}  // namespace gpumap::gst::test
// NOLINTEND(performance-inefficient-string-concatenation)
