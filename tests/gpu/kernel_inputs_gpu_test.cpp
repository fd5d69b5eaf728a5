// SPDX-License-Identifier: MIT
// What a kernel in CUDA is handed beside the frame at hand, of frames in gpumap's memory and in that of GStreamer's
// CUDA elements, whose rows lie where their allocator put them.
#include <gmock/gmock.h>

#include <cstring>
#include <deque>

#include "cuda_pipeline.hpp"

namespace gpumap::gst::test {
namespace {

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
