// SPDX-License-Identifier: MIT
// Kernels of the user's, in files that declare what they give and take.
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "gpumap/device.hpp"
#include "own_kernel.hpp"
#include "pipeline.hpp"

namespace gpumap::gst::test {
namespace {

using ::testing::HasSubstr;

TEST(OwnKernel, GivesWhatItsFileDeclares) {
  const ShaderFile file(gray(halved, input_pixel));
  Own own("location=" + file.path());
  const Sample sample = own.frame();
  ASSERT_TRUE(sample) << own.pipeline().wait(1s);
  EXPECT_THAT(caps_of(sample), testing::AllOf(HasSubstr("format=(string)GRAY8"), HasSubstr("width=(int)32"),
                                              HasSubstr("height=(int)21"), HasSubstr("framerate=(fraction)30/1")));
  const Data data = data_of(gst_sample_get_buffer(sample.get()));
  ASSERT_EQ(data.size(), 32U * 21);
  for (int y = 0; y < 21; ++y) {
    for (int x = 0; x < 32; ++x) {
      ASSERT_EQ(std::to_integer<unsigned>(data[y * 32 + x]), own.pixel(2 * x, 2 * y)) << x << "," << y;
    }
  }
}

TEST(OwnKernel, ThePropertyComesBeforeTheFile) {
  const ShaderFile file(gray(halved, input_pixel));
  Own own("location=" + file.path() + " declare=\"output video/x-raw,format=GRAY8,width=8,height={height-40}\"");
  const Sample sample = own.frame();
  ASSERT_TRUE(sample) << own.pipeline().wait(1s);
  EXPECT_THAT(caps_of(sample), testing::AllOf(HasSubstr("width=(int)8"), HasSubstr("height=(int)3")));
}

// The caps are those of the kernel that runs: one that trusts its declaration would write out of bounds in others.
TEST(OwnKernel, CapsAndCodeAreOfOneVersion) {
  const ShaderFile file(gray("// gpumap: output video/x-raw,format=GRAY8,width=8,height=8\n", "7u"));
  Own own("location=" + file.path());
  const Pad pad(gst_element_get_static_pad(own.pipeline().element("kernel"), "src"));
  const auto shown = [&pad] {
    const Caps caps(gst_pad_query_caps(pad.get(), nullptr));
    gint width = 0;
    if (gst_caps_is_any(caps.get())) return width;
    gst_structure_get_int(gst_caps_get_structure(caps.get(), 0), "width", &width);
    return width;
  };
  EXPECT_EQ(shown(), 0);
  file.write(gray("// gpumap: output video/x-raw,format=GRAY8,width=68,height=5\n", "9u"));
  EXPECT_THAT(own.bytes(), testing::AllOf(testing::SizeIs(68 * 5), testing::Each(std::byte{9})));
  // Neither another file nor another property counts before the next start.
  file.write(gray("// gpumap: output video/x-raw,format=GRAY8,width=200,height=200\n", "11u"));
  g_object_set(own.pipeline().element("kernel"), "location", "elsewhere.comp", "declare", "output video/x-raw,width=12",
               nullptr);
  EXPECT_EQ(shown(), 68);
  ASSERT_TRUE(gst_pad_send_event(pad.get(), gst_event_new_reconfigure()));
  EXPECT_THAT(own.bytes(), testing::AllOf(testing::SizeIs(68 * 5), testing::Each(std::byte{9})));
}

TEST(OwnKernel, FramesOfOtherMediaTypesAndSizes) {
  const ShaderFile file(
      "// gpumap: output application/x-histogram\n"
      "// gpumap: bytes width*4+height\n"
      "void main() { if (gpumap_thread() < frame.out_view.bytes) store_u8(frame.out_view.plane[0] + gpumap_thread(), "
      "uint(frame.out_view.bytes)); }\n");
  Own own("location=" + file.path());
  const Sample sample = own.frame();
  ASSERT_TRUE(sample) << own.pipeline().wait(1s);
  EXPECT_THAT(caps_of(sample), HasSubstr("application/x-histogram"));
  const Data data = data_of(gst_sample_get_buffer(sample.get()));
  ASSERT_EQ(data.size(), 65U * 4 + 43);
  EXPECT_THAT(data, testing::Each(std::byte{(65 * 4 + 43) % 256}));
}

TEST(OwnKernel, ExpressionsKnowStridesAndWhatIsLess) {
  const ShaderFile file(
      "// gpumap: output application/x-rows,wide={min(width,64)},odd={height%2}\n"
      "// gpumap: bytes stride*max(height,50)\n"
      "void main() {}\n");
  Own own("location=" + file.path());
  const Sample sample = own.frame();
  ASSERT_TRUE(sample) << own.pipeline().wait(1s);
  EXPECT_THAT(caps_of(sample), testing::AllOf(HasSubstr("wide=(int)64"), HasSubstr("odd=(int)1")));
  EXPECT_EQ(gst_buffer_get_size(gst_sample_get_buffer(sample.get())), std::size_t{Own::stride} * 50);
}

TEST(OwnKernel, TakesWhatItsFileDeclares) {
  const ShaderFile grey(gray("// gpumap: input video/x-raw,format={GRAY8,NV12}\n", input_pixel));
  Own fits("location=" + grey.path());
  EXPECT_TRUE(fits.frame()) << fits.pipeline().wait(1s);
  const ShaderFile other(gray("// gpumap: input video/x-raw,format=I420\n" + std::string(halved), input_pixel));
  Own refused("location=" + other.path());
  push(refused.pipeline().appsrc(), new_buffer(random_data(Own::frame_bytes, 1)));
  EXPECT_THAT(refused.pipeline().run(), testing::AllOf(HasSubstr("GRAY8"), HasSubstr("I420")));
  Own overruled("location=" + other.path() + " declare=\"input video/x-raw,format=GRAY8;video/x-raw,format=RGB\"");
  EXPECT_TRUE(overruled.frame()) << overruled.pipeline().wait(1s);
}

TEST(OwnKernel, MacrosAreThoseOfTheProperty) {
  const ShaderFile file(gray("", "VALUE + OTHER"));
  Own own("location=" + file.path() + " defines=VALUE=40u,OTHER");
  const Data data = own.bytes();
  ASSERT_FALSE(data.empty());
  EXPECT_EQ(std::to_integer<unsigned>(data[0]), 41U);
}

TEST(OwnKernel, ErrorsNameWhatIsWrong) {
  const ShaderFile declares_wrongly("// gpumap: blok 3\nvoid main() {}\n");
  const ShaderFile wrong_caps("// gpumap: output video/x-raw,width={width/depth}\nvoid main() {}\n");
  const ShaderFile no_caps("// gpumap: output 7\nvoid main() {}\n");
  const ShaderFile no_video("// gpumap: output video/x-raw,format=RGBX8\nvoid main() {}\n");
  const ShaderFile no_audio("// gpumap: output audio/x-raw,format=F32\nvoid main() {}\n");
  const ShaderFile from_no_video("// gpumap: input video/x-raw,format=GRAY\nvoid main() {}\n");
  const ShaderFile no_input("// gpumap: input 7\nvoid main() {}\n");
  const ShaderFile of_memory("// gpumap: input video/x-raw(memory:GPUMap),format=NV12\nvoid main() {}\n");
  const ShaderFile fine("void main() {}\n");
  const ShaderFile sees_bytes("// gpumap: view bytes\nvoid main() {}\n");
  const std::pair<std::string, const char*> cases[] = {
      {"location=" + declares_wrongly.path(), "line 3: // gpumap: no declaration \"blok\""},
      {"location=" + wrong_caps.path(), "no variable 'depth' here: there are width, height, rate, channels"},
      {"location=" + no_caps.path(), "output caps \"7\" cannot be read"},
      {"location=" + no_video.path(), "video/x-raw has no format RGBX8: write one that it has, as in format=RGBA"},
      {"location=" + no_audio.path(), "audio/x-raw has no format F32: write one that it has, as in format=F32LE"},
      {"location=" + from_no_video.path(), "input caps \"video/x-raw,format=GRAY\": video/x-raw has no format GRAY"},
      {"location=" + no_input.path(), "input caps \"7\" cannot be read"},
      {"location=" + of_memory.path(),
       "input caps \"video/x-raw(memory:GPUMap),format=NV12\" are of one memory: write them without (memory:GPUMap)"},
      {"location=" + sees_bytes.path() + " declare=\"output converted\"",
       "\"output converted\" is for a kernel that sees pictures, and this one declares \"view bytes\""},
      {"location=" + fine.path() + " declare=\"grid 7; block 3y\"", "declare: block: \"3y\" is no dimension"},
      {"location=" + fine.path() + " function=a,,b", "function: \"a,,b\": a name is missing"},
      {"location=" + fine.path() + " declare=\"shared 64\"", "dynamic shared memory is CUDA's"},
      {"location=" + fine.path() + " function=nothing", "no function 'nothing' in it"},
      {"location=" + fine.path() + " declare=\"bytes 1/0\"", "its line bytes has no value for a frame of"},
      {"location=" + fine.path() + " declare=\"state 900000000000\"", "lower the line state"},
      {"location=" + fine.path() + " declare=\"state 18446744073709551615\"", "lower the line state"},
      {"kernel=blend declare=\"grid 3\"", "no built-in kernel \"blend\": choose one of identity"},
      {"kernel=convert declare=\"grid 3\"",
       "declare=grid 3 is for a kernel of yours in a file, and kernel=convert is built in"},
  };
  for (const auto& [options, message] : cases) {
    Own own(options);
    push(own.pipeline().appsrc(), new_buffer(random_data(Own::frame_bytes, 1)));
    EXPECT_THAT(own.pipeline().run(), HasSubstr(message)) << options;
    EXPECT_EQ(own.pipeline().culprit(), "kernel");
  }
}

// A kernel that keeps to the contract would write behind what is allocated.
// The kernel does, and not the element before it, which only knows that its caps are not taken.
TEST(OwnKernel, TellsWhyItMakesNothingOfAnInput) {
  const ShaderFile file(gray(halved, input_pixel));
  for (const char* before : {"gpumapupload", "gpumapsink sync=false $CHANNEL gpumapsrc $CHANNEL"}) {
    for (const auto& [width, why] :
         {std::pair{"{width-66}", "the result is below zero"}, {"{width/(height-43)}", "division by zero"}}) {
      SCOPED_TRACE(before);
      Pipeline pipeline(on_new_channel(std::string("videotestsrc ! video/x-raw,format=GRAY8,width=65,height=43 ! ") +
                                       before + " ! gpumapkernel name=kernel location=" + file.path() +
                                       " declare=\"output video/x-raw,format=GRAY8,height=2,width=" + width +
                                       "\" ! fakesink"));
      EXPECT_THAT(pipeline.run(),
                  testing::AllOf(HasSubstr(file.path()), HasSubstr("width=(int)65"), HasSubstr(width), HasSubstr(why)));
      EXPECT_EQ(pipeline.culprit(), "kernel");
    }
  }
}

TEST(OwnKernel, OutputsHaveRoomForTheirPicture) {
  const ShaderFile pixels(gray("", "1u"));
  const std::string at = "location=" + pixels.path();
  const std::pair<std::string, const char*> cases[] = {
      {at + " declare=\"bytes 100\"",
       "output of 100 bytes (\"100\") has no room for the picture that its caps say, which "
       "takes 2924"},
      {at + " declare=\"bytes 2923\"", "has no room"},
      {at + " declare=\"bytes 16; output video/x-raw,format=RGBA,width=1920,height=1080\"", "takes 8294400"},
      {at + " declare=\"bytes 16; output video/x-bayer,format=bggr,width=40,height=4\"", "takes 160"},
      {at + " declare=\"bytes 16; output application/x-tensor,width=4,height=4\"", "takes 192"},
      {at + " declare=\"bytes 18446744073709551615\" check-bounds=true", "no memory has room for it"},
      {at + " declare=\"output video/x-raw,format=GRAY8,width={width/100}\"", "its width has to be from 1 to 32767"},
      {at + " declare=\"output video/x-raw,format=GRAY8,width=100000,height=100000\"",
       "its width has to be from 1 to 32767"},
      {at + " declare=\"output application/x-tensor,width=7,height={0}\"", "its height has to be from 1 to"},
  };
  for (const auto& [options, message] : cases) {
    Own own(options);
    push(own.pipeline().appsrc(), new_buffer(random_data(Own::frame_bytes, 1)));
    EXPECT_THAT(own.pipeline().run(), HasSubstr(message)) << options;
  }
  for (const char* enough : {"2924", "2*bytes", "width*height+129"}) {
    Own own(at + " declare=\"bytes " + enough + "\"");
    EXPECT_GE(own.bytes().size(), Own::frame_bytes) << enough;
  }
}

TEST(OwnKernel, WhatOnlyLooksGivesAsManyBytesAsItTook) {
  const ShaderFile file("// gpumap: output unchanged\n// gpumap: bytes 2*bytes\nvoid main() {}\n");
  Own own("location=" + file.path());
  EXPECT_EQ(own.bytes(), random_data(Own::frame_bytes, 11));
}

/// What a frame shows, again and again until it is `wanted`.
bool comes_to_show(Own& own, unsigned wanted) {
  return eventually([&] {
    const Data data = own.bytes();
    return !data.empty() && std::to_integer<unsigned>(data[0]) == wanted;
  });
}

TEST(OwnKernel, ReloadsWhatCompilesAndKeepsWhatRuns) {
  const ShaderFile file(gray("// gpumap: params gain=1\n", "uint(frame.params[0]) + 10"));
  Own own("reload=true params=gain=5 location=" + file.path());
  ASSERT_TRUE(comes_to_show(own, 15));
  file.write(gray("// gpumap: params other=1,gain=2\n", "uint(frame.params[0] * 100 + frame.params[1])"));
  EXPECT_TRUE(comes_to_show(own, 105)) << "parameters keep their names";

  const auto warning = [&own] {
    GstBus* bus = gst_element_get_bus(own.pipeline().get());
    std::string text;
    (void)eventually([&] {
      (void)own.bytes();
      GstMessage* message = gst_bus_pop_filtered(bus, GST_MESSAGE_WARNING);
      if (message == nullptr) return false;
      GError* error = nullptr;
      gst_message_parse_warning(message, &error, nullptr);
      text = error->message;
      g_error_free(error);
      gst_message_unref(message);
      return true;
    });
    gst_object_unref(bus);
    return text;
  };
  file.write("void main() { broken(); }\n");
  EXPECT_THAT(warning(), testing::AllOf(HasSubstr("broken"), HasSubstr("keeping the previous kernel")));
  EXPECT_TRUE(comes_to_show(own, 105));
  file.write(gray("// gpumap: params speed=1\n", "1u"));
  EXPECT_THAT(warning(), HasSubstr("no parameter 'gain'"));
  file.write(gray(halved, "1u"));
  EXPECT_THAT(warning(), HasSubstr("start the pipeline again"));
  EXPECT_TRUE(comes_to_show(own, 105));
  file.write(gray("// gpumap: params gain=1\n", "uint(frame.params[0]) + 20"));
  EXPECT_TRUE(comes_to_show(own, 25));
  EXPECT_EQ(std::remove(file.path().c_str()), 0);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(comes_to_show(own, 25)) << "a file that is gone changes nothing";
}

// A software driver ends loops that are too long and says nothing: who asks for a grid of too few threads hears of it.

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::size_t frame_bytes = std::size_t{320} * 240;

/// Adds 1 to every byte, whatever the grid.
constexpr const char* increment = R"(#version 460
// gpumap: block 1
#include <gpumap.glsl>
void main() {
  for (uint64_t i = gpumap_thread(); i < frame.in_view.bytes; i += gpumap_thread_count()) {
    store_u8(frame.out_view.plane[0] + i, load_u8(frame.in_view.plane[0] + i) + 1u);
  }
}
)";

class LoopLimit : public testing::Test {
 protected:
  void SetUp() override {
    if (!Device::open()->info().software) GTEST_SKIP() << "a GPU ends no loop";
    path_ = testing::TempDir() + "gpumap-loops-\x07-" + std::to_string(getpid()) + ".comp";
    std::ofstream(path_) << increment;
  }
  void TearDown() override { (void)std::remove(path_.c_str()); }

  /// Plays three frames of GRAY8 in a grid of so many threads. Whether they came out right.
  bool play(const std::string& grid) {
    Pipeline pipeline(
        on_new_channel("appsrc name=in format=time caps=video/x-raw,format=GRAY8,width=320,height=240,framerate=30/1 ! "
                       "gpumapsink sync=false $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel location=" +
                       path_ + " " + grid + " ! appsink name=out sync=false"));
    infos_.clear();
    GstBus* bus = gst_element_get_bus(pipeline.get());
    gst_bus_set_sync_handler(
        bus,
        [](GstBus* /*bus*/, GstMessage* message, gpointer to) {
          const bool of_kernel = g_str_has_prefix(GST_MESSAGE_SRC_NAME(message), "gpumapkernel") != 0;
          if (GST_MESSAGE_TYPE(message) != GST_MESSAGE_INFO || !of_kernel) return GST_BUS_PASS;
          GError* info = nullptr;
          gchar* debug = nullptr;
          gst_message_parse_info(message, &info, &debug);
          static_cast<std::vector<std::string>*>(to)->emplace_back(info->message);
          EXPECT_EQ(debug, GST_MESSAGE_SRC_NAME(message) + (": " + std::string(info->message)))
              << "all that gst-launch-1.0 prints";
          g_error_free(info);
          g_free(debug);
          return GST_BUS_PASS;
        },
        &infos_, nullptr);
    gst_object_unref(bus);
    EXPECT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    bool right = true;
    for (GstClockTime i = 0; i < 3; ++i) {
      Data data = random_data(frame_bytes, i);
      push(pipeline.appsrc(), new_buffer(data, i * 33 * GST_MSECOND));
      const Sample sample = pull(pipeline.appsink());
      if (!sample) {
        ADD_FAILURE() << pipeline.wait(1ms);
        return false;
      }
      for (std::byte& byte : data) byte = static_cast<std::byte>(std::to_integer<unsigned>(byte) + 1);
      right = right && data_of(gst_sample_get_buffer(sample.get())) == data;
    }
    EXPECT_EQ(pipeline.wait(1ms), "timeout");
    warnings_ = pipeline.warnings();
    return right;
  }

  std::string path_;
  std::vector<std::string> warnings_, infos_;
};

// How often a loop turns nobody can tell before: the first kernel of the user's with one is reported, once in a
// process.
TEST_F(LoopLimit, OfLoopsIsToldOnce) {
  EXPECT_TRUE(play(""));
  EXPECT_THAT(infos_, ElementsAre(AllOf(HasSubstr("gpumap-loops-\\x07-"), HasSubstr("has a loop"),
                                        HasSubstr("65535 turns"), HasSubstr("many threads"))));
  EXPECT_THAT(warnings_, IsEmpty());
  EXPECT_TRUE(play(""));
  EXPECT_THAT(infos_, IsEmpty());
}

TEST_F(LoopLimit, IsToldOnceWhereTheGridAskedForReachesIt) {
  const bool right = play("declare=\"grid 1\"");
  EXPECT_THAT(warnings_, ElementsAre(AllOf(HasSubstr("1 thread(s) in its grid for 76800"), HasSubstr("65535 turns"),
                                           HasSubstr("a grid of 2 threads or more"))));
  // Another driver may well go on to the end.
  std::printf("with one thread the frames came out %s\n", right ? "right" : "wrong");
}

TEST_F(LoopLimit, IsNotToldWhereItIsFar) {
  for (const char* grid : {"declare=\"grid 2\"", "declare=\"grid 3x2\"", ""}) {
    EXPECT_TRUE(play(grid)) << grid;
    EXPECT_THAT(warnings_, IsEmpty()) << grid;
  }
}

}  // namespace
}  // namespace gpumap::gst::test
