// SPDX-License-Identifier: MIT
// Frames of random size and content through the three elements: what the CPU wrote is what a kernel on the GPU reads.
#include <gst/gst.h>
#include <gpumap/kernel.hpp>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <string_view>

#include "../unit/test_helpers.hpp"
#include "gpu_pipeline.hpp"

namespace gpumap::gst::test {
namespace {

constexpr std::size_t largest = 4U << 20U;

/// Half of them anywhere up to the largest, half of them small: sizes around a vector, a page and nothing at all.
std::size_t random_size(std::mt19937_64& random) {
  if (random() % 2 == 0) return 1 + random() % largest;
  std::uniform_real_distribution<double> bits(0, 16);
  return static_cast<std::size_t>(std::exp2(bits(random)));
}

/// What gpumapsink offers to an upstream of bytes, as such an element would ask for it.
GstAllocator* offered_allocator(GstElement* sink, GstCaps* caps) {
  GstQuery* query = gst_query_new_allocation(caps, TRUE);
  const Pad pad(gst_element_get_static_pad(sink, "sink"));
  GstAllocator* allocator = nullptr;
  if (gst_pad_query(pad.get(), query) && gst_query_get_n_allocation_params(query) != 0) {
    gst_query_parse_nth_allocation_param(query, 0, &allocator, nullptr);
  }
  gst_query_unref(query);
  return allocator;
}

Buffer written_in_place(GstAllocator* allocator, const Data& data, GstClockTime pts) {
  Buffer buffer(gst_buffer_new_allocate(allocator, data.size(), nullptr));
  GST_BUFFER_PTS(buffer.get()) = pts;
  GstMapInfo map;
  if (!gst_buffer_map(buffer.get(), &map, GST_MAP_WRITE)) {
    ADD_FAILURE() << "cannot map a slot for writing";
    return buffer;
  }
  std::memcpy(map.data, data.data(), data.size());
  gst_buffer_unmap(buffer.get(), &map);
  return buffer;
}

class PipelineGpuTest : public GpuPipeline {
 protected:
  static std::string complementing(const std::string& kernel_file, const std::string& transport) {
    return on_transport(
        "appsrc name=in format=time caps=application/octet-stream ! gpumapsink $CHANNEL slots=3 "
        "gpumapsrc $CHANNEL ! gpumapkernel location=" +
            kernel_file + " ! application/octet-stream ! appsink name=out sync=false",
        transport);
  }

  /// Through a kernel that puts the complement of each byte out, and back into ordinary memory.
  void expect_complements(const std::string& kernel_file, const std::string& transport) {
    SCOPED_TRACE(transport);
    Pipeline pipeline(on_new_channel(complementing(kernel_file, transport)));
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    std::uint64_t seed = 0;
    for (const std::size_t bytes : {1, 63, 64, 4097, 100'001, 3'110'400}) {
      SCOPED_TRACE(bytes);
      Data data = random_data(bytes, ++seed);
      ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(data, seed * GST_MSECOND)));
      const Sample sample = pull(pipeline.appsink());
      ASSERT_NE(sample, nullptr) << pipeline.wait(1s);
      for (std::byte& byte : data) byte = ~byte;
      EXPECT_EQ(data_of(gst_sample_get_buffer(sample.get())), data);
    }
  }
};

class EveryTransport : public PipelineGpuTest, public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Gpu, EveryTransport, testing::ValuesIn(transports()), transport_name);

TEST_P(EveryTransport, RandomFramesReachTheKernelWhole) {
  const unsigned frames = times(GetParam() == std::string_view("bar") ? 10'000 : 2'500, 60);
  Pipeline pipeline(on_new_channel(
      on_transport("appsrc name=in format=time block=true max-buffers=1 max-bytes=0 caps=application/octet-stream ! "
                   "gpumapsink name=sink $CHANNEL slots=8 slot-size=4194304 gpumapsrc $CHANNEL ! "
                   "gpumapkernel kernel=checksum ! fakesink sync=false",
                   GetParam())));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  GstElement* sink = pipeline.element("sink");
  const Caps caps = new_caps("application/octet-stream");
  GstAllocator* allocator = offered_allocator(sink, caps.get());
  ASSERT_NE(allocator, nullptr);

  std::mt19937_64 random(2024);
  std::vector<Result> sent;
  std::uint64_t in_place = 0;
  for (unsigned i = 0; i < frames; ++i) {
    const Data data = random_data(random_size(random), random());
    const GstClockTime pts = i * GST_MSECOND;
    sent.push_back({.checksum = checksum_of(data), .bytes = data.size(), .sequence = i, .pts = pts});
    const bool slot = random() % 2 == 0;
    in_place += slot ? 1 : 0;
    ASSERT_TRUE(push(pipeline.appsrc(), slot ? written_in_place(allocator, data, pts) : new_buffer(data, pts)))
        << "frame " << i << ": " << pipeline.wait(1s);
  }
  gst_app_src_end_of_stream(pipeline.appsrc());
  EXPECT_EQ(pipeline.wait(), "eos");
  gst_object_unref(allocator);

  ASSERT_EQ(pipeline.results().size(), sent.size());
  for (std::size_t i = 0; i < sent.size(); ++i) {
    const Result& result = pipeline.results()[i];
    ASSERT_EQ(result.checksum, sent[i].checksum) << "frame " << i << " of " << sent[i].bytes << " bytes";
    ASSERT_EQ(result.bytes, sent[i].bytes);
    ASSERT_EQ(result.sequence, sent[i].sequence);
    ASSERT_EQ(result.pts, sent[i].pts);
  }
  EXPECT_EQ(stat(sink, "zero-copy-frames"), in_place);
  EXPECT_EQ(stat(sink, "copied-frames"), frames - in_place);
  EXPECT_EQ(stat(sink, "cpu-reads"), 0U);
  EXPECT_EQ(stat_text(sink, "transport"), GetParam());
}

// Also where the GPU has CUDA: the same memory, through its other driver.
TEST_F(PipelineGpuTest, RunsAComputeShaderOfTheUsers) {
  const std::string shader =
      folder_.add("complement.comp",
                  "#version 460\n"
                  "#include <gpumap.glsl>\n"
                  "void main() {\n"
                  "  const uint64_t i = gpumap_thread();\n"
                  "  if (i >= frame.in_view.bytes) return;\n"
                  "  store_u8(frame.out_view.plane[0] + i, 255u - load_u8(frame.in_view.plane[0] + i));\n"
                  "}\n");
  for (const char* transport : {"bar", "pinned", "pageable"}) expect_complements(shader, transport);
  if (!device_->has(Backend::cuda)) {
    expect_complements(shader, "zero-copy");
    return;
  }
  // Page-locked memory belongs to one driver.
  Pipeline pipeline(on_new_channel(complementing(shader, "zero-copy")));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(random_data(100, 1))));
  const std::string error = pipeline.wait();
  EXPECT_NE(error.find("transport=zero-copy"), std::string::npos) << error;
  EXPECT_NE(error.find("backend=cuda"), std::string::npos) << error;
}

TEST_F(PipelineGpuTest, RunsACudaKernelOfTheUsers) {
  if (!device_->has(Backend::cuda)) GTEST_SKIP() << device_->info().name << " has no CUDA";
  const std::string kernel = folder_.add("complement.cu",
                                         "#include <gpumap/kernel.h>\n"
                                         "extern \"C\" __global__ void complement(gpumap_frame frame) {\n"
                                         "  const gpumap_u64 i = 1ull * blockIdx.x * blockDim.x + threadIdx.x;\n"
                                         "  if (i >= frame.in.bytes) return;\n"
                                         "  const auto* from = reinterpret_cast<const gpumap_u8*>(frame.in.plane[0]);\n"
                                         "  reinterpret_cast<gpumap_u8*>(frame.out.plane[0])[i] = 255 - from[i];\n"
                                         "}\n");
  for (const char* transport : transports()) expect_complements(kernel, transport);
}

// Starting and stopping, thousands of times, leaves nothing behind: no memory of either side, no descriptor.

class CyclesGpuTest : public GpuPipeline {
 protected:
  /// Compiled once: ten thousand runs of the compiler would test the compiler.
  std::string compiled_identity() {
    const Backend backend = device_->default_backend();
    const KernelSource source = source_of(*find_builtin("identity"), backend);
    if (backend == Backend::vulkan) return folder_.add("identity.spv", compile_glsl(source));
    std::string architecture = "sm_" + device_->info().compute_capability;
    std::erase(architecture, '.');
    return folder_.add("identity.cubin", compile_cuda(source, architecture));
  }
};

struct Held {
  std::size_t resident_bytes, descriptors;
  std::uint64_t window_free_bytes;
};

TEST_F(CyclesGpuTest, StartAndStopLeaveNothingBehind) {
  const unsigned cycles = times(10'000, 60);
  Pipeline pipeline(on_new_channel(
      "videotestsrc num-buffers=1 ! video/x-raw,format=NV12,width=640,height=360 ! gpumapsink $CHANNEL slots=4 "
      "gpumapsrc $CHANNEL ! gpumapkernel location=" +
      compiled_identity() + " ! fakesink sync=false"));
  const auto held = [&] { return Held{resident_bytes(), open_descriptors(), device_->window_free_bytes()}; };

  Held before{};
  for (unsigned i = 0; i < cycles; ++i) {
    // Pools of threads, allocators and drivers fill up first.
    if (i == cycles / 5) before = held();
    ASSERT_EQ(pipeline.run(), "eos") << "cycle " << i;
    pipeline.stop();
  }
  const Held after = held();
  std::printf(
      "%u cycles, the last four fifths: resident %+.1f MiB, descriptors %+ld, window %+.1f MiB\n", cycles,
      (static_cast<double>(after.resident_bytes) - static_cast<double>(before.resident_bytes)) / (1U << 20U),
      static_cast<long>(after.descriptors) - static_cast<long>(before.descriptors),
      (static_cast<double>(before.window_free_bytes) - static_cast<double>(after.window_free_bytes)) / (1U << 20U));
  // A kilobyte a cycle, in a full run.
  if (!sanitized) {
    // In a while: what a driver's thread still holds goes once that thread comes to it.
    EXPECT_TRUE(eventually([&] { return resident_bytes() <= before.resident_bytes + (8U << 20U); }, 10s));
  }
  EXPECT_TRUE(no_more_descriptors_than(before.descriptors));
  // A software driver's window is the machine's memory, which others use too.
  if (!software_) {
    EXPECT_GE(after.window_free_bytes + (16U << 20U), before.window_free_bytes);
  }
}

}  // namespace
}  // namespace gpumap::gst::test
