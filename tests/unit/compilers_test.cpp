// SPDX-License-Identifier: MIT
// Compiling CUDA C++ needs NVRTC but no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <spirv-tools/libspirv.hpp>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "backend_bench.hpp"
#include "gpumap/declaration.hpp"
#include "gpumap/error.hpp"
#include "gpumap/kernel.hpp"
#include "kernel/builtin/convert_program.hpp"
#include "kernel/compile/compilers.hpp"
#include "kernel/load_kernel.hpp"
#include "temporary_folder.hpp"
#include "test_helpers.hpp"

namespace gpumap {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

KernelSource cuda(std::string code, std::string function = {}) {
  return {.language = Language::cuda,
          .name = "test.cu",
          .code = "#include <gpumap/kernel.h>\n" + std::move(code),
          .function = std::move(function)};
}

class NvrtcTest : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      static_cast<void>(compile_cuda(source_of(*find_builtin("identity"), Backend::cuda), "sm_90"));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::no_driver) throw;
      GTEST_SKIP() << error.what();
    }
  }

  static std::string error_of(const KernelSource& source, std::string_view architecture = "sm_90",
                              ErrorCode code = ErrorCode::compile) {
    try {
      static_cast<void>(compile_cuda(source, architecture));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
      return error.what();
    }
    return "no error";
  }
};

class NvrtcArchitectureTest : public NvrtcTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(NvrtcArchitectureTest, CompilesBuiltInsExamplesAndBenchmarks) {
  std::vector<KernelSource> sources;
  for (const Builtin& builtin : builtins()) {
    for (KernelSource& source : sources_of(builtin, Backend::cuda)) sources.push_back(std::move(source));
  }
  const std::filesystem::path examples = GPUMAP_EXAMPLES;
  for (const auto& file : std::filesystem::recursive_directory_iterator(examples)) {
    if (file.path().extension() != ".cu") continue;
    const KernelSource source = load_kernel_file(file.path());
    const std::vector<std::string> functions = parse_declaration(source.code).functions;
    if (functions.empty()) sources.push_back(source);
    for (const std::string& function : functions) sources.push_back(load_kernel_file(file.path(), function));
  }
  EXPECT_GT(sources.size(), builtins().size());
  for (const char* name : {"nothing", "copy_seen"}) {
    sources.push_back(load_kernel_file(examples.parent_path() / "tests/bench" / (std::string(name) + ".cu")));
  }
  for (const ConvertVariant& variant : {ConvertVariant{GPUMAP_FORMAT_NV12, GPUMAP_FORMAT_RGBA, ConvertPass::same},
                                        {GPUMAP_FORMAT_V210, GPUMAP_FORMAT_RGB_F16_PLANAR, ConvertPass::resampled},
                                        {GPUMAP_FORMAT_RGBA, GPUMAP_FORMAT_RGBA, ConvertPass::resampled},
                                        {GPUMAP_FORMAT_BGRA, GPUMAP_FORMAT_RGB_U8, ConvertPass::down},
                                        {GPUMAP_FORMAT_BGRA, GPUMAP_FORMAT_RGB_U8, ConvertPass::across},
                                        {GPUMAP_FORMAT_NV12, GPUMAP_FORMAT_RGB_F32_PLANAR, ConvertPass::down},
                                        {GPUMAP_FORMAT_NV12, GPUMAP_FORMAT_RGB_F32_PLANAR, ConvertPass::across},
                                        {GPUMAP_FORMAT_BAYER16_RGGB, GPUMAP_FORMAT_RGB_U8, ConvertPass::same},
                                        {GPUMAP_FORMAT_RGBA, GPUMAP_FORMAT_NV12, ConvertPass::same},
                                        {GPUMAP_FORMAT_I420_10, GPUMAP_FORMAT_P010, ConvertPass::resampled},
                                        {GPUMAP_FORMAT_P016, GPUMAP_FORMAT_I420, ConvertPass::across},
                                        {GPUMAP_FORMAT_Y444, GPUMAP_FORMAT_YUY2, ConvertPass::across}}) {
    sources.push_back(convert_source(variant, Backend::cuda));
  }
  for (const KernelSource& source : sources) {
    const std::string code = compile_cuda(source, GetParam());
    // PTX where this NVRTC is older than the architecture.
    EXPECT_TRUE(code.starts_with("\x7f"
                                 "ELF") ||
                code.find(".entry") != std::string::npos)
        << source.name;
  }
}

/// The oldest, the newest and one in between: no source asks for its architecture, and all but the machine code is the
/// same. A sanitizer sees what surrounds NVRTC, which is the same for each.
std::vector<const char*> architectures() {
  if (sanitized) return {"sm_90"};
  return {"sm_75", "sm_90", "sm_120"};
}

INSTANTIATE_TEST_SUITE_P(Architectures, NvrtcArchitectureTest, ::testing::ValuesIn(architectures()),
                         [](const auto& chosen) { return std::string(chosen.param); });

TEST_F(NvrtcTest, NewerArchitecturesGetPtx) {
  const std::string code = compile_cuda(source_of(*find_builtin("identity"), Backend::cuda), "sm_999");
  EXPECT_THAT(code, HasSubstr(".visible .entry identity"));
}

TEST_F(NvrtcTest, RefusesOldAndMeaninglessArchitectures) {
  const KernelSource source = source_of(*find_builtin("identity"), Backend::cuda);
  EXPECT_THAT(error_of(source, "sm_20", ErrorCode::not_supported), HasSubstr("not for sm_20"));
  EXPECT_THAT(error_of(source, "hopper", ErrorCode::invalid), HasSubstr("'hopper'"));
  EXPECT_THAT(error_of(source, "sm_9x", ErrorCode::invalid), HasSubstr("'sm_9x'"));
}

TEST_F(NvrtcTest, ErrorsNameFileAndLine) {
  const std::string error =
      error_of(cuda("extern \"C\" __global__ void f(gpumap_frame frame) {\n  broken(frame);\n}\n"));
  EXPECT_THAT(error, HasSubstr("test.cu(3): error"));
  EXPECT_THAT(error, HasSubstr("\"broken\" is undefined"));
}

TEST_F(NvrtcTest, FindsTheOnlyKernelAndListsSeveral) {
  const std::string one = "extern \"C\" __global__ void one(gpumap_frame) {}\n";
  const std::string two = one + "extern \"C\" __global__ void two(gpumap_frame) {}\n";
  EXPECT_THAT(compile_cuda(cuda(one), "sm_90"), StartsWith("\x7f"
                                                           "ELF"));
  EXPECT_THAT(compile_cuda(cuda(two, "two"), "sm_90"), StartsWith("\x7f"
                                                                  "ELF"));
  EXPECT_THAT(error_of(cuda(two)), HasSubstr("2 kernels in it: choose a function from one, two"));
  EXPECT_THAT(error_of(cuda(two, "three")), HasSubstr("no kernel 'three' in it, only one, two"));
  EXPECT_THAT(error_of(cuda("")), HasSubstr("no kernel in it"));
}

TEST_F(NvrtcTest, InstancesOfTemplatesByName) {
  const std::string code =
      "template <int radius, typename T = float> __global__ void blur(gpumap_frame frame) {\n"
      "  *(T*)frame.out.plane[0] = T(radius);\n}\n"
      "namespace filters { __global__ void sharpen(gpumap_frame) {} }\n"
      "template <int n> __global__ void wrong(gpumap_frame, int) {}\n";
  CodeCache cache(std::nullopt);
  const auto function = [&](const char* name, const char* architecture) {
    return build_cuda(cuda(code, name), architecture, cache).function;
  };
  // Again, from the cache; and where only PTX can be made.
  for (const char* architecture : {"sm_90", "sm_90", "sm_999"}) {
    EXPECT_THAT(function("blur<5>", architecture), HasSubstr("blurILi5Ef"));
    EXPECT_THAT(function("blur<9, double>", architecture), HasSubstr("blurILi9Ed"));
    EXPECT_THAT(function("filters::sharpen", architecture), HasSubstr("sharpen"));
  }
  EXPECT_THAT(error_of(cuda(code, "blur<width>")), HasSubstr("width"));
  EXPECT_THAT(error_of(cuda(code, "wrong<1>")), HasSubstr("does not take one gpumap_frame by value"));
  EXPECT_NE(error_of(cuda(code, "unknown<1>")), "no error");
}

TEST_F(NvrtcTest, RefusesKernelsThatDoNotTakeAFrame) {
  const char* message = "'f' does not take one gpumap_frame by value";
  EXPECT_THAT(error_of(cuda("extern \"C\" __global__ void f(float* p, int n) { p[n] = 0; }\n")), HasSubstr(message));
  EXPECT_THAT(error_of(cuda("extern \"C\" __global__ void f() {}\n")), HasSubstr(message));
  EXPECT_THAT(error_of(cuda("extern \"C\" __global__ void f(gpumap_frame, int) {}\n")), HasSubstr(message));
}

TEST_F(NvrtcTest, WhatAKernelIsHandedBesideItsFrameOnEveryArchitecture) {
  const std::string code =
      "extern \"C\" __global__ void f(gpumap_frame frame) {\n"
      "  const float* weights = reinterpret_cast<const float*>(frame.tables[0].address);\n"
      "  double sum = gpumap_param_f64(frame, 1);\n"
      "  for (gpumap_i64 i = 0; i < gpumap_param_i64(frame, 0); ++i) sum += weights[i % frame.tables[0].count];\n"
      "  for (unsigned i = 0; i < frame.past_count; ++i) sum += "
      "*reinterpret_cast<gpumap_u8*>(frame.past[i].plane[0]);\n"
      "  *reinterpret_cast<double*>(frame.out.plane[0]) = sum;\n"
      "}\n";
  for (const auto& architecture : architectures()) {
    EXPECT_FALSE(compile_cuda(cuda(code), architecture).empty()) << architecture;
  }
}

// A .ptx of before: gpumap_frame grows at its end, and its kernel takes as much of it as it knows.
TEST(Ptx, KernelsThatTakeTheFrameOfAnEarlierVersion) {
  const auto takes_frame = [](const std::string& parameters) {
    const auto entries = ptx_entries(".visible .entry f(\n\t.param .align 8 .b8 " + parameters + "\n)\n{ ret; }\n");
    return entries.size() == 1 && entries.front().takes_frame;
  };
  EXPECT_TRUE(takes_frame("f_param_0[" + std::to_string(sizeof(gpumap_frame)) + "]"));
  EXPECT_TRUE(takes_frame("f_param_0[528]"));
  EXPECT_FALSE(takes_frame("f_param_0[520]"));
  EXPECT_FALSE(takes_frame("f_param_0[" + std::to_string(sizeof(gpumap_frame) + 8) + "]"));
  EXPECT_FALSE(takes_frame("f_param_0[528"));
  EXPECT_FALSE(takes_frame("f_param_0[]"));
  EXPECT_FALSE(takes_frame("f_param_0[528],\n\t.param .u32 f_param_1"));
}

// The driver copies as much of a frame as the kernel's parameter has.
TEST_F(NvrtcTest, AKernelIsHandedTheRestOfTheFrameOnlyWhereItMayNameIt) {
  const std::string whole = std::to_string(sizeof(gpumap_frame));
  const std::string upto_params = std::to_string(offsetof(gpumap_frame, numbers));
  const auto takes = [&](const std::string& bytes, const std::string& more, KernelSource source = {}) {
    source.language = Language::cuda;
    source.name = "k";
    source.code = "#include <gpumap/kernel.h>\n" + more + "\nstatic_assert(sizeof(gpumap_frame) == " + bytes + ");\n" +
                  "extern \"C\" __global__ void f(gpumap_frame frame) {}\n";
    return error_of(source);
  };
  EXPECT_EQ(takes(upto_params, ""), "no error");
  EXPECT_EQ(takes(upto_params, "#include <gpumap/grid.h>"), "no error");
  for (const char* named : {"numbers[0]", "tables[7].count", "past_count", "past[0].bytes", "given", "result_words",
                            "in_tensors[0].count", "out_tensors[7].rank"}) {
    EXPECT_EQ(takes(whole, std::string("__device__ void g(gpumap_frame& f) { (void)f.") + named + "; }"), "no error")
        << named;
  }
  EXPECT_EQ(takes(whole, "__device__ gpumap_i64 g(gpumap_frame& f) { return gpumap_param_i64(f, 0); }"), "no error");
  // By another name, and in a file that is not looked at.
  EXPECT_EQ(takes(whole, "__device__ void g(gpumap_frame& f) { (void)f.FIELD; }", {.defines = {"FIELD=past_count"}}),
            "no error");
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "other.h") << "#define FIELD past_count\n";
  EXPECT_EQ(takes(whole, "#include \"other.h\"\n__device__ void g(gpumap_frame& f) { (void)f.FIELD; }",
                  {.include_folders = {folder.path()}}),
            "no error");
}

// NVRTC would open a pipe and wait for ever for a writer.
TEST_F(NvrtcTest, RefusesAnIncludedPipe) {
  const TemporaryFolder folder, others;
  std::filesystem::create_directory(others.path() / "folder.h");
  for (const auto& path : {folder.path() / "pipe.h", others.path() / "both.h"}) {
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  }
  std::ofstream(folder.path() / "both.h") << "\n";
  std::ofstream(folder.path() / "folder.h") << "\n";
  std::ofstream(others.path() / "again.h") << "#pragma once\n#include \"again.h\"\n";
  std::ofstream(folder.path() / "outer.h") << "#include <inner.h>\n";
  std::ofstream(others.path() / "inner.h") << "/* of a pipe */ #include <pipe.h>\n";
  const auto error = [&](const std::string& lines) {
    const auto path = folder.path() / "kernel.cu";
    KernelSource source = cuda(lines + "\nextern \"C\" __global__ void k(gpumap_frame) {}");
    std::ofstream(path) << source.code;
    source.name = path.string();
    source.include_folders = {others.path()};
    return error_of(source);
  };
  for (const char* lines : {"#include \"pipe.h\"", "#include <pipe.h>", "#include \"outer.h\""}) {
    EXPECT_THAT(error(lines), HasSubstr("pipe.h, which it includes, is a pipe or a device")) << lines;
  }
  EXPECT_THAT(error("#include <both.h>"), HasSubstr("both.h, which it includes, is a pipe or a device"));
  EXPECT_EQ(error("#include \"both.h\"\n#include <again.h>\n#include <gpumap/grid.h>"), "no error");
  EXPECT_EQ(error("#include <folder.h>"), "no error") << "a folder is no file, and the compiler looks on";
}

TEST_F(NvrtcTest, TheDeviceCompilerSeesTheSameLayout) {
  std::string code;
// NVRTC has no offsetof without the toolkit's headers; this is what its front end makes of one.
#define SAME_OFFSET(member)                                                   \
  code += "static_assert(__INTADDR__(&((gpumap_frame*)0)->" #member ") == " + \
          std::to_string(offsetof(gpumap_frame, member)) + ", \"" #member "\");\n"
  SAME_OFFSET(in);
  SAME_OFFSET(in.stride);
  SAME_OFFSET(in.width);
  SAME_OFFSET(in.rate);
  SAME_OFFSET(in.bytes);
  SAME_OFFSET(out);
  SAME_OFFSET(out.bytes);
  SAME_OFFSET(sequence);
  SAME_OFFSET(pts);
  SAME_OFFSET(duration);
  SAME_OFFSET(result);
  SAME_OFFSET(state);
  SAME_OFFSET(state_bytes);
  SAME_OFFSET(flags);
  SAME_OFFSET(frame_rate);
  SAME_OFFSET(frame_rate_scale);
  SAME_OFFSET(color);
  SAME_OFFSET(color.offset);
  SAME_OFFSET(params);
  SAME_OFFSET(numbers);
  SAME_OFFSET(tables[1].count);
  SAME_OFFSET(past_count);
  SAME_OFFSET(past[7].bytes);
  SAME_OFFSET(given);
  SAME_OFFSET(result_words);
  SAME_OFFSET(in_tensors[1].dims[7]);
  SAME_OFFSET(in_tensors[7].rank);
  SAME_OFFSET(out_tensors[7].count);
  SAME_OFFSET(out_color.offset);
#undef SAME_OFFSET
  code += "static_assert(sizeof(gpumap_frame) == " + std::to_string(sizeof(gpumap_frame)) + ");\n";
  code += "extern \"C\" __global__ void f(gpumap_frame) {}\n";
  EXPECT_THAT(compile_cuda(cuda(code), "sm_90"), StartsWith("\x7f"
                                                            "ELF"));
}

// What is read of modules that shaderc makes: sizes, and the capabilities that their constants of 8 and 16 bits need.
// Of one damaged at random an error, or what is in it. kernel_refusals_test.cpp has what Kernel::load() says of others.

using ::testing::Contains;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

TEST(Spirv, BuiltInsTakeTheirSizeFromTheLaunch) {
  for (const Builtin& builtin : builtins()) {
    if (!builtin.kernels.empty()) continue;  // a program of several kernels knows their size
    const std::string code = compile_glsl(source_of(builtin, Backend::vulkan));
    EXPECT_NO_THROW(check_valid_spirv(code)) << builtin.name;
    const auto shaders = read_spirv(code).shaders;
    ASSERT_EQ(shaders.size(), 1U) << builtin.name;
    EXPECT_EQ(shaders[0].function, "main");
    EXPECT_TRUE(shaders[0].threads_from_constants) << builtin.name;
  }
}

TEST(Spirv, DamagedModules) {
  const std::string whole = compile_glsl(source_of(*find_builtin("identity"), Backend::vulkan));
  std::mt19937 random(3);
  int valid = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string damaged = whole.substr(0, i % 2 == 0 ? whole.size() : random() % whole.size() / 4 * 4);
    for (int j = 0; j <= i % 3 && !damaged.empty(); ++j)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    damaged.shrink_to_fit();
    try {
      check_valid_spirv(damaged);
      static_cast<void>(read_spirv(damaged));
      ++valid;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::compile);
    }
  }
  EXPECT_GT(valid, 0);
}

// Where a driver may end loops, those in files that are included count, and those of gpumap's files do not.
TEST(Glsl, LoopsOfIncludedFilesAreARisk) {
  const TemporaryFolder folder, others;
  DeviceInfo lavapipe;
  lavapipe.software = true;
  const auto has_risk = [&](const std::string& lines) {
    const KernelSource source{.language = Language::glsl,
                              .name = (folder.path() / "kernel.comp").string(),
                              .code = "#version 460\n#include <gpumap.glsl>\n" + lines + "\nvoid main() {}\n",
                              .function = {},
                              .include_folders = {others.path()}};
    return !loop_risk_of(source, lavapipe).empty();
  };
  std::ofstream(folder.path() / "loop.glsl") << "uint f(uint n) { uint x = 0; while (x < n) ++x; return x; }\n";
  std::ofstream(folder.path() / "plain.glsl") << "uint g(uint n) { return n; }\n";
  std::ofstream(others.path() / "deep.glsl") << "#include \"deeper.glsl\"\n";
  std::ofstream(others.path() / "deeper.glsl") << "#define EACH(n) for (uint i = 0; i < n; ++i)\n";
  EXPECT_FALSE(has_risk(""));
  EXPECT_TRUE(has_risk("void f() { for (;;) {} }"));
  EXPECT_TRUE(has_risk("#include \"loop.glsl\""));
  EXPECT_FALSE(has_risk("#include \"plain.glsl\""));
  EXPECT_TRUE(has_risk("#include <deep.glsl>"));
  EXPECT_FALSE(has_risk("#if 0\n#include \"loop.glsl\"\n#endif"));
}

/// The capabilities of a shader that does this, as compile_glsl() makes it.
std::vector<std::uint32_t> capabilities_of(const std::string& body) {
  return read_spirv(compile_glsl({.language = Language::glsl,
                                  .name = "constants.comp",
                                  .code = "#version 460\n#include <gpumap.glsl>\nvoid main() { " + body + " }\n",
                                  .function = {}}))
      .capabilities;
}

constexpr std::uint32_t shader = 1, float16 = 9, float64 = 10, int16 = 22, int8 = 39;

// Debian 13's shaderc folds conversions into constants, for which it declares nothing; Debian 12's does not.
TEST(Spirv, ConstantsGetTheirCapabilities) {
  const auto of = [](const std::string& constants, const std::string& capabilities = {}) {
    std::vector<std::uint32_t> words;
    spvtools::SpirvTools tools(SPV_ENV_UNIVERSAL_1_5);
    EXPECT_TRUE(tools.Assemble("OpCapability Shader\n" + capabilities +
                                   "OpMemoryModel Logical GLSL450\n%u8 = OpTypeInt 8 0\n%u16 = OpTypeInt 16 0\n"
                                   "%f16 = OpTypeFloat 16\n%u32 = OpTypeInt 32 0\n" +
                                   constants,
                               &words));
    const std::string code(reinterpret_cast<const char*>(words.data()), words.size() * sizeof(words[0]));
    return read_spirv(with_capabilities_of_constants(code)).capabilities;
  };
  const std::string byte = "%a = OpConstant %u8 9\n";
  EXPECT_THAT(of("%a = OpConstant %u32 9\n"), UnorderedElementsAre(shader));
  EXPECT_THAT(of(byte), UnorderedElementsAre(shader, int8));
  EXPECT_THAT(of("%a = OpConstantNull %u16\n"), UnorderedElementsAre(shader, int16));
  EXPECT_THAT(of("%a = OpConstant %f16 9\n"), UnorderedElementsAre(shader, float16));
  EXPECT_THAT(of(byte + "%b = OpConstantNull %u8\n%c = OpConstant %u16 9\n"),
              UnorderedElementsAre(shader, int8, int16));
  EXPECT_THAT(of(byte, "OpCapability Int8\n"), UnorderedElementsAre(shader, int8));
}

// A device without 64-bit floats runs what reads integers: a file that declares doubles, but for one that reads them.
TEST(Spirv, ExactIntegersNeedNoDoubles) {
  const std::string store = "store_u32(frame.out_view.plane[0], uint(";
  EXPECT_THAT(capabilities_of(store + "param_i64(3)) + uint(frame.params[2]));"), Not(Contains(float64)));
  EXPECT_THAT(capabilities_of(store + "param_f64(3)));"), Contains(float64));
}

// That a cubin or a fatbin which was cut short, anywhere, is refused before a driver reads beyond its end.

using ::testing::HasSubstr;

std::string error_of(std::string code) {
  try {
    check_cubin({.language = Language::cubin, .name = "test.cubin", .code = std::move(code), .function = {}});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::compile);
    return error.what();
  }
  return "no error";
}

TEST(Cubin, RefusesWhatIsCutShort) {
  std::string whole;
  try {
    whole = compile_cuda(source_of(*find_builtin("checksum"), Backend::cuda), "sm_90");
  } catch (const Error& error) {
    if (error.code() != ErrorCode::no_driver) throw;
    GTEST_SKIP() << error.what();
  }
  EXPECT_EQ(error_of(whole), "no error");
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    ASSERT_THAT(error_of(whole.substr(0, bytes)), HasSubstr("is a truncated cubin")) << bytes;
  }
  // Damaged ones are read or refused, never beyond their end.
  std::mt19937 random(5);
  for (int i = 0; i < 2000; ++i) {
    std::string damaged = whole;
    for (int j = 0; j < 4; ++j) damaged[random() % (j < 2 ? 64 : damaged.size())] = static_cast<char>(random());
    damaged.shrink_to_fit();
    (void)error_of(damaged);
  }
}

TEST(Cubin, Fatbins) {
  std::string fatbin(
      "\x50\xed\x55\xba\x01\x00\x10\x00\x08\x00\x00\x00\x00\x00\x00\x00"
      "12345678",
      24);
  EXPECT_EQ(error_of(fatbin), "no error");
  for (std::size_t bytes = 0; bytes < fatbin.size(); ++bytes) {
    EXPECT_THAT(error_of(fatbin.substr(0, bytes)), HasSubstr("test.cubin")) << bytes;
  }
  fatbin[15] = '\x7f';
  EXPECT_THAT(error_of(fatbin), HasSubstr("is a truncated cubin"));
}

}  // namespace
}  // namespace gpumap
