// SPDX-License-Identifier: MIT
// Constants of 8 and 16 bits, as shaderc's optimizer makes them of conversions, get the capabilities that they need.
#include "kernel/compile/spirv_constants.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "gpumap/kernel.hpp"
#include "kernel/compile/spirv.hpp"

namespace gpumap {
namespace {

using Words = std::vector<std::uint32_t>;
constexpr std::uint32_t shader = 1, float16 = 9, int16 = 22, int8 = 39;

constexpr std::uint32_t opcode(std::uint32_t length, std::uint32_t op) {
  return length << 16 | op;
}

/// A module that has capability Shader, and behind it these instructions.
std::string module_of(const Words& instructions) {
  Words words{0x07230203, 0x10500, 0, 100, 0, opcode(2, 17), shader};
  words.insert(words.end(), instructions.begin(), instructions.end());
  return {reinterpret_cast<const char*>(words.data()), words.size() * sizeof(std::uint32_t)};
}
std::vector<std::uint32_t> capabilities(const std::string& spirv) {
  auto found = parse_spirv(spirv).capabilities;
  std::sort(found.begin(), found.end());
  return found;
}

const Words type_u8{opcode(4, 21), 1, 8, 0};
const Words type_u16{opcode(4, 21), 2, 16, 0};
const Words type_f16{opcode(3, 22), 3, 16};
const Words type_u32{opcode(4, 21), 4, 32, 0};

Words operator+(Words left, const Words& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}
Words constant(std::uint32_t type) {
  return {opcode(4, 43), type, 50 + type, 9};
}
Words null(std::uint32_t type) {
  return {opcode(3, 46), type, 60 + type};
}

TEST(SpirvConstants, TypesAloneNeedNothing) {
  const std::string spirv = module_of(type_u8 + type_u16 + type_f16 + type_u32 + constant(4));
  EXPECT_EQ(with_capabilities_of_constants(spirv), spirv);
}

TEST(SpirvConstants, EachSizeNeedsItsOwn) {
  const Words types = type_u8 + type_u16 + type_f16 + type_u32;
  EXPECT_EQ(capabilities(with_capabilities_of_constants(module_of(types + constant(1)))), (Words{shader, int8}));
  EXPECT_EQ(capabilities(with_capabilities_of_constants(module_of(types + null(2)))), (Words{shader, int16}));
  EXPECT_EQ(capabilities(with_capabilities_of_constants(module_of(types + constant(3)))), (Words{shader, float16}));
  EXPECT_EQ(capabilities(with_capabilities_of_constants(module_of(types + constant(1) + null(1) + constant(2)))),
            (Words{shader, int16, int8}));
}

TEST(SpirvConstants, WhatIsDeclaredIsNotDeclaredAgain) {
  const std::string spirv = module_of(Words{opcode(2, 17), int8} + type_u8 + constant(1));
  EXPECT_EQ(with_capabilities_of_constants(spirv), spirv);
}

TEST(SpirvConstants, WhatIsNoModuleStaysAsItIs) {
  for (const std::string& broken :
       {std::string(), std::string("abc"), module_of(Words{0}), module_of(Words{opcode(9, 43)})}) {
    EXPECT_EQ(with_capabilities_of_constants(broken), broken);
  }
}

// The header's own stores, with constants.
TEST(SpirvConstants, OfAShaderAreDeclared) {
  const std::string spirv = compile_glsl({.language = Language::glsl,
                                          .name = "constants",
                                          .code = "#version 460\n#include <gpumap.glsl>\nvoid main() "
                                                  "{ store_u8(frame.out_view.plane[0], 9u); }\n",
                                          .function = "main",
                                          .defines = {},
                                          .include_folders = {}});
  EXPECT_EQ(with_capabilities_of_constants(spirv), spirv);
}

// A device without 64-bit floats runs what reads integers: a file that declares doubles, but for one that reads them.
TEST(SpirvConstants, ExactIntegersNeedNoDoubles) {
  const auto needs_doubles = [](const std::string& value) {
    constexpr std::uint32_t float64 = 10;
    KernelSource source;
    source.language = Language::glsl;
    source.name = "numbers.comp";
    source.code =
        "#version 460\n#include <gpumap.glsl>\nvoid main() { store_u32(frame.out_view.plane[0], " + value + "); }";
    const Words found = capabilities(compile_glsl(source));
    return std::find(found.begin(), found.end(), float64) != found.end();
  };
  EXPECT_FALSE(needs_doubles("uint(param_i64(3)) + uint(frame.params[2])"));
  EXPECT_TRUE(needs_doubles("uint(param_f64(3))"));
}

}  // namespace
}  // namespace gpumap
