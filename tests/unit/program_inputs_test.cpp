// SPDX-License-Identifier: MIT
// What a kernel is handed beside its frame: exact numbers. In GLSL on
// whatever Vulkan driver there is; on a GPU in CUDA C++ too.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>

#include "backend_bench.hpp"

namespace gpumap {
namespace {

class ProgramInputsTest : public BackendTest {
 protected:
  /// One thread that puts 64-bit words out; `cuda` and `glsl` are expressions of `k`, the word's number.
  std::unique_ptr<Program> program(const std::string& declarations, const std::string& cuda, const std::string& glsl,
                                   unsigned words) {
    const std::string count = std::to_string(words);
    KernelSource source;
    if (GetParam() == Backend::cuda) {
      source.language = Language::cuda;
      source.name = "inputs.cu";
      source.code = "#include <gpumap/kernel.h>\n" + declarations +
                    "extern \"C\" __global__ void inputs(gpumap_frame frame) {\n"
                    "  if (blockIdx.x != 0 || threadIdx.x != 0) return;\n"
                    "  for (unsigned k = 0; k < " +
                    count + "; ++k) ((gpumap_u64*)frame.out.plane[0])[k] = (gpumap_u64)(" + cuda + ");\n}\n";
    } else {
      source.language = Language::glsl;
      source.name = "inputs.comp";
      source.code = "#version 460\n#include <gpumap.glsl>\n" + declarations +
                    "void main() {\n"
                    "  if (gpumap_thread() != 0ul) return;\n"
                    "  for (uint k = 0u; k < " +
                    count + "u; ++k) store_u64(frame.out_view.plane[0] + 8ul * k, uint64_t(" + glsl + "));\n}\n";
    }
    const Declaration declaration = parse_declaration(source.code);
    return Program::load(bench_->device(), source, declaration);
  }

  gpumap_frame frame(std::size_t bytes) {
    gpumap_frame made{};
    made.in.plane[0] = bench_->in();
    made.in.bytes = bytes;
    made.out.plane[0] = bench_->out();
    made.out.bytes = bytes;
    made.result = bench_->result();
    return made;
  }
  [[nodiscard]] std::uint64_t word(std::size_t at) const {
    std::uint64_t value = 0;
    std::memcpy(&value, bench_->output() + at * sizeof value, sizeof value);
    return value;
  }
};

TEST_P(ProgramInputsTest, NumbersAreExact) {
  const auto numbers = program("// gpumap: params a:i64=0,b:f64=0,c:u32=7,d=0.5\n",
                               "k == 0 ? gpumap_param_i64(frame, 0) - 1 : k == 1 ? __double_as_longlong("
                               "gpumap_param_f64(frame, 1) * 3) : k == 2 ? gpumap_param_i64(frame, 2) * 2 : "
                               "(long long)(frame.params[3] * 1000) + (long long)frame.params[2]",
                               "k == 0u ? uint64_t(param_i64(0u) - 1l) : k == 1u ? packUint2x32(unpackDouble2x32("
                               "param_f64(1u) * 3.0)) : k == 2u ? uint64_t(param_i64(2u) * 2l) : "
                               "uint64_t(frame.params[3] * 1000) + uint64_t(frame.params[2])",
                               4);
  numbers->set_params("a=-9223372036854775807,b=123456789.12345678,c=4294967295,d=0.25");
  bench_->prepare({}, 64);
  bench_->run(*numbers, frame(64));
  EXPECT_EQ(word(0), std::uint64_t{1} << 63U);
  EXPECT_EQ(word(1), std::bit_cast<std::uint64_t>(123456789.12345678 * 3));
  EXPECT_EQ(word(2), 2ULL * 4294967295U);
  EXPECT_EQ(word(3), 250U + 4294967296U) << "as floats: rounded";
}

#ifdef GPUMAP_TEST_GPU
const bool needs_gpu = (BackendTest::accept_software = false, true);
INSTANTIATE_TEST_SUITE_P(Gpu, ProgramInputsTest, ::testing::Values(Backend::cuda, Backend::vulkan));
#else
INSTANTIATE_TEST_SUITE_P(Vulkan, ProgramInputsTest, ::testing::Values(Backend::vulkan));
#endif

}  // namespace
}  // namespace gpumap
