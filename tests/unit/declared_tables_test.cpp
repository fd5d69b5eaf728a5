// SPDX-License-Identifier: MIT
// The lines `table` and `history` of a kernel of the user's.
#include <gmock/gmock.h>

#include "error_of.hpp"
#include "gpumap/declaration.hpp"
#include "gpumap/error.hpp"
#include "gpumap/kernel.h"

namespace gpumap {
namespace {

using ::testing::HasSubstr;

std::string line(const std::string& text) {
  return "// gpumap: " + text + "\n";
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
  const std::pair<std::string, const char*> cases[] = {
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
  };
  for (const auto& [code, message] : cases) {
    EXPECT_THAT(error_of([&, text = code] { return parse_declaration(text); }), HasSubstr(message)) << code;
  }
}

TEST(DeclaredTables, PathsAreKeptAsTheyAre) {
  const Declaration declaration =
      parse_declaration(line("table weights = /a b/with,comma=sign;c ") + line("table lut f32 3=d"));
  ASSERT_EQ(declaration.tables.size(), 2U);
  EXPECT_EQ(declaration.tables[0], (DeclaredTable{"weights", NumberType::u8, {}, "/a b/with,comma=sign;c"}));
  EXPECT_EQ(declaration.tables[1], (DeclaredTable{"lut", NumberType::f32, 3, "d"}));
}

}  // namespace
}  // namespace gpumap
