// SPDX-License-Identifier: MIT
// Kernels that cannot be loaded: what a launch does not give, what the device lacks, what is no kernel.
#include <gmock/gmock.h>

#include <cstring>
#include <initializer_list>
#include <string>
#include <string_view>

#include "backend_bench.hpp"
#include "error_of.hpp"
#include "glsl_source.hpp"

namespace gpumap {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class KernelRefusals : public BackendTest {
 protected:
  std::shared_ptr<Kernel> load(const KernelSource& source) { return Kernel::load(bench_->device(), source); }
};

INSTANTIATE_TEST_SUITE_P(Vulkan, KernelRefusals, ::testing::Values(Backend::vulkan));

// What a long line of anything does to whoever looks for the #version.
TEST_P(KernelRefusals, LongLinesAreOnlyLong) {
  const std::string blanks(300'000, ' '), tabs(300'000, '\t');
  const std::string main = "\nvoid main() {}\n";
  const auto joined = [](std::initializer_list<std::string_view> parts) {
    std::string all;
    for (const std::string_view part : parts) all += part;
    return all;
  };
  for (const std::string& code :
       {joined({"#version 460", main, blanks}), joined({"// ", blanks, "\n", tabs, "#", tabs, "version 460", main})}) {
    EXPECT_NE(load(glsl(code)), nullptr);
  }
  for (const std::string& code :
       {blanks, joined({"#", blanks, "versions 460", main}), joined({"# ", tabs, main}),
        joined({blanks, "version 460", main}), joined({"#version_460"}), joined({"x #version 460", main})}) {
    EXPECT_THAT(error_of(ErrorCode::compile, [&] { return load(glsl(code)); }), HasSubstr("no #version in it"));
  }
}

TEST_P(KernelRefusals, LoadErrors) {
  const auto with_size = [](const char* size) {
    return glsl(std::string("#version 460\nlayout(local_size_x = ") + size + ") in;\nvoid main() {}\n");
  };
  KernelSource other = with_size("1");
  other.function = "other";
  EXPECT_THAT(error_of(ErrorCode::compile, [&] { return load(other); }), HasSubstr("no function 'other' in it"));
  EXPECT_THAT(error_of(ErrorCode::not_supported, [&] { return load(with_size("1024, local_size_y = 64")); }),
              HasSubstr("workgroup of 1024 x 64 x 1 threads"));
  const KernelSource junk{.language = Language::spirv, .name = "junk.spv", .code = "junk", .function = {}};
  EXPECT_THAT(error_of(ErrorCode::compile, [&] { return load(junk); }),
              AllOf(HasSubstr("junk.spv"), HasSubstr("SPIR-V")));
  EXPECT_THAT(error_of(ErrorCode::invalid, [&] { return Kernel::load(nullptr, junk); }), HasSubstr("no device"));
  if (!bench_->device()->has(Backend::cuda)) {
    const auto cuda = source_of(*find_builtin("identity"), Backend::cuda);
    EXPECT_THAT(error_of(ErrorCode::not_supported, [&] { return load(cuda); }), HasSubstr("has no CUDA"));
  }
}

// What a driver makes of what was not enabled is undefined; what the device has is enabled.
TEST_P(KernelRefusals, RefusesCapabilitiesThatAreNotEnabled) {
  const auto with = [](const std::string& extension, const std::string& body) {
    return glsl("#version 460\n#extension " + extension +
                " : require\n#include <gpumap.glsl>\n"
                "void main() { " +
                body + " }\n");
  };
  const std::pair<KernelSource, const char*> cases[] = {
      {with("GL_EXT_shader_atomic_float2", "atomicMax(gpumap_f32_at(frame.result).value, 1.0);"),
       "needs least and most of 32-bit floats as atomics"},
      {with("GL_ARB_shader_clock", "store_u64(frame.result, clockARB());"), "needs the shader's clock"},
      {with("GL_EXT_shader_realtime_clock", "store_u64(frame.result, clockRealtimeEXT());"), "the shader's clock"},
  };
  for (const auto& [source, message] : cases) {
    EXPECT_THAT(error_of(ErrorCode::not_supported, [&, &asked = source] { return load(asked); }), HasSubstr(message))
        << source.code;
  }
  KernelSource unknown{.language = Language::spirv, .name = "unknown.spv", .code = {}, .function = {}};
  unknown.code = compile_glsl(glsl("#version 460\n#include <gpumap.glsl>\nvoid main() {}\n"));
  const std::uint32_t declares[] = {2U << 16U | 17U, 31337};
  unknown.code.insert(20, reinterpret_cast<const char*>(declares), sizeof declares);
  EXPECT_THAT(error_of(ErrorCode::not_supported, [&] { return load(unknown); }),
              HasSubstr("needs the SPIR-V capability 31337"));
}

// Of strangers' modules the rules are checked: a driver may crash on one that breaks them.
TEST_P(KernelRefusals, RefusesModulesThatBreakTheRules) {
  KernelSource whole{.language = Language::spirv, .name = "strange.spv", .code = {}, .function = {}};
  whole.code =
      compile_glsl(glsl("#version 460\n#include <gpumap.glsl>\nvoid main() {\n"
                        "  for (uint64_t i = gpumap_thread(); i < frame.in_view.bytes; i += 7ul) {\n"
                        "    store_u8(frame.out_view.plane[0] + i, load_u8(frame.in_view.plane[0] + i));\n"
                        "  }\n}\n"));
  EXPECT_NE(load(whole), nullptr);
  // A function without an end, and one whose blocks end as no block of a compute shader may.
  const auto with_word = [&](std::uint32_t from, std::uint32_t to) {
    KernelSource made = whole;
    for (std::size_t at = 20; at < made.code.size(); at += 4) {
      std::uint32_t word = 0;
      std::memcpy(&word, made.code.data() + at, sizeof word);
      if (word == from) std::memcpy(made.code.data() + at, &to, sizeof to);
    }
    return made;
  };
  constexpr std::uint32_t function_end = 1U << 16U | 56U, branch = 2U << 16U | 249U, nop = 1U << 16U,
                          kill = 2U << 16U | 252U;
  for (const KernelSource& broken : {with_word(function_end, nop), with_word(branch, kill)}) {
    EXPECT_THAT(error_of(ErrorCode::compile, [&] { return load(broken); }),
                AllOf(HasSubstr("strange.spv"), HasSubstr("no valid SPIR-V"), HasSubstr("spirv-val")));
  }
}

// A driver takes such modules and crashes at the launch.
TEST_P(KernelRefusals, RefusesWhatALaunchDoesNotGive) {
  const auto with = [](const std::string& declaration, const std::string& use) {
    return glsl(
        "#version 460\n#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require\n"
        "#extension GL_EXT_buffer_reference : require\nlayout(local_size_x = 1) in;\n"
        "layout(buffer_reference) buffer At { uint x; };\n" +
        declaration + "\nvoid main() { At at = At(uint64_t(4096)); at.x = " + use + "; }\n");
  };
  for (const char* descriptors :
       {"layout(binding = 0) buffer B { uint x; } b;", "layout(binding = 3) uniform B { uint x; } b;"}) {
    const auto source = with(descriptors, "b.x");
    EXPECT_THAT(error_of(ErrorCode::compile, [&] { return load(source); }),
                AllOf(HasSubstr("test.comp"), HasSubstr("binding"), HasSubstr("gpumap.glsl")));
  }
  const auto image = with("layout(binding = 0, r32ui) uniform uimage2D i;", "imageLoad(i, ivec2(0)).x");
  EXPECT_THAT(error_of(ErrorCode::compile, [&] { return load(image); }), HasSubstr("binding"));

  const auto pushes = [&](const char* members, const char* value) {
    return with(std::string("layout(push_constant) uniform P { ") + members + " } p;", value);
  };
  for (const auto& [members, value] : {std::pair{"uint x[64];", "p.x[63]"},
                                       {"uint64_t frame; uint x;", "p.x"},
                                       {"layout(offset = 8) uint x;", "p.x"},
                                       {"mat4 m;", "uint(p.m[0][0])"}}) {
    const auto source = pushes(members, value);
    EXPECT_THAT(error_of(ErrorCode::compile, [&] { return load(source); }),
                AllOf(HasSubstr("push constants"), HasSubstr("8 bytes"), HasSubstr("gpumap.glsl")))
        << members;
  }
  for (const auto& [members, value] : {std::pair{"uint64_t frame;", "uint(p.frame)"},
                                       {"uvec2 x;", "p.x.y"},
                                       {"uint x; uint z;", "p.z"},
                                       {"uint x[2];", "p.x[1]"}}) {
    EXPECT_NE(load(pushes(members, value)), nullptr) << members;
  }
}

}  // namespace
}  // namespace gpumap
