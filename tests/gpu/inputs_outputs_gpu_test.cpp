// SPDX-License-Identifier: MIT
// CUDA kernels that drop frames and shorten what comes out, result blocks of many words, and results that come late:
// what output_may_test and result_test see of compute shaders on any machine.
#include <gmock/gmock.h>

#include <cstring>
#include <deque>

#include "../gst/result_stream.hpp"
#include "cuda_pipeline.hpp"
#include "gpumap/kernel.hpp"

namespace gpumap::gst::test {
namespace {

/// The complement of each byte; how many go on hangs on the first byte.
constexpr const char* complement_some = R"(
// gpumap: output-may drop,shorten
// gpumap: result-words 4096
#include <gpumap/grid.h>
extern "C" __global__ void some(gpumap_frame frame) {
  const auto* from = reinterpret_cast<const gpumap_u8*>(frame.in.plane[0]);
  for (gpumap_u64 i = gpumap_thread(); i < frame.out.bytes; i += gpumap_thread_count()) {
    reinterpret_cast<gpumap_u8*>(frame.out.plane[0])[i] = 255 - from[i];
  }
  auto* result = reinterpret_cast<gpumap_u64*>(frame.result);
  for (gpumap_u64 i = gpumap_thread(); i < frame.result_words; i += gpumap_thread_count()) result[i] = from[0] + i;
  if (gpumap_thread() != 0) return;
  const gpumap_u64 wanted = from[0] * 7ull;
  *reinterpret_cast<gpumap_u64*>(frame.given) = from[0] < 80 ? 0 : wanted < frame.out.bytes ? wanted : frame.out.bytes;
}
)";

/// Keeps the frame as it came, whose first byte is odd.
constexpr const char* keep_odd = R"(
// gpumap: output unchanged
// gpumap: output-may drop
#include <gpumap/grid.h>
extern "C" __global__ void odd(gpumap_frame frame) {
  if (gpumap_thread() != 0) return;
  *reinterpret_cast<gpumap_u64*>(frame.given) = *reinterpret_cast<const gpumap_u8*>(frame.in.plane[0]) & 1;
}
)";

/// The complement of a picture in CUDA memory, row by row; kept where the first byte is odd.
constexpr const char* complement_odd = R"(
// gpumap: output video/x-raw,format=NV12
// gpumap: output-may drop
#include <gpumap/grid.h>
extern "C" __global__ void odd(gpumap_frame frame) {
  for (int plane = 0; plane < 2; ++plane) {
    const gpumap_u64 width = (frame.in.width + plane) / (1 + plane) * (1 + plane);
    const gpumap_u64 bytes = width * ((frame.in.height + plane) / (1 + plane));
    for (gpumap_u64 i = gpumap_thread(); i < bytes; i += gpumap_thread_count()) {
      const gpumap_u64 y = i / width, x = i % width;
      reinterpret_cast<gpumap_u8*>(frame.out.plane[plane])[y * frame.out.stride[plane] + x] =
          255 - reinterpret_cast<const gpumap_u8*>(frame.in.plane[plane])[y * frame.in.stride[plane] + x];
    }
  }
  if (gpumap_thread() != 0) return;
  *reinterpret_cast<gpumap_u64*>(frame.given) = *reinterpret_cast<const gpumap_u8*>(frame.in.plane[0]) & 1;
}
)";

constexpr const char* count_sevens = R"(
// gpumap: output unchanged
// gpumap: results sevens=u64
#include <gpumap/grid.h>
extern "C" __global__ void count(gpumap_frame frame) {
  for (gpumap_u64 i = gpumap_thread(); i < frame.in.bytes; i += gpumap_thread_count()) {
    if (reinterpret_cast<const gpumap_u8*>(frame.in.plane[0])[i] != 7) continue;
    atomicAdd(reinterpret_cast<unsigned long long*>(frame.result), 1ull);
  }
}
)";

// Needs no GPU.
TEST(OutputKernels, Compile) {
  for (const char* code : {complement_some, keep_odd, complement_odd, count_sevens}) {
    for (const char* architecture : {"sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"}) {
      try {
        EXPECT_FALSE(
            compile_cuda({.language = Language::cuda, .name = "output.cu", .code = code, .function = {}}, architecture)
                .empty());
      } catch (const Error& error) {
        if (error.code() == ErrorCode::no_driver) GTEST_SKIP() << error.what();
        ADD_FAILURE() << architecture << ": " << error.what();
      }
    }
  }
}

std::size_t given_of(const Data& data) {
  const auto first = std::to_integer<std::size_t>(data[0]);
  return first < 80 ? 0 : std::min(data.size(), first * 7);
}

bool is_odd(const Data& data) {
  return (data[0] & std::byte{1}) != std::byte{0};
}

class CudaOutputs : public CudaPipeline {
 protected:
  std::string stream_of(const std::string& kernel, const std::string& caps) {
    return on_new_channel(
        "appsrc name=in format=time caps=application/octet-stream ! gpumapsink sync=false $CHANNEL gpumapsrc $CHANNEL "
        "! "
        "gpumapkernel name=kernel " +
        kernel + " ! capsfilter caps=" + caps + " ! appsink name=out sync=false");
  }
};

TEST_F(CudaOutputs, FramesAreDroppedAndShortened) {
  const std::string file = folder_.add("some.cu", complement_some);
  for (const char* memory : {"", "(memory:GPUMap)"}) {
    SCOPED_TRACE(memory);
    Pipeline pipeline(stream_of("location=" + file, std::string("application/octet-stream") + memory));
    const Messages messages(pipeline);
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    std::vector<Data> expected;
    std::vector<std::uint64_t> bytes;
    for (std::uint64_t i = 0; i < 100; ++i) {
      Data data = random_data(1 + i * 997 % 30011, i);
      ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(data, i)));
      bytes.push_back(given_of(data));
      data.resize(given_of(data));
      for (std::byte& byte : data) byte = ~byte;
      if (!data.empty()) expected.push_back(data);
    }
    gst_app_src_end_of_stream(pipeline.appsrc());
    std::vector<Data> got;
    for (const Sample& sample : pull_all(pipeline.appsink())) {
      GstBuffer* buffer = gst_sample_get_buffer(sample.get());
      got.push_back(data_of(buffer));
      GstCustomMeta* meta = gst_buffer_get_custom_meta(buffer, "GpumapResult");
      ASSERT_NE(meta, nullptr);
      const GValue* words = gst_structure_get_value(gst_custom_meta_get_structure(meta), "words");
      ASSERT_EQ(gst_value_array_get_size(words), 4096U);
      for (guint i : {0U, 1U, 31U, 32U, 4095U}) {
        EXPECT_EQ(g_value_get_uint64(gst_value_array_get_value(words, i)),
                  std::to_integer<guint64>(~got.back()[0]) + i);
      }
    }
    EXPECT_EQ(got, expected) << pipeline.wait(1ms);
    EXPECT_EQ(messages.numbers("bytes"), bytes);
  }
}

std::string linked(const std::vector<std::string>& elements) {
  std::string all;
  for (const std::string& element : elements) all.append(all.empty() ? "" : " ! ").append(element);
  return all;
}

// Into the rows of CUDA memory, and out of them, where the frame goes on as it came or is written anew.
TEST_F(CudaOutputs, PicturesInCudaMemoryAreDropped) {
  const std::string odd = "gpumapkernel location=" + folder_.add("odd.cu", keep_odd);
  const std::string anew = "gpumapkernel location=" + folder_.add("anew.cu", complement_odd);
  const Caps nv12 = video_caps("NV12", 321, 43);
  for (const auto& [kernels, complemented] : {std::pair{linked({odd, cuda_caps}), false},
                                              {linked({"gpumapkernel", cuda_caps, odd, cuda_caps}), false},
                                              {linked({"gpumapkernel", cuda_caps, odd, "video/x-raw"}), false},
                                              {linked({anew, cuda_caps}), true},
                                              {linked({"gpumapkernel", cuda_caps, anew, cuda_caps}), true}}) {
    SCOPED_TRACE(kernels);
    Pipeline pipeline(
        on_new_channel("appsrc name=in format=time ! gpumapsink sync=false $CHANNEL gpumapsrc $CHANNEL ! " + kernels +
                       " ! appsink name=out sync=false"));
    gst_app_src_set_caps(pipeline.appsrc(), nv12.get());
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    std::vector<Data> expected;
    for (std::uint64_t i = 0; i < 40; ++i) {
      const Data data = random_data(frame_bytes(nv12.get()), i);
      ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(data, i * GST_MSECOND)));
      if (!is_odd(data)) continue;
      Data pixels = pixels_of(data, nv12.get());
      if (complemented) {
        for (std::byte& byte : pixels) byte = ~byte;
      }
      expected.push_back(pixels);
    }
    gst_app_src_end_of_stream(pipeline.appsrc());
    std::vector<Data> got;
    for (const Sample& sample : pull_all(pipeline.appsink())) got.push_back(pixels_of(sample));
    EXPECT_EQ(got, expected) << pipeline.wait(1ms);
  }
}

TEST_F(CudaOutputs, LateResultsComeInOrderAndNoneIsLost) {
  const std::string file = folder_.add("sevens.cu", count_sevens);
  Pipeline pipeline(stream_of("late-results=true location=" + file, "application/octet-stream(memory:GPUMap)"));
  const Messages messages(pipeline);
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  std::vector<std::uint64_t> sevens, times;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    const Data data = random_data(1 + i * 997 % 20011, i);
    ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(data, i)));
    sevens.push_back(static_cast<std::uint64_t>(std::count(data.begin(), data.end(), std::byte{7})));
    times.push_back(i);
  }
  gst_app_src_end_of_stream(pipeline.appsrc());
  std::size_t in_metas = 0;
  // Each is let go of at once: it is a slot of the ring.
  while (const Sample sample = pull(pipeline.appsink())) {
    GstCustomMeta* meta = gst_buffer_get_custom_meta(gst_sample_get_buffer(sample.get()), "GpumapLateResults");
    if (meta == nullptr) continue;
    const GValue* all = gst_structure_get_value(gst_custom_meta_get_structure(meta), "results");
    for (guint i = 0; i < gst_value_array_get_size(all); ++i) {
      ASSERT_LT(in_metas, sevens.size());
      const GstStructure* one = gst_value_get_structure(gst_value_array_get_value(all, i));
      EXPECT_EQ(number_in(one, "pts"), times[in_metas]);
      EXPECT_EQ(number_in(one, "sevens"), sevens[in_metas]);
      ++in_metas;
    }
  }
  EXPECT_GT(in_metas, sevens.size() / 2);
  EXPECT_EQ(messages.numbers("sevens"), sevens) << pipeline.wait(1ms);
  EXPECT_EQ(messages.numbers("pts"), times);
}

// What a kernel in CUDA is handed beside the frame at hand, of frames in gpumap's memory and in that of GStreamer's
// CUDA elements, whose rows lie where their allocator put them.

/// Words: how many frames there were before and twice a parameter; then, of this frame and of two before it, a sum over
/// the luma and the chroma in which each column has its weight.
constexpr const char* tells = R"(#include <gpumap/kernel.h>
// gpumap: params scale:i64=1,offset:f64=0
// gpumap: table weights uint16
// gpumap: history 2
// gpumap: output application/octet-stream
// gpumap: bytes 6*8
extern "C" __global__ void tell(gpumap_frame frame) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= 6 || blockIdx.y != 0 || threadIdx.y != 0) return;
  gpumap_u64* to = reinterpret_cast<gpumap_u64*>(frame.out.plane[0]) + i;
  if (i == 0) *to = frame.past_count;
  if (i == 1) *to = static_cast<gpumap_u64>(gpumap_param_i64(frame, 0));
  if (i == 2) *to = static_cast<gpumap_u64>(gpumap_param_f64(frame, 1) * 2);
  if (i < 3) return;
  *to = 0;
  if (i - 3 > frame.past_count) return;
  const gpumap_view& view = i == 3 ? frame.in : frame.past[i - 4];
  const unsigned short* weights = reinterpret_cast<const unsigned short*>(frame.tables[0].address);
  gpumap_u64 sum = 0;
  for (unsigned y = 0; y < view.height + view.height / 2; ++y) {
    const bool luma = y < view.height;
    const gpumap_u8* row = reinterpret_cast<const gpumap_u8*>(view.plane[luma ? 0 : 1]) +
                           1ull * (luma ? y : y - view.height) * view.stride[luma ? 0 : 1];
    for (unsigned x = 0; x < view.width; ++x) sum += 1ull * row[x] * weights[x % frame.tables[0].count] * (y + 1);
  }
  *to = sum;
}
)";

constexpr int width = 202, height = 98;

std::vector<std::uint16_t> random_weights(std::size_t count, std::uint64_t seed) {
  const Data bytes = random_data(2 * count, seed);
  std::vector<std::uint16_t> weights(count);
  std::memcpy(weights.data(), bytes.data(), bytes.size());
  return weights;
}

std::uint64_t sum_of(const Data& pixels, const std::vector<std::uint16_t>& weights) {
  std::uint64_t sum = 0;
  for (std::size_t at = 0; at < pixels.size(); ++at) {
    sum += std::to_integer<std::uint64_t>(pixels[at]) * weights[at % width % weights.size()] * (at / width + 1);
  }
  return sum;
}

class KernelInputsGpu : public CudaPipeline {
 protected:
  void replace(const std::vector<std::uint16_t>& weights) {
    const std::string text(reinterpret_cast<const char*>(weights.data()), 2 * weights.size());
    const std::filesystem::path made = folder_.add("new", text);
    std::filesystem::rename(made, std::filesystem::path(made).replace_filename("weights"));
  }
};

TEST_F(KernelInputsGpu, NumbersTablesAndHistory) {
  const std::string kernel = folder_.add("tell.cu", tells);
  const Caps caps = video_caps("NV12", width, height);
  for (const char* before : {"", "gpumapkernel kernel=identity ! video/x-raw(memory:CUDAMemory) ! "}) {
    SCOPED_TRACE(before);
    auto weights = random_weights(37, 1);
    replace(weights);
    Pipeline pipeline(on_new_channel(
        std::string("appsrc name=in format=time ! gpumapsink slots=2 sync=false $CHANNEL gpumapsrc $CHANNEL ! ") +
        before + "gpumapkernel name=kernel location=" + kernel +
        " declare=\"table weights=" + std::filesystem::path(kernel).replace_filename("weights").string() +
        "\" params=scale=-9007199254740993,offset=4503599627370497 ! appsink name=out sync=false"));
    gst_app_src_set_caps(pipeline.appsrc(), caps.get());
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE)
        << pipeline.wait(std::chrono::seconds(1));
    std::deque<Data> frames;
    GstClockTime pts = 0;
    const auto told = [&] {
      const Data frame = random_data(frame_bytes(caps.get()), 100 + pts);
      frames.push_front(pixels_of(frame, caps.get()));
      frames.resize(std::min<std::size_t>(frames.size(), 3));
      push(pipeline.appsrc(), new_buffer(frame, pts += GST_SECOND / 30));
      const Sample sample = pull(pipeline.appsink());
      std::vector<std::uint64_t> words(6);
      if (!sample) return words;
      const Data data = data_of(gst_sample_get_buffer(sample.get()));
      std::memcpy(words.data(), data.data(), std::min(data.size(), 8 * words.size()));
      return words;
    };
    for (std::size_t i = 0; i < 12; ++i) {
      const auto words = told();
      ASSERT_EQ(words[0], std::min<std::size_t>(i, 2)) << i << ": " << pipeline.wait(std::chrono::milliseconds(1));
      ASSERT_EQ(static_cast<std::int64_t>(words[1]), -9007199254740993);
      ASSERT_EQ(words[2], 9007199254740994U);
      for (std::size_t k = 0; k < 3; ++k) {
        ASSERT_EQ(words[3 + k], k < frames.size() ? sum_of(frames[k], weights) : 0U) << i << ": " << k;
      }
    }
    weights = random_weights(202, 2);
    replace(weights);
    EXPECT_TRUE(eventually([&] { return told()[3] == sum_of(frames[0], weights); }));
    const auto words = told();
    EXPECT_EQ(words[5], sum_of(frames[2], weights));
  }
}

/// Two words: the sum over the pixels of this frame, and of the one before, by where they lie in the default layout of
/// NV12; the format that the kernel sees of both is added, and is that of bytes.
constexpr const char* tells_of_bytes = R"(#include <gpumap/kernel.h>
// gpumap: view bytes
// gpumap: history 1
// gpumap: output application/octet-stream
// gpumap: bytes 2*8
extern "C" __global__ void tell(gpumap_frame frame) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= 2 || blockIdx.y != 0 || threadIdx.y != 0) return;
  const gpumap_view& view = i == 0 ? frame.in : frame.past[0];
  gpumap_u64 sum = 0;
  if (i <= frame.past_count) {
    sum = view.format == GPUMAP_FORMAT_BYTES ? 0 : 1;
    const gpumap_u8* bytes = reinterpret_cast<const gpumap_u8*>(view.plane[0]);
    for (gpumap_u64 at = 0; at < view.bytes; ++at) {
      if (at % 204 < 202) sum += 1ull * bytes[at] * (at % 204 + 1) * (at / 204 + 1);
    }
  }
  reinterpret_cast<gpumap_u64*>(frame.out.plane[0])[i] = sum;
}
)";

// A kernel that sees bytes has them without what an allocator put behind rows, the frame before as well.
TEST_F(KernelInputsGpu, HistoryOfBytes) {
  const std::string kernel = folder_.add("tell.cu", tells_of_bytes);
  const Caps caps = video_caps("NV12", width, height);
  for (const char* before : {"", "gpumapkernel kernel=identity ! video/x-raw(memory:CUDAMemory) ! "}) {
    SCOPED_TRACE(before);
    Pipeline pipeline(on_new_channel(
        std::string("appsrc name=in format=time ! gpumapsink slots=2 sync=false $CHANNEL gpumapsrc $CHANNEL ! ") +
        before + "gpumapkernel location=" + kernel + " ! appsink name=out sync=false"));
    gst_app_src_set_caps(pipeline.appsrc(), caps.get());
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE)
        << pipeline.wait(std::chrono::seconds(1));
    std::uint64_t previous = 0;
    for (std::uint64_t i = 0; i < 9; ++i) {
      const Data frame = random_data(frame_bytes(caps.get()), 500 + i);
      std::uint64_t sum = 0;
      const Data pixels = pixels_of(frame, caps.get());
      for (std::size_t at = 0; at < pixels.size(); ++at) {
        sum += std::to_integer<std::uint64_t>(pixels[at]) * (at % width + 1) * (at / width + 1);
      }
      push(pipeline.appsrc(), new_buffer(frame, i * GST_SECOND / 30));
      const Sample sample = pull(pipeline.appsink());
      ASSERT_TRUE(sample) << pipeline.wait(std::chrono::milliseconds(1));
      const Data data = data_of(gst_sample_get_buffer(sample.get()));
      std::uint64_t words[2] = {};
      ASSERT_EQ(data.size(), sizeof words);
      std::memcpy(words, data.data(), sizeof words);
      EXPECT_EQ(words[0], sum) << i;
      EXPECT_EQ(words[1], previous) << i;
      previous = sum;
    }
  }
}

}  // namespace
}  // namespace gpumap::gst::test
