// SPDX-License-Identifier: MIT
// What the tests of a kernel's modes share: each case runs launched, on any device, and resident where the GPU has
// CUDA. Kernels whose every output byte the CPU knows, in both languages.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "gpu_pipeline.hpp"

namespace gpumap::gst::test {

/// One text for .cu and .comp: a body of the macros below.
struct KernelText {
  const char* declarations;
  const char* body;
  const char* cuda_only = "";  ///< before the kernel
  const char* glsl_only = "";
};

[[nodiscard]] inline std::string text_of(const KernelText& kernel, bool cuda) {
  // SPIN is no endless loop: a GPU whose context waits for ever is another program's matter.
  static const std::string in_cuda =
      "#include <gpumap/kernel.h>\n#include <gpumap/grid.h>\n"
      "#define U64 gpumap_u64\n#define U32 gpumap_u32\n#define VIEW_IN frame.in\n#define VIEW_OUT frame.out\n"
      "#define LOAD(at) U32(*reinterpret_cast<const gpumap_u8*>(at))\n"
      "#define STORE(at, value) (*reinterpret_cast<gpumap_u8*>(at) = static_cast<gpumap_u8>(value))\n"
      "static __device__ U64 now_ns() {\n"
      "  U64 ns;\n  asm volatile(\"mov.u64 %0, %%globaltimer;\" : \"=l\"(ns));\n  return ns;\n}\n"
      "#define SPIN for (U64 began = now_ns(); now_ns() - began < 3000000000ull;) {}\n";
  // lavapipe leaves a loop after 65535 turns; a hundred thousand threads of it take it seconds.
  static const std::string in_glsl =
      "#version 460\n#include <gpumap.glsl>\n"
      "#define U64 uint64_t\n#define U32 uint\n#define VIEW_IN frame.in_view\n#define VIEW_OUT frame.out_view\n"
      "#define LOAD(at) uint(load_u8(at))\n#define STORE(at, value) store_u8(at, (value) & 255u)\n"
      "layout(buffer_reference, scalar) volatile buffer Word { uint value; };\n"
      "#define SPIN { Word word = Word(frame.out_view.plane[0]); "
      "for (uint turn = 0u; turn < 65000u; ++turn) atomicAdd(word.value, 1u); }\n";
  return std::string(kernel.declarations) + (cuda ? in_cuda : in_glsl) + (cuda ? kernel.cuda_only : kernel.glsl_only) +
         (cuda ? "extern \"C\" __global__ void kernel(gpumap_frame frame) {\n" : "void main() {\n") + kernel.body +
         "}\n";
}

/// Each byte of this frame and of the one before it, its place and a parameter: what is wrong with any of these shows.
inline constexpr KernelText mixing{
    "// gpumap: params add=5\n// gpumap: history 1\n",
    "  for (U64 i = gpumap_thread(); i < VIEW_IN.bytes; i += gpumap_thread_count()) {\n"
    "    U32 before = 0u;\n"
    "    if (frame.past_count != 0u && i < frame.past[0].bytes) before = LOAD(frame.past[0].plane[0] + i);\n"
    "    STORE(VIEW_OUT.plane[0] + i, LOAD(VIEW_IN.plane[0] + i) * 3u + U32(i) * 7u + before + U32(frame.params[0]));\n"
    "  }\n"};

/// What it gives of frame after frame.
class Mixed {
 public:
  [[nodiscard]] Data next(const Data& in, unsigned add = 5) {
    Data out(in.size());
    for (std::size_t i = 0; i < in.size(); ++i) {
      const unsigned before = i < before_.size() ? std::to_integer<unsigned>(before_[i]) : 0;
      out[i] =
          static_cast<std::byte>(std::to_integer<unsigned>(in[i]) * 3 + static_cast<unsigned>(i) * 7 + before + add);
    }
    before_ = in;
    return out;
  }
  /// As after a flush.
  void forget() { before_.clear(); }

 private:
  Data before_;
};

class KernelModes : public GpuPipeline, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    GpuPipeline::SetUp();
    if (IsSkipped()) return;
    cuda_ = device_->has(Backend::cuda);
    if (mode() == "resident" && !cuda_) GTEST_SKIP() << "no kernel stays without CUDA: " << device_->info().name;
  }
  [[nodiscard]] static std::string mode() { return GetParam(); }

  /// A gpumapkernel in the mode that is tested.
  [[nodiscard]] std::string kernel(const KernelText& text, const std::string& options = "") const {
    return kernel_in(mode(), text, options);
  }
  [[nodiscard]] std::string kernel_in(const std::string& mode, const KernelText& text,
                                      const std::string& options = "") const {
    static int files = 0;
    const std::string name = "kernel" + std::to_string(files++) + (cuda_ ? ".cu" : ".comp");
    return "gpumapkernel mode=" + mode + " location=" + folder_.add(name, text_of(text, cuda_)) + " " + options + " ";
  }
  /// appsrc name=in and appsink name=out around `kernels`.
  [[nodiscard]] static std::string line(const std::string& kernels,
                                        const std::string& caps = "caps=application/octet-stream") {
    return on_new_channel("appsrc name=in format=time " + caps +
                          " ! gpumapsink name=sink sync=false $CHANNEL slots=4 gpumapsrc $CHANNEL ! " + kernels +
                          " ! appsink name=out sync=false");
  }
  /// The kernel did stay, where it was to.
  static void expect_mode(const Pipeline& pipeline, const char* name = "kernel") {
    EXPECT_EQ(stat_text(pipeline.element(name), "mode"), mode()) << stat_text(pipeline.element(name), "mode-reason");
  }
  /// A frame in, and what comes of it; empty where nothing comes.
  [[nodiscard]] static Data through(Pipeline& pipeline, const Data& frame) {
    if (!push(pipeline.appsrc(), new_buffer(frame, 0))) return {};
    return next_of(pipeline);
  }
  [[nodiscard]] static Data next_of(Pipeline& pipeline) {
    const Sample sample = pull(pipeline.appsink());
    if (sample == nullptr) {
      ADD_FAILURE() << "no frame comes: " << pipeline.wait(1s);
      return {};
    }
    return data_of(gst_sample_get_buffer(sample.get()));
  }
  /// Of any size, odd ones as a rule, and random.
  [[nodiscard]] static Data any_frame(std::uint64_t number, std::size_t largest = 100'000) {
    return random_data(1 + number * 7919 % largest, number + 1);
  }

  bool cuda_ = false;
};

inline std::string mode_name(const testing::TestParamInfo<const char*>& test) {
  return test.param;
}

}  // namespace gpumap::gst::test
