// SPDX-License-Identifier: MIT
// The line `params` of a kernel of the user's: types, limits, and how numbers get into a frame.
#include <gmock/gmock.h>

#include <bit>
#include <limits>
#include <random>

#include "error_of.hpp"
#include "gpumap/declaration.hpp"
#include "gpumap/error.hpp"
#include "gpumap/kernel.hpp"

namespace gpumap {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Declaration declared(const std::string& params) {
  return parse_declaration("// gpumap: params " + params + "\n");
}

/// What a frame gets.
struct Given {
  std::array<float, GPUMAP_MAX_PARAMS> params{};
  std::array<std::uint64_t, GPUMAP_MAX_PARAMS> numbers{};
  [[nodiscard]] std::int64_t whole(std::size_t at) const { return static_cast<std::int64_t>(numbers.at(at)); }
  [[nodiscard]] double real(std::size_t at) const { return std::bit_cast<double>(numbers.at(at)); }
};
Given given(const Declaration& declaration, const std::string& text) {
  Given made;
  apply_declared(declaration, "mine", text, made.params, made.numbers);
  return made;
}

TEST(DeclaredParameters, ByName) {
  const Declaration declaration = declared("gain=2,taps=[1,2,3]");
  Given made;
  const auto apply = [&](const char* text) {
    apply_declared(declaration, "mine", text, made.params, made.numbers);
    return std::vector(made.params.begin(), made.params.begin() + 6);
  };
  EXPECT_THAT(apply(""), ElementsAre(2, 1, 2, 3, 0, 0));
  EXPECT_THAT(apply("taps=[7,8,9],gain=5"), ElementsAre(5, 7, 8, 9, 0, 0));
  EXPECT_THAT(apply("taps[1]=4"), ElementsAre(2, 1, 4, 3, 0, 0)) << "over the initial values, not those of before";
  const std::pair<const char*, const char*> cases[] = {
      {"speed=1", "kernel mine has no parameter 'speed': it takes gain (1 number), taps (3 numbers)"},
      {"taps=1", "'taps' of kernel mine takes 3 numbers, 1 given"},
      {"taps[3]=1", "takes no number 3, it has 3"},
      {"taps[1]=[1,2]", "'taps[1]' of kernel mine takes 1 number, 2 given"},
      {"taps[99999999999999999999]=1", "takes no number"},
      {"gain=1e39",
       "'gain' of kernel mine: 1e+39 is not a finite 32-bit float: give a smaller one, or declare it as f64"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(error_of([&, wrong = text] { return apply(wrong); }), HasSubstr(message));
  }
  EXPECT_THAT(std::vector(made.params.begin(), made.params.begin() + 4), ElementsAre(2, 1, 4, 3));
  EXPECT_EQ(made.real(2), 4.0) << "errors change nothing";
}

TEST(DeclaredParameters, WithoutADeclarationInTheOrderGiven) {
  const Given made = given({}, "a=1,b=[2,16777217.25],c=4");
  EXPECT_THAT(std::vector(made.params.begin(), made.params.begin() + 5), ElementsAre(1, 2, 16777218, 4, 0));
  EXPECT_EQ(made.real(2), 16777217.25) << "exact as a double";
  EXPECT_THAT(error_of([] { return given({}, "a=1e39"); }), HasSubstr("not a finite 32-bit float"));
}

TEST(DeclaredParameters, NoneIsNone) {
  EXPECT_EQ(given(declared("none"), "").params[0], 0.0F);
  EXPECT_THAT(error_of([] { return given(declared("none"), "gain=1"); }),
              HasSubstr("kernel mine has no parameter 'gain': it takes none"));
}

TEST(DeclaredParameters, TypesAndLimits) {
  const Declaration declaration =
      declared("gain=1.5 in [ 0, 4 ] , count : u32=5 in[1,4000000000],at:float64=100e6,taps:i32=[1,-2],big:i64=-7");
  ASSERT_EQ(declaration.params.size(), 5U);
  EXPECT_EQ(declaration.params[0].type, NumberType::f32);
  EXPECT_EQ(declaration.params[0].limits->second, 4);
  EXPECT_EQ(declaration.params[1].name, "count");
  EXPECT_EQ(declaration.params[1].type, NumberType::u32);
  EXPECT_EQ(declaration.params[2].type, NumberType::f64);
  EXPECT_FALSE(declaration.params[2].limits);
  EXPECT_THAT(declaration.params[3].values, ElementsAre(1, -2));
  const Given made =
      given(declaration, "count=3999999999,big=-9007199254740993,at=123456789.015625,taps[0]=-2147483648");
  EXPECT_EQ(made.real(0), 1.5);
  EXPECT_EQ(made.whole(1), 3999999999);
  EXPECT_EQ(made.real(2), 123456789.015625);
  EXPECT_EQ(made.whole(3), -2147483648LL);
  EXPECT_EQ(made.whole(4), -2);
  EXPECT_EQ(made.whole(5), -9007199254740993LL) << "which no double is";
  EXPECT_EQ(made.params[1], 4e9F) << "the nearest float";
  EXPECT_EQ(made.params[4], -2.0F);
}

TEST(DeclaredParameters, EveryNumberOfItsTypeIsExact) {
  const Declaration declaration = declared("a:i64=0,b:u32=0,c:i32=0,d:f64=0");
  std::mt19937_64 random(31);
  for (int i = 0; i < 3000; ++i) {
    // Of all sizes, not only of the largest.
    const auto a = static_cast<std::int64_t>(random()) >> (random() % 64);
    const auto b = static_cast<std::uint32_t>(random() >> (32 + random() % 32));
    const auto c = static_cast<std::int32_t>(static_cast<std::int64_t>(random()) >> (32 + random() % 32));
    const auto bits = random();
    const auto d = std::bit_cast<double>(bits);
    if (!std::isnormal(d)) continue;
    const NamedNumbers asked{{"a", {a}}, {"b", {std::int64_t{b}}}, {"c", {c}}, {"d", {d}}};
    const Given made = given(declaration, format_parameters(asked));
    ASSERT_EQ(made.whole(0), a);
    ASSERT_EQ(made.whole(1), b);
    ASSERT_EQ(made.whole(2), c);
    ASSERT_EQ(made.numbers[3], bits) << d;
  }
  const Given ends = given(declaration, "a=-9223372036854775808,b=4294967295,c=-2147483648,d=-1.7976931348623157e308");
  EXPECT_EQ(ends.whole(0), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(ends.real(3), std::numeric_limits<double>::lowest());
  EXPECT_EQ(ends.params[3], -std::numeric_limits<float>::infinity());
  EXPECT_EQ(given(declaration, "a=1e6").whole(0), 1000000) << "a whole number, however it is written";
}

TEST(DeclaredParameters, WhatATypeDoesNotAllowIsRefused) {
  const Declaration declaration = declared("n:i32=0,u:u32=0,l:i64=0,x:f64=0 in [-1,1],m:u32=5 in [1,100],f=1 in [0,2]");
  const std::pair<const char*, const char*> cases[] = {
      {"n=2.5", "'n' of kernel mine: 2.5 is not a whole number from -2147483648 to 2147483647 (i32): give one that is"},
      {"n=2147483648", "2147483648 is not a whole number from"},
      {"n=-2147483649", "-2147483649 is not a whole number from"},
      {"n=1e300", "1e+300 is not a whole number from"},
      {"u=-1", "-1 is not a whole number from 0 to 4294967295 (u32)"},
      {"u=4294967296", "4294967296 is not a whole number"},
      {"l=9223372036854775808", "is not a whole number from -9223372036854775808 to 9223372036854775807 (i64)"},
      {"l=0.1", "0.1 is not a whole number"},
      {"x=1.0000001", "'x' of kernel mine: 1.0000001 is not from -1 to 1: give a number that is"},
      {"m=0", "0 is not a whole number from 1 to 100 (u32)"},
      {"m=101", "101 is not a whole number from 1 to 100 (u32)"},
      {"m=7.5", "7.5 is not a whole number from 1 to 100 (u32)"},
      {"f=-0.5", "-0.5 is not from 0 to 2"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(error_of([&, wrong = text] { return given(declaration, wrong); }), HasSubstr(message)) << text;
  }
}

TEST(DeclaredParameters, LinesThatAreWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"a:u7=1", "no type \"u7\": choose one of u8,"},
      {"a:=1", "no type \"\""},
      {"a:u64=1", "a parameter cannot be a u64: choose f32, f64, i32, u32 or i64"},
      {"a:u8=1", "a parameter cannot be a u8"},
      {"a:u32=1.5", "'a': 1.5 is not a whole number"},
      {"a=5 in [0,4]", "'a': 5 is not from 0 to 4"},
      {"a=5 in [4]", "\"[4]\": write the least and the most, as in [0,100]"},
      {"a=5 in [9,1]", "\"[9,1]\": write the least and the most"},
      {"a=5 in [1,2,3]", "write the least and the most"},
      {"a:u32=5 in [-1,9]", "'a' in: -1 is not a whole number from 0 to 4294967295"},
      {"a:i32=5 in [0,9.5]", "'a' in: 9.5 is not a whole number"},
      {"a=5 in 1", "column 5: expected ',' or the end, found 'i'"},
      {"a:u32=1,a=2", "column 9: 'a' is given twice"},
      {"a:i64=[1,2], taps[1]=3", "declare the whole list"},
      {"a:i32", "column 2: expected '=' after 'a', found ':'"},
      {"a=1e39", "'a': 1e+39 is not a finite 32-bit float: give a smaller one, or declare it as f64"},
  };
  for (const auto& [line, message] : cases) {
    EXPECT_THAT(error_of([&, wrong = line] { return declared(wrong); }), HasSubstr(message)) << line;
  }
}

TEST(DeclaredParameters, TextParsesAsItWas) {
  const NamedNumbers parameters{{"a", {0.1, -1e-20, -0.0}},
                                {"b-c", {3, 9007199254740993LL, std::numeric_limits<std::int64_t>::min()}},
                                {"d[2]", {2147483647}},
                                {"e", {16777217.015625, 1e300}}};
  EXPECT_EQ(parse_parameters(format_parameters(parameters)), parameters);
  EXPECT_TRUE(std::signbit(parse_parameters(format_parameters(parameters)).front().second[2].value()));
  EXPECT_EQ(format_parameters({}), "");
}

TEST(Number, WholeNumbersAreToldFromOthers) {
  EXPECT_EQ(Number(5.0), Number(5));
  EXPECT_EQ(Number(5.0).whole(), 5);
  EXPECT_FALSE(Number(5.5).whole());
  EXPECT_FALSE(Number(1e17).whole()) << "as a double it may have been rounded";
  EXPECT_FALSE(Number(std::numeric_limits<double>::quiet_NaN()).whole());
  EXPECT_FALSE(Number(9007199254740993LL) == Number(9007199254740992LL)) << "one double, two numbers";
  EXPECT_EQ(parse_number_type("uint16"), NumberType::u16);
  EXPECT_EQ(bytes_of(NumberType::f16), 2U);
}

}  // namespace
}  // namespace gpumap
