// SPDX-License-Identifier: MIT
// What built-ins say of themselves, in the lines that users write too.
#include <gmock/gmock.h>

#include <algorithm>

#include "backend_bench.hpp"
#include "gpumap/declaration.hpp"
#include "gpumap/error.hpp"
#include "gpumap/kernel.hpp"
#include "gpumap/program.hpp"
#include "two_files.hpp"

namespace gpumap {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

#ifndef GPUMAP_TEST_GPU  // these need none

TEST(DeclaredBuiltins, SayTheSameInBothLanguages) {
  for (const Builtin& builtin : builtins()) {
    EXPECT_EQ(parse_declaration(builtin.cuda), parse_declaration(builtin.glsl)) << builtin.name;
    EXPECT_EQ(declaration_of(builtin), parse_declaration(builtin.cuda)) << builtin.name;
  }
}

// One that declares no parameters would take any.
TEST(DeclaredBuiltins, TakeTheirParametersAlone) {
  for (const Builtin& builtin : builtins()) {
    const Declaration declaration = declaration_of(builtin);
    EXPECT_NE(declaration.params.empty(), !declaration.takes_none) << builtin.name;
  }
}

TEST(DeclaredBuiltins, LaunchAsTheyDeclare) {
  EXPECT_EQ(source_of(*find_builtin("identity"), Backend::cuda).work, Work::chunk);
  EXPECT_EQ(source_of(*find_builtin("convert"), Backend::vulkan).work, Work::quad);
  EXPECT_EQ(source_of(*find_builtin("iq-power"), Backend::vulkan).work, Work::item);
}

#endif

// All that makes a built-in of brighter.cu and brighter.comp is its row in meson.build: `--builtin brighter=brighter`.
class TwoFilesTest : public BackendTest {};

TEST_P(TwoFilesTest, AreABuiltIn) {
  ASSERT_EQ(std::size(embedded::builtin_texts), 1U);
  const embedded::BuiltinText& text = embedded::builtin_texts[0];
  const Builtin builtin{.name = text.name, .cuda = text.cuda, .glsl = text.glsl};
  const Declaration declaration = declaration_of(builtin);
  EXPECT_EQ(declaration, parse_declaration(builtin.glsl));
  EXPECT_EQ(declaration.message, "brighter-bytes");
  EXPECT_THAT(declaration.results, ElementsAre(Pair("count", ResultType::u64)));
  EXPECT_EQ(source_of(builtin, GetParam()).work, Work::chunk);

  const auto program = Program::load(bench_->device(), builtin, GetParam());
  const auto input = reference::random_bytes(70001, 1);
  for (const auto& [params, by] : {std::pair{"", 5U}, {"by=250", 250U}}) {
    program->set_params(params);
    program->begin({}, {});
    bench_->prepare(input, input.size() + 1);
    gpumap_frame frame{};
    frame.in.plane[0] = bench_->in();
    frame.out.plane[0] = bench_->out();
    frame.in.bytes = frame.out.bytes = input.size();
    frame.result = bench_->result();
    bench_->run(*program, frame);
    std::vector<std::byte> expected(input.size());
    std::transform(input.begin(), input.end(), expected.begin(), [&, more = by](std::byte byte) {
      return static_cast<std::byte>(std::to_integer<unsigned>(byte) + more);
    });
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), bench_->output())) << params;
    EXPECT_EQ(bench_->output()[input.size()], poison);
    EXPECT_EQ(bench_->result_word(0), input.size());
  }
  EXPECT_THROW(program->set_params("by=256"), Error);
}

GPUMAP_ON_BACKENDS(TwoFilesTest);

}  // namespace
}  // namespace gpumap
