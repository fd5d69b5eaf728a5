// SPDX-License-Identifier: MIT
// What the tests of memory:CUDAMemory share.
#pragma once

#include <gst/video/video.h>

#include <string>
#include <utility>
#include <vector>

#include "../unit/test_helpers.hpp"
#include "gpu_pipeline.hpp"
#include "gst/cuda/gst_cuda_memory.hpp"

namespace gpumap::gst::test {

/// The pixels of a frame in any memory, plane after plane, row after row, without padding.
inline Data pixels_of(GstBuffer* buffer, const GstCaps* caps) {
  GstVideoInfo info;
  GstVideoFrame frame;
  if (!gst_video_info_from_caps(&info, caps) || !gst_video_frame_map(&frame, &info, buffer, GST_MAP_READ)) {
    ADD_FAILURE() << "cannot map a frame";
    return {};
  }
  Data pixels;
  for (guint component = 0; component < GST_VIDEO_FRAME_N_COMPONENTS(&frame); ++component) {
    // A packed plane once for all its components.
    if (GST_VIDEO_FRAME_COMP_POFFSET(&frame, component) != 0) continue;
    const auto row_bytes = static_cast<std::size_t>(GST_VIDEO_FRAME_COMP_WIDTH(&frame, component)) *
                           static_cast<std::size_t>(GST_VIDEO_FRAME_COMP_PSTRIDE(&frame, component));
    for (gint y = 0; y < GST_VIDEO_FRAME_COMP_HEIGHT(&frame, component); ++y) {
      const auto* row = reinterpret_cast<const std::byte*>(GST_VIDEO_FRAME_COMP_DATA(&frame, component)) +
                        std::ptrdiff_t{y} * GST_VIDEO_FRAME_COMP_STRIDE(&frame, component);
      pixels.insert(pixels.end(), row, row + row_bytes);
    }
  }
  gst_video_frame_unmap(&frame);
  return pixels;
}

inline Data pixels_of(const Sample& sample) {
  return pixels_of(gst_sample_get_buffer(sample.get()), gst_sample_get_caps(sample.get()));
}

/// Pixels of a frame in the default layout in ordinary memory.
inline Data pixels_of(const Data& frame, const GstCaps* caps) {
  const Buffer buffer = new_buffer(frame);
  return pixels_of(buffer.get(), caps);
}

/// True where the frame lies in CUDA memory which the CPU has not looked at since a kernel wrote it: libgstcuda's
/// GST_CUDA_MEMORY_TRANSFER_NEED_DOWNLOAD.
inline bool is_on_gpu(GstBuffer* buffer) {
  GstMemory* memory = gst_buffer_n_memory(buffer) == 1 ? gst_buffer_peek_memory(buffer, 0) : nullptr;
  return memory != nullptr && gst_memory_is_type(memory, "gst.cuda.memory") != 0 &&
         GST_MEMORY_FLAG_IS_SET(memory, GST_MEMORY_FLAG_LAST) != 0;
}

class CudaPipeline : public GpuPipeline {
 protected:
  void SetUp() override {
    GpuPipeline::SetUp();
    if (IsSkipped()) return;
    const std::string obstacle = cuda_obstacle(*device_, device_->default_backend());
    if (!obstacle.empty()) GTEST_SKIP() << obstacle;
  }

  /// Why not to go on: elements of GStreamer's nvcodec plugin that this machine lacks, or that do not register because
  /// it has no libnvcuvid and no libnvidia-encode. Empty where all are there.
  static std::string lacking(const std::vector<const char*>& elements) {
    for (const char* name : elements) {
      GstElementFactory* factory = gst_element_factory_find(name);
      if (factory == nullptr) {
        return std::string("no element ") + name +
               ": it is in gstreamer1.0-plugins-bad; nvh264dec needs libnvcuvid and nvh264enc libnvidia-encode beside "
               "libcuda (in a container NVIDIA_DRIVER_CAPABILITIES=all), cudaconvert of GStreamer 1.22 an NVRTC that "
               "still compiles for compute_52, 12 at the latest (name it by GST_CUDA_NVRTC_LIBNAME)";
      }
      gst_object_unref(factory);
    }
    return {};
  }

  /// A .cu file that declares nothing: the complement of each byte, counted through as if there were no rows.
  [[nodiscard]] std::string complement() const {
    return folder_.add("complement.cu",
                       "#include <gpumap/kernel.h>\n"
                       "extern \"C\" __global__ void complement(gpumap_frame frame) {\n"
                       "  if (blockIdx.y != 0 || threadIdx.y != 0) return;\n"
                       "  const auto* from = reinterpret_cast<const gpumap_u8*>(frame.in.plane[0]);\n"
                       "  auto* to = reinterpret_cast<gpumap_u8*>(frame.out.plane[0]);\n"
                       "  gpumap_u64 i = 1ull * blockIdx.x * blockDim.x + threadIdx.x;\n"
                       "  for (; i < frame.in.bytes; i += 1ull * gridDim.x * blockDim.x) to[i] = 255 - from[i];\n"
                       "}\n");
  }

  /// A frame through a pipeline: appsrc, gpumapsink and gpumapsrc are before `rest`, an appsink after it.
  static Sample sent(const std::string& rest, const Caps& caps, const Data& frame) {
    Pipeline pipeline(
        on_new_channel("appsrc name=in format=time ! gpumapsink name=sink $CHANNEL gpumapsrc $CHANNEL ! " + rest +
                       " ! appsink name=out sync=false"));
    gst_app_src_set_caps(pipeline.appsrc(), caps.get());
    EXPECT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    EXPECT_TRUE(push(pipeline.appsrc(), new_buffer(frame, 0)));
    Sample sample = pull(pipeline.appsink());
    EXPECT_NE(sample, nullptr) << rest << ": " << pipeline.wait(1s);
    EXPECT_EQ(stat(pipeline.element("sink"), "cpu-reads"), 0U);
    return sample;
  }

  /// The same, straight from appsrc.
  static Sample sent_past_gpumap(const std::string& rest, const Caps& caps, const Data& frame) {
    Pipeline pipeline("appsrc name=in format=time ! " + rest + " ! appsink name=out sync=false");
    gst_app_src_set_caps(pipeline.appsrc(), caps.get());
    EXPECT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    EXPECT_TRUE(push(pipeline.appsrc(), new_buffer(frame, 0)));
    Sample sample = pull(pipeline.appsink());
    EXPECT_NE(sample, nullptr) << rest << ": " << pipeline.wait(1s);
    return sample;
  }
};

inline const std::string cuda_caps = "video/x-raw(memory:CUDAMemory)";

/// Memory and descriptors of this process stay what they are while the pipeline runs to its end, again and again.
inline void expect_cycles_leave_nothing(Pipeline& pipeline, unsigned cycles) {
  std::size_t resident = 0, descriptors = 0;
  for (unsigned i = 0; i < cycles; ++i) {
    if (i == cycles / 4) {
      resident = resident_bytes();
      descriptors = open_descriptors();
    }
    ASSERT_EQ(pipeline.run(), "eos") << "cycle " << i;
    pipeline.stop();
  }
  if (!sanitized) {
    EXPECT_LE(resident_bytes(), resident + (8U << 20U));
  }
  EXPECT_TRUE(no_more_descriptors_than(descriptors));
}

}  // namespace gpumap::gst::test
