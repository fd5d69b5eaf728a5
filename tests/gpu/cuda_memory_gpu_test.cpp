// SPDX-License-Identifier: MIT
// Frames in GStreamer's own CUDA memory, between gpumapkernels and to and from its CUDA elements: the same pixels as
// in ordinary memory, and no copy through the host.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "cuda_pipeline.hpp"

namespace gpumap::gst::test {
namespace {

using ::testing::HasSubstr;

struct Size {
  int width, height;
};
// Rows that fill their pitch, that do not, odd ones, and no more than a pixel.
constexpr Size sizes[] = {{640, 480}, {1917, 1081}, {33, 7}, {33, 6}, {1, 1}};

/// What libgstcuda 1.22 lays out so that the CPU can read it.
bool fits(const char* format, int height) {
  const std::string name = format;
  return height % 2 == 0 || (name != "I420" && name != "YV12" && name != "I420_10LE" && name != "NV21");
}

class CudaMemory : public CudaPipeline {};

TEST_F(CudaMemory, HoldsWhatOrdinaryMemoryHolds) {
  std::uint64_t seed = 0;
  for (const auto& [width, height] : sizes) {
    for (const char* in : {"NV12", "I420", "YUY2", "RGB", "P010_10LE", "GRAY8"}) {
      for (const char* out : {"RGBA", "BGRA", "RGB", "NV12", "I420", "P010_10LE", "Y444"}) {
        if (!fits(out, height)) continue;
        SCOPED_TRACE(testing::Message() << in << " to " << out << ' ' << width << 'x' << height);
        const Caps caps = video_caps(in, width, height);
        const Data frame = random_data(frame_bytes(caps.get()), ++seed);
        const auto converted = [&](const char* memory) {
          return sent(std::string("gpumapkernel kernel=convert ! video/x-raw").append(memory).append(",format=") + out,
                      caps, frame);
        };
        const Sample plain = converted("");
        const Sample cuda = converted("(memory:CUDAMemory)");
        ASSERT_TRUE(plain && cuda);
        EXPECT_TRUE(is_on_gpu(gst_sample_get_buffer(cuda.get())));
        EXPECT_EQ(pixels_of(cuda), pixels_of(plain));
      }
    }
  }
}

// Kernels that know nothing of rows: the picture is laid out anew, within the GPU.
TEST_F(CudaMemory, EveryFormatPassesUnchanged) {
  std::uint64_t seed = 100;
  for (const auto& [width, height] : sizes) {
    for (const char* format :
         {"I420",      "YV12",      "NV12", "NV21", "P010_10LE", "P016_LE", "I420_10LE", "Y444",       "Y444_16LE",
          "BGRA",      "RGBA",      "RGBx", "BGRx", "ARGB",      "ABGR",    "RGB",       "BGR",        "Y42B",
          "I422_10LE", "I422_12LE", "YUY2", "UYVY", "RGBP",      "GBR",     "GBRA",      "BGR10A2_LE", "RGB10A2_LE"}) {
      if (!fits(format, height)) continue;
      SCOPED_TRACE(testing::Message() << format << ' ' << width << 'x' << height);
      const Caps caps = video_caps(format, width, height);
      const Data frame = random_data(frame_bytes(caps.get()), ++seed);
      for (const char* kernel : {"identity", "checksum"}) {
        SCOPED_TRACE(kernel);
        const Sample cuda = sent(std::string("gpumapkernel kernel=") + kernel + " ! " + cuda_caps, caps, frame);
        ASSERT_NE(cuda, nullptr);
        EXPECT_TRUE(is_on_gpu(gst_sample_get_buffer(cuda.get())));
        EXPECT_EQ(pixels_of(cuda), pixels_of(frame, caps.get()));
      }
    }
  }
}

TEST_F(CudaMemory, IsTakenByAnotherKernel) {
  std::uint64_t seed = 200;
  const std::string first = "gpumapkernel ! " + cuda_caps + " ! ";
  for (const auto& [width, height] : sizes) {
    for (const char* format : {"NV12", "I420", "RGB", "RGBA"}) {
      if (!fits(format, height)) continue;
      SCOPED_TRACE(testing::Message() << format << ' ' << width << 'x' << height);
      const Caps caps = video_caps(format, width, height);
      const Data frame = random_data(frame_bytes(caps.get()), ++seed);
      const Data pixels = pixels_of(frame, caps.get());
      for (const char* rest : {
               "gpumapkernel ! video/x-raw",
               "gpumapkernel ! video/x-raw(memory:GPUMap)",
               "gpumapkernel ! video/x-raw(memory:CUDAMemory)",
               "gpumapkernel kernel=checksum ! video/x-raw",
               "gpumapkernel kernel=checksum ! video/x-raw(memory:GPUMap)",
               "gpumapkernel kernel=checksum ! video/x-raw(memory:CUDAMemory)",
           }) {
        SCOPED_TRACE(rest);
        const Sample sample = sent(first + rest, caps, frame);
        ASSERT_NE(sample, nullptr);
        EXPECT_EQ(pixels_of(sample), pixels);
      }
      const Sample plain = sent("gpumapkernel kernel=convert ! video/x-raw,format=BGRA", caps, frame);
      const Sample by_cuda = sent(first + "gpumapkernel kernel=convert ! video/x-raw,format=BGRA", caps, frame);
      ASSERT_TRUE(plain && by_cuda);
      EXPECT_EQ(pixels_of(by_cuda), pixels_of(plain));
    }
  }
}

// The bytes that the same frame has in the default layout: pitches differ from GPU to GPU.
TEST_F(CudaMemory, ChecksumCountsNoPitch) {
  Pipeline pipeline(
      on_new_channel("appsrc name=in format=time ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel ! " +
                     cuda_caps + " ! gpumapkernel kernel=checksum ! fakesink sync=false"));
  const Caps caps = video_caps("RGBA", 1917, 1081);
  gst_app_src_set_caps(pipeline.appsrc(), caps.get());
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  std::vector<std::uint64_t> checksums;
  for (std::uint64_t i = 0; i < 5; ++i) {
    const Data frame = random_data(frame_bytes(caps.get()), 300 + i);
    checksums.push_back(checksum_of(frame));
    ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(frame, i * GST_MSECOND)));
  }
  gst_app_src_end_of_stream(pipeline.appsrc());
  EXPECT_EQ(pipeline.wait(), "eos");
  ASSERT_EQ(pipeline.results().size(), checksums.size());
  for (std::size_t i = 0; i < checksums.size(); ++i) EXPECT_EQ(pipeline.results()[i].checksum, checksums[i]) << i;
}

// A kernel that declares its output writes straight into the pitched rows.
TEST_F(CudaMemory, KernelsOfTheUsersFollowThePitch) {
  const std::string to_cuda = " ! " + cuda_caps;
  const std::string kernel = folder_.add(
      "position.cu",
      "// gpumap: output video/x-raw,format=RGBA\n"
      "// gpumap: results stride=u64,size=u64\n"
      "#include <gpumap/kernel.h>\n"
      "extern \"C\" __global__ void position(gpumap_frame frame) {\n"
      "  const gpumap_u32 x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;\n"
      "  if (x >= frame.out.width || y >= frame.out.height) return;\n"
      "  const auto* in = reinterpret_cast<const gpumap_u8*>(frame.in.plane[0]) + 1ull * y * frame.in.stride[0];\n"
      "  auto* out = reinterpret_cast<gpumap_u8*>(frame.out.plane[0]) + 1ull * y * frame.out.stride[0] + 4ull * x;\n"
      "  out[0] = x & 255;\n  out[1] = y & 255;\n  out[2] = (x >> 8) + 16 * (y >> 8);\n  out[3] = in[x];\n"
      "  if (x == 0 && y == 0) {\n"
      "    reinterpret_cast<gpumap_u64*>(frame.result)[0] = frame.out.stride[0];\n"
      "    reinterpret_cast<gpumap_u64*>(frame.result)[1] = frame.out.bytes;\n"
      "  }\n"
      "}\n");
  const Caps caps = video_caps("GRAY8", 1917, 1081);
  const Data frame = random_data(frame_bytes(caps.get()), 400);
  const Data gray = pixels_of(frame, caps.get());
  Data expected;
  for (unsigned y = 0; y < 1081; ++y) {
    for (unsigned x = 0; x < 1917; ++x) {
      for (const unsigned value : {x & 255, y & 255, (x >> 8) + 16 * (y >> 8)}) expected.push_back(std::byte(value));
      expected.push_back(gray[y * 1917 + x]);
    }
  }
  for (const char* guard : {"", " check-bounds=true"}) {
    SCOPED_TRACE(guard);
    const Sample sample =
        sent(std::string("gpumapkernel location=").append(kernel).append(guard) + to_cuda, caps, frame);
    ASSERT_NE(sample, nullptr);
    GstBuffer* buffer = gst_sample_get_buffer(sample.get());
    EXPECT_TRUE(is_on_gpu(buffer));
    EXPECT_EQ(pixels_of(sample), expected);
    if (*guard != '\0') continue;
    const GstVideoMeta* meta = gst_buffer_get_video_meta(buffer);
    GstCustomMeta* result = gst_buffer_get_custom_meta(buffer, "GpumapResult");
    ASSERT_TRUE(meta != nullptr && result != nullptr);
    guint64 stride = 0, size = 0;
    EXPECT_TRUE(gst_structure_get_uint64(gst_custom_meta_get_structure(result), "stride", &stride));
    EXPECT_TRUE(gst_structure_get_uint64(gst_custom_meta_get_structure(result), "size", &size));
    EXPECT_EQ(stride, static_cast<guint64>(meta->stride[0])) << "written straight into the frame";
    EXPECT_EQ(size, gst_buffer_get_size(buffer));
  }
}

// One that declares nothing was promised an output like its input.
TEST_F(CudaMemory, KernelsOfBytesNeedKnowNoPitch) {
  const std::string kernel = "gpumapkernel location=" + complement() + " ! " + cuda_caps;
  for (const char* format : {"NV12", "I420", "RGB"}) {
    SCOPED_TRACE(format);
    const Caps caps = video_caps(format, 1917, 1082);
    const Data frame = random_data(frame_bytes(caps.get()), 500);
    Data inverse = frame;
    for (std::byte& byte : inverse) byte = ~byte;
    const Sample once = sent(kernel, caps, frame);
    const Sample twice = sent(std::string(kernel).append(" ! ").append(kernel), caps, frame);
    ASSERT_TRUE(once && twice);
    EXPECT_EQ(pixels_of(once), pixels_of(inverse, caps.get()));
    EXPECT_EQ(pixels_of(twice), pixels_of(frame, caps.get()));
  }
}

TEST_F(CudaMemory, WhatDoesNotFitIsRefused) {
  for (const char* caps : {"GRAY8,width=64,height=48", "I420,width=64,height=47", "v210,width=64,height=48"}) {
    SCOPED_TRACE(caps);
    Pipeline pipeline(on_new_channel(std::string("videotestsrc num-buffers=2 ! video/x-raw,format=") + caps +
                                     " ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel name=kernel ! " +
                                     cuda_caps + " ! fakesink"));
    EXPECT_THAT(pipeline.run(), HasSubstr("CUDA memory holds"));
    EXPECT_EQ(pipeline.culprit(), "kernel");
  }
}

TEST_F(CudaMemory, BackendVulkanDoesNotOfferIt) {
  Pipeline pipeline(
      on_new_channel("videotestsrc num-buffers=2 ! video/x-raw,format=NV12 ! gpumapsink $CHANNEL gpumapsrc "
                     "$CHANNEL ! gpumapkernel name=kernel backend=vulkan ! " +
                     cuda_caps + " ! fakesink"));
  EXPECT_THAT(pipeline.run(), HasSubstr("backend=cuda"));
  EXPECT_EQ(pipeline.culprit(), "kernel");
}

// Kernels in CUDA beside GStreamer's Vulkan elements: from memory:VulkanImage and memory:VulkanBuffer to
// memory:CUDAMemory and back, by copies on the GPU.

constexpr int frames = 3;

class VulkanCuda : public CudaPipeline {
 protected:
  void SetUp() override {
    CudaPipeline::SetUp();
    if (IsSkipped()) return;
    for (const char* name : {"vulkanupload", "vulkandownload"}) {
      const Element element(gst_element_factory_make(name, nullptr));
      if (!element) GTEST_SKIP() << name << " is missing: gstreamer1.0-plugins-bad has it";
    }
  }

  /// Random RGBA through `way`, whose element `kernel` converts to BGRA: the same pixels, red and blue swapped.
  static void expect_swapped(const std::string& way, int width, int height, bool on_gpu) {
    SCOPED_TRACE(testing::Message() << way << ' ' << width << 'x' << height);
    Pipeline pipeline(on_new_channel("appsrc name=in format=time ! " + way + " ! appsink name=out sync=false"));
    const Caps caps = video_caps("RGBA", width, height);
    gst_app_src_set_caps(pipeline.appsrc(), caps.get());
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    for (std::uint64_t i = 0; i < frames; ++i) {
      Data expected = random_data(frame_bytes(caps.get()), 40 + i);
      ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(expected, i * GST_SECOND / 30)));
      const Sample sample = pull(pipeline.appsink());
      ASSERT_NE(sample, nullptr) << pipeline.wait(1s);
      EXPECT_EQ(is_on_gpu(gst_sample_get_buffer(sample.get())), on_gpu);
      for (std::size_t at = 0; at < expected.size(); at += 4) std::swap(expected[at], expected[at + 2]);
      EXPECT_TRUE(pixels_of(sample) == expected) << "frame " << i;
    }
    EXPECT_EQ(stat_text(pipeline.element("kernel"), "backend"), "cuda");
    EXPECT_EQ(stat(pipeline.element("kernel"), "gpu-copies"), std::uint64_t{frames});
    EXPECT_EQ(stat(pipeline.element("kernel"), "host-copies"), 0U);
  }
};

const std::string convert = "gpumapkernel name=kernel backend=cuda kernel=convert ! video/x-raw";
const std::string here = "gpumapsink sync=false $CHANNEL gpumapsrc $CHANNEL ! ";

TEST_F(VulkanCuda, ImagesIn) {
  for (const auto& [width, height] : {std::pair{1917, 1081}, {63, 49}, {1, 1}}) {
    expect_swapped("vulkanupload ! " + convert + "(memory:CUDAMemory),format=BGRA", width, height, true);
  }
}

TEST_F(VulkanCuda, BuffersIn) {
  for (const auto& [width, height] : {std::pair{1916, 1081}, {60, 49}, {4, 4}}) {
    expect_swapped(fmt::format("{}gpumapkernel ! video/x-raw(memory:VulkanBuffer) ! {}(memory:CUDAMemory),format=BGRA",
                               here, convert),
                   width, height, true);
  }
}

TEST_F(VulkanCuda, ImagesOut) {
  for (const auto& [width, height] : {std::pair{1917, 1081}, {63, 49}, {1, 1}}) {
    expect_swapped(fmt::format("{}gpumapkernel backend=cuda ! {} ! {}(memory:VulkanImage),format=BGRA ! vulkandownload",
                               here, cuda_caps, convert),
                   width, height, false);
  }
}

}  // namespace
}  // namespace gpumap::gst::test
