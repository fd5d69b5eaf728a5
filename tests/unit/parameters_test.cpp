// SPDX-License-Identifier: MIT
// The text of `params`: numbers and lists, errors that name the column, values laid out over what a kernel declares.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpumap/error.hpp"
#include "gpumap/kernel.hpp"

namespace gpumap {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

std::string error_of(std::string_view text) {
  try {
    static_cast<void>(parse_parameters(text));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid);
    return error.what();
  }
  return "no error";
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
  for (const auto& [text, message] : cases) EXPECT_THAT(error_of(text), HasSubstr(message)) << text;
  EXPECT_THAT(error_of(std::string_view("a\0=1", 4)), HasSubstr("column 2"));
}

TEST(Parameters, NoMoreThanAKernelGets) {
  std::string text = "a=[0";
  for (int i = 1; i < GPUMAP_MAX_PARAMS; ++i) text += ",0";
  EXPECT_EQ(parse_parameters(text + "]").front().second.size(), GPUMAP_MAX_PARAMS);
  EXPECT_THAT(error_of(text + ",0]"), HasSubstr("more than 64 numbers"));
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

}  // namespace
}  // namespace gpumap
