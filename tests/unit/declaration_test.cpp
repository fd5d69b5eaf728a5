// SPDX-License-Identifier: MIT
// The lines `// gpumap:` of a file: each key, what the built-ins say in them, errors that name the line, and the
// expressions and templates in them.
#include "gpumap/declaration.hpp"

#include <gmock/gmock.h>

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

}  // namespace
}  // namespace gpumap
