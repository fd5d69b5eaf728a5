// SPDX-License-Identifier: MIT
// Slots as memory of GStreamer's own CUDA elements: the same pixels, read only, and lent for as long as they are read.
#include <fmt/format.h>

#include <string_view>
#include <tuple>

#include "cuda_pipeline.hpp"
#include "gst/cuda/gst_cuda_context.hpp"

namespace gpumap::gst::test {
namespace {

using namespace std::chrono_literals;

const char* const ways[] = {"gpumapupload name=way", "gpumapsink $CHANNEL gpumapsrc name=way $CHANNEL"};

class CudaSlots : public CudaPipeline {
 protected:
  static std::string into_cuda(const std::string& way, const std::string& then = "appsink name=out sync=false") {
    return on_new_channel("appsrc name=in format=time ! " + way + " ! video/x-raw(memory:CUDAMemory) ! " + then);
  }
  static guint64 copies(Pipeline& pipeline) { return stat(pipeline.element("way"), "gpu-copies"); }
};

TEST_F(CudaSlots, PixelsAreTheSameInEveryFormatAndSize) {
  const std::tuple<const char*, int, int> cases[] = {
      {"NV12", 1920, 1080}, {"NV12", 321, 7},   {"NV12", 1024, 1023}, {"I420", 322, 240},      {"I420", 1280, 720},
      {"RGBA", 333, 77},    {"BGRA", 1, 1},     {"RGB", 1917, 1081},  {"P010_10LE", 641, 480}, {"Y444", 333, 33},
      {"YUY2", 1278, 719},  {"Y42B", 1280, 31}, {"BGRx", 128, 64},    {"GBR", 511, 9},
  };
  for (const char* way : ways) {
    for (const auto& [format, width, height] : cases) {
      SCOPED_TRACE(testing::Message() << way << ' ' << format << ' ' << width << 'x' << height);
      Pipeline pipeline(into_cuda(way));
      const Caps caps = video_caps(format, width, height);
      gst_app_src_set_caps(pipeline.appsrc(), caps.get());
      ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
      for (std::uint64_t i = 0; i < 3; ++i) {
        const Data frame = random_data(frame_bytes(caps.get()), 10 * i + static_cast<std::uint64_t>(width));
        ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(frame, i * GST_MSECOND)));
        const Sample sample = pull(pipeline.appsink());
        ASSERT_NE(sample, nullptr) << pipeline.wait(1s);
        EXPECT_TRUE(is_cuda_memory(gst_buffer_peek_memory(gst_sample_get_buffer(sample.get()), 0)));
        EXPECT_EQ(GST_BUFFER_PTS(gst_sample_get_buffer(sample.get())), i * GST_MSECOND);
        EXPECT_TRUE(pixels_of(sample) == pixels_of(frame, caps.get())) << i;
      }
    }
  }
}

// The picture that upstream writes in place is the one that CUDA's elements get, where they can.
TEST_F(CudaSlots, NothingIsCopiedWhereRowsSuit) {
  for (const char* way : {"gpumapupload name=way", "gpumapsink name=sink $CHANNEL gpumapsrc name=way $CHANNEL"}) {
    Pipeline pipeline(
        on_new_channel("videotestsrc num-buffers=20 pattern=smpte ! video/x-raw,format=NV12,width=1920,height=1080 ! " +
                       std::string(way) + " ! video/x-raw(memory:CUDAMemory) ! fakesink name=out"));
    ASSERT_EQ(pipeline.run(), "eos");
    if (CudaLibrary::get().has_streams) {
      EXPECT_EQ(copies(pipeline), 0U) << way;
    } else {
      EXPECT_EQ(copies(pipeline), 20U) << way;
    }
  }
}

// A kernel behind reads what it would have read from the slot, and its result leaves by CUDA memory again.
TEST_F(CudaSlots, KernelsAndBranchesReadThem) {
  for (const char* way : ways) {
    SCOPED_TRACE(way);
    Pipeline pipeline(on_new_channel("appsrc name=in format=time ! " + std::string(way) +
                                     " ! tee name=t ! queue ! video/x-raw(memory:CUDAMemory) ! "
                                     "gpumapkernel kernel=checksum ! fakesink sync=false async=false "
                                     "t. ! queue ! video/x-raw(memory:CUDAMemory) ! appsink name=out sync=false"));
    const Caps caps = video_caps("NV12", 1280, 721);
    gst_app_src_set_caps(pipeline.appsrc(), caps.get());
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    for (std::uint64_t i = 0; i < times(200, 20); ++i) {
      const Data frame = random_data(frame_bytes(caps.get()), i);
      ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(frame, i * GST_MSECOND)));
      const Sample sample = pull(pipeline.appsink());
      ASSERT_NE(sample, nullptr) << pipeline.wait(1s);
      ASSERT_TRUE(pixels_of(sample) == pixels_of(frame, caps.get())) << i;
    }
    gst_app_src_end_of_stream(pipeline.appsrc());
    EXPECT_EQ(pipeline.wait(), "eos");
    EXPECT_EQ(pipeline.results().size(), times(200, 20));
  }
}

// Downstream keeps more frames than there are slots, as an encoder that looks ahead: each stays as it was.
TEST_F(CudaSlots, DownstreamMayKeepThem) {
  for (const char* way : {"gpumapupload name=way slots=2", "gpumapsink slots=2 $CHANNEL gpumapsrc name=way $CHANNEL"}) {
    SCOPED_TRACE(way);
    Pipeline pipeline(into_cuda(way));
    const Caps caps = video_caps("RGBA", 640, 480);
    gst_app_src_set_caps(pipeline.appsrc(), caps.get());
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    std::vector<Data> frames;
    std::vector<Sample> kept;
    for (std::uint64_t i = 0; i < 12; ++i) {
      frames.push_back(random_data(frame_bytes(caps.get()), 900 + i));
      ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(frames.back(), i * GST_MSECOND)));
      kept.push_back(pull(pipeline.appsink()));
      ASSERT_NE(kept.back(), nullptr) << pipeline.wait(1s);
    }
    for (std::size_t i = 0; i < kept.size(); ++i) {
      EXPECT_TRUE(pixels_of(kept[i]) == pixels_of(frames[i], caps.get())) << i;
    }
  }
}

TEST_F(CudaSlots, CapsChangeAndTheElementStartsAgain) {
  for (const char* way : ways) {
    SCOPED_TRACE(way);
    Pipeline pipeline(into_cuda(way));
    for (std::uint64_t i = 0; i < 6; ++i) {
      const Caps caps = video_caps(i % 2 == 0 ? "NV12" : "RGBA", 320 + static_cast<int>(i), 240);
      gst_app_src_set_caps(pipeline.appsrc(), caps.get());
      ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
      const Data frame = random_data(frame_bytes(caps.get()), 77 + i);
      ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(frame, i * GST_MSECOND)));
      const Sample sample = pull(pipeline.appsink());
      ASSERT_NE(sample, nullptr) << pipeline.wait(1s);
      EXPECT_TRUE(pixels_of(sample) == pixels_of(frame, caps.get()));
      if (i == 3) pipeline.set_state(GST_STATE_NULL);
    }
  }
}

// An element that writes in place gets memory of its own: the slot stays as upstream wrote it.
TEST_F(CudaSlots, SlotsAreReadOnly) {
  Pipeline pipeline(into_cuda("gpumapupload name=way"));
  const Caps caps = video_caps("RGBA", 512, 64);
  gst_app_src_set_caps(pipeline.appsrc(), caps.get());
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(random_data(frame_bytes(caps.get()), 5))));
  const Sample sample = pull(pipeline.appsink());
  ASSERT_NE(sample, nullptr) << pipeline.wait(1s);
  GstMemory* memory = gst_buffer_peek_memory(gst_sample_get_buffer(sample.get()), 0);
  const bool copied = copies(pipeline) != 0;
  GstMapInfo map;
  const bool mapped = gst_memory_map(memory, &map, GST_MAP_WRITE) != 0;
  EXPECT_EQ(mapped, copied);
  if (mapped) gst_memory_unmap(memory, &map);
}

// GStreamer's own elements, where this machine has them.
TEST_F(CudaSlots, CudaElementsTakeThem) {
  const std::string missing = lacking({"cudaconvert", "cudadownload", "cudaupload"});
  if (!missing.empty()) GTEST_SKIP() << missing;
  for (const char* way : ways) {
    for (const auto& [width, height] : {std::pair{1920, 1080}, {322, 240}}) {
      SCOPED_TRACE(testing::Message() << way << ' ' << width);
      const std::string convert = " ! cudaconvert ! video/x-raw(memory:CUDAMemory),format=RGBA ! cudadownload ! ";
      const std::string caps =
          "video/x-raw,format=NV12,width=" + std::to_string(width) + ",height=" + std::to_string(height);
      const auto line = [&](std::string_view upload) {
        return fmt::format("videotestsrc num-buffers=30 pattern=ball ! {} ! {}{}appsink name=out sync=false", caps,
                           upload, convert);
      };
      Pipeline pipeline(on_new_channel(line(way)));
      Pipeline rival(line("cudaupload"));
      ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
      ASSERT_NE(rival.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
      for (int i = 0; i < 30; ++i) {
        const Sample ours = pull(pipeline.appsink());
        const Sample theirs = pull(rival.appsink());
        ASSERT_NE(ours, nullptr) << pipeline.wait(1s);
        ASSERT_NE(theirs, nullptr) << rival.wait(1s);
        ASSERT_TRUE(pixels_of(ours) == pixels_of(theirs)) << i;
      }
    }
  }
}

}  // namespace
}  // namespace gpumap::gst::test
