// SPDX-License-Identifier: MIT
// What is read of modules that shaderc makes: sizes, and the capabilities that their constants of 8 and 16 bits need.
// Of one damaged at random an error, or what is in it. kernel_refusals_test.cpp has what Kernel::load() says of others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <spirv-tools/libspirv.hpp>

#include "gpumap/error.hpp"
#include "gpumap/kernel.hpp"
#include "kernel/compile/compilers.hpp"

namespace gpumap {
namespace {

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
