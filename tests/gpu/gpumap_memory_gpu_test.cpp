// SPDX-License-Identifier: MIT
// A frame as other plugins and programs see it through <gst/gpumap/gpumap.h>, with CUDA streams of their own.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gst/gpumap/gpumap.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

#include "cuda_pipeline.hpp"

namespace gpumap::gst::test {
namespace {

using namespace std::chrono_literals;
using Address = unsigned long long;

/// A function of the CUDA driver.
struct Driver {
  template <typename... Arguments>
  static int call(const char* name, Arguments... arguments) {
    static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
    void* const found = library != nullptr ? dlsym(library, name) : nullptr;
    if (found == nullptr) return -1;
    return reinterpret_cast<int (*)(Arguments...)>(found)(arguments...);
  }
};
constexpr unsigned non_blocking = 1;
constexpr unsigned at_least = 0;

/// A stream in the memory's context, which is current on this thread for as long.
class Stream {
 public:
  explicit Stream(GstMemory* memory) {
    EXPECT_EQ(Driver::call("cuCtxPushCurrent_v2", gst_gpumap_memory_get_cuda_context(memory)), 0);
    EXPECT_EQ(Driver::call("cuStreamCreate", &stream_, non_blocking), 0);
  }
  ~Stream() {
    EXPECT_EQ(Driver::call("cuStreamSynchronize", stream_), 0);
    EXPECT_EQ(Driver::call("cuStreamDestroy_v2", stream_), 0);
    void* previous = nullptr;
    EXPECT_EQ(Driver::call("cuCtxPopCurrent_v2", &previous), 0);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  [[nodiscard]] void* get() const { return stream_; }
  /// What the stream sees behind what it has now.
  [[nodiscard]] Data bytes(Address address, std::size_t count) const {
    Data made(count);
    EXPECT_EQ(Driver::call("cuMemcpyDtoHAsync_v2", static_cast<void*>(made.data()), address, count, stream_), 0);
    EXPECT_EQ(Driver::call("cuStreamSynchronize", stream_), 0);
    return made;
  }

 private:
  void* stream_ = nullptr;
};

/// Holds a stream back until it is opened.
class Gate {
 public:
  Gate() {
    EXPECT_EQ(Driver::call("cuMemHostAlloc", &word_, std::size_t{64}, 3U), 0);
    EXPECT_EQ(Driver::call("cuMemHostGetDevicePointer_v2", &address_, word_, 0U), 0);
    *static_cast<std::uint64_t*>(word_) = 0;
  }
  ~Gate() { Driver::call("cuMemFreeHost", word_); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  void close(const Stream& stream) const {
    EXPECT_EQ(Driver::call("cuStreamWaitValue64_v2", stream.get(), address_, std::uint64_t{1}, at_least), 0);
  }
  void open() { std::atomic_ref<std::uint64_t>(*static_cast<std::uint64_t*>(word_)).store(1); }

 private:
  void* word_ = nullptr;
  Address address_ = 0;
};

class GpumapMemory : public CudaPipeline {
 protected:
  static std::string filled_by(const std::string& elements) {
    return fmt::format(
        "appsrc name=in caps=application/x-bytes ! {} ! application/x-bytes(memory:GPUMap) ! "
        "appsink name=out sync=false wait-on-eos=false enable-last-sample=false",
        elements);
  }
  static GstMemory* memory_of(const Sample& sample) {
    GstMemory* memory = gst_buffer_peek_memory(gst_sample_get_buffer(sample.get()), 0);
    EXPECT_TRUE(gst_is_gpumap_memory(memory));
    return memory;
  }
  static Sample next(Pipeline& pipeline) {
    Sample sample = pull(pipeline.appsink());
    EXPECT_NE(sample, nullptr) << pipeline.wait(1s);
    return sample;
  }
};

TEST_F(GpumapMemory, SlotsAreKeptForTheStreamsThatReadThem) {
  constexpr std::size_t size = 123457;
  Pipeline pipeline(filled_by("gpumapupload slots=3"));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  std::vector<Data> frames;
  for (std::uint64_t i = 0; i < 5; ++i) frames.push_back(random_data(size, 40 + i));
  ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(frames[0])));
  Sample first = next(pipeline);
  GstMemory* memory = memory_of(first);
  const Address address = gst_gpumap_memory_get_cuda_address(memory);
  ASSERT_NE(address, 0U);
  EXPECT_EQ(gst_gpumap_memory_get_cuda_device(memory), device_->info().cuda_index);
  GError* error = nullptr;
  const Stream held(memory);
  const Stream look(memory);
  EXPECT_TRUE(gst_gpumap_memory_wait_on_cuda_stream(memory, look.get(), &error));
  EXPECT_TRUE(look.bytes(address, size) == frames[0]);
  Gate gate;
  gate.close(held);
  ASSERT_TRUE(gst_gpumap_memory_add_cuda_reader(memory, held.get(), &error)) << error->message;
  first.reset();
  // Another slot takes one frame after the other, while appsink keeps the last one; this one stays.
  for (std::uint64_t i = 1; i < 4; ++i) {
    ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(frames[i])));
    const Sample sample = next(pipeline);
    EXPECT_NE(gst_gpumap_memory_get_cuda_address(memory_of(sample)), address);
    EXPECT_TRUE(look.bytes(gst_gpumap_memory_get_cuda_address(memory_of(sample)), size) == frames[i]);
    EXPECT_TRUE(look.bytes(address, size) == frames[0]) << "frame " << i;
  }
  gate.open();
  ASSERT_EQ(Driver::call("cuStreamSynchronize", held.get()), 0);
  bool again = false;
  for (int i = 0; i < 8 && !again; ++i) {
    ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(frames[4])));
    again = gst_gpumap_memory_get_cuda_address(memory_of(next(pipeline))) == address;
  }
  EXPECT_TRUE(again) << "the slot never came back";
}

// A kernel's output is on its way when it is handed on: the stream waits for it, and nobody else does.
TEST_F(GpumapMemory, StreamsWaitForWhatFillsTheMemory) {
  const KernelFolder folder;
  const std::string slow =
      folder.add("slow.cu",
                 "#include <gpumap/grid.h>\n"
                 "#include <gpumap/kernel.h>\n"
                 "extern \"C\" __global__ void slow(gpumap_frame frame) {\n"
                 "  const long long began = clock64();\n"
                 "  while (clock64() - began < 100000000) {\n  }\n"
                 "  const gpumap_u8* from = reinterpret_cast<const gpumap_u8*>(frame.in.plane[0]);\n"
                 "  gpumap_u8* to = reinterpret_cast<gpumap_u8*>(frame.out.plane[0]);\n"
                 "  for (gpumap_u64 i = gpumap_thread(); i < frame.out.bytes; i += "
                 "gpumap_thread_count()) to[i] = 255 - from[i];\n"
                 "}\n");
  for (const char* mode : {"launch", "resident"}) {
    SCOPED_TRACE(mode);
    Pipeline pipeline(filled_by(fmt::format("gpumapupload ! gpumapkernel mode={} location={}", mode, slow)));
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    for (std::uint64_t i = 0; i < 4; ++i) {
      const Data frame = random_data(7777, 70 + i);
      Data wanted = frame;
      for (std::byte& byte : wanted) byte = ~byte;
      ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(frame)));
      const Sample sample = next(pipeline);
      ASSERT_NE(sample, nullptr);
      GstMemory* memory = memory_of(sample);
      const Stream stream(memory);
      GError* error = nullptr;
      ASSERT_TRUE(gst_gpumap_memory_wait_on_cuda_stream(memory, stream.get(), &error)) << error->message;
      EXPECT_TRUE(stream.bytes(gst_gpumap_memory_get_cuda_address(memory), frame.size()) == wanted) << i;
      EXPECT_TRUE(gst_gpumap_memory_wait(memory, 0, &error));
    }
  }
}

TEST_F(GpumapMemory, AStreamOfAnotherContextIsAnError) {
  Pipeline pipeline(filled_by("gpumapupload"));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(random_data(1000, 3))));
  const Sample sample = next(pipeline);
  GstMemory* memory = memory_of(sample);
  void* other = nullptr;
  int device = 0;
  ASSERT_EQ(Driver::call("cuDeviceGet", &device, gst_gpumap_memory_get_cuda_device(memory)), 0);
  ASSERT_EQ(Driver::call("cuCtxCreate_v2", &other, 0U, device), 0);
  void* stream = nullptr;
  ASSERT_EQ(Driver::call("cuStreamCreate", &stream, non_blocking), 0);
  GError* error = nullptr;
  EXPECT_FALSE(gst_gpumap_memory_add_cuda_reader(memory, stream, &error));
  ASSERT_NE(error, nullptr);
  EXPECT_TRUE(g_error_matches(error, GST_RESOURCE_ERROR, GST_RESOURCE_ERROR_FAILED)) << error->message;
  EXPECT_THAT(error->message, testing::HasSubstr("primary context"));
  g_clear_error(&error);
  Driver::call("cuStreamDestroy_v2", stream);
  Driver::call("cuCtxDestroy_v2", other);
  // And nothing is broken by it.
  EXPECT_TRUE(gst_gpumap_memory_add_cuda_reader(memory, nullptr, &error));
}

}  // namespace
}  // namespace gpumap::gst::test
