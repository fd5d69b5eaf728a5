// SPDX-License-Identifier: MIT
// The lines `// gpumap:` of a file: each key, what the built-ins say in them, errors that name the line, and the
// expressions and templates in them.
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

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST(Declaration, EveryKey) {
  const Declaration declaration = parse_declaration(
      "// A file of mine.\n"
      "// gpumap: params gain=2.5,taps=[1,2,3]\r\n"
      "  // gpumap:functions one , other\n"
      "int x; // gpumap: state 99\n"
      "//gpumap: block 32x8\n"
      "// \t gpumap: grid 7\n"
      "// gpumap: shared 4096\n"
      "// gpumap: work quad\n"
      "// gpumap: state 1048576\n"
      "// gpumap: output video/x-raw,format=GRAY8,width={width/2}\n"
      "// gpumap: input video/x-raw,format={GRAY8,NV12}\n"
      "// gpumap: bytes bytes/2\n"
      "// gpumap: launch per-field\n"
      "// gpumap: output-may shorten , drop\n"
      "// gpumap: result-words 4096\n"
      "// gpumap: message my-figures\n"
      "// gpumap: results sharpness=f32, count=u64,a=i64,b=f64");
  ASSERT_EQ(declaration.params.size(), 2U);
  EXPECT_EQ(declaration.params[0].name, "gain");
  EXPECT_THAT(declaration.params[0].values, ElementsAre(2.5));
  EXPECT_EQ(declaration.params[0].type, NumberType::f32);
  EXPECT_EQ(declaration.params[1].name, "taps");
  EXPECT_THAT(declaration.params[1].values, ElementsAre(1, 2, 3));
  EXPECT_THAT(declaration.functions, ElementsAre("one", "other"));
  EXPECT_THAT(declaration.block, ElementsAre(32, 8, 1));
  EXPECT_THAT(declaration.grid, ElementsAre(7, 1, 1));
  EXPECT_EQ(declaration.shared_bytes, 4096U);
  EXPECT_EQ(declaration.state_bytes, 1048576U) << "a comment behind code declares nothing";
  EXPECT_EQ(declaration.output, "video/x-raw,format=GRAY8,width={width/2}");
  EXPECT_EQ(declaration.input, "video/x-raw,format={GRAY8,NV12}");
  EXPECT_FALSE(declaration.unchanged || declaration.converted || declaration.on_bytes || declaration.takes_none);
  EXPECT_FALSE(declaration.self_clearing);
  EXPECT_EQ(declaration.work, Work::quad);
  EXPECT_EQ(declaration.message, "my-figures");
  EXPECT_TRUE(declaration.per_field);
  EXPECT_EQ(declaration.output_bytes, "bytes/2");
  EXPECT_EQ(declaration.output_may, (OutputMay{.drop = true, .shorten = true}));
  EXPECT_EQ(declaration.result_words, 4096U);
  EXPECT_THAT(declaration.results, ElementsAre(Pair("sharpness", ResultType::f32), Pair("count", ResultType::u64),
                                               Pair("a", ResultType::i64), Pair("b", ResultType::f64)));
  const Declaration looks = parse_declaration("// gpumap: output unchanged\n");
  EXPECT_TRUE(looks.unchanged && looks.output.empty());
  const Declaration none = parse_declaration("// nothing here\n");
  EXPECT_TRUE(none.params.empty() && none.functions.empty() && none.output.empty());
  EXPECT_EQ(none.block[0], 0U);
  EXPECT_FALSE(none.output_may);
  EXPECT_EQ(none.result_words, std::uint32_t{GPUMAP_RESULT_WORDS});
  EXPECT_EQ(parse_declaration("// gpumap: output-may drop").output_may, (OutputMay{.drop = true}));
}

TEST(Declaration, WhatTheBuiltInsSayOfThemselves) {
  const Declaration looks = parse_declaration(
      "// gpumap: params none\n"
      "// gpumap: work chunk\n"
      "// gpumap: view bytes\n"
      "// gpumap: state 16  self-clearing\n"
      "// gpumap: output unchanged\n");
  EXPECT_TRUE(looks.takes_none && looks.params.empty());
  EXPECT_EQ(looks.work, Work::chunk);
  EXPECT_TRUE(looks.on_bytes && looks.unchanged && looks.self_clearing);
  EXPECT_EQ(looks.state_bytes, 16U);
  const Declaration converts = parse_declaration(
      "// gpumap: view format\n// gpumap: work item\n// gpumap: output converted\n// gpumap: launch per-field\n");
  EXPECT_TRUE(converts.converted && converts.output.empty() && !converts.on_bytes && !converts.unchanged);
  EXPECT_EQ(converts.work, Work::item);
  EXPECT_NE(looks, converts);
}

/// A kernel of the user's, what the property `declare` says, and the lines with which a kernel would say both.
struct Declared {
  const char* code;
  const char* declare;
  const char* both;
};

TEST(Declaration, ThePropertyReplacesLinesOfTheSameWord) {
  const Declared cases[] = {
      {"", "", ""},
      {"", "output video/x-raw,format=GRAY8; state 4096",
       "// gpumap: output video/x-raw,format=GRAY8\n// gpumap: state 4096"},
      {"// gpumap: state 16 self-clearing\n// gpumap: grid 3\n", ";; state\t4096 ;;block 7x2;",
       "// gpumap: state 4096\n// gpumap: grid 3\n// gpumap: block 7x2"},
      {"// gpumap: output converted\n// gpumap: history 3", "\r\n  output unchanged\r\n\n\thistory 5\n",
       "// gpumap: output unchanged\n// gpumap: history 5"},
      {"// gpumap: params none", "params gain=2,count:u32=5 in [1,9]", "// gpumap: params gain=2,count:u32=5 in [1,9]"},
      {"// gpumap: params gain=2", "params none", "// gpumap: params none"},
      {"// gpumap: results a=f16", "results a=u64", "// gpumap: results a=u64"},
      // The ';' between caps, in a text and in a path are theirs.
      {"", "input video/x-raw,format=GRAY8;audio/x-raw(memory:A), rate=7; grid 3",
       "// gpumap: input video/x-raw,format=GRAY8;audio/x-raw(memory:A), rate=7\n// gpumap: grid 3"},
      {"", "output application/x-text,say=\"one; state 7\"; state 9",
       "// gpumap: output application/x-text,say=\"one; state 7\"\n// gpumap: state 9"},
      {"", "table t u8=/a;b=c,d e.bin ;table u u16=f",
       "// gpumap: table t u8=/a;b=c,d e.bin\n// gpumap: table u u16=f"},
      // In the order of the source.
      {"// gpumap: table a f32 7\n// gpumap: table b u16", "table b=/b; table a = /a; table c u8=/c",
       "// gpumap: table a f32 7=/a\n// gpumap: table b u16=/b\n// gpumap: table c u8=/c"},
      {"// gpumap: table a f32 7=/old\n", "table a=/new", "// gpumap: table a f32 7=/new"},
      {"// gpumap: table a f32 7=/old\n", "table a u8=/new", "// gpumap: table a u8=/new"},
      {"", "table a=/a;table b=/b", "// gpumap: table a u8=/a\n// gpumap: table b u8=/b"},
      {"// gpumap: output-tensor a f32 1\n// gpumap: output-tensor b f32 2\n// gpumap: input-tensor b u8 3",
       "output-tensor b u8 4;output-tensor c u8 5",
       "// gpumap: output-tensor a f32 1\n// gpumap: output-tensor b u8 4\n// gpumap: output-tensor c u8 5\n"
       "// gpumap: input-tensor b u8 3"},
  };
  for (const auto& [code, declare, both] : cases) {
    EXPECT_EQ(parse_declaration(code, declare), parse_declaration(both)) << code << " and " << declare;
  }
}

TEST(Declaration, ErrorsNameTheProperty) {
  const std::pair<const char*, const char*> cases[] = {
      {"state 4096; grdi 3", "declare: no declaration \"grdi\": write one of params, functions"},
      {"grid 3y", "declare: grid: \"3y\" is no dimension, as in 32x8: write a whole number from 1"},
      {"state 4096, grid 3", "declare: state: no state \"grid 3\": write self-clearing"},
      {"output", "declare: output without a value: write it behind the word"},
      {"video/x-raw,format=GRAY8", "declare: no declaration \"video/x-raw,format=GRAY8\""},
      {"state 1;state 2", "declare: state is declared twice"},
      {"table weights f32=/a;table weights=/b", "declare: table \"weights\" is declared twice"},
      {"table speed=/a", "declare: the kernel has no table \"speed\": name one of weights"},
      {"table weights=", "declare: table: \"weights uint32=\" is no table"},
  };
  const std::string code = "// gpumap: table weights uint32\n";
  for (const auto& [declare, message] : cases) {
    EXPECT_THAT(error_of([&, text = declare] { return parse_declaration(code, text); }), HasSubstr(message)) << declare;
  }
  EXPECT_THAT(error_of([] { return parse_declaration("// gpumap: state 1\n\n// gpumap: state 2", "state 3"); }),
              HasSubstr("line 3: // gpumap: state is declared twice"));
  EXPECT_THAT(error_of([] { return parse_declaration("// gpumap: view bytes", "output converted"); }),
              HasSubstr("\"output converted\" is for a kernel that sees pictures"));
}

TEST(Declaration, BytesThatAKernelGives) {
  constexpr OutputMay drop{.drop = true}, shorten{.shorten = true}, both{.drop = true, .shorten = true};
  EXPECT_EQ(bytes_given(drop, "k", 0, 100), std::nullopt);
  EXPECT_EQ(bytes_given(both, "k", 0, 100), std::nullopt);
  EXPECT_EQ(bytes_given(drop, "k", 1, 100), 100U) << "anything but 0 keeps it whole";
  EXPECT_EQ(bytes_given(drop, "k", ~0ULL, 100), 100U);
  EXPECT_EQ(bytes_given(shorten, "k", 1, 100), 1U);
  EXPECT_EQ(bytes_given(both, "k", 100, 100), 100U);
  EXPECT_EQ(bytes_given(shorten, "k", 0, 0), 0U) << "an empty frame is whole";
  EXPECT_THAT(error_of([&] { return bytes_given(both, "k", 101, 100); }),
              HasSubstr("kernel k: gives 101 bytes of an output that has 100"));
  EXPECT_THAT(error_of([&] { return bytes_given(shorten, "k", 0, 100); }), HasSubstr("write the line output-may drop"));
}

TEST(Declaration, NamesOfTemplates) {
  EXPECT_THAT(parse_functions("blur<5,2>, sharpen,scale<float, f(1,2)>"),
              ElementsAre("blur<5,2>", "sharpen", "scale<float, f(1,2)>"));
  EXPECT_THAT(parse_declaration("// gpumap: functions blur<5,2>,sharpen").functions,
              ElementsAre("blur<5,2>", "sharpen"));
  EXPECT_THAT(error_of([] { return parse_functions("a,,b<1>"); }), HasSubstr("a name is missing"));
  EXPECT_THAT(parse_names("WIDE=8<<1,NARROW"), ElementsAre("WIDE=8<<1", "NARROW"));
}

TEST(Declaration, ErrorsNameTheLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"\n\n// gpumap: gain 2\n", "line 3: // gpumap: no declaration \"gain\": write one of params, functions"},
      {"// gpumap: params gain\n", "line 1: // gpumap: params: parameters: column 5: expected '='"},
      {"// gpumap: params a[1]=2\n", "\"a[1]\": declare the whole list"},
      {"// gpumap: params\n", "params without a value"},
      {"// gpumap:\n", "no declaration \"\""},
      {"// gpumap: functions a,,b\n", "a name is missing"},
      {"// gpumap: block 32x0\n", "\"0\" is no dimension"},
      {"// gpumap: block 1x2x3x4\n", "more than three dimensions"},
      {"// gpumap: grid 99999999999\n", "is no dimension"},
      {"// gpumap: state -1\n", "\"-1\" is no number of bytes"},
      {"// gpumap: state 16 clean\n", "no state \"clean\": write self-clearing"},
      {"// gpumap: work much\n", "no work \"much\": choose item, quad or chunk"},
      {"// gpumap: view words\n", "no view \"words\": choose format or bytes"},
      {"// gpumap: message 2nd\n", "\"2nd\" is no name for a message"},
      {"// gpumap: message my figures\n", "\"my figures\" is no name for a message"},
      {"// gpumap: view bytes\n// gpumap: output converted\n",
       "\"output converted\" is for a kernel that sees pictures, and this one declares \"view bytes\""},
      {"// gpumap: view bytes\n// gpumap: launch per-field\n",
       "\"launch per-field\" is for a kernel that sees pictures, and this one declares \"view bytes\""},
      {"// gpumap: shared 1k\n", "\"1k\" is no number of bytes"},
      {"// gpumap: launch twice\n", "no launch \"twice\": choose per-frame or per-field"},
      {"// gpumap: results a\n", "\"a\" is no result"},
      {"// gpumap: results a=f16\n", "no result type \"f16\""},
      {"// gpumap: results a=f32,a=u64\n", "\"a\" is named twice"},
      {"// gpumap: output-may drop,drop\n", "drop is there twice"},
      {"// gpumap: output-may grow\n", "an output may not \"grow\": choose drop, shorten"},
      {"// gpumap: tune frequency,sky\n", "\"frequency,sky\" has 2 names: write those of three parameters"},
      {"// gpumap: params frequency:f64=0,sky:f64=0\n// gpumap: tune frequency,sky,center\n",
       "tune names \"center\", and the kernel has no parameter of one number that is called so"},
      {"// gpumap: result-words 31\n", "a result block of 31 words: choose from 32 to 4096"},
      {"// gpumap: result-words 4097\n", "a result block of 4097 words"},
      {"// gpumap: result-words many\n", "\"many\" is no number of words"},
      {"// gpumap: results offset=u64\n", "cannot be named \"offset\""},
      {"// gpumap: results pts=u64\n", "cannot be named \"pts\""},
      {"// gpumap: state 1\n// gpumap: state 2\n", "line 2: // gpumap: state is declared twice"},
  };
  for (const auto& [code, message] : cases) {
    EXPECT_THAT(error_of([&, text = code] { return parse_declaration(text); }), HasSubstr(message)) << code;
  }
  std::string many = "// gpumap: results r=u64";
  for (int i = 0; i < GPUMAP_RESULT_WORDS; ++i) many += ",r" + std::to_string(i) + "=u64";
  EXPECT_THAT(error_of([&] { return parse_declaration(many); }), HasSubstr("33 results named: the block has 32"));
  EXPECT_EQ(parse_declaration(many + "\n// gpumap: result-words 33").results.size(), 33U);
}

TEST(Expression, Arithmetic) {
  const std::pair<std::string_view, std::uint64_t> variables[] = {{"width", 1917}, {"height", 1081}};
  EXPECT_EQ(evaluate("7", variables), 7U);
  EXPECT_EQ(evaluate(" width / 2 ", variables), 958U);
  EXPECT_EQ(evaluate("2+3*4", variables), 14U);
  EXPECT_EQ(evaluate("(2+3)*4-1", variables), 19U);
  EXPECT_EQ(evaluate("width*height*3/2", variables), 1917U * 1081 * 3 / 2);
  EXPECT_EQ(evaluate("20-5-5", variables), 10U);
  EXPECT_EQ(evaluate("width % 2 + 100 % 7 * 3", variables), 1U + 2 * 3);
  EXPECT_EQ(evaluate("min(width,height)+max( width , height )*2", variables), 1081U + 1917 * 2);
  EXPECT_EQ(evaluate("max(min(width, 640), (height+1)%1000)", variables), 640U);
  EXPECT_EQ(expand("w={(width+1)/2},h={height}!", variables), "w=959,h=1081!");
  EXPECT_EQ(expand("none", variables), "none");
}

TEST(Expression, ParametersAreVariables) {
  const std::pair<std::string_view, std::uint64_t> variables[] = {
      {"rate", 48000}, {"params.rate", 8}, {"params.taps[1]", 3}};
  EXPECT_EQ(evaluate("rate/params.rate-params.taps[1]", variables), 5997U);
  EXPECT_THAT(error_of([&] { return evaluate("params.taps[2]", variables); }),
              HasSubstr("no variable 'params.taps[2]' here: there are rate, params.rate, params.taps[1]"));
  EXPECT_THAT(error_of([&] { return evaluate("params.taps[x]", variables); }), HasSubstr("no variable 'params.taps'"));
  EXPECT_THAT(variables_in("audio/x-raw,rate={rate/params.rate},n={min(2,params.taps[1])}"),
              ElementsAre("rate", "params.rate", "min", "params.taps[1]"));
  EXPECT_THAT(variables_in("width=7,height={3}"), ElementsAre());
  const Declaration declaration =
      parse_declaration("// gpumap: params rate=2.75,taps=[-1,3,1e30],big:i64=9007199254740993\n");
  const auto given = [&](const char* text, std::uint64_t most) {
    return parameter_variables(declaration.params, numbers_of(declaration, "mine", text), most);
  };
  EXPECT_THAT(given("", 1000), ElementsAre(Pair("params.rate", 2), Pair("params.taps[0]", 0), Pair("params.taps[1]", 3),
                                           Pair("params.taps[2]", 1000), Pair("params.big", 1000)));
  EXPECT_THAT(given("taps[2]=1e18,rate=0.5", ~0ULL),
              ElementsAre(Pair("params.rate", 0), Pair("params.taps[0]", 0), Pair("params.taps[1]", 3),
                          Pair("params.taps[2]", 1000000000000000000), Pair("params.big", 9007199254740993)));
}

TEST(Expression, ChoicesBetweenTexts) {
  for (const std::uint64_t on : {0, 1, 2}) {
    const std::pair<std::string_view, std::uint64_t> variables[] = {{"on", on}, {"rate", 7}};
    EXPECT_EQ(expand("unit={on ? decibel : power}!", variables), on != 0 ? "unit=decibel!" : "unit=power!");
    EXPECT_EQ(expand("rate={on?{rate*on}:[1,max]}", variables),
              on != 0 ? "rate=" + std::to_string(7 * on) : "rate=[1,max]");
    EXPECT_EQ(expand("{on ? {on-1 ? two : one} : none}", variables), on == 2 ? "two" : on == 1 ? "one" : "none");
    EXPECT_EQ(expand("rate={on ? {7/on} : }", variables), on != 0 ? "rate=" + std::to_string(7 / on) : "rate=")
        << "what is not chosen needs no value";
  }
}

TEST(Expression, Errors) {
  const std::pair<std::string_view, std::uint64_t> variables[] = {{"width", 10}, {"bytes", 5}};
  const std::pair<const char*, const char*> cases[] = {
      {"", "expected a number"},
      {"1+", "column 3: expected a number"},
      {"depth", "no variable 'depth' here: there are width, bytes"},
      {"1/0", "division by zero"},
      {"1%0", "division by zero"},
      {"min", "column 4: expected '('"},
      {"min(1)", "column 6: expected ','"},
      {"max(1,2,3)", "column 8: expected ')'"},
      {"bytes-width", "below zero"},
      {"99999999999999999999", "too large"},
      {"9999999999999*9999999999999", "too large"},
      {"18446744073709551615+1", "too large"},
      {"(1", "expected ')'"},
      {"1 2", "expected an operator"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(error_of([&, expression = text] { return evaluate(expression, variables); }), HasSubstr(message))
        << text;
  }
  EXPECT_THAT(error_of([] { return evaluate("1+x", {}); }), HasSubstr("there is none"));
  EXPECT_THAT(error_of([] { return evaluate(std::string(100000, '('), {}); }), HasSubstr("too many parentheses"));
  std::string minima;
  for (int i = 0; i < 100000; ++i) minima += "min(";
  EXPECT_THAT(error_of([&] { return evaluate(minima, {}); }), HasSubstr("too many parentheses"));
  EXPECT_THAT(error_of([] { return expand("w={1", {}); }), HasSubstr("'{' without '}'"));
  EXPECT_THAT(error_of([] { return expand("w={1 ? {2} }", {}); }), HasSubstr("'?' without ':'"));
  EXPECT_THAT(error_of([] { return expand("{x ? a : b}", {}); }), HasSubstr("no variable 'x'"));
  std::string before, after;
  for (int i = 0; i < 1000; ++i) before += "{1?", after += ":0}";
  EXPECT_THAT(error_of([&] { return expand(before + "1" + after, {}); }),
              HasSubstr("more than 64 braces within one another"));
}

// The lines `params`, `table`, `history`, `…tensor` and `analytics` of a kernel of the user's, and the text of the
// property `params`: numbers, limits, errors, and how numbers get into a frame.

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
