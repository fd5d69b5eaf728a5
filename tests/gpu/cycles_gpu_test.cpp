// SPDX-License-Identifier: MIT
// Starting and stopping, thousands of times, leaves nothing behind: no memory of either side, no descriptor.
#include <cstdio>
#include <gpumap/kernel.hpp>

#include "../unit/test_helpers.hpp"
#include "gpu_pipeline.hpp"

namespace gpumap::gst::test {
namespace {

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
