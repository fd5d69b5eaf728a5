// SPDX-License-Identifier: MIT
// The lines `input-tensor`, `output-tensor`, `tensor-group` and `analytics` of a kernel of the user's.
#include <gmock/gmock.h>

#include "error_of.hpp"
#include "gpumap/declaration.hpp"
#include "gpumap/error.hpp"

namespace gpumap {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string line(const std::string& text) {
  return "// gpumap: " + text + "\n";
}

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
  const std::pair<std::string, const char*> cases[] = {
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
  };
  for (const auto& [code, message] : cases) {
    EXPECT_THAT(error_of([&, text = code] { return parse_declaration(text); }), HasSubstr(message)) << code;
  }
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
