// SPDX-License-Identifier: MIT
// Tensors as memory:CUDAMemory: out of kernels and slots, into kernels, beside frames. Each byte is what the same
// arithmetic gives on the CPU.
#include <gmock/gmock.h>

#include <cstring>

#include "../gst/tensor_pictures.hpp"
#include "cuda_pipeline.hpp"
#include "gst/analytics/analytics_metas.hpp"
#include "gst/cuda/gst_cuda_context.hpp"
#include "gst/memory/gpumap_memory.hpp"

namespace gpumap::gst::test {
namespace {

using ::testing::HasSubstr;

constexpr const char* before = R"(
// gpumap: input video/x-raw,format=GRAY8
// gpumap: output application/x-tensor,type=float32,layout=chw,channels=3,width={width},height={height}
#include <gpumap/kernel.h>
extern "C" __global__ void before(gpumap_frame frame) {
  const gpumap_u32 x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= frame.out.width || y >= frame.out.height) return;
  const auto* in = reinterpret_cast<const gpumap_u8*>(frame.in.plane[0]) + 1ull * y * frame.in.stride[0];
  for (gpumap_u32 c = 0; c < 3; ++c) {
    auto* out = reinterpret_cast<float*>(frame.out.plane[c] + 1ull * y * frame.out.stride[c]);
    out[x] = (3 * in[x] + c) / 8.0f;
  }
}
)";

constexpr const char* network = R"(
// gpumap: input application/x-tensor,type=float32,layout=chw
// gpumap: output application/x-tensor,type=float32,dims=(int)<1,{width}>
#include <gpumap/grid.h>
extern "C" __global__ void network(gpumap_frame frame) {
  for (gpumap_u64 x = gpumap_thread(); x < frame.in.width; x += gpumap_thread_count()) {
    float sum = 0;
    for (gpumap_u32 i = 0; i < 3 * frame.in.height; ++i) {
      sum += reinterpret_cast<const float*>(frame.in.plane[i % 3] + 1ull * (i / 3) * frame.in.stride[i % 3])[x];
    }
    reinterpret_cast<float*>(frame.out.plane[0])[x] = sum;
  }
}
)";

constexpr const char* doubles = R"(
// gpumap: input application/x-tensor,type=float32
// gpumap: output application/x-tensor,type=float64
// gpumap: bytes 2*bytes
#include <gpumap/grid.h>
extern "C" __global__ void doubles(gpumap_frame frame) {
  for (gpumap_u64 i = gpumap_thread(); i < frame.in.bytes / 4; i += gpumap_thread_count()) {
    reinterpret_cast<double*>(frame.out.plane[0])[i] = 2.0 * reinterpret_cast<const float*>(frame.in.plane[0])[i];
  }
}
)";

constexpr const char* in_cuda = "application/x-tensor(memory:CUDAMemory)";
constexpr const char* in_ours = "application/x-tensor(memory:GPUMap)";
constexpr const char* plain = "application/x-tensor";

class CudaTensors : public CudaPipeline {
 protected:
  void SetUp() override {
    CudaPipeline::SetUp();
    if (IsSkipped()) return;
    if (!CudaLibrary::get().has_streams) GTEST_SKIP() << "tensors in memory:CUDAMemory need GStreamer 1.24";
    made_ = "gpumapkernel name=before location=" + folder_.add("before.cu", before);
    summed_ = "gpumapkernel name=network location=" + folder_.add("network.cu", network);
    doubled_ = "gpumapkernel name=doubles location=" + folder_.add("doubles.cu", doubles);
  }
  static std::string from_app(const std::string& rest) {
    return "appsrc name=in format=time ! gpumapupload name=up ! " + rest;
  }
  static void start(Pipeline& pipeline, const Size& size) {
    gst_app_src_set_caps(pipeline.appsrc(), gray(size).get());
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  }
  static void send(Pipeline& pipeline, const Picture& picture, std::uint64_t number) {
    ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(picture.data(), number * GST_SECOND / 30)));
  }
  static bool is_in_cuda(GstBuffer* buffer) {
    return gst_buffer_n_memory(buffer) == 1 && is_cuda_memory(gst_buffer_peek_memory(buffer, 0));
  }
  /// The next one is `expected`, in the memory that its caps say.
  static void expect(Pipeline& pipeline, const Data& expected, const char* sink = "out") {
    const Sample sample = pull(pipeline.appsink(sink));
    ASSERT_NE(sample, nullptr) << pipeline.wait(1s);
    GstBuffer* buffer = gst_sample_get_buffer(sample.get());
    const std::string caps = text_of(gst_sample_get_caps(sample.get()));
    ASSERT_EQ(is_in_cuda(buffer), caps.find("CUDAMemory") != std::string::npos) << caps;
    ASSERT_EQ(frame_memory(gst_buffer_peek_memory(buffer, 0)) != nullptr, caps.find("GPUMap") != std::string::npos);
    ASSERT_EQ(gst_buffer_get_size(buffer), expected.size()) << caps;
    ASSERT_TRUE(data_of(buffer) == expected) << caps;
  }

  std::string made_, summed_, doubled_;
};

TEST_F(CudaTensors, AKernelGivesThem) {
  for (const Size& size : tensor_sizes) {
    SCOPED_TRACE(testing::Message() << size.width << 'x' << size.height);
    Pipeline pipeline(from_app(made_ + " ! " + in_cuda + " ! appsink name=out sync=false"));
    start(pipeline, size);
    for (std::uint64_t i = 0; i < 5; ++i) {
      const Picture picture(size, i);
      send(pipeline, picture, i);
      expect(pipeline, picture.tensor());
    }
  }
}

// From convert, of each type and layout, as it is in ordinary memory.
TEST_F(CudaTensors, ConvertGivesThem) {
  for (const Size& size : {Size{37, 23}, {641, 3}, {1920, 1080}}) {
    const Caps caps = video_caps("NV12", size.width, size.height);
    const Data frame = random_data(frame_bytes(caps.get()), 9);
    for (const char* kind : {",type=float32,layout=chw", ",type=float16,layout=hwc", ",type=uint8,layout=chw",
                             ",type=uint8,layout=hwc,width=11,height=7"}) {
      SCOPED_TRACE(testing::Message() << kind << ' ' << size.width << 'x' << size.height);
      const Sample expected = sent(std::string("gpumapkernel kernel=convert ! ") + plain + kind, caps, frame);
      const Sample given = sent(std::string("gpumapkernel kernel=convert ! ") + in_cuda + kind, caps, frame);
      ASSERT_TRUE(expected && given);
      EXPECT_TRUE(is_in_cuda(gst_sample_get_buffer(given.get())));
      EXPECT_TRUE(data_of(gst_sample_get_buffer(given.get())) == data_of(gst_sample_get_buffer(expected.get())));
    }
  }
}

TEST_F(CudaTensors, AnotherKernelTakesThem) {
  for (const char* last : {in_cuda, in_ours, plain}) {
    for (const Size& size : tensor_sizes) {
      SCOPED_TRACE(testing::Message() << last << ' ' << size.width << 'x' << size.height);
      Pipeline pipeline(from_app(made_ + " ! " + in_cuda + " ! queue ! " + summed_ + " ! " + in_cuda + " ! " +
                                 doubled_ + " ! " + last + " ! appsink name=out sync=false"));
      start(pipeline, size);
      for (std::uint64_t i = 0; i < 5; ++i) {
        const Picture picture(size, 50 + i);
        send(pipeline, picture, i);
        expect(pipeline, picture.doubled_sums());
      }
    }
  }
}

// What a kernel only looks at goes on, from each memory into each.
TEST_F(CudaTensors, GoOnAsTheyAre) {
  for (const char* first : {in_cuda, in_ours}) {
    for (const char* second : {in_cuda, in_ours, plain}) {
      for (const std::string kernel : {"checksum", "identity"}) {
        SCOPED_TRACE(testing::Message() << first << ' ' << kernel << ' ' << second);
        Pipeline pipeline(from_app(made_ + " ! " + first + " ! gpumapkernel name=look kernel=" + kernel + " ! " +
                                   second + " ! appsink name=out sync=false"));
        start(pipeline, tensor_sizes[0]);
        std::vector<std::uint64_t> sums;
        for (std::uint64_t i = 0; i < 4; ++i) {
          const Picture picture(tensor_sizes[0], 70 + i);
          sums.push_back(checksum_of(picture.tensor()));
          send(pipeline, picture, i);
          expect(pipeline, picture.tensor());
        }
        gst_app_src_end_of_stream(pipeline.appsrc());
        EXPECT_EQ(pipeline.wait(), "eos");
        ASSERT_EQ(pipeline.results().size(), kernel == "checksum" ? sums.size() : 0U);
        for (std::size_t i = 0; i < pipeline.results().size(); ++i) EXPECT_EQ(pipeline.results()[i].checksum, sums[i]);
      }
    }
  }
}

// Others' tensors, which upload brings to the GPU.
TEST_F(CudaTensors, SlotsAreThem) {
  for (const char* way : {"gpumapupload name=way", "gpumapsink $CHANNEL gpumapsrc name=way $CHANNEL"}) {
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{83}, std::size_t{4096}, std::size_t{1000003}}) {
      SCOPED_TRACE(testing::Message() << way << ' ' << bytes);
      const std::string caps = "application/x-tensor,type=uint8,dims=(int)<" + std::to_string(bytes) + ",1>";
      Pipeline pipeline(on_new_channel("appsrc name=in format=time caps=\"" + caps + "\" ! " + way + " ! " + in_cuda +
                                       " ! tee name=t ! queue ! gpumapkernel kernel=checksum ! fakesink sync=false "
                                       "async=false t. ! queue ! appsink name=out sync=false"));
      ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
      std::vector<std::uint64_t> sums;
      for (std::uint64_t i = 0; i < 20; ++i) {
        const Data data = random_data(bytes, i);
        sums.push_back(checksum_of(data));
        ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(data, i * GST_MSECOND)));
        expect(pipeline, data);
      }
      gst_app_src_end_of_stream(pipeline.appsrc());
      EXPECT_EQ(pipeline.wait(), "eos");
      EXPECT_EQ(stat(pipeline.element("way"), "gpu-copies"), 0U);
      ASSERT_EQ(pipeline.results().size(), sums.size());
      for (std::size_t i = 0; i < sums.size(); ++i) EXPECT_EQ(pipeline.results()[i].checksum, sums[i]) << i;
    }
  }
}

// A pipeline that is not gpumap's made them: here a sample of another one.
TEST_F(CudaTensors, AnApplicationSendsThem) {
  Pipeline first(from_app(made_ + " ! " + in_cuda + " ! appsink name=out sync=false"));
  start(first, tensor_sizes[2]);
  const Picture picture(tensor_sizes[2], 4);
  send(first, picture, 0);
  const Sample sample = pull(first.appsink());
  ASSERT_NE(sample, nullptr) << first.wait(1s);
  Pipeline second("appsrc name=in format=time ! " + summed_ + " ! application/x-tensor ! appsink name=out sync=false");
  gst_app_src_set_caps(second.appsrc(), gst_sample_get_caps(sample.get()));
  ASSERT_NE(second.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(push(second.appsrc(), Buffer(gst_buffer_ref(gst_sample_get_buffer(sample.get())))));
    expect(second, picture.sums());
  }
}

// Each as it left the kernel, although the next ones are written meanwhile, for three readers at once.
TEST_F(CudaTensors, StayWholeUnderLoad) {
  const unsigned frames = times(1000, 60);
  const Size size{641, 479};
  Pipeline pipeline(
      from_app(made_ + " ! " + in_cuda + " ! tee name=t ! queue max-size-buffers=4 ! " + summed_ + " ! " + in_cuda +
               " ! queue max-size-buffers=3 ! appsink name=out sync=false max-buffers=3 "
               "t. ! queue max-size-buffers=2 ! gpumapkernel kernel=checksum ! fakesink sync=false "
               "async=false t. ! queue max-size-buffers=3 ! appsink name=other sync=false max-buffers=3"));
  start(pipeline, size);
  std::vector<Picture> kinds;
  for (std::uint64_t i = 0; i < 7; ++i) kinds.emplace_back(size, 600 + i);
  unsigned pushed = 0;
  for (unsigned pulled = 0; pulled < frames; ++pulled) {
    for (; pushed < frames && pushed < pulled + 4; ++pushed) send(pipeline, kinds[pushed % kinds.size()], pushed);
    if (pushed == frames) gst_app_src_end_of_stream(pipeline.appsrc());
    SCOPED_TRACE(pulled);
    ASSERT_NO_FATAL_FAILURE(expect(pipeline, kinds[pulled % kinds.size()].sums()));
    ASSERT_NO_FATAL_FAILURE(expect(pipeline, kinds[pulled % kinds.size()].tensor(), "other"));
  }
  EXPECT_EQ(pipeline.wait(), "eos");
  ASSERT_EQ(pipeline.results().size(), frames);
  std::vector<std::uint64_t> sums;
  for (const Picture& kind : kinds) sums.push_back(checksum_of(kind.tensor()));
  for (unsigned i = 0; i < frames; ++i) ASSERT_EQ(pipeline.results()[i].checksum, sums[i % kinds.size()]) << i;
}

TEST_F(CudaTensors, CapsChangeFlushesAndRestarts) {
  Pipeline pipeline(from_app(made_ + " ! " + in_cuda + " ! queue ! " + summed_ + " ! " + in_cuda +
                             " ! queue ! appsink name=out sync=false"));
  for (int round = 0; round < 2; ++round) {
    for (const Size& size : tensor_sizes) {
      SCOPED_TRACE(testing::Message() << round << ' ' << size.width << 'x' << size.height);
      start(pipeline, size);
      for (std::uint64_t i = 0; i < 3; ++i) {
        const Picture picture(size, i);
        send(pipeline, picture, i);
        expect(pipeline, picture.sums());
      }
      send(pipeline, Picture(size, 99), 3);
      ASSERT_TRUE(gst_element_send_event(pipeline.element("in"), gst_event_new_flush_start()));
      ASSERT_TRUE(gst_element_send_event(pipeline.element("in"), gst_event_new_flush_stop(TRUE)));
      while (const Sample old = pull(pipeline.appsink(), 1ms)) continue;
    }
    pipeline.stop();
  }
}

// Fewer bytes than the dimensions take would be read from behind the tensor.
TEST_F(CudaTensors, AShortOneIsLeftOut) {
  Pipeline first(
      "appsrc name=in format=time caps=\"application/x-tensor,type=uint8,dims=(int)<100>\" ! gpumapupload ! " +
      std::string(in_cuda) + " ! appsink name=out sync=false");
  ASSERT_NE(first.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  const Data data = random_data(100, 1);
  ASSERT_TRUE(push(first.appsrc(), new_buffer(data, 0)));
  const Sample sample = pull(first.appsink());
  ASSERT_NE(sample, nullptr) << first.wait(1s);
  Pipeline second("appsrc name=in format=time ! gpumapkernel kernel=checksum ! fakesink sync=false");
  gst_app_src_set_caps(second.appsrc(), new_caps(std::string(in_cuda) + ",type=uint8,dims=(int)<101>").get());
  ASSERT_NE(second.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(push(second.appsrc(), Buffer(gst_buffer_ref(gst_sample_get_buffer(sample.get())))));
  gst_app_src_end_of_stream(second.appsrc());
  EXPECT_EQ(second.wait(), "eos");
  EXPECT_TRUE(second.results().empty());
  ASSERT_EQ(second.warnings().size(), 1U);
  EXPECT_THAT(second.warnings()[0], HasSubstr("a frame of 100 bytes where the caps say 101"));
}

// A kernel that may stay on the GPU is launched instead where it takes them, and gives them all the same.
TEST_F(CudaTensors, GoWithKernelsThatStay) {
  Pipeline pipeline(from_app(made_ + " mode=auto ! " + in_cuda + " ! " + summed_ + " mode=auto ! " + in_cuda +
                             " ! appsink name=out sync=false"));
  start(pipeline, tensor_sizes[0]);
  for (std::uint64_t i = 0; i < 20; ++i) {
    const Picture picture(tensor_sizes[0], i);
    send(pipeline, picture, i);
    expect(pipeline, picture.sums());
  }
  EXPECT_EQ(stat_text(pipeline.element("network"), "mode"), "launch");
}

/// Beside a frame: the doubles of its pixels, and these halved by the next kernel.
constexpr const char* beside = R"(
// gpumap: output unchanged
// gpumap: output-tensor count uint32 3
// gpumap: output-tensor doubled uint16 1x{height}x{width}
#include <gpumap/kernel.h>
extern "C" __global__ void beside(gpumap_frame frame) {
  const gpumap_u32 x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= frame.in.width || y >= frame.in.height) return;
  const auto* in = reinterpret_cast<const gpumap_u8*>(frame.in.plane[0]) + 1ull * y * frame.in.stride[0];
  auto* out = reinterpret_cast<unsigned short*>(frame.out_tensors[1].address);
  out[1ull * y * frame.in.width + x] = 2 * in[4 * x];
  atomicAdd(reinterpret_cast<unsigned*>(frame.out_tensors[0].address) + 2, 1u);
}
)";
constexpr const char* halved = R"(
// gpumap: output unchanged
// gpumap: input-tensor doubled uint16 1x{height}x{width}
// gpumap: output-tensor halved uint8 {height}x{width}
#include <gpumap/grid.h>
extern "C" __global__ void halved(gpumap_frame frame) {
  for (gpumap_u64 i = gpumap_thread(); i < frame.in_tensors[0].count; i += gpumap_thread_count()) {
    const auto value = reinterpret_cast<const unsigned short*>(frame.in_tensors[0].address)[i];
    reinterpret_cast<gpumap_u8*>(frame.out_tensors[0].address)[i] = value / 2;
  }
}
)";

// With a frame in CUDA memory, which GStreamer 1.26 has: so does each tensor, and the next kernel takes it there.
TEST_F(CudaTensors, LieBesideFramesInCudaMemory) {
  const AnalyticsLibrary& library = AnalyticsLibrary::get();
  if (!library.tensors_problem.empty()) GTEST_SKIP() << library.tensors_problem;
  constexpr int width = 37, height = 23;
  const std::string frames = "video/x-raw(memory:CUDAMemory)";
  Pipeline pipeline(from_app("gpumapkernel location=" + folder_.add("beside.cu", beside) + " ! " + frames +
                             " ! gpumapkernel location=" + folder_.add("halved.cu", halved) + " ! " + frames +
                             " ! appsink name=out sync=false"));
  const Caps caps = video_caps("RGBA", width, height);
  gst_app_src_set_caps(pipeline.appsrc(), caps.get());
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  for (std::uint64_t i = 0; i < 12; ++i) {
    const Data frame = random_data(frame_bytes(caps.get()), i);
    ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(frame, i * GST_MSECOND)));
    const Sample sample = pull(pipeline.appsink());
    ASSERT_NE(sample, nullptr) << pipeline.wait(1s);
    GstBuffer* buffer = gst_sample_get_buffer(sample.get());
    Data first(std::size_t{width} * height), twice(2 * first.size());
    for (std::size_t at = 0; at < first.size(); ++at) {
      first[at] = frame[4 * at];
      const auto value = static_cast<std::uint16_t>(2 * std::to_integer<unsigned>(first[at]));
      std::memcpy(&twice[2 * at], &value, 2);
    }
    for (const char* id : {"count", "doubled", "halved"}) {
      const GstTensor* tensor = find_tensor(buffer, id);
      ASSERT_NE(tensor, nullptr) << id << " is not among " << tensor_ids(buffer);
      EXPECT_TRUE(is_in_cuda(tensor->data)) << id;
    }
    EXPECT_EQ(data_of(find_tensor(buffer, "doubled")->data), twice);
    EXPECT_EQ(data_of(find_tensor(buffer, "halved")->data), first);
    const Data count = data_of(find_tensor(buffer, "count")->data);
    std::uint32_t pixels = 0;
    ASSERT_EQ(count.size(), 12U);
    std::memcpy(&pixels, &count[8], 4);
    EXPECT_EQ(pixels, first.size());
  }
}

}  // namespace
}  // namespace gpumap::gst::test
