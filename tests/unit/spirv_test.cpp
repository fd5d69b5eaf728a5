// SPDX-License-Identifier: MIT
// What is read of a SPIR-V module: entry points, sizes of a workgroup; of one damaged at random an error, or a size.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "gpumap/error.hpp"
#include "gpumap/kernel.hpp"
#include "kernel/compile/spirv.hpp"

namespace gpumap {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Words = std::vector<std::uint32_t>;

std::string bytes_of(const Words& words) {
  std::string bytes(words.size() * sizeof(std::uint32_t), '\0');
  std::memcpy(bytes.data(), words.data(), bytes.size());
  return bytes;
}

std::vector<ShaderInfo> shaders_of(const std::string& bytes) {
  return parse_spirv(bytes).shaders;
}

/// A header, then the instructions: {opcode, operands...} each.
std::string module_of(std::initializer_list<Words> instructions) {
  Words words{0x07230203, 0x00010500, 0, 100, 0};
  for (const Words& instruction : instructions) {
    words.push_back(static_cast<std::uint32_t>(instruction.size()) << 16 | instruction[0]);
    words.insert(words.end(), instruction.begin() + 1, instruction.end());
  }
  return bytes_of(words);
}

std::string error_of(std::string_view bytes) {
  try {
    static_cast<void>(parse_spirv(bytes));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::compile);
    return error.what();
  }
  return "no error";
}

constexpr std::uint32_t main_name = 0x6E69616D;  // "main"
const Words entry_point{15, 5, 1, main_name, 0};

TEST(Spirv, LiteralSize) {
  const auto shaders = shaders_of(module_of({entry_point, {16, 1, 17, 8, 4, 2}}));
  ASSERT_EQ(shaders.size(), 1U);
  EXPECT_EQ(shaders[0].function, "main");
  EXPECT_THAT(shaders[0].threads, ElementsAre(8, 4, 2));
  EXPECT_FALSE(shaders[0].threads_from_constants);
}

TEST(Spirv, SizeByIdsAndByBuiltIn) {
  const Words constants[]{{50, 9, 10, 16}, {50, 9, 11, 4}, {50, 9, 12, 1}};
  const Words spec_ids[]{{71, 10, 1, 0}, {71, 11, 1, 1}, {71, 12, 1, 2}};
  const auto by_ids = shaders_of(module_of({entry_point,
                                            {331, 1, 38, 10, 11, 12},
                                            spec_ids[0],
                                            spec_ids[1],
                                            spec_ids[2],
                                            constants[0],
                                            constants[1],
                                            constants[2]}));
  const auto by_built_in = shaders_of(module_of({entry_point,
                                                 {16, 1, 17, 1, 1, 1},
                                                 spec_ids[0],
                                                 spec_ids[1],
                                                 spec_ids[2],
                                                 {71, 20, 11, 25},
                                                 constants[0],
                                                 constants[1],
                                                 constants[2],
                                                 {51, 8, 20, 10, 11, 12}}));
  for (const auto& shaders : {by_ids, by_built_in}) {
    ASSERT_EQ(shaders.size(), 1U);
    EXPECT_THAT(shaders[0].threads, ElementsAre(16, 4, 1));
    EXPECT_TRUE(shaders[0].threads_from_constants);
  }
  // Other specialisation constants than 0, 1, 2 are the user's own.
  const auto other = shaders_of(module_of({entry_point,
                                           {331, 1, 38, 10, 11, 12},
                                           {71, 10, 1, 7},
                                           spec_ids[1],
                                           spec_ids[2],
                                           constants[0],
                                           constants[1],
                                           constants[2]}));
  EXPECT_FALSE(other[0].threads_from_constants);
}

TEST(Spirv, OnlyComputeEntryPoints) {
  const Words fragment{15, 4, 2, main_name, 0};
  EXPECT_THAT(shaders_of(module_of({fragment})), ElementsAre());
  EXPECT_EQ(shaders_of(module_of({fragment, entry_point, {16, 1, 17, 1, 1, 1}})).size(), 1U);
}

TEST(Spirv, RefusesWhatIsNoModule) {
  EXPECT_THAT(error_of(""), HasSubstr("0 bytes"));
  EXPECT_THAT(error_of("#version 460\nvoid main() {}\n"), HasSubstr("starts with 0x"));
  EXPECT_THAT(error_of(bytes_of({0x03022307, 0, 0, 0, 0})), HasSubstr("other byte order"));
  EXPECT_THAT(error_of(bytes_of({0x07230203, 0, 0, 0, 0})), HasSubstr("id bound is 0"));
  EXPECT_THAT(error_of(bytes_of({0x07230203, 0, 0, 9, 0, 0})), HasSubstr("has length 0"));
  EXPECT_THAT(error_of(bytes_of({0x07230203, 0, 0, 9, 0, 0xFFFF000F})),
              HasSubstr("has length 65535, 1 words are left"));
  EXPECT_THAT(error_of(module_of({{15, 5, 1}})), HasSubstr("cut short"));
  EXPECT_THAT(error_of(module_of({{15, 5, 1, main_name}})), HasSubstr("no end"));
  EXPECT_THAT(error_of(module_of({{15, 5, 100, main_name, 0}})), HasSubstr("names id 100"));
  EXPECT_THAT(error_of(module_of({{15, 5, 0, main_name, 0}})), HasSubstr("names id 0"));
  EXPECT_THAT(error_of(module_of({entry_point})), HasSubstr("'main' has no workgroup size"));
  EXPECT_THAT(error_of(module_of({entry_point, {16, 1, 17, 8, 0, 1}})), HasSubstr("no threads"));
  EXPECT_THAT(error_of(module_of({entry_point, {331, 1, 38, 10, 11, 12}})), HasSubstr("id 10"));
  EXPECT_THAT(error_of(module_of({entry_point, {71, 20, 11, 25}})), HasSubstr("WorkgroupSize"));
}

TEST(Spirv, BuiltInsTakeTheirSizeFromTheLaunch) {
  for (const Builtin& builtin : builtins()) {
    if (!builtin.kernels.empty()) continue;  // a program of several kernels knows their size
    const std::string code = compile_glsl(source_of(builtin, Backend::vulkan));
    EXPECT_NO_THROW(check_valid_spirv(code)) << builtin.name;
    const auto shaders = shaders_of(code);
    ASSERT_EQ(shaders.size(), 1U) << builtin.name;
    EXPECT_EQ(shaders[0].function, "main");
    EXPECT_TRUE(shaders[0].threads_from_constants) << builtin.name;
  }
}

/// A short stand-in for the fuzz target: damaged modules are refused or read, and never touch foreign memory.
TEST(Spirv, DamagedModules) {
  const std::string whole = compile_glsl(source_of(*find_builtin("identity"), Backend::vulkan));
  std::mt19937 random(3);
  for (int i = 0; i < 2000; ++i) {
    std::string damaged = whole.substr(0, i % 2 == 0 ? whole.size() : random() % whole.size() / 4 * 4);
    for (int j = 0; j < 3 && !damaged.empty(); ++j) damaged[random() % damaged.size()] = static_cast<char>(random());
    damaged.shrink_to_fit();
    try {
      static_cast<void>(parse_spirv(damaged));
      check_valid_spirv(damaged);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::compile);
    }
  }
}

}  // namespace
}  // namespace gpumap
