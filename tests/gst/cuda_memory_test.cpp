// SPDX-License-Identifier: MIT
// memory:CUDAMemory where there is no CUDA: never offered, and who asks for it is told what is missing. What it does
// where there is a GPU is in tests/gpu.
#include <gmock/gmock.h>

#include "gpumap/cuda.hpp"
#include "gpumap/device.hpp"
#include "gpumap/error.hpp"
#include "gst/cuda/gst_cuda_context.hpp"
#include "gst/cuda/gst_cuda_memory.hpp"
#include "gst/memory/frame_format.hpp"
#include "pipeline.hpp"

namespace gpumap::gst::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* frames =
    "videotestsrc num-buffers=3 ! video/x-raw,format=NV12,width=64,height=48 ! gpumapsink sync=false $CHANNEL "
    "gpumapsrc $CHANNEL ! gpumapkernel name=kernel ";

/// The cause and the remedy.
const auto helpful = AllOf(HasSubstr("memory:CUDAMemory"), HasSubstr("use an NVIDIA GPU"));

std::string caps_of(const Pipeline& pipeline, const char* pad_name) {
  const Pad pad(gst_element_get_static_pad(pipeline.element("kernel"), pad_name));
  const Caps caps(gst_pad_query_caps(pad.get(), nullptr));
  gchar* text = gst_caps_to_string(caps.get());
  std::string copy = text;
  g_free(text);
  return copy;
}

/// Whether this GStreamer's libgstcuda can be lent memory, as tensors are.
bool lends_tensors() {
  guint major = 0, minor = 0, micro = 0, nano = 0;
  gst_version(&major, &minor, &micro, &nano);
  return major > 1 || minor >= 24;
}

class NoCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (Device::open()->has(Backend::cuda)) GTEST_SKIP() << "this GPU has CUDA";
  }
};

TEST_F(NoCuda, WhoAsksForItIsToldWhatIsMissing) {
  for (const char* kernel : {"kernel=identity", "kernel=convert", "kernel=checksum", "kernel=convert backend=vulkan"}) {
    SCOPED_TRACE(kernel);
    Pipeline pipeline(
        on_new_channel(std::string(frames) + kernel + " ! video/x-raw(memory:CUDAMemory) ! fakesink sync=false"));
    EXPECT_THAT(pipeline.run(), helpful);
    EXPECT_EQ(pipeline.culprit(), "kernel");
  }
}

TEST_F(NoCuda, WhoSendsItIsToldWhatIsMissing) {
  for (const char* caps : {"video/x-raw(memory:CUDAMemory),format=NV12,width=64,height=48,framerate=30/1",
                           "application/x-tensor(memory:CUDAMemory),type=uint8,dims=(int)<64,72>"}) {
    SCOPED_TRACE(caps);
    Pipeline pipeline("appsrc name=in format=time caps=\"" + std::string(caps) +
                      "\" ! gpumapkernel name=kernel ! fakesink sync=false");
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    push(pipeline.appsrc(), new_buffer(random_data(4608, 1)));
    EXPECT_THAT(pipeline.wait(), helpful);
    EXPECT_EQ(pipeline.culprit(), "kernel");
  }
}

TEST_F(NoCuda, WhoAsksForTensorsInItIsToldWhatIsMissing) {
  for (const char* before : {"gpumapkernel name=kernel kernel=convert",
                             "gpumapkernel kernel=convert ! application/x-tensor(memory:GPUMap) ! "
                             "gpumapkernel name=kernel",
                             "gpumapkernel kernel=convert ! application/x-tensor ! gpumapupload name=kernel"}) {
    if (!lends_tensors() && std::string(before).find("gpumapupload name") != std::string::npos) continue;  // no link
    SCOPED_TRACE(before);
    Pipeline pipeline(std::string("videotestsrc num-buffers=3 ! video/x-raw,format=NV12,width=64,height=48 ! "
                                  "gpumapupload ! ") +
                      before + " ! application/x-tensor(memory:CUDAMemory) ! fakesink sync=false");
    EXPECT_THAT(pipeline.run(), helpful);
    EXPECT_EQ(pipeline.culprit(), "kernel");
  }
}

TEST_F(NoCuda, IsNotOffered) {
  for (const char* kernel : {"kernel=identity", "kernel=convert", "kernel=convert backend=vulkan"}) {
    SCOPED_TRACE(kernel);
    Pipeline pipeline(on_new_channel(std::string(frames) + kernel + " ! fakesink sync=false"));
    ASSERT_TRUE(pipeline.reach(GST_STATE_PAUSED)) << pipeline.error();
    EXPECT_THAT(caps_of(pipeline, "src"), AllOf(HasSubstr("memory:GPUMap"), Not(HasSubstr("CUDA"))));
    EXPECT_THAT(caps_of(pipeline, "sink"), Not(HasSubstr("CUDA")));
  }
}

TEST_F(NoCuda, NoContextIsGiven) {
  Pipeline pipeline(on_new_channel(std::string(frames) + " ! fakesink sync=false"));
  const Pad pad(gst_element_get_static_pad(pipeline.element("kernel"), "src"));
  for (const GstState state : {GST_STATE_NULL, GST_STATE_PAUSED}) {
    ASSERT_TRUE(pipeline.reach(state)) << pipeline.error();
    GstQuery* query = gst_query_new_context("gst.cuda.context");
    EXPECT_FALSE(gst_pad_query(pad.get(), query));
    gst_query_unref(query);
  }
}

TEST_F(NoCuda, ThereAreNoHandles) {
  const auto device = Device::open();
  EXPECT_EQ(cuda_handles(*device).context, nullptr);
  const auto queue = device->create_queue(Backend::vulkan);
  EXPECT_THROW(static_cast<void>(cuda_stream(*queue)), Error);
  EXPECT_THROW(wait_for_cuda_stream(*queue, nullptr), Error);
  EXPECT_THROW(let_cuda_stream_wait(*queue, nullptr), Error);
}

// Upstream may need its only buffer back before it can send another frame.
TEST(CudaLoans, GoBackWithoutAnotherFrame) {
  GstBufferPool* pool = gst_buffer_pool_new();
  GstStructure* config = gst_buffer_pool_get_config(pool);
  gst_buffer_pool_config_set_params(config, nullptr, 64, 0, 1);
  ASSERT_TRUE(gst_buffer_pool_set_config(pool, config));
  ASSERT_TRUE(gst_buffer_pool_set_active(pool, TRUE));
  CudaLoans loans;
  for (int frame = 0; frame < 20; ++frame) {
    GstBuffer* buffer = nullptr;
    ASSERT_EQ(gst_buffer_pool_acquire_buffer(pool, &buffer, nullptr), GST_FLOW_OK);  // waits for the one that there is
    GstMapInfo map;
    ASSERT_TRUE(gst_memory_map(gst_buffer_peek_memory(buffer, 0), &map, GST_MAP_READ));
    loans.keep(CudaFrame(buffer, map, GstVideoMeta{}), Fence());
  }
  gst_buffer_pool_set_active(pool, FALSE);
  gst_object_unref(pool);
}

TEST(CudaCaps, OfferWhatTheAllocatorLaysOut) {
  const auto offered = [](const char* text) {
    GstCaps* caps = gst_caps_from_string(text);
    const Caps made(offer_cuda(caps));
    gchar* shown = gst_caps_to_string(made.get());
    std::string copy = shown;
    g_free(shown);
    return copy;
  };
  EXPECT_EQ(offered("video/x-raw(memory:GPUMap),format=NV12;video/x-raw,format=NV12"),
            "video/x-raw(memory:GPUMap), format=(string)NV12; video/x-raw(memory:CUDAMemory), format=(string)NV12; "
            "video/x-raw, format=(string)NV12");
  // It ends the process for these.
  for (const char* other :
       {"video/x-raw(memory:GPUMap),format=GRAY8", "video/x-raw(memory:GPUMap),format=v210",
        "video/x-raw(memory:GPUMap,format:Interlaced),format=NV12", "audio/x-raw(memory:GPUMap),format=F32LE",
        "application/x-other(memory:GPUMap),type=float32", "video/x-bayer(memory:GPUMap),format=rggb"}) {
    EXPECT_THAT(offered(other), Not(HasSubstr("CUDA"))) << other;
  }
  EXPECT_THAT(offered("video/x-raw(memory:GPUMap),format=I420,height=7"), Not(HasSubstr("CUDA")));
  EXPECT_THAT(offered("video/x-raw(memory:GPUMap),format=I420,height=8"), HasSubstr("CUDA"));
  EXPECT_THAT(offered("video/x-raw(memory:GPUMap),format={GRAY8,RGBA,RGB}"),
              HasSubstr("(memory:CUDAMemory), format=(string){ RGBA, RGB }"));
  EXPECT_EQ(offered("application/x-tensor(memory:GPUMap),type=float32;application/x-tensor,type=float32"),
            "application/x-tensor(memory:GPUMap), type=(string)float32; " +
                std::string(lends_tensors() ? "application/x-tensor(memory:CUDAMemory), type=(string)float32; " : "") +
                "application/x-tensor, type=(string)float32");
  // What GStreamer 1.28 says of tensors beside a frame.
  EXPECT_THAT(
      offered("video/x-raw(memory:GPUMap),format=RGBA,tensors=(structure)\"tensorgroups\\,\\ a\\=\\(int\\)1\\;\""),
      HasSubstr("(memory:CUDAMemory), format=(string)RGBA, tensors=(structure)"));
  EXPECT_EQ(offered("ANY"), "ANY");
}

// Of what downstream names: one that takes anything gets system memory.
TEST(CudaCaps, NearestMemoryIsTaken) {
  const auto nearest = [](const std::string& taken, const char* offered) {
    const Pipeline pipeline("identity name=before ! capsfilter caps=\"" + taken + "\" ! fakesink");
    const Pad pad(gst_element_get_static_pad(pipeline.element("before"), "src"));
    const Caps made(nearest_memory(pad.get(), gst_caps_from_string(offered)));
    gchar* features = gst_caps_features_to_string(gst_caps_get_features(made.get(), 0));
    const std::string memory = features;
    g_free(features);
    return std::pair(memory, gst_caps_get_size(made.get()));
  };
  constexpr const char* every = "video/x-raw;video/x-raw(memory:CUDAMemory);video/x-raw(memory:GPUMap)";
  constexpr const char* cuda = "video/x-raw(memory:CUDAMemory);video/x-raw";
  EXPECT_EQ(nearest(every, cuda), std::pair(std::string("memory:CUDAMemory"), 1U));
  EXPECT_EQ(nearest(every, every), std::pair(std::string("memory:GPUMap"), 1U));
  EXPECT_EQ(nearest("video/x-raw;video/x-bayer", "video/x-raw;video/x-bayer"),
            std::pair(std::string("memory:SystemMemory"), 2U));
  for (const char* anything : {"ANY", "video/x-raw(ANY)"}) {
    EXPECT_EQ(nearest(anything, every), std::pair(std::string("memory:SystemMemory"), 1U)) << anything;
  }
}

TEST(CudaCaps, SystemMemoryIsLeftOutBesideCuda) {
  const auto left = [](const char* text) {
    const Caps made(without_system_memory(new_caps(text).get()));
    return made ? gst_caps_get_size(made.get()) : 0;
  };
  // Of a gpumapkernel, whose tee may feed an element on the CPU, too.
  EXPECT_EQ(left("video/x-raw(memory:GPUMap);video/x-raw(memory:CUDAMemory);video/x-raw"), 0U);
  EXPECT_EQ(left("video/x-raw(memory:CUDAMemory);video/x-raw"), 1U);
  EXPECT_EQ(left("video/x-raw(memory:GPUMap);video/x-raw"), 0U);
  EXPECT_EQ(left("video/x-raw"), 0U);
  EXPECT_EQ(left("ANY"), 0U);
}

TEST(CudaCaps, OnlyMeansOnly) {
  EXPECT_TRUE(is_cuda_only(new_caps("video/x-raw(memory:CUDAMemory)").get()));
  EXPECT_FALSE(is_cuda_only(new_caps("video/x-raw(memory:CUDAMemory);video/x-raw").get()));
  EXPECT_FALSE(is_cuda_only(new_caps("video/x-raw(ANY)").get()));
  EXPECT_FALSE(is_cuda_only(new_caps("ANY").get()));
  EXPECT_FALSE(is_cuda_only(new_caps("EMPTY").get()));
}

TEST(CudaCaps, PlanesAreMeasuredWithoutTheirPadding) {
  const auto extents = [](const char* format) {
    GstVideoInfo info;
    EXPECT_TRUE(gst_video_info_from_caps(&info, video_caps(format, 1917, 1081).get()));
    std::vector<std::pair<std::size_t, std::size_t>> all;
    for (guint plane = 0; plane < GST_VIDEO_INFO_N_PLANES(&info); ++plane) {
      const PlaneExtent extent = plane_extent(info, plane);
      EXPECT_LE(extent.row_bytes, static_cast<std::size_t>(info.stride[plane]));
      all.emplace_back(extent.row_bytes, extent.rows);
    }
    return all;
  };
  using Extents = std::vector<std::pair<std::size_t, std::size_t>>;
  EXPECT_EQ(extents("NV12"), (Extents{{1917, 1081}, {1918, 541}}));
  EXPECT_EQ(extents("I420"), (Extents{{1917, 1081}, {959, 541}, {959, 541}}));
  EXPECT_EQ(extents("P010_10LE"), (Extents{{3834, 1081}, {3836, 541}}));
  EXPECT_EQ(extents("YUY2"), (Extents{{3836, 1081}}));
  EXPECT_EQ(extents("RGB"), (Extents{{5751, 1081}}));
  EXPECT_EQ(extents("RGB10A2_LE"), (Extents{{7668, 1081}}));
  EXPECT_EQ(extents("GBRA"), (Extents{{1917, 1081}, {1917, 1081}, {1917, 1081}, {1917, 1081}}));
  EXPECT_EQ(extents("Y42B"), (Extents{{1917, 1081}, {959, 1081}, {959, 1081}}));
}

}  // namespace
}  // namespace gpumap::gst::test
