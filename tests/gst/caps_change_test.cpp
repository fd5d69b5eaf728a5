// SPDX-License-Identifier: MIT
// Caps change while slots of the old size are out: every frame arrives whole, under its own caps.
#include "pipeline.hpp"

namespace gpumap::gst::test {
namespace {

struct Step {
  const char* format;
  int width, height;
};
// Up, down, another format, the same again.
constexpr Step steps[] = {{"NV12", 64, 48},    {"NV12", 1917, 1081}, {"NV12", 33, 7},  {"RGB", 33, 7},
                          {"GRAY8", 640, 480}, {"NV12", 64, 48},     {"NV12", 64, 48}, {"AYUV", 801, 601}};

TEST(CapsChange, FromForeignBuffers) {
  Pipeline pipeline(
      on_new_channel("appsrc name=in format=time ! gpumapsink name=sink slots=4 $CHANNEL "
                     "gpumapsrc $CHANNEL ! gpumapkernel kernel=checksum ! appsink name=out sync=false"));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  std::vector<std::uint64_t> sums;
  std::vector<Caps> caps;
  for (const Step& step : steps) {
    Caps now = video_caps(step.format, step.width, step.height);
    gst_app_src_set_caps(pipeline.appsrc(), now.get());
    for (int i = 0; i < 3; ++i) {
      const Data data = random_data(frame_bytes(now.get()), sums.size());
      sums.push_back(checksum_of(data));
      caps.emplace_back(gst_caps_ref(now.get()));
      push(pipeline.appsrc(), new_buffer(data));
    }
  }
  gst_app_src_end_of_stream(pipeline.appsrc());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const Sample sample = pull(pipeline.appsink());
    ASSERT_NE(sample, nullptr) << "frame " << i << ": " << pipeline.wait(1ms);
    GstVideoInfo info;
    ASSERT_TRUE(gst_video_info_from_caps(&info, gst_sample_get_caps(sample.get())));
    GstVideoInfo pushed;
    ASSERT_TRUE(gst_video_info_from_caps(&pushed, caps[i].get()));
    EXPECT_EQ(GST_VIDEO_INFO_FORMAT(&info), GST_VIDEO_INFO_FORMAT(&pushed)) << i;
    EXPECT_EQ(info.width, pushed.width) << i;
    EXPECT_EQ(info.height, pushed.height) << i;
    EXPECT_EQ(checksum_of(data_of(gst_sample_get_buffer(sample.get()))), sums[i]) << i;
  }
  ASSERT_EQ(pipeline.wait(), "eos");
  ASSERT_EQ(pipeline.results().size(), sums.size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    EXPECT_EQ(pipeline.results()[i].checksum, sums[i]) << i;
    EXPECT_EQ(pipeline.results()[i].sequence, i) << "a larger ring began to count anew";
  }
}

// From the sink's own pool, with slots of the rings before held by the application.
TEST(CapsChange, FromThePoolWithOldSlotsHeld) {
  Pipeline pipeline(on_new_channel(
      "videotestsrc pattern=snow ! capsfilter name=filter caps=video/x-raw,format=NV12,width=64,height=48 ! "
      "gpumapsink name=sink slots=16 $CHANNEL gpumapsrc $CHANNEL ! "
      "appsink name=out sync=false max-buffers=1"));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  std::vector<Sample> held;
  std::vector<std::uint64_t> sums;
  for (const Step& step : steps) {
    const Caps caps = Caps(gst_caps_new_simple("video/x-raw", "format", G_TYPE_STRING, step.format, "width", G_TYPE_INT,
                                               step.width, "height", G_TYPE_INT, step.height, nullptr));
    g_object_set(pipeline.element("filter"), "caps", caps.get(), nullptr);
    bool arrived = false;
    for (int i = 0; i < 40 && !arrived; ++i) {
      Sample sample = pull(pipeline.appsink());
      ASSERT_NE(sample, nullptr) << step.format << " " << step.width << ": " << pipeline.wait(1ms);
      GstVideoInfo info;
      ASSERT_TRUE(gst_video_info_from_caps(&info, gst_sample_get_caps(sample.get())));
      arrived = info.width == step.width && info.height == step.height &&
                std::string_view(gst_video_format_to_string(GST_VIDEO_INFO_FORMAT(&info))) == step.format;
      if (!arrived) continue;
      EXPECT_GE(gst_buffer_get_size(gst_sample_get_buffer(sample.get())), info.size);
      sums.push_back(checksum_of(data_of(gst_sample_get_buffer(sample.get()))));
      held.push_back(std::move(sample));
    }
    ASSERT_TRUE(arrived) << step.format << " " << step.width << "x" << step.height;
  }
  EXPECT_EQ(stat(pipeline.element("sink"), "copied-frames"), 0U);
  pipeline.stop();
  // What the application holds is not written again.
  for (std::size_t i = 0; i < held.size(); ++i) {
    EXPECT_EQ(checksum_of(data_of(gst_sample_get_buffer(held[i].get()))), sums[i]);
  }
}

/// What is said where what follows asks for `wanted` while 64x48 of I420 play, and whether that came. `apart`: from
/// another pipeline.
struct Asked {
  std::string said;
  bool arrived = false;
};
Asked ask_for(const std::string& upstream, const std::string& behind, const char* wanted, int width, bool apart) {
  const std::string channel = "channel=" + new_channel();
  const std::string in = upstream + " ! gpumapsink " + channel + " ";
  const std::string out = "gpumapsrc " + channel + " ! " + behind +
                          "capsfilter name=filter caps=video/x-raw,format=I420,width=64,height=48 ! "
                          "appsink name=out sync=false max-buffers=1";
  const auto producer = apart ? std::make_unique<Pipeline>(in) : nullptr;
  Pipeline pipeline(apart ? out : in + out);
  EXPECT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  if (producer) {
    EXPECT_NE(producer->set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  }
  for (int i = 0; i < 3; ++i) EXPECT_NE(pull(pipeline.appsink()), nullptr) << pipeline.wait(1ms);
  g_object_set(pipeline.element("filter"), "caps", new_caps(wanted).get(), nullptr);
  Asked asked;
  // The old ones are those that lie in the ring, and a few on their way there.
  for (int i = 0; i < 100 && !asked.arrived; ++i) {
    const Sample sample = pull(pipeline.appsink());
    if (!sample) break;
    GstVideoInfo info;
    EXPECT_TRUE(gst_video_info_from_caps(&info, gst_sample_get_caps(sample.get())));
    asked.arrived = info.width == width;
  }
  asked.said = pipeline.wait(1ms);
  return asked;
}

// What upstream cannot give is an error, as behind a queue: it is not that the old frames go on.
TEST(CapsChange, ThatUpstreamCannotMakeIsAnError) {
  for (const char* wanted : {"video/x-raw,format=RGB,width=64,height=48", "audio/x-raw"}) {
    for (const bool apart : {false, true}) {
      const Asked asked = ask_for("videotestsrc ! video/x-raw,format=I420,width=64,height=48", "", wanted, 1, apart);
      EXPECT_NE(asked.said.find("what follows gpumapsrc does not take video/x-raw"), std::string::npos)
          << wanted << (apart ? ", two pipelines: " : ": ") << asked.said;
    }
  }
}

// Frames of the size before fill the ring, and an element that converts refuses each of them.
TEST(CapsChange, ForgivesEachFrameThatWasMadeBefore) {
  for (const char* behind : {"", "videoconvert ! "}) {
    for (const bool apart : {false, true}) {
      const Asked asked = ask_for("videotestsrc", behind, "video/x-raw,format=I420,width=32,height=24", 32, apart);
      EXPECT_TRUE(asked.arrived) << '"' << behind << (apart ? "\", two pipelines: " : "\": ") << asked.said;
    }
  }
}

}  // namespace
}  // namespace gpumap::gst::test
