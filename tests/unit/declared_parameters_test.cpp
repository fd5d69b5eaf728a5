// SPDX-License-Identifier: MIT
// The lines `params`, `table`, `history`, `…tensor` and `analytics` of a kernel of the user's, and the text of the
// property `params`: numbers, limits, errors, and how numbers get into a frame.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <random>

#include "gpumap/declaration.hpp"
#include "gpumap/error.hpp"
#include "gpumap/kernel.h"
#include "gpumap/kernel.hpp"
#include "test_helpers.hpp"

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

// The text of `params`: numbers and lists, errors that name the column, values laid out over what a kernel declares.

using ::testing::Pair;

std::string error_in(std::string_view text) {
  return error_of([&] { return parse_parameters(text); });
}

TEST(Parameters, NumbersAndLists) {
  EXPECT_THAT(parse_parameters(""), ElementsAre());
  EXPECT_THAT(parse_parameters("  "), ElementsAre());
  EXPECT_THAT(parse_parameters("gain=2.5,taps=[1,-2,3e2]"),
              ElementsAre(Pair("gain", ElementsAre(2.5)), Pair("taps", ElementsAre(1.0, -2.0, 300.0))));
  EXPECT_THAT(parse_parameters(" a_1 = [ 1 ,\t2 ] , b-c=.5 "),
              ElementsAre(Pair("a_1", ElementsAre(1.0, 2.0)), Pair("b-c", ElementsAre(0.5))));
}

TEST(Parameters, ErrorsNameTheColumn) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"gain", "column 5: expected '=' after 'gain', found the end"},
      {"gain=", "column 6: expected a number, found the end"},
      {"gain=x", "column 6: expected a number, found 'x'"},
      {"gain=1 2", "column 8: expected ',' or the end, found '2'"},
      {"gain=1,", "column 8: expected a name, found the end"},
      {",", "column 1: expected a name, found ','"},
      {"2=1", "column 1: expected a name, found '2'"},
      {"€=1", "column 1: expected a name, found '€'"},
      {"gain=\xff", "column 6: expected a number, found '\\xff'"},
      {"a=[1,2", "column 7: expected ',' or ']', found the end"},
      {"a=[]", "column 4: expected a number, found ']'"},
      {"a=1,b=2, a=3", "column 10: 'a' is given twice"},
      {"a=nan", "column 3: the number is not a finite 64-bit float"},
      {"a=-inf", "column 3: the number is not a finite 64-bit float"},
      {"a=1e-999", "column 3: the number is not a finite 64-bit float"},
      {"a=1e999", "column 3: the number is not a finite 64-bit float"},
  };
  for (const auto& [text, message] : cases) EXPECT_THAT(error_in(text), HasSubstr(message)) << text;
  EXPECT_THAT(error_in(std::string_view("a\0=1", 4)), HasSubstr("column 2"));
}

TEST(Parameters, NoMoreThanAKernelGets) {
  std::string text = "a=[0";
  for (int i = 1; i < GPUMAP_MAX_PARAMS; ++i) text += ",0";
  EXPECT_EQ(parse_parameters(text + "]").front().second.size(), GPUMAP_MAX_PARAMS);
  EXPECT_THAT(error_in(text + ",0]"), HasSubstr("more than 64 numbers"));
}

TEST(Parameters, LaidOutOverDefaults) {
  const Builtin& convert = *find_builtin("convert");
  std::array<float, GPUMAP_MAX_PARAMS> params;
  params.fill(7.0F);
  apply_parameters(convert, "", params);
  EXPECT_THAT(std::vector(params.begin(), params.begin() + 7), ElementsAre(0, 0, 0, 1, 1, 1, 0));
  apply_parameters(convert, "scale=[2,3,4]", params);
  EXPECT_THAT(std::vector(params.begin(), params.begin() + 7), ElementsAre(0, 0, 0, 2, 3, 4, 0));
}

// float32 ends to be exact at 16777216.
TEST(Parameters, HertzStayWhatTheyAre) {
  std::array<double, GPUMAP_MAX_PARAMS> params{};
  apply_parameters(*find_builtin("ddc"), "rate=20000001,frequency=123456789.125", params);
  EXPECT_EQ(params[1], 20000001.0);
  EXPECT_EQ(params[0], 123456789.125);
  EXPECT_EQ(params[4], 80.0);
}

TEST(Parameters, UnknownNamesAndWrongCountsChangeNothing) {
  const Builtin& convert = *find_builtin("convert");
  std::array<float, GPUMAP_MAX_PARAMS> params;
  params.fill(7.0F);
  for (const auto& [text, message] :
       {std::pair{"mean=1", "'mean' of kernel convert takes 3 numbers, 1 given"},
        {"scale=[1,1,-1e39]", "'scale' of kernel convert: -1e+39 is not a finite 32-bit float"},
        {"gain=1", "kernel convert has no parameter 'gain': it takes mean (3 numbers), scale (3 numbers)"}}) {
    try {
      apply_parameters(convert, text, params);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid);
      EXPECT_THAT(error.what(), HasSubstr(message));
      EXPECT_THAT(error.what(), ::testing::Not(HasSubstr("declare"))) << "which a user cannot, of a built-in";
    }
  }
  EXPECT_THAT(params, ::testing::Each(7.0F));
  EXPECT_THROW(apply_parameters(*find_builtin("identity"), "gain=1", params), Error);
}

// The lines `table` and `history` of a kernel of the user's.

std::string line(const std::string& text) {
  return "// gpumap: " + text + "\n";
}

/// A file with these lines is refused, with these words.
using Refused = std::pair<std::string, const char*>;
void expect_refused(std::initializer_list<Refused> cases) {
  for (const auto& [code, message] : cases) {
    EXPECT_THAT(error_of([&, text = code] { return parse_declaration(text); }), HasSubstr(message)) << code;
  }
}

TEST(DeclaredTables, NameTypeAndCount) {
  const Declaration declaration = parse_declaration(line("table weights float32 256") + line("table a-b_1\tu8") +
                                                    line("table  last   int16  1  ") + line("history 8"));
  ASSERT_EQ(declaration.tables.size(), 3U);
  EXPECT_EQ(declaration.tables[0].name, "weights");
  EXPECT_EQ(declaration.tables[0].type, NumberType::f32);
  EXPECT_EQ(declaration.tables[0].count, 256U);
  EXPECT_EQ(declaration.tables[1].name, "a-b_1");
  EXPECT_EQ(declaration.tables[1].type, NumberType::u8);
  EXPECT_FALSE(declaration.tables[1].count);
  EXPECT_EQ(declaration.tables[2].type, NumberType::i16);
  EXPECT_EQ(declaration.history, 8U);
  EXPECT_EQ(parse_declaration("").history, 0U);
}

TEST(DeclaredTables, LinesThatAreWrong) {
  std::string nine;
  for (int i = 0; i < 9; ++i) nine += line("table t" + std::to_string(i) + " f32");
  expect_refused({
      {line("table weights"), "\"weights\" is no table: write a name, a type and"},
      {line("table we/ights f32"), "is no table"},
      {line("table weights="), "is no table"},
      {line("table =/a"), "is no table"},
      {line("table weights f32 3 4"), "is no table"},
      {line("table weights float"), "no type \"float\": choose one of u8, i8,"},
      {line("table weights f32 0"), "\"0\" is no number of elements: write a whole number from 1 to 268435456"},
      {line("table weights f64 134217729"), "from 1 to 134217728"},
      {line("table weights f32 -1"), "is no number of elements"},
      {line("table weights f32 99999999999999999999"), "is no number of elements"},
      {line("table a f32") + line("table a u8"), "line 2: // gpumap: table \"a\" is declared twice"},
      {nine, "line 9: // gpumap: table: 9 tables: a kernel has at most 8"},
      {line("table"), "table without a value"},
      {line("history 9"), "a history of 9 frames: a kernel sees at most 8; keep what it needs of more in its state"},
      {line("history -1"), "\"-1\" is no number of frames"},
      {line("history 1") + line("history 2"), "history is declared twice"},
  });
}

TEST(DeclaredTables, PathsAreKeptAsTheyAre) {
  const Declaration declaration =
      parse_declaration(line("table weights = /a b/with,comma=sign;c ") + line("table lut f32 3=d"));
  ASSERT_EQ(declaration.tables.size(), 2U);
  EXPECT_EQ(declaration.tables[0], (DeclaredTable{"weights", NumberType::u8, {}, "/a b/with,comma=sign;c"}));
  EXPECT_EQ(declaration.tables[1], (DeclaredTable{"lut", NumberType::f32, 3, "d"}));
}

// The lines `input-tensor`, `output-tensor`, `tensor-group` and `analytics` of a kernel of the user's.

TEST(DeclaredTensors, IdTypeAndDimensions) {
  const Declaration declaration = parse_declaration(
      line("output-tensor Gst.Model.Boxes\tfloat32  1x100?x4") + line("tensor-group ssd-1_out") +
      line("output-tensor b u8 {max(width, height)}x{height/2}?") + line("input-tensor b i64 ?x3x{width}"));
  ASSERT_EQ(declaration.output_tensors.size(), 2U);
  EXPECT_EQ(declaration.output_tensors[0].id, "Gst.Model.Boxes");
  EXPECT_EQ(declaration.output_tensors[0].type, NumberType::f32);
  EXPECT_THAT(
      declaration.output_tensors[0].dims,
      ElementsAre(DeclaredDimension{"1", false}, DeclaredDimension{"100", true}, DeclaredDimension{"4", false}));
  EXPECT_THAT(declaration.output_tensors[1].dims,
              ElementsAre(DeclaredDimension{"max(width, height)", false}, DeclaredDimension{"height/2", true}));
  ASSERT_EQ(declaration.input_tensors.size(), 1U);
  EXPECT_EQ(declaration.tensor_group, "ssd-1_out");
  const std::pair<std::string_view, std::uint64_t> variables[] = {{"width", 37}, {"height", 23}};
  EXPECT_THAT(dims_of(declaration.output_tensors[0], variables), ElementsAre(1, 100, 4));
  EXPECT_THAT(dims_of(declaration.output_tensors[1], variables), ElementsAre(37, 11));
  EXPECT_THAT(dims_of(declaration.input_tensors[0], variables), ElementsAre(0, 3, 37));
  EXPECT_EQ(dims_text(dims_of(declaration.input_tensors[0], variables)), "?x3x37");
}

TEST(DeclaredTensors, LinesThatAreWrong) {
  std::string nine;
  for (int i = 0; i < 9; ++i) nine += line("output-tensor t" + std::to_string(i) + " f32 1");
  expect_refused({
      {line("output-tensor boxes"), "\"boxes\" is no tensor: write an id, a type and dimensions, as in"},
      {line("output-tensor boxes f32"), "is no tensor"},
      {line("output-tensor bo=xes f32 1"), "\"bo=xes\" is no name for a tensor"},
      {line("output-tensor boxes float 1"), "no type \"float\""},
      {line("output-tensor boxes f32 1xx4"), "\"1xx4\" are no dimensions: \"\" is no size: write numbers, or"},
      {line("output-tensor boxes f32 1x?"), "\"?\" is no size"},
      {line("output-tensor boxes f32 1xwidth"), "\"width\" is no size"},
      {line("output-tensor boxes f32 {}"), "\"{}\" is no size"},
      {line("output-tensor boxes f32 1x-4"), "\"-4\" is no size"},
      {line("output-tensor boxes f32 1x1x1x1x1x1x1x1x1"), "tensor \"boxes\" has 9 dimensions: 8 are the most"},
      {line("output-tensor a f32 1") + line("output-tensor a u8 1"),
       "line 2: // gpumap: output-tensor \"a\" is declared twice"},
      {nine, "line 9: // gpumap: output-tensor: 9 output tensors: a kernel has at most 8"},
      {line("tensor-group a b"), "\"a b\" is no name for a tensor"},
      {line("tensor-group a"), "there is none: declare one with the line output-tensor"},
      {line("analytics boxes"), "no analytics \"boxes\": write classification, or detections"},
      {line("analytics classification cat"), "no analytics \"classification cat\""},
      {line("analytics classification"), "declare them with the line results, as in results cat=f32,dog=f32"},
      {line("analytics detections") + line("results cat=f32"), "leave the line results out"},
      {line("analytics detections cat,,dog"), "a name is missing"},
  });
}

TEST(DeclaredTensors, SizesThatAreNone) {
  const auto error_for = [](const std::string& dims, std::uint64_t width) {
    const Declaration declaration = parse_declaration(line("output-tensor t f32 " + dims));
    const std::pair<std::string_view, std::uint64_t> variables[] = {{"width", width}};
    return error_of([&] { return dims_of(declaration.output_tensors[0], variables); });
  };
  EXPECT_THAT(error_for("3x{width/2}", 1), HasSubstr("tensor \"t\": its dimension 1 is 0: it has to be from 1 to"));
  EXPECT_THAT(error_for("{width*width}", 65536), HasSubstr("its dimension 0 is 4294967296"));
  EXPECT_THAT(error_for("{width}x{width}", 32768), HasSubstr("no error"));
  EXPECT_THAT(error_for("{width}x{width}", 32769), HasSubstr("tensor \"t\" has more than 4294967296 bytes"));
  EXPECT_THAT(error_for("{depth}", 1), HasSubstr("tensor \"t\": "));
}

TEST(DeclaredAnalyticsLine, KindAndLabels) {
  EXPECT_FALSE(parse_declaration("").analytics);
  const Declaration detections = parse_declaration(line("analytics detections person, car"));
  EXPECT_EQ(detections.analytics.kind, DeclaredAnalytics::Kind::detections);
  EXPECT_THAT(detections.analytics.labels, ElementsAre("person", "car"));
  EXPECT_TRUE(parse_declaration(line("analytics detections")).analytics.labels.empty());
  const Declaration classes = parse_declaration(line("analytics classification") + line("results cat=f32"));
  EXPECT_EQ(classes.analytics.kind, DeclaredAnalytics::Kind::classification);
}

}  // namespace
}  // namespace gpumap
