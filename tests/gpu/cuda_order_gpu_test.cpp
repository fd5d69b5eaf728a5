// SPDX-License-Identifier: MIT
// CUDA memory is handed on whole, used again only when nobody reads it any more, and given back at the end.
#include "cuda_pipeline.hpp"
#include "gst/cuda/gst_cuda_context.hpp"

namespace gpumap::gst::test {
namespace {

class CudaOrder : public CudaPipeline {};

TEST_F(CudaOrder, CapsChangeOnTheWay) {
  Pipeline pipeline(on_new_channel(
      "appsrc name=in format=time ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel kernel=convert ! " +
      cuda_caps + ",format=BGRA ! queue ! gpumapkernel ! " + cuda_caps + " ! appsink name=out sync=false"));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  std::uint64_t i = 0;
  for (const auto& [width, height] : {std::pair{640, 480}, {33, 7}, {1917, 1081}, {640, 480}}) {
    for (const char* format : {"RGBA", "NV12"}) {
      SCOPED_TRACE(testing::Message() << format << ' ' << width << 'x' << height);
      const Caps caps = video_caps(format, width, height);
      const Data frame = random_data(frame_bytes(caps.get()), ++i);
      gst_app_src_set_caps(pipeline.appsrc(), caps.get());
      ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(frame, i * GST_MSECOND)));
      const Sample sample = pull(pipeline.appsink());
      ASSERT_NE(sample, nullptr) << pipeline.wait(1s);
      EXPECT_TRUE(is_on_gpu(gst_sample_get_buffer(sample.get())));
      const Sample plain = sent("gpumapkernel kernel=convert ! video/x-raw,format=BGRA", caps, frame);
      ASSERT_NE(plain, nullptr);
      EXPECT_EQ(pixels_of(sample), pixels_of(plain));
    }
  }
}

// Each frame as it left the kernel, although the next ones are written while it is read, and buffers are used again.
TEST_F(CudaOrder, FramesStayWholeUnderLoad) {
  const unsigned frames = times(1000, 60);
  const Caps caps = video_caps("RGBA", 1280, 721);
  Pipeline pipeline(on_new_channel(
      "appsrc name=in format=time block=true max-buffers=2 max-bytes=0 ! gpumapsink $CHANNEL slots=4 "
      "gpumapsrc $CHANNEL ! gpumapkernel ! " +
      cuda_caps + " ! tee name=tee tee. ! queue max-size-buffers=4 ! gpumapkernel location=" + complement() + " ! " +
      cuda_caps +
      " ! queue max-size-buffers=3 ! appsink name=out sync=false max-buffers=3 "
      "tee. ! queue max-size-buffers=2 ! gpumapkernel kernel=checksum ! fakesink sync=false async=false"));
  gst_app_src_set_caps(pipeline.appsrc(), caps.get());
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  const std::size_t bytes = frame_bytes(caps.get());
  std::vector<Data> kinds;
  for (std::uint64_t i = 0; i < 7; ++i) kinds.push_back(random_data(bytes, 600 + i));
  unsigned pushed = 0;
  for (unsigned pulled = 0; pulled < frames; ++pulled) {
    for (; pushed < frames && pushed < pulled + 4; ++pushed) {
      ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(kinds[pushed % kinds.size()], pushed * GST_MSECOND)));
    }
    if (pushed == frames) gst_app_src_end_of_stream(pipeline.appsrc());
    const Sample sample = pull(pipeline.appsink());
    ASSERT_NE(sample, nullptr) << pipeline.wait(1s);
    EXPECT_EQ(GST_BUFFER_PTS(gst_sample_get_buffer(sample.get())), pulled * GST_MSECOND);
    Data pixels = pixels_of(sample);
    for (std::byte& byte : pixels) byte = ~byte;
    ASSERT_TRUE(pixels == kinds[pulled % kinds.size()]) << "frame " << pulled;
  }
  EXPECT_EQ(pipeline.wait(), "eos");
  ASSERT_EQ(pipeline.results().size(), frames);
  std::vector<std::uint64_t> checksums;
  for (const Data& kind : kinds) checksums.push_back(checksum_of(kind));
  for (unsigned i = 0; i < frames; ++i) {
    ASSERT_EQ(pipeline.results()[i].checksum, checksums[i % kinds.size()]) << "frame " << i;
  }
}

// What a kernel reads goes back to the pool that it came from, and is written anew, only when the kernel has ended.
// With copies: of frames that another element has copied within the GPU, which nobody waits for.
TEST_F(CudaOrder, FramesAreReadBeforeTheyAreUsedAgain) {
  const unsigned frames = times(500, 40);
  const Caps caps = video_caps("RGBA", 1280, 721);
  const std::size_t bytes = frame_bytes(caps.get());
  for (const bool copies : {false, true}) {
    SCOPED_TRACE(copies);
    Pipeline pipeline(on_new_channel(
        "appsrc name=in format=time block=true max-buffers=2 max-bytes=0 ! gpumapsink $CHANNEL slots=4 "
        "gpumapsrc $CHANNEL ! gpumapkernel ! " +
        cuda_caps + " ! gpumapkernel name=second location=" + complement() +
        " ! video/x-raw(memory:GPUMap) ! queue max-size-buffers=8 ! appsink name=out sync=false max-buffers=3"));
    const Pad pad(gst_element_get_static_pad(pipeline.element("second"), "sink"));
    const auto copy = [](GstPad* /*pad*/, GstPadProbeInfo* info, gpointer /*data*/) {
      GstBuffer* buffer = GST_PAD_PROBE_INFO_BUFFER(info);
      GST_PAD_PROBE_INFO_DATA(info) = gst_buffer_copy_deep(buffer);
      gst_buffer_unref(buffer);
      return GST_PAD_PROBE_OK;
    };
    if (copies) gst_pad_add_probe(pad.get(), GST_PAD_PROBE_TYPE_BUFFER, copy, nullptr, nullptr);
    gst_app_src_set_caps(pipeline.appsrc(), caps.get());
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    std::vector<Data> kinds;
    for (std::uint64_t i = 0; i < 5; ++i) kinds.push_back(random_data(bytes, 800 + i));
    unsigned pushed = 0;
    for (unsigned pulled = 0; pulled < frames; ++pulled) {
      for (; pushed < frames && pushed < pulled + 6; ++pushed) {
        ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(kinds[pushed % kinds.size()], pushed * GST_MSECOND)));
      }
      const Sample sample = pull(pipeline.appsink());
      ASSERT_NE(sample, nullptr) << pipeline.wait(1s);
      Data pixels = pixels_of(sample);
      for (std::byte& byte : pixels) byte = ~byte;
      ASSERT_TRUE(pixels == kinds[pulled % kinds.size()]) << "frame " << pulled;
    }
  }
}

/// Waits for the CPU to open a gate before it writes the complement.
constexpr const char* gated = R"(
// gpumap: params gate:i64=0
#include <gpumap/grid.h>
extern "C" __global__ void gated(gpumap_frame frame) {
  const auto* gate = reinterpret_cast<const volatile gpumap_u32*>(gpumap_param_i64(frame, 0));
  while (*gate == 0) {}
  for (gpumap_u64 i = gpumap_thread(); i < frame.out.bytes; i += gpumap_thread_count()) {
    reinterpret_cast<gpumap_u8*>(frame.out.plane[0])[i] = 255 - reinterpret_cast<const gpumap_u8*>(frame.in.plane[0])[i];
  }
}
)";

// From GStreamer 1.24 on frames in CUDA memory go on while the kernel is still to write them: a reader waits
// on the GPU, or asks libgstcuda to wait. The gate opens when the frames are already at the end of the pipeline.
TEST_F(CudaOrder, FramesGoOnBeforeTheKernelIsDone) {
  if (!CudaLibrary::get().has_streams) GTEST_SKIP() << "libgstcuda before 1.24: memory names no stream";
  const auto gate = device_->allocate({.placement = Placement::host, .bytes = 64}, Backend::cuda);
  auto* open = reinterpret_cast<volatile std::uint32_t*>(gate->host());
  *open = 1;
  const std::string file = folder_.add("gated.cu", gated);
  const Caps caps = video_caps("RGBA", 640, 481);
  Pipeline pipeline(on_new_channel(
      "appsrc name=in format=time ! gpumapsink $CHANNEL slots=4 gpumapsrc $CHANNEL ! gpumapkernel ! " + cuda_caps +
      " ! gpumapkernel location=" + file + " params=gate=" + std::to_string(gate->address(Backend::cuda)) + " ! " +
      cuda_caps + " ! gpumapkernel location=" + complement() + " ! " + cuda_caps + " ! appsink name=out sync=false"));
  gst_app_src_set_caps(pipeline.appsrc(), caps.get());
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  // What CUDA does at a first launch and for a new buffer waits for the whole GPU: that is over before the gate closes.
  constexpr std::uint64_t warm = 6;
  std::vector<Data> sent;
  std::vector<Sample> got;
  for (std::uint64_t i = 0; i < warm + 2; ++i) {
    if (i == warm) got.clear();
    if (i == warm) *open = 0;
    sent.push_back(random_data(frame_bytes(caps.get()), 900 + i));
    ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(sent.back(), i * GST_MSECOND)));
    got.emplace_back(gst_app_sink_try_pull_sample(pipeline.appsink(), 5 * GST_SECOND));
  }
  const bool waited = got[0] == nullptr || got[1] == nullptr;
  *open = 1;
  ASSERT_FALSE(waited) << "the CPU waited for the kernel: " << pipeline.wait(1s);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(pixels_of(got[i]) == sent[warm + i]) << i;
}

TEST_F(CudaOrder, FlushesOnTheWayLoseNothingElse) {
  Pipeline pipeline(on_new_channel(
      "appsrc name=in format=time ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel ! " + cuda_caps +
      " ! gpumapkernel name=second kernel=checksum ! " + cuda_caps + " ! appsink name=out sync=false"));
  const Caps caps = video_caps("NV12", 1917, 1081);
  gst_app_src_set_caps(pipeline.appsrc(), caps.get());
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  const Data frame = random_data(frame_bytes(caps.get()), 700);
  for (unsigned i = 0; i < times(200, 20); ++i) {
    for (unsigned j = 0; j < i % 4; ++j) ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(frame)));
    ASSERT_TRUE(gst_element_send_event(pipeline.element("in"), gst_event_new_flush_start()));
    ASSERT_TRUE(gst_element_send_event(pipeline.element("in"), gst_event_new_flush_stop(TRUE)));
  }
  ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(frame, 12345)));
  for (;;) {
    const Sample sample = pull(pipeline.appsink());
    ASSERT_NE(sample, nullptr) << pipeline.wait(1s);
    EXPECT_EQ(pixels_of(sample), pixels_of(frame, caps.get()));
    if (GST_BUFFER_PTS(gst_sample_get_buffer(sample.get())) == 12345) break;
  }
}

TEST_F(CudaOrder, StartAndStopLeaveNothingBehind) {
  const unsigned cycles = times(200, 30);
  Pipeline pipeline(on_new_channel(
      "videotestsrc num-buffers=2 ! video/x-raw,format=NV12,width=640,height=360 ! gpumapsink $CHANNEL slots=4 "
      "gpumapsrc $CHANNEL ! gpumapkernel ! " +
      cuda_caps + " ! gpumapkernel kernel=checksum ! " + cuda_caps + " ! fakesink sync=false"));
  expect_cycles_leave_nothing(pipeline, cycles);
}

}  // namespace
}  // namespace gpumap::gst::test
