// SPDX-License-Identifier: MIT
// Whatever is asked wrongly ends in one element error that names the cause, the figure and the remedy; the process
// lives, and what is asked rightly afterwards runs.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <gpumap/device.hpp>
#include <gpumap/printable.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pipeline.hpp"
#include "test_helpers.hpp"
#include "watch.hpp"

namespace gpumap::gst::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* source = "videotestsrc num-buffers=5 ! video/x-raw,format=NV12,width=1280,height=720 ! ";

class Errors : public testing::Test {
 protected:
  void TearDown() override {
    // The element, not the process, has failed.
    Pipeline pipeline(on_new_channel(
        std::string(source) + "gpumapsink $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel kernel=checksum ! fakesink"));
    EXPECT_EQ(pipeline.run(), "eos");
    EXPECT_EQ(pipeline.results().size(), 5U);
  }

  /// The error of a pipeline with this gpumapkernel; it stops quickly whatever else it has.
  static std::string error_with_kernel(const std::string& options, const std::string& after = "fakesink") {
    Pipeline pipeline(on_new_channel(std::string(source) +
                                     "gpumapsink $CHANNEL gpumapsrc $CHANNEL ! "
                                     "gpumapkernel name=faulty " +
                                     options + " ! " + after));
    std::string error = pipeline.run();
    EXPECT_EQ(pipeline.culprit(), "faulty") << error;
    EXPECT_LT(pipeline.stop(), at_once);
    return error;
  }
  static std::string error_with_sink(const std::string& options, const std::string& upstream = source) {
    Pipeline pipeline(
        on_new_channel(upstream + "gpumapsink name=faulty $CHANNEL " + options + " gpumapsrc $CHANNEL ! fakesink"));
    std::string error = pipeline.run();
    EXPECT_EQ(pipeline.culprit(), "faulty") << error;
    EXPECT_LT(pipeline.stop(), at_once);
    return error;
  }

  static std::string write_file(const std::string& name, const std::string& text) {
    std::string path = testing::TempDir() + "gpumap-" + std::to_string(getpid()) + "-" + name;
    std::ofstream(path) << text;
    return path;
  }
};

TEST_F(Errors, ShaderThatDoesNotCompile) {
  const std::string path = write_file("broken.comp",
                                      "#version 460\n"
                                      "#include <gpumap.glsl>\n"
                                      "void main() {\n"
                                      "  uint x = this_is_not_declared;\n"
                                      "}\n");
  EXPECT_THAT(error_with_kernel("location=" + path), AllOf(HasSubstr("this_is_not_declared"), HasSubstr(":4")));
  EXPECT_EQ(std::remove(path.c_str()), 0);
}

TEST_F(Errors, SpirvThatIsNone) {
  const std::string path = write_file("broken.spv", "these bytes are not SPIR-V");
  EXPECT_THAT(error_with_kernel("location=" + path),
              AllOf(HasSubstr("not valid SPIR-V (SPIRV-Tools v"), HasSubstr(path)));
  EXPECT_EQ(std::remove(path.c_str()), 0);
}

TEST_F(Errors, ShaderWithDescriptors) {
  const std::string path = write_file("bound.comp",
                                      "#version 460\n"
                                      "layout(local_size_x = 64) in;\n"
                                      "layout(binding = 0) buffer B { uint x[]; } b;\n"
                                      "void main() { b.x[gl_GlobalInvocationID.x] = 1u; }\n");
  EXPECT_THAT(error_with_kernel("location=" + path),
              AllOf(HasSubstr(path), HasSubstr("binding"), HasSubstr("gpumap.glsl")));
  EXPECT_EQ(std::remove(path.c_str()), 0);
}

TEST_F(Errors, PropertiesThatContradictEachOther) {
  const std::string shader = "location=" GPUMAP_EXAMPLES "/kernels/invert.comp";
  EXPECT_THAT(
      error_with_kernel("backend=cuda " + shader),
      AllOf(HasSubstr("invert.comp is for Vulkan, and backend is CUDA"), HasSubstr(".cu, .ptx or .cubin file")));
  EXPECT_THAT(error_with_kernel("backend=vulkan location=" GPUMAP_EXAMPLES "/kernels/invert.cu"),
              AllOf(HasSubstr("invert.cu is for CUDA, and backend is Vulkan"), HasSubstr(".comp or .spv file")));
  if (!Device::open()->has(Backend::cuda)) {
    EXPECT_THAT(error_with_kernel("kernel=convert backend=cuda"),
                AllOf(HasSubstr("convert needs CUDA"), HasSubstr("leave backend out, or install the NVIDIA driver")));
    EXPECT_THAT(
        error_with_kernel("location=" GPUMAP_EXAMPLES "/kernels/invert.cu"),
        AllOf(HasSubstr("invert.cu needs CUDA"), HasSubstr("give a .comp or .spv file, or install the NVIDIA driver")));
  }
  EXPECT_THAT(error_with_kernel("kernel=checksum function=main"),
              AllOf(HasSubstr("function=main"), HasSubstr("kernel=checksum"), HasSubstr("location")));
  EXPECT_THAT(error_with_kernel("kernel=checksum " + shader), AllOf(HasSubstr("kernel=checksum"), HasSubstr(shader)));
  Pipeline pipeline(on_new_channel(std::string(source) +
                                   "gpumapsink $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel "
                                   "function=main backend=vulkan " +
                                   shader + " ! fakesink"));
  EXPECT_EQ(pipeline.run(), "eos");
}

TEST_F(Errors, WhatOnlyCudaHas) {
  for (const char* option : {"sm-share=0.5", "priority=2"}) {
    EXPECT_THAT(
        error_with_kernel(std::string("kernel=checksum backend=vulkan ") + option),
        AllOf(HasSubstr("checksum"), HasSubstr("priority and sm-share are CUDA's"), HasSubstr("leave them out")));
  }
}

TEST_F(Errors, UnknownBuiltin) {
  EXPECT_THAT(error_with_kernel("kernel=sharpen"),
              AllOf(HasSubstr("\"sharpen\""), HasSubstr("checksum"), HasSubstr("iq-power"), HasSubstr("location")));
}

TEST_F(Errors, MissingFile) {
  EXPECT_THAT(error_with_kernel("location=/nonexistent/kernel.comp"),
              AllOf(HasSubstr("/nonexistent/kernel.comp"), HasSubstr("No such file")));
}

TEST_F(Errors, FileOfUnknownKind) {
  EXPECT_THAT(error_with_kernel("location=/etc/hostname"), AllOf(HasSubstr("/etc/hostname"), HasSubstr(".comp")));
}

TEST_F(Errors, ParametersThatDoNotParse) {
  EXPECT_THAT(error_with_kernel("kernel=convert params=\"mean=[1,2,x],scale=[1,1,1]\"", "video/x-raw ! fakesink"),
              HasSubstr("column 11"));
}

TEST_F(Errors, UnknownParameter) {
  EXPECT_THAT(error_with_kernel("kernel=convert params=\"gain=2\"", "video/x-raw ! fakesink"),
              AllOf(HasSubstr("'gain'"), HasSubstr("mean"), HasSubstr("scale")));
}

TEST_F(Errors, ParameterWithTooFewNumbers) {
  EXPECT_THAT(error_with_kernel("kernel=convert params=\"mean=[1,2]\"", "video/x-raw ! fakesink"),
              AllOf(HasSubstr("'mean'"), HasSubstr("3"), HasSubstr("2 given")));
}

TEST_F(Errors, DeviceThatIsNone) {
  EXPECT_THAT(error_with_kernel("device=nonsense"), AllOf(HasSubstr("nonsense"), HasSubstr("UUID")));
  EXPECT_THAT(error_with_sink("device=nonsense"), AllOf(HasSubstr("nonsense"), HasSubstr("UUID")));
  EXPECT_THAT(error_with_sink("device=77"), AllOf(HasSubstr("77"), HasSubstr("this machine has")));
}

// From the pool, and for buffers from elsewhere.
TEST_F(Errors, SlotTooSmall) {
  const auto helpful = AllOf(HasSubstr("1382400"), HasSubstr("slot-size 1000"), HasSubstr("set slot-size to"));
  EXPECT_THAT(error_with_sink("slot-size=1000"), helpful);
  EXPECT_THAT(error_with_sink("slot-size=1000", "filesrc location=/dev/zero num-buffers=2 blocksize=1382400 ! "),
              helpful);
}

TEST_F(Errors, SlotJustLargeEnough) {
  Pipeline pipeline(
      on_new_channel(std::string(source) + "gpumapsink slot-size=1382400 $CHANNEL gpumapsrc $CHANNEL ! fakesink"));
  EXPECT_EQ(pipeline.run(), "eos");
}

// Where the sink is there first, it cannot even be linked.
TEST_F(Errors, ConvertOfWhatIsNoVideo) {
  const std::string channel = new_channel();
  Pipeline pipeline("gpumapsrc name=src channel=" + channel + " ! gpumapkernel kernel=convert ! fakesink");
  Pipeline producer("audiotestsrc num-buffers=5 ! gpumapsink channel=" + channel);
  ASSERT_NE(producer.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  EXPECT_THAT(pipeline.run(), HasSubstr("what follows gpumapsrc"));
  EXPECT_EQ(pipeline.culprit(), "src");
  EXPECT_LT(pipeline.stop(), at_once);
}

TEST_F(Errors, ConvertOfAFormatThatItDoesNotKnow) {
  Pipeline pipeline(
      on_new_channel("videotestsrc num-buffers=5 ! video/x-raw,format=AYUV ! gpumapsink $CHANNEL "
                     "gpumapsrc name=src $CHANNEL ! gpumapkernel kernel=convert ! fakesink"));
  EXPECT_THAT(pipeline.run(), HasSubstr("what follows gpumapsrc"));
}

// What downstream takes and where the converter belongs: before gpumapsink, for after it frames are on the GPU.
TEST_F(Errors, RefusedCapsNameTheRemedy) {
  Pipeline pipeline(
      on_new_channel("videotestsrc num-buffers=5 ! video/x-raw,format=AYUV64,width=64,height=48 ! gpumapsink $CHANNEL "
                     "gpumapsrc $CHANNEL ! gpumapkernel kernel=convert ! fakesink"));
  EXPECT_THAT(pipeline.run(), AllOf(HasSubstr("AYUV64"), HasSubstr("NV12, I420, Y42B"),
                                    HasSubstr("put videoconvert before gpumapsink")));
}

// The caps are at fault, and no link.
TEST_F(Errors, CapsThatChangeToRefusedOnesNameTheRemedy) {
  for (const char* between : {"", "queue ! "}) {
    SCOPED_TRACE(between);
    Watch watch;
    Pipeline pipeline(on_new_channel(fmt::format(
        "videotestsrc is-live=true ! capsfilter name=filter caps=video/x-raw,format=NV12,width=64,height=48 ! "
        "gpumapsink $CHANNEL gpumapsrc $CHANNEL ! {}"
        "capsfilter caps=video/x-raw(memory:GPUMap),format=NV12;video/x-raw,format=NV12 ! fakesink name=out",
        between)));
    watch.on(pipeline.element("out"));
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    ASSERT_TRUE(eventually([&] { return watch.count() > 3; })) << pipeline.wait(1ms);
    g_object_set(pipeline.element("filter"), "caps", new_caps("video/x-raw,format=RGBA,width=64,height=48").get(),
                 nullptr);
    EXPECT_THAT(pipeline.wait(),
                AllOf(HasSubstr("does not take"), HasSubstr("RGBA"), HasSubstr("put videoconvert before gpumapsink")));
  }
}

// A link that is refused could not say why: elements link, and those that do not fit say so at the start.
TEST_F(Errors, WhatDoesNotFitAKernelIsSaidAtTheStart) {
  const struct {
    const char* upstream;
    const char* kernel;
    const char* taken;
    const char* remedy;
  } cases[] = {
      {"videotestsrc num-buffers=2 ! pngenc ! ", "convert", "video/x-raw", "put the element that makes that"},
      {"videotestsrc num-buffers=2 ! ", "iq-power", "audio/x-raw", "put what makes that of video before gpumap"},
      {"audiotestsrc num-buffers=2 ! ", "convert", "video/x-raw", "put what makes that of audio before gpumap"},
  };
  for (const auto& one : cases) {
    for (const char* way : {"gpumapupload ! ", "gpumapsink $CHANNEL gpumapsrc $CHANNEL ! "}) {
      Pipeline pipeline(
          on_new_channel(fmt::format("{}{}gpumapkernel kernel={} ! fakesink", one.upstream, way, one.kernel)));
      EXPECT_THAT(pipeline.run(), AllOf(HasSubstr("what follows gpumap"), HasSubstr(one.taken), HasSubstr(one.remedy)))
          << way << one.kernel;
    }
  }
}

// No other input would help: the converter belongs behind the kernel, and there it does.
TEST_F(Errors, WhatAKernelNeverMakesIsSaidByIt) {
  constexpr const char* samples = "audiotestsrc num-buffers=2 ! audio/x-raw,format=F32LE,channels=2,rate=48000 ! ";
  const struct {
    const char* upstream;
    const char* kernel;
    const char* wanted;
    const char* why;
    const char* remedy;
  } cases[] = {
      {source, "kernel=convert", "video/x-raw,format=BGR",
       ", and what follows takes video/x-raw, format=BGR: ", "videoconvert ! videoscale"},
      {source, "kernel=convert", "video/x-raw,format=v210", "format={ RGBA, BGRA, RGB, NV12",
       "videoconvert ! videoscale"},
      {source, "kernel=convert", "application/x-tensor,type=int8",
       "follows takes application/x-tensor, type=int8: ", "what makes that of it"},
      {samples, "kernel=ddc params=rate=8000", "audio/x-raw,rate=16000",
       "kernel ddc makes audio/x-raw, rate=8000, and what follows takes audio/x-raw, rate=16000: ",
       "audioconvert ! audioresample"},
      {samples, "kernel=fm params=rate=8000,deviation=5000,highest=3000", "audio/x-raw,channels=2",
       "kernel fm makes audio/x-raw, channels=1, and what follows takes audio/x-raw, channels=2: ",
       "audioconvert ! audioresample"},
      {samples, "kernel=spectrum", "audio/x-raw",
       "kernel spectrum makes application/x-spectrum, and what follows takes audio/x-raw: ", "what makes that of it"},
  };
  for (const auto& one : cases) {
    for (const char* way : {"", "gpumapupload ! ", "gpumapsink $CHANNEL gpumapsrc $CHANNEL ! ",
                            "gpumapupload ! gpumapkernel kernel=identity ! "}) {
      SCOPED_TRACE(fmt::format("{}{}", way, one.kernel));
      const std::string before = fmt::format("{}{}gpumapkernel name=faulty {} ! ", one.upstream, way, one.kernel);
      Pipeline pipeline(on_new_channel(fmt::format("{}{} ! fakesink", before, one.wanted)));
      EXPECT_THAT(pipeline.run(),
                  AllOf(HasSubstr(one.why), HasSubstr(fmt::format("put {} behind gpumapkernel", one.remedy))));
      EXPECT_EQ(pipeline.culprit(), "faulty");
      if (way[0] == '\0' || std::string_view(one.remedy).starts_with("what")) continue;
      Pipeline mended(on_new_channel(fmt::format("{}{} ! {} ! fakesink", before, one.remedy, one.wanted)));
      EXPECT_EQ(mended.run(), "eos");
    }
  }
}

// Nobody gets CUDA memory where there is none: who takes nothing else is told why, others get what they take, too.
TEST_F(Errors, CudaMemoryWhereThereIsNone) {
  for (const char* way : {"gpumapupload ! ", "gpumapsink $CHANNEL gpumapsrc $CHANNEL ! "}) {
    Pipeline pipeline(on_new_channel(std::string(source) + way + "video/x-raw(memory:CUDAMemory) ! fakesink"));
    EXPECT_THAT(pipeline.run(), AllOf(HasSubstr("takes memory:CUDAMemory only"), HasSubstr("has no CUDA here"))) << way;
    Pipeline either(on_new_channel(std::string(source) + way +
                                   "capsfilter caps=video/x-raw(memory:CUDAMemory);video/x-raw ! fakesink"));
    EXPECT_EQ(either.run(), "eos") << way;
  }
}

// Bytes without caps, and a downstream that wants some: an error, not a stream that stands still.
TEST_F(Errors, BytesWhereVideoIsWanted) {
  Pipeline pipeline(
      on_new_channel("filesrc name=in location=/dev/zero blocksize=1000 ! gpumapsink $CHANNEL "
                     "gpumapsrc name=src $CHANNEL ! videoconvert ! fakesink"));
  EXPECT_THAT(pipeline.run(), AllOf(HasSubstr("what follows gpumapsrc"), HasSubstr("application/octet-stream"),
                                    HasSubstr("video/x-raw"), HasSubstr("before gpumapsink")));
  EXPECT_EQ(pipeline.culprit(), "src");
  // Upstream stops, and downstream hears that nothing comes any more.
  const Pad in(gst_element_get_static_pad(pipeline.element("in"), "src"));
  EXPECT_TRUE(eventually([&] { return gst_pad_get_task_state(in.get()) == GST_TASK_PAUSED; }));
  const Pad out(gst_element_get_static_pad(pipeline.element("src"), "src"));
  EXPECT_TRUE(eventually([&] { return GST_PAD_IS_EOS(out.get()); }));
  EXPECT_LT(pipeline.stop(), at_once);
}

/// Whether a terminal, and a message of GStreamer's, can take it.
bool is_clean(std::string text) {
  std::erase_if(text, [](char one) { return one == '\n' || one == '\t'; });
  return is_printable(text);
}

// Names, paths and parameters come from users, files and peers. What is in them does nothing to a terminal, and no
// message is lost for it.
TEST_F(Errors, ForeignBytesArePrintable) {
  struct Case {
    const char* line;  ///< with an element "faulty"
    const char* property;
    const char* before;  ///< the foreign bytes
    const char* after;
  };
  const std::string kernel = std::string(source) + "gpumapsink $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel name=faulty ";
  const std::string builtin = kernel + "kernel=convert ! video/x-raw,format=RGBA ! fakesink";
  const std::string none = kernel + " ! fakesink";
  const std::string sink = std::string(source) + "gpumapsink name=faulty $CHANNEL";
  const std::string socket = sink + " socket-path=/nonexistent/link";
  const std::string src = "gpumapsrc name=faulty timeout=50 ! fakesink";
  const std::vector<Case> cases = {
      {none.c_str(), "kernel", "a", "b"},
      {none.c_str(), "location", "/nonexistent/", ".comp"},
      {none.c_str(), "location", "/nonexistent/", ".odd"},
      {builtin.c_str(), "params", "", "=1"},
      {builtin.c_str(), "params", "mean=", ""},
      {none.c_str(), "device", "a", "b"},
      {sink.c_str(), "device", "a", "b"},
      {sink.c_str(), "socket-path", "/nonexistent/", "/link"},
      {socket.c_str(), "allowed-users", "a", "b"},
      {socket.c_str(), "socket-mode", "0", "0"},
      {src.c_str(), "channel", "a", "b"},
      {src.c_str(), "allowed-users", "a", "b"},
  };
  for (const char* const foreign : {"\x1b[31m", "\x07", "\xe2\x82", "\xc2\x9b", "\xff"}) {
    for (const Case& one : cases) {
      Pipeline pipeline(on_new_channel(one.line));
      if (std::string_view(one.property) == "allowed-users" && one.line == src) {
        g_object_set(pipeline.element("faulty"), "socket-path", "/nonexistent/link", nullptr);
      }
      g_object_set(pipeline.element("faulty"), one.property, (one.before + std::string(foreign) + one.after).c_str(),
                   nullptr);
      const std::string error = pipeline.run();
      EXPECT_EQ(pipeline.culprit(), "faulty") << one.property << ": " << error;
      EXPECT_TRUE(is_clean(error)) << one.property << ": " << error;
      EXPECT_THAT(error, HasSubstr("\\x")) << one.property;
    }
  }
}

// Names of fields are checked by nobody.
TEST_F(Errors, ForeignCapsArePrintable) {
  for (const char* const foreign : {"\x1b[31m", "\x07", "\xe2\x82"}) {
    const auto caps = [&](const char* memory) {
      Caps made(gst_caps_new_empty());
      GstStructure* fields = gst_structure_new_empty("video/x-odd");
      gst_structure_set(fields, foreign, G_TYPE_INT, 3, nullptr);
      GstCapsFeatures* const features = memory != nullptr ? gst_caps_features_new(memory, nullptr) : nullptr;
      gst_caps_append_structure_full(made.get(), fields, features);
      return made;
    };
    for (const auto& [line, memory] :
         {std::pair("appsrc name=in  gpumapkernel name=faulty kernel=identity ! fakesink", "memory:Odd"),
          std::pair<const char*, const char*>(
              "appsrc name=in ! gpumapsink $CHANNEL  gpumapsrc name=faulty $CHANNEL ! videoconvert ! fakesink",
              nullptr)}) {
      Pipeline pipeline(on_new_channel(line));
      const Pad in(gst_element_get_static_pad(pipeline.element("in"), "src"));
      if (!gst_pad_is_linked(in.get())) {
        ASSERT_TRUE(gst_element_link_pads_full(pipeline.element("in"), "src", pipeline.element("faulty"), "sink",
                                               GST_PAD_LINK_CHECK_NOTHING));
      }
      gst_app_src_set_caps(pipeline.appsrc(), caps(memory).get());
      ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
      push(pipeline.appsrc(), new_buffer(random_data(1003, 1)));
      const std::string error = pipeline.wait();
      EXPECT_EQ(pipeline.culprit(), "faulty") << line << ": " << error;
      EXPECT_TRUE(is_clean(error)) << line << ": " << error;
      EXPECT_THAT(error, HasSubstr("\\x")) << line;
    }
  }
}

// The commonest mistake: a kernel straight after an ordinary element.
TEST_F(Errors, KernelWithoutSinkAndSrc) {
  for (const char* kernel : {"identity", "convert"}) {
    Pipeline pipeline(std::string("videotestsrc num-buffers=5 name=in  fakesink name=out  gpumapkernel name=faulty "
                                  "kernel=") +
                      kernel);
    // Linked by hand: gst_parse_launch would refuse with a message of its own.
    ASSERT_TRUE(gst_element_link_pads_full(pipeline.element("in"), "src", pipeline.element("faulty"), "sink",
                                           GST_PAD_LINK_CHECK_NOTHING));
    ASSERT_TRUE(gst_element_link(pipeline.element("faulty"), pipeline.element("out")));
    EXPECT_THAT(pipeline.run(), HasSubstr("gpumapsink")) << kernel;
  }
}

// Is left out, and the stream goes on: see layout_test.cpp.
TEST_F(Errors, FrameShorterThanItsCaps) {
  Pipeline pipeline(
      on_new_channel("appsrc name=in ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! "
                     "gpumapkernel name=faulty kernel=convert ! fakesink"));
  gst_app_src_set_caps(pipeline.appsrc(), video_caps("NV12", 64, 48).get());
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  push(pipeline.appsrc(), new_buffer(random_data(100, 1)));
  gst_app_src_end_of_stream(pipeline.appsrc());
  EXPECT_EQ(pipeline.wait(), "eos");
  ASSERT_EQ(pipeline.warnings().size(), 1U);
  EXPECT_THAT(pipeline.warnings()[0], AllOf(HasSubstr("100 bytes"), HasSubstr("4608")));
}

/// While it lives, GStreamer's clock has no thread and gets none.
class NoClockThread {
 public:
  NoClockThread() { gst_system_clock_set_default(clock_.get()); }
  ~NoClockThread() { gst_system_clock_set_default(nullptr); }
  NoClockThread(const NoClockThread&) = delete;
  NoClockThread& operator=(const NoClockThread&) = delete;

 private:
  const Ptr<GstClock> clock_{static_cast<GstClock*>(gst_object_ref_sink(g_object_new(GST_TYPE_SYSTEM_CLOCK, nullptr)))};
  const gpumap::test::NoThreads none_;
};

// Nobody would know of a time limit that nothing keeps.
TEST_F(Errors, ATimeLimitForWhichThereIsNoThread) {
  const auto device = Device::open();  // its driver has threads of its own
  Pipeline kernel("gpumapkernel name=faulty kernel=identity timeout=1000 ! fakesink");
  ASSERT_NE(kernel.set_state(GST_STATE_READY), GST_STATE_CHANGE_FAILURE);
  {
    const NoClockThread none;
    EXPECT_EQ(gst_element_set_state(kernel.element("faulty"), GST_STATE_PAUSED), GST_STATE_CHANGE_FAILURE);
  }
  EXPECT_THAT(kernel.wait(), HasSubstr("no thread for timeout"));
  EXPECT_NE(gst_element_set_state(kernel.element("faulty"), GST_STATE_PAUSED), GST_STATE_CHANGE_FAILURE);

  Pipeline gathers(
      "appsrc name=in caps=application/octet-stream ! gpumapupload name=faulty gather=1000 gather-time=1000 ! "
      "appsink name=out sync=false");
  ASSERT_NE(gathers.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  push(gathers.appsrc(), new_buffer(random_data(1000, 1)));
  ASSERT_TRUE(pull(gathers.appsink()));
  const NoClockThread none;
  push(gathers.appsrc(), new_buffer(random_data(100, 2)));
  EXPECT_THAT(gathers.wait(), HasSubstr("no thread for gather-time"));
  EXPECT_EQ(gathers.culprit(), "faulty");
}

// A GstVideoMeta that points outside the buffer must not reach the GPU.
TEST_F(Errors, VideoMetaThatLies) {
  for (const bool far_plane : {false, true}) {
    Pipeline pipeline(
        on_new_channel("appsrc name=in ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! "
                       "gpumapkernel name=faulty kernel=convert ! fakesink"));
    gst_app_src_set_caps(pipeline.appsrc(), video_caps("NV12", 64, 48).get());
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    Buffer buffer = new_buffer(random_data(4608, 1));
    gsize offset[GST_VIDEO_MAX_PLANES] = {0, far_plane ? 1'000'000'000U : 3072U};
    gint stride[GST_VIDEO_MAX_PLANES] = {64, far_plane ? 64 : 1'000'000};
    gst_buffer_add_video_meta_full(buffer.get(), GST_VIDEO_FRAME_FLAG_NONE, GST_VIDEO_FORMAT_NV12, 64, 48, 2, offset,
                                   stride);
    push(pipeline.appsrc(), std::move(buffer));
    EXPECT_THAT(pipeline.wait(), HasSubstr("4608 bytes")) << far_plane;
    EXPECT_EQ(pipeline.culprit(), "faulty");
  }
}

}  // namespace
}  // namespace gpumap::gst::test
