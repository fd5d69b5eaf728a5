// SPDX-License-Identifier: MIT
// gpumapkernel beside GStreamer's own CUDA elements, in one CUDA context.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include "cuda_pipeline.hpp"

namespace gpumap::gst::test {
namespace {

using ::testing::HasSubstr;

#define NEED(...) \
  if (const std::string lack = lacking({__VA_ARGS__}); !lack.empty()) GTEST_SKIP() << lack

class CudaElements : public CudaPipeline {
 protected:
  const Caps nv12_ = video_caps("NV12", 1917, 1081);
  const Data frame_ = random_data(frame_bytes(nv12_.get()), 1);

  /// What a CUDA element beside `element` is told; null where it is told nothing.
  static GstContext* context_of(GstElement* element, const char* pad_name) {
    const Pad pad(gst_element_get_static_pad(element, pad_name));
    GstQuery* query = gst_query_new_context("gst.cuda.context");
    GstContext* context = nullptr;
    if (gst_pad_query(pad.get(), query)) {
      gst_query_parse_context(query, &context);
      gst_context_ref(context);
    }
    gst_query_unref(query);
    return context;
  }
  static gpointer object_in(GstContext* context) {
    if (context == nullptr) return nullptr;
    const GValue* value = gst_structure_get_value(gst_context_get_structure(context), "gst.cuda.context");
    gpointer object = value != nullptr ? g_value_get_object(value) : nullptr;
    gst_context_unref(context);
    return object;
  }
};

TEST_F(CudaElements, AreGivenOneContext) {
  Pipeline pipeline(on_new_channel("gpumapsrc $CHANNEL ! gpumapkernel name=one ! gpumapkernel name=two ! fakesink"));
  gpointer first = object_in(context_of(pipeline.element("one"), "src"));
  EXPECT_NE(first, nullptr) << "elements downstream ask before this one has started";
  EXPECT_EQ(object_in(context_of(pipeline.element("two"), "src")), first);
  EXPECT_EQ(object_in(context_of(pipeline.element("two"), "sink")), first);
}

TEST_F(CudaElements, TakeAndGiveWithoutTheHost) {
  NEED("cudaupload", "cudadownload");
  const std::string kernel = "gpumapkernel kernel=convert ! video/x-raw";
  for (const char* format : {"RGBA", "BGRA", "RGB"}) {
    SCOPED_TRACE(format);
    const Sample plain = sent(kernel + ",format=" + format, nv12_, frame_);
    ASSERT_NE(plain, nullptr);
    const std::string cuda = kernel + "(memory:CUDAMemory),format=" + format;
    for (const char* rest : {" ! cudadownload ! video/x-raw", " ! queue ! cudadownload ! video/x-raw"}) {
      SCOPED_TRACE(rest);
      const Sample downloaded = sent(cuda + rest, nv12_, frame_);
      ASSERT_NE(downloaded, nullptr);
      EXPECT_EQ(pixels_of(downloaded), pixels_of(plain));
    }
    for (const char* way : {"cudaupload ! video/x-raw(memory:CUDAMemory) ! ", "cudaupload ! queue ! "}) {
      SCOPED_TRACE(way);
      const Sample uploaded = sent_past_gpumap(way + cuda + " ! cudadownload ! video/x-raw", nv12_, frame_);
      ASSERT_NE(uploaded, nullptr);
      EXPECT_EQ(pixels_of(uploaded), pixels_of(plain));
    }
  }
}

TEST_F(CudaElements, DownloadChoosesCudaMemoryByItself) {
  NEED("cudadownload");
  Pipeline pipeline(on_new_channel(
      "videotestsrc num-buffers=1 ! video/x-raw,format=NV12,width=320,height=240 ! gpumapsink $CHANNEL gpumapsrc "
      "$CHANNEL ! gpumapkernel name=kernel ! cudadownload ! video/x-raw ! fakesink"));
  ASSERT_TRUE(pipeline.reach(GST_STATE_PAUSED)) << pipeline.error();
  const Pad pad(gst_element_get_static_pad(pipeline.element("kernel"), "src"));
  const Caps caps(gst_pad_get_current_caps(pad.get()));
  gchar* text = gst_caps_to_string(caps.get());
  EXPECT_THAT(text, HasSubstr("memory:CUDAMemory"));
  g_free(text);
}

TEST_F(CudaElements, ConvertReadsWhatTheKernelWrote) {
  NEED("cudaconvert", "cudadownload");
  const Sample plain = sent("gpumapkernel kernel=convert ! video/x-raw,format=RGBA", nv12_, frame_);
  const Sample swapped = sent("gpumapkernel kernel=convert ! " + cuda_caps + ",format=RGBA ! cudaconvert ! " +
                                  cuda_caps + ",format=BGRA ! cudadownload ! video/x-raw",
                              nv12_, frame_);
  const Sample kernel_after = sent("gpumapkernel kernel=convert ! " + cuda_caps + ",format=RGBA ! cudaconvert ! " +
                                       cuda_caps + ",format=BGRA ! gpumapkernel ! video/x-raw",
                                   nv12_, frame_);
  ASSERT_TRUE(plain && swapped && kernel_after);
  Data expected = pixels_of(plain);
  for (std::size_t at = 0; at + 3 < expected.size(); at += 4) std::swap(expected[at], expected[at + 2]);
  EXPECT_EQ(pixels_of(swapped), expected);
  EXPECT_EQ(pixels_of(kernel_after), expected);
}

// Where the GPU has an encoder (an H100 has none).
TEST_F(CudaElements, EncoderTakesFrames) {
  NEED("nvh264enc");
  Pipeline pipeline(on_new_channel(
      "videotestsrc num-buffers=60 ! video/x-raw,format=I420,width=1280,height=720 ! gpumapsink $CHANNEL gpumapsrc "
      "$CHANNEL ! gpumapkernel ! " +
      cuda_caps + " ! nvh264enc ! fakesink name=out sync=false"));
  EXPECT_EQ(pipeline.run(), "eos");
}

// The frames of cudadownload keep the padding of the decoder's memory, which checksum would count; of a frame in CUDA
// memory it counts the picture alone.
TEST_F(CudaElements, DecoderGivesFrames) {
  NEED("nvh264dec", "x264enc", "h264parse", "cudadownload");
  const std::string film =
      "videotestsrc num-buffers=30 pattern=ball ! video/x-raw,format=I420,width=1280,height=720 ! x264enc "
      "speed-preset=ultrafast key-int-max=10 bframes=0 ! h264parse ! nvh264dec ! " +
      cuda_caps + " ! ";
  const auto checksums = [&](const std::string& rest) {
    Pipeline pipeline(on_new_channel(film + rest + " ! fakesink sync=false"));
    EXPECT_EQ(pipeline.run(), "eos");
    std::vector<std::uint64_t> all;
    for (const Result& result : pipeline.results()) all.push_back(result.checksum);
    return all;
  };
  const auto direct = checksums("gpumapkernel kernel=checksum");
  EXPECT_EQ(direct.size(), 30U);
  EXPECT_EQ(direct, checksums("cudadownload ! video/x-raw ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! "
                              "gpumapkernel ! " +
                              cuda_caps + " ! gpumapkernel kernel=checksum"));
}

TEST_F(CudaElements, AnotherContextIsRefused) {
  NEED("cudaupload");
  void* library = dlopen("libgstcuda-1.0.so.0", RTLD_NOW);
  ASSERT_NE(library, nullptr);
  auto* const new_context = reinterpret_cast<gpointer (*)(guint)>(dlsym(library, "gst_cuda_context_new"));
  auto* const wrap = reinterpret_cast<GstContext* (*)(gpointer)>(dlsym(library, "gst_context_new_cuda_context"));
  ASSERT_TRUE(new_context != nullptr && wrap != nullptr);
  gpointer other = new_context(static_cast<guint>(device_->info().cuda_index));
  ASSERT_NE(other, nullptr);
  {
    Pipeline pipeline("videotestsrc num-buffers=5 ! video/x-raw,format=NV12 ! cudaupload name=upload ! " + cuda_caps +
                      " ! gpumapkernel name=kernel ! fakesink sync=false");
    GstContext* context = wrap(other);
    gst_element_set_context(pipeline.element("upload"), context);
    gst_context_unref(context);
    EXPECT_THAT(pipeline.run(), HasSubstr("another CUDA context"));
    EXPECT_EQ(pipeline.culprit(), "kernel");
  }
  gst_object_unref(other);
  dlclose(library);
}

// Elements that start and stop around it in any order: the first to come asks the others for the context.
TEST_F(CudaElements, StartAndStopBesideThem) {
  NEED("cudaupload", "cudadownload");
  const unsigned cycles = times(200, 30);
  Pipeline pipeline("videotestsrc num-buffers=2 ! video/x-raw,format=NV12,width=640,height=360 ! cudaupload ! " +
                    cuda_caps + " ! gpumapkernel ! " + cuda_caps +
                    " ! cudadownload ! video/x-raw ! fakesink sync=false");
  expect_cycles_leave_nothing(pipeline, cycles);
}

}  // namespace
}  // namespace gpumap::gst::test
