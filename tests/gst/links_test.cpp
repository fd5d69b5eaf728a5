// SPDX-License-Identifier: MIT
// What a gpumapsrc says of its caps before anything starts: which media types upstream of its gpumapsink can give.
// Elements with pads of several kinds are linked by it.
#include "pipeline.hpp"

namespace gpumap::gst::test {
namespace {

class Links : public testing::Test {
 protected:
  const std::string channel_ = new_channel();
  const std::string sink_ = "gpumapsink channel=" + channel_;
  Pipeline out_{"gpumapsrc name=src channel=" + channel_ + " ! fakesink"};

  /// What the src says, asked with `filter` (null: without).
  std::string says(const char* filter = nullptr) {
    const Pad pad(gst_element_get_static_pad(out_.element("src"), "src"));
    const Caps asked(filter != nullptr ? gst_caps_from_string(filter) : nullptr);
    const Caps said(gst_pad_query_caps(pad.get(), asked.get()));
    gchar* text = gst_caps_to_string(said.get());
    std::string copy = text;
    g_free(text);
    return copy;
  }
};

TEST_F(Links, NoSinkIsAnything) {
  EXPECT_EQ(says(), "ANY");
  EXPECT_EQ(says("audio/x-raw"), "audio/x-raw");
}

TEST_F(Links, MediaTypesThatUpstreamCanGiveInEitherMemory) {
  const Pipeline in("identity ! capsfilter caps=audio/x-raw,rate=8000;audio/x-raw,rate=9000;audio/mpeg ! " + sink_);
  EXPECT_EQ(says(), "audio/x-raw(memory:GPUMap); audio/mpeg(memory:GPUMap); audio/x-raw; audio/mpeg");
  EXPECT_EQ(says("audio/x-raw, channels=(int)2"), "audio/x-raw, channels=(int)2");
  EXPECT_EQ(says("audio/x-raw(memory:GPUMap), channels=(int)2"), "audio/x-raw(memory:GPUMap), channels=(int)2");
  EXPECT_EQ(says("video/x-raw"), "EMPTY");
}

TEST_F(Links, ASinkThatIsNotLinkedIsAnything) {
  const Pipeline in(sink_);
  EXPECT_EQ(says(), "ANY");
}

// Which of them will be there when it starts, no one knows.
TEST_F(Links, TwoSinksOfOneNameAreAnything) {
  const Pipeline in("capsfilter caps=audio/x-raw ! " + sink_);
  EXPECT_NE(says(), "ANY");
  {
    const Pipeline other("capsfilter caps=video/x-raw ! " + sink_);
    EXPECT_EQ(says(), "ANY");
  }
  EXPECT_EQ(says(), "audio/x-raw(memory:GPUMap); audio/x-raw");
}

TEST_F(Links, ARenamedSinkIsAnother) {
  const Pipeline in("capsfilter caps=audio/x-raw ! " + sink_ + " name=sink");
  g_object_set(in.element("sink"), "channel", new_channel().c_str(), nullptr);
  EXPECT_EQ(says(), "ANY");
}

// Once caps are chosen they are the answer.
TEST_F(Links, ChosenCapsAreTheAnswer) {
  Pipeline in("videotestsrc num-buffers=3 ! video/x-raw,format=GRAY8,width=8,height=8 ! " + sink_);
  ASSERT_NE(out_.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_EQ(in.run(10s), "eos");
  EXPECT_TRUE(eventually([&] { return says().find("format=(string)GRAY8") != std::string::npos; }, 5s)) << says();
  EXPECT_EQ(says().find("memory:GPUMap"), std::string::npos);
}

// A muxer's first pad is one for sound.
TEST_F(Links, AMuxerIsLinkedAtTheRightPad) {
  Pipeline whole(
      "videotestsrc num-buffers=10 ! video/x-raw,width=64,height=48 ! x264enc ! h264parse ! gpumapsink channel=" +
      channel_ + "v audiotestsrc num-buffers=10 ! avenc_aac ! aacparse ! gpumapsink channel=" + channel_ +
      "a mp4mux name=m ! fakesink gpumapsrc channel=" + channel_ + "a ! m. gpumapsrc channel=" + channel_ + "v ! m.");
  EXPECT_EQ(whole.run(20s), "eos");
}

}  // namespace
}  // namespace gpumap::gst::test
