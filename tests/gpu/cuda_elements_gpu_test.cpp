// SPDX-License-Identifier: MIT
// gpumapkernel beside GStreamer's own CUDA elements, in one CUDA context.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>
#include <cstdio>
#include <thread>

#include "cuda_pipeline.hpp"
#include "mode_pipeline.hpp"

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

// A kernel that stays on the GPU beside GStreamer's own CUDA elements in the same process, which load modules, free
// memory and wait for the whole context: both go on, and both give what they give alone.

class BesideCudaElements : public KernelModes {
 protected:
  void SetUp() override {
    KernelModes::SetUp();
    if (!IsSkipped() && !cuda_) GTEST_SKIP() << device_->info().name << " has no CUDA";
  }
  /// Whole runs of `pipeline`, from NULL to NULL, while frames go through a kernel that is tested.
  void runs_beside(const std::string& pipeline, unsigned runs, std::vector<Data>* alone) {
    const auto frames_of = [&] {
      Pipeline theirs(pipeline);
      (void)theirs.set_state(GST_STATE_PLAYING);
      std::vector<Data> seen;
      while (const Sample sample = pull(theirs.appsink())) {
        const GstCaps* caps = gst_sample_get_caps(sample.get());
        const bool raw = gst_structure_has_name(gst_caps_get_structure(caps, 0), "video/x-raw") != 0;
        // What lies between the rows of a picture is nobody's.
        seen.push_back(raw ? pixels_of(sample) : data_of(gst_sample_get_buffer(sample.get())));
      }
      const std::string verdict = theirs.wait(1s);
      EXPECT_EQ(verdict, "eos");
      return seen;
    };
    *alone = frames_of();
    ASSERT_FALSE(alone->empty());

    Pipeline ours(line(kernel(mixing, "name=kernel resident-idle=3600000")));
    ASSERT_NE(ours.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    std::atomic<bool> ended{false}, right{true};
    std::atomic<unsigned> frames{0};
    std::thread producer([&] {
      Mixed mixed;
      for (unsigned i = 0; !ended && right; ++i, ++frames) {
        right = through(ours, any_frame(i)) == mixed.next(any_frame(i));
      }
    });
    const auto began = std::chrono::steady_clock::now();
    for (unsigned run = 0; run < runs; ++run) {
      const unsigned before = frames;
      EXPECT_TRUE(frames_of() == *alone) << "run " << run;
      EXPECT_TRUE(eventually([&] { return frames > before || !right; })) << "ours stand still";
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    ended = true;
    producer.join();
    EXPECT_TRUE(right) << "frame " << frames;
    std::printf("%s: %u runs of theirs in %.2f s beside %u frames of ours\n", mode().c_str(), runs, took.count(),
                frames.load());
    expect_mode(ours);
  }
  static std::string lacking(const std::vector<const char*>& elements) {
    for (const char* name : elements) {
      GstElementFactory* factory = gst_element_factory_find(name);
      if (factory == nullptr) return fmt::format("no element {} here", name);
      gst_object_unref(factory);
    }
    return {};
  }
};
INSTANTIATE_TEST_SUITE_P(Gpu, BesideCudaElements, testing::Values("launch", "resident"), mode_name);

TEST_P(BesideCudaElements, CudauploadAndCudadownload) {
  const std::string none = lacking({"cudaupload", "cudadownload"});
  if (!none.empty()) GTEST_SKIP() << none;
  std::vector<Data> alone;
  runs_beside(
      "videotestsrc num-buffers=60 pattern=ball ! video/x-raw,format=NV12,width=322,height=242 ! cudaupload ! "
      "cudadownload ! video/x-raw ! appsink name=out sync=false",
      times(10, 1), &alone);
  EXPECT_EQ(alone.size(), 60U);
}

// Its kernels are compiled and loaded at each start: a load waits until the GPU runs nothing.
TEST_P(BesideCudaElements, Cudaconvert) {
  const std::string none = lacking({"cudaupload", "cudaconvert", "cudadownload"});
  if (!none.empty()) GTEST_SKIP() << none;
  Pipeline probe(
      "videotestsrc num-buffers=1 ! video/x-raw,format=NV12 ! cudaupload ! cudaconvert ! "
      "video/x-raw(memory:CUDAMemory),format=RGBA ! fakesink");
  const std::string verdict = probe.run(20s);
  if (verdict != "eos") GTEST_SKIP() << "cudaconvert does not work here, with nothing beside it: " << verdict;
  std::vector<Data> alone;
  runs_beside(
      "videotestsrc num-buffers=60 pattern=ball ! video/x-raw,format=NV12,width=322,height=242 ! cudaupload ! "
      "cudaconvert ! video/x-raw(memory:CUDAMemory),format=RGBA ! cudadownload ! video/x-raw ! "
      "appsink name=out sync=false",
      times(10, 1), &alone);
  EXPECT_EQ(alone.size(), 60U);
}

TEST_P(BesideCudaElements, Nvh264enc) {
  const std::string none = lacking({"nvh264enc"});
  if (!none.empty()) GTEST_SKIP() << none;
  std::vector<Data> alone;
  runs_beside(
      "videotestsrc num-buffers=60 pattern=ball ! video/x-raw,format=NV12,width=320,height=240,framerate=30/1 ! "
      "nvh264enc ! appsink name=out sync=false",
      times(5, 1), &alone);
  EXPECT_EQ(alone.size(), 60U);
}

}  // namespace
}  // namespace gpumap::gst::test
