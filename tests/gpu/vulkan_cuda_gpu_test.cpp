// SPDX-License-Identifier: MIT
// Kernels in CUDA beside GStreamer's Vulkan elements: from memory:VulkanImage and memory:VulkanBuffer to
// memory:CUDAMemory and back, by copies on the GPU.
#include <fmt/format.h>

#include "cuda_pipeline.hpp"

namespace gpumap::gst::test {
namespace {

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
