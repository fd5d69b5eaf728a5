// SPDX-License-Identifier: MIT
// What a program does beyond one launch of a kernel: state, sequences of functions, shapes, macros and includes. In
// GLSL on whatever Vulkan driver there is; on a GPU in CUDA C++ too.
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend_bench.hpp"
#include "builtin_reference.hpp"
#include "gpumap/declaration.hpp"
#include "gpumap/error.hpp"
#include "gpumap/kernel.hpp"
#include "gpumap/kernel_launcher.hpp"
#include "gpumap/program.hpp"
#include "gpumap/tables.hpp"
#include "temporary_folder.hpp"
#include "test_helpers.hpp"
#include "two_files.hpp"

namespace gpumap {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// The same kernel for both backends: `cuda` and `glsl` are the bodies of functions, by name.
struct Function {
  const char* name;
  const char* cuda;
  const char* glsl;
};

class ProgramTest : public BackendTest {
 protected:
  [[nodiscard]] static KernelSource source(std::initializer_list<Function> functions, const std::string& head = {}) {
    const bool cuda = GetParam() == Backend::cuda;
    KernelSource made;
    made.language = cuda ? Language::cuda : Language::glsl;
    made.name = cuda ? "program.cu" : "program.comp";
    made.code = cuda ? "#include <gpumap/kernel.h>\n" : "#version 460\n#include <gpumap.glsl>\n";
    made.code += head;
    for (const auto& [name, in_cuda, in_glsl] : functions) {
      made.code +=
          cuda ? std::string("extern \"C\" __global__ void ") + name + "(gpumap_frame frame) {\n" +
                     "  unsigned x = blockIdx.x * blockDim.x + threadIdx.x;\n" + in_cuda + "\n}\n"
               : std::string("void ") + name + "() {\n  uint x = gl_GlobalInvocationID.x;\n" + in_glsl + "\n}\n";
    }
    return made;
  }

  /// Runs on `input` words, and gives as many back.
  std::vector<std::uint32_t> run(Program& program, const std::vector<std::uint32_t>& input) {
    const std::size_t bytes = input.size() * sizeof(std::uint32_t);
    bench_->prepare(std::as_bytes(std::span(input)), bytes);
    gpumap_frame frame{};
    frame.in.plane[0] = bench_->in();
    frame.out.plane[0] = bench_->out();
    frame.in.format = frame.out.format = GPUMAP_FORMAT_F32;  // four bytes an item
    frame.in.bytes = frame.out.bytes = bytes;
    frame.result = bench_->result();
    program.run(*queue(), frame);
    EXPECT_EQ(queue()->submit().wait_for(std::chrono::seconds(60)), WaitResult::ready);
    std::vector<std::uint32_t> output(input.size());
    std::memcpy(output.data(), bench_->output(), bytes);
    return output;
  }

  Queue* queue() {
    if (!queue_) queue_ = bench_->device()->create_queue(GetParam());
    return queue_.get();
  }

  static constexpr Function add{
      "add", "((unsigned*)frame.out.plane[0])[x] = ((unsigned*)frame.in.plane[0])[x] + 5;",
      "store_u32(frame.out_view.plane[0] + 4 * x, load_u32(frame.in_view.plane[0] + 4 * x) + 5u);"};
  static constexpr Function triple{
      "triple", "((unsigned*)frame.out.plane[0])[x] = ((unsigned*)frame.in.plane[0])[x] * 3;",
      "store_u32(frame.out_view.plane[0] + 4 * x, load_u32(frame.in_view.plane[0] + 4 * x) * 3u);"};
  /// Adds up what it was given, in the state.
  static constexpr Function sum{
      "sum",
      "unsigned* s = (unsigned*)frame.state; s[x] += ((unsigned*)frame.in.plane[0])[x];"
      "((unsigned*)frame.out.plane[0])[x] = s[x] + (unsigned)frame.state_bytes;",
      "uint64_t s = frame.state + 4 * x; store_u32(s, load_u32(s) + load_u32(frame.in_view.plane[0] + 4 * x));"
      "store_u32(frame.out_view.plane[0] + 4 * x, load_u32(s) + uint(frame.state_bytes));"};

 private:
  std::unique_ptr<Queue> queue_;
};

/// One thread for each of these words.
std::vector<std::uint32_t> words() {
  std::vector<std::uint32_t> made(256);
  for (std::uint32_t i = 0; i < made.size(); ++i) made[i] = i * 2654435761U;
  return made;
}

std::vector<std::uint32_t> map(std::vector<std::uint32_t> values, auto function) {
  for (std::uint32_t& value : values) value = function(value);
  return values;
}

TEST_P(ProgramTest, FunctionsRunOneAfterTheOther) {
  Declaration declaration;
  for (const auto& [functions, expected] :
       {std::pair{std::vector<std::string>{"add", "triple"}, map(words(), [](auto v) { return (v + 5) * 3; })},
        {{"triple", "add", "add", "triple"}, map(words(), [](auto v) { return (v * 3 + 10) * 3; })},
        {{"triple"}, map(words(), [](auto v) { return v * 3; })}}) {
    declaration.functions = functions;
    const auto program = Program::load(bench_->device(), source({add, triple}), declaration);
    EXPECT_EQ(run(*program, words()), expected);
    EXPECT_EQ(run(*program, words()), expected) << "again";
  }
  declaration.functions = {"add", "nothing"};
  EXPECT_THROW((void)Program::load(bench_->device(), source({add, triple}), declaration), Error);
}

// As a GstVideoMeta may say: a producer's planes lie in any order.
TEST_P(ProgramTest, WhatLiesBetweenFunctionsHasRoomForAPlaneBeforeTheFirst) {
  constexpr std::size_t words_apart = std::size_t{1} << 20U;
  constexpr std::size_t count = 256, bytes = (words_apart + count) * sizeof(std::uint32_t);
  const Function both{
      "both",
      "for (int p = 0; p < 2; ++p)"
      "  ((unsigned*)frame.out.plane[p])[x] = ((unsigned*)frame.in.plane[p])[x] + 5 + p;",
      "for (uint p = 0u; p < 2u; ++p)"
      "  store_u32(frame.out_view.plane[p] + 4 * x, load_u32(frame.in_view.plane[p] + 4 * x) + 5u + p);"};
  Declaration declaration;
  declaration.functions = {"both", "both", "both"};
  const auto program = Program::load(bench_->device(), source({both}), declaration);
  std::vector<std::uint32_t> sent(words_apart + count, 1);
  bench_->prepare(std::as_bytes(std::span(sent)), bytes);
  gpumap_frame frame{};
  frame.in.format = frame.out.format = GPUMAP_FORMAT_F32;
  frame.in.bytes = frame.out.bytes = count * sizeof(std::uint32_t);
  frame.in.plane[1] = bench_->in();
  frame.out.plane[1] = bench_->out();
  frame.in.plane[0] = frame.in.plane[1] + words_apart * sizeof(std::uint32_t);
  frame.out.plane[0] = frame.out.plane[1] + words_apart * sizeof(std::uint32_t);
  frame.result = bench_->result();
  program->run(*queue(), frame);
  ASSERT_EQ(queue()->submit().wait_for(std::chrono::seconds(60)), WaitResult::ready);
  std::vector<std::uint32_t> given(sent.size());
  std::memcpy(given.data(), bench_->output(), bytes);
  EXPECT_EQ(std::count(given.begin(), given.begin() + count, 1U + 3 * 6), count);
  EXPECT_EQ(std::count(given.end() - count, given.end(), 1U + 3 * 5), count);
}

/// Bytes of this process that are in memory.
std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// What lies between two functions grows with the frames, and what it outgrew goes: here that is memory of the process.
TEST_P(ProgramTest, FramesThatGrowLeaveNothingBehind) {
  Declaration declaration;
  declaration.functions = {"add", "triple", "add"};
  const auto program = Program::load(bench_->device(), source({add, triple}), declaration);
  std::size_t before = 0;
  for (std::size_t number = 0; number < 150; ++number) {
    std::vector<std::uint32_t> in(250'000 + 4096 * number);
    std::mt19937 random(static_cast<unsigned>(number));
    std::ranges::generate(in, std::ref(random));
    const auto out = run(*program, in);
    for (const std::size_t at : {std::size_t{0}, in.size() / 2, in.size() - 1}) {
      ASSERT_EQ(out[at], (in[at] + 5) * 3 + 5) << "word " << at << " of frame " << number;
    }
    if (number == 10) before = resident_bytes();
  }
  // All of them, of two pieces each, would be 450 MB and more. A sanitizer keeps what is freed.
  if (!sanitized) {
    EXPECT_LT(resident_bytes(), before + (std::size_t{100} << 20));
  }
}

TEST_P(ProgramTest, RemembersByItsStateUnlessThatClearsItself) {
  const auto remembers = [&](const std::string& lines) {
    Declaration declaration = parse_declaration(lines);
    declaration.functions = {"add"};
    return Program::load(bench_->device(), source({add}), declaration)->remembers();
  };
  EXPECT_FALSE(remembers(""));
  EXPECT_TRUE(remembers("// gpumap: state 16"));
  EXPECT_FALSE(remembers("// gpumap: state 16 self-clearing"));
}

// Which is declared, and counts where a grid is chosen for it.
TEST_P(ProgramTest, AThreadTakesAsMuchAsIsDeclared) {
  gpumap_frame frame{};
  frame.in.bytes = frame.out.bytes = std::size_t{1} << 20;
  const auto threads_for = [&](const std::string& line) {
    KernelSource of = source({add});
    if (GetParam() == Backend::vulkan) of.function = "add";
    declare_launch(of, parse_declaration(line));
    const Grid grid = Kernel::load(bench_->device(), of)->grid_for(frame);
    return std::uint64_t{grid.blocks[0]} * grid.blocks[1] * grid.threads[0] * grid.threads[1];
  };
  EXPECT_EQ(threads_for(""), frame.in.bytes);
  EXPECT_EQ(threads_for("// gpumap: work chunk"), frame.in.bytes / 128);
}

TEST_P(ProgramTest, StateIsKeptUntilAStreamBegins) {
  Declaration declaration;
  declaration.functions = {"sum"};
  declaration.state_bytes = 4 * 256 + 3;
  const auto program = Program::load(bench_->device(), source({sum}), declaration);
  for (int stream = 0; stream < 2; ++stream) {
    program->begin({}, {});
    for (std::uint32_t frame = 1; frame <= 3; ++frame) {
      EXPECT_EQ(run(*program, words()), map(words(), [&](auto v) { return v * frame + 1027; })) << stream << frame;
    }
  }
}

TEST_P(ProgramTest, GridAndBlockAreThoseAskedFor) {
  const Function shape{
      "shape",
      "if (threadIdx.x == 0 && threadIdx.y == 0 && blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0) {"
      "  unsigned* o = (unsigned*)frame.out.plane[0];"
      "  o[0] = gridDim.x; o[1] = gridDim.y; o[2] = gridDim.z; o[3] = blockDim.x; o[4] = blockDim.y; o[5] = "
      "blockDim.z; }",
      "if (gl_GlobalInvocationID == uvec3(0)) { uint64_t o = frame.out_view.plane[0];"
      "  for (uint i = 0; i < 3; ++i) { store_u32(o + 4 * i, gl_NumWorkGroups[i]); store_u32(o + 12 + 4 * i, "
      "gl_WorkGroupSize[i]); } }"};
  KernelSource asked = source({shape});
  asked.grid = {3, 5, 2};
  asked.block = {16, 4, 1};
  Declaration declaration;
  declaration.functions = {"shape"};
  const auto program = Program::load(bench_->device(), asked, declaration);
  auto found = run(*program, words());
  found.resize(6);
  EXPECT_THAT(found, ElementsAre(3, 5, 2, 16, 4, 1));
  asked.block = {4096, 4096, 1};
  EXPECT_THROW((void)Program::load(bench_->device(), asked, declaration), Error);
}

TEST_P(ProgramTest, SharedMemoryIsCudas) {
  const Function reverse{
      "reverse",
      "extern __shared__ unsigned block[]; block[threadIdx.x] = ((unsigned*)frame.in.plane[0])[x]; __syncthreads();"
      "((unsigned*)frame.out.plane[0])[x] = block[blockDim.x - 1 - threadIdx.x];",
      "store_u32(frame.out_view.plane[0], x);"};
  KernelSource asked = source({reverse});
  asked.shared_bytes = 60000;  // more than goes without asking
  asked.block = {256, 1, 1};
  Declaration declaration;
  declaration.functions = {"reverse"};
  if (GetParam() == Backend::vulkan) {
    try {
      (void)Program::load(bench_->device(), asked, declaration);
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::not_supported);
      EXPECT_THAT(error.what(), HasSubstr("declare a shared array"));
    }
    return;
  }
  auto expected = words();
  std::reverse(expected.begin(), expected.end());
  EXPECT_EQ(run(*Program::load(bench_->device(), asked, declaration), words()), expected);
}

TEST_P(ProgramTest, MacrosAndIncludedFiles) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "mine.h") << "#define SEVEN 7u\n";
  const Function constants{"constants", "((unsigned*)frame.out.plane[0])[x] = SEVEN + RADIUS + FLAG;",
                           "store_u32(frame.out_view.plane[0] + 4 * x, SEVEN + RADIUS + FLAG);"};
  KernelSource asked = source({constants}, "#include \"mine.h\"\n");
  asked.include_folders = {"/nowhere", folder.path()};
  asked.defines = {"RADIUS=100u", "FLAG"};
  Declaration declaration;
  declaration.functions = {"constants"};
  const auto program = Program::load(bench_->device(), asked, declaration);
  EXPECT_EQ(run(*program, words()), map(words(), [](auto) { return 108U; }));
  asked.defines = {"RADIUS=200u", "FLAG=0u"};
  EXPECT_EQ(run(*Program::load(bench_->device(), asked, declaration), words()),
            map(words(), [](auto) { return 207U; }));
  std::ofstream(folder.path() / "mine.h") << "#define SEVEN 8u\n";
  EXPECT_EQ(run(*Program::load(bench_->device(), asked, declaration), words()), map(words(), [](auto) { return 208U; }))
      << "what is included has changed";
  asked.include_folders.clear();
  EXPECT_THROW((void)Program::load(bench_->device(), asked, declaration), Error);
}

TEST_P(ProgramTest, DeclaredParametersReachTheKernel) {
  const Function scale{"scale",
                       "((unsigned*)frame.out.plane[0])[x] = (unsigned)(frame.params[0] * 10 + frame.params[3]);",
                       "store_u32(frame.out_view.plane[0] + 4 * x, uint(frame.params[0] * 10 + frame.params[3]));"};
  Declaration declaration;
  declaration.functions = {"scale"};
  declaration.params = {{.name = "gain", .values = {4}}, {.name = "taps", .values = {1, 2, 3}}};
  const auto program = Program::load(bench_->device(), source({scale}), declaration);
  EXPECT_EQ(run(*program, words())[7], 43U);
  program->set_params("taps[2]=8,gain=1");
  EXPECT_EQ(run(*program, words())[7], 18U);
  EXPECT_THROW(program->set_params("nothing=1"), Error);
  EXPECT_EQ(run(*program, words())[7], 18U);
}

GPUMAP_ON_BACKENDS(ProgramTest);

// What a kernel is handed beside its frame: exact numbers, tables from files, and the frames before. In GLSL on
// whatever Vulkan driver there is; on a GPU in CUDA C++ too.

using namespace std::chrono_literals;

class ProgramInputsTest : public BackendTest {
 protected:
  /// One thread that puts 64-bit words out; `cuda` and `glsl` are expressions of `k`, the word's number.
  std::unique_ptr<Program> program(const std::string& declarations, const std::string& cuda, const std::string& glsl,
                                   unsigned words) {
    const std::string count = std::to_string(words);
    KernelSource source;
    if (GetParam() == Backend::cuda) {
      source.language = Language::cuda;
      source.name = "inputs.cu";
      source.code = "#include <gpumap/kernel.h>\n" + declarations +
                    "extern \"C\" __global__ void inputs(gpumap_frame frame) {\n"
                    "  if (blockIdx.x != 0 || threadIdx.x != 0) return;\n"
                    "  for (unsigned k = 0; k < " +
                    count + "; ++k) ((gpumap_u64*)frame.out.plane[0])[k] = (gpumap_u64)(" + cuda + ");\n}\n";
    } else {
      source.language = Language::glsl;
      source.name = "inputs.comp";
      source.code = "#version 460\n#include <gpumap.glsl>\n" + declarations +
                    "void main() {\n"
                    "  if (gpumap_thread() != 0ul) return;\n"
                    "  for (uint k = 0u; k < " +
                    count + "u; ++k) store_u64(frame.out_view.plane[0] + 8ul * k, uint64_t(" + glsl + "));\n}\n";
    }
    const Declaration declaration = parse_declaration(source.code);
    return Program::load(bench_->device(), source, declaration);
  }

  gpumap_frame frame(std::size_t bytes) {
    gpumap_frame made{};
    made.in.plane[0] = bench_->in();
    made.in.bytes = bytes;
    made.out.plane[0] = bench_->out();
    made.out.bytes = bytes;
    made.result = bench_->result();
    return made;
  }
  [[nodiscard]] std::uint64_t word(std::size_t at) const {
    std::uint64_t value = 0;
    std::memcpy(&value, bench_->output() + at * sizeof value, sizeof value);
    return value;
  }
  static void replace(const std::filesystem::path& path, const std::vector<std::uint32_t>& table) {
    const std::filesystem::path other = path.string() + ".new";
    std::ofstream(other, std::ios::binary)
        .write(reinterpret_cast<const char*>(table.data()), static_cast<std::streamsize>(4 * table.size()));
    std::filesystem::rename(other, path);
  }
  static std::vector<std::uint32_t> random_table(std::size_t count, std::uint32_t seed) {
    const auto bytes = reference::random_bytes(count * 4, seed);
    std::vector<std::uint32_t> table(count);
    std::memcpy(table.data(), bytes.data(), bytes.size());
    return table;
  }
  TemporaryFolder folder_;
};

TEST_P(ProgramInputsTest, NumbersAreExact) {
  const auto numbers = program("// gpumap: params a:i64=0,b:f64=0,c:u32=7,d=0.5\n",
                               "k == 0 ? gpumap_param_i64(frame, 0) - 1 : k == 1 ? __double_as_longlong("
                               "gpumap_param_f64(frame, 1) * 3) : k == 2 ? gpumap_param_i64(frame, 2) * 2 : "
                               "(long long)(frame.params[3] * 1000) + (long long)frame.params[2]",
                               "k == 0u ? uint64_t(param_i64(0u) - 1l) : k == 1u ? packUint2x32(unpackDouble2x32("
                               "param_f64(1u) * 3.0)) : k == 2u ? uint64_t(param_i64(2u) * 2l) : "
                               "uint64_t(frame.params[3] * 1000) + uint64_t(frame.params[2])",
                               4);
  numbers->set_params("a=-9223372036854775807,b=123456789.12345678,c=4294967295,d=0.25");
  bench_->prepare({}, 64);
  bench_->run(*numbers, frame(64));
  EXPECT_EQ(word(0), std::uint64_t{1} << 63U);
  EXPECT_EQ(word(1), std::bit_cast<std::uint64_t>(123456789.12345678 * 3));
  EXPECT_EQ(word(2), 2ULL * 4294967295U);
  EXPECT_EQ(word(3), 250U + 4294967296U) << "as floats: rounded";
}

TEST_P(ProgramInputsTest, TablesComeAndAreReplaced) {
  const auto path = folder_.path() / "weights=a,b";
  auto table = random_table(70001, 1);
  replace(path, table);
  const std::string kernel = "inputs";
  Tables tables(bench_->device(), GetParam(), kernel,
                {{.name = "weights", .type = NumberType::u32, .count = {}, .path = path.string()}});
  const auto reader =
      program("", "k == 0 ? frame.tables[0].count : ((unsigned*)frame.tables[0].address)[frame.tables[0].count - k]",
              "k == 0u ? frame.tables[0].count : uint64_t(load_u32(frame.tables[0].address + "
              "4ul * (frame.tables[0].count - uint64_t(k))))",
              8);
  const auto expect_table = [&](const std::vector<std::uint32_t>& expected) {
    bench_->prepare({}, 64);
    gpumap_frame given = frame(64);
    tables.lend(given);
    EXPECT_EQ(given.tables[0].address % 16, 0U);
    bench_->run(*reader, given);
    EXPECT_EQ(word(0), expected.size());
    for (std::size_t k = 1; k < 8; ++k) EXPECT_EQ(word(k), expected[expected.size() - k]) << k;
  };
  expect_table(table);
  const auto refreshed = [&] {
    for (const Deadline end = Clock::now() + 60s; Clock::now() < end;) {
      std::string problem = tables.refresh({});
      gpumap_frame given{};
      tables.lend(given);
      if (!problem.empty() || given.tables[0].count != table.size()) return problem;
      std::this_thread::sleep_for(10ms);
    }
    return std::string("nothing changed");
  };
  const auto next = random_table(33, 2);
  replace(path, next);
  EXPECT_EQ(refreshed(), "");
  expect_table(next);
  table = next;
  std::ofstream(path, std::ios::binary) << "abcde";
  EXPECT_THAT(refreshed(), ::testing::AllOf(HasSubstr("has 5 bytes, no multiple of the 4 that a u32 takes"),
                                            HasSubstr("keeping the previous table")));
  expect_table(next);
}

/// A counter that a test raises.
class HandRaised final : public Timeline {
 public:
  std::uint64_t completed() override { return value; }
  void check() override {}
  std::atomic<std::uint64_t> value{0};
};

// What was launched goes on with what it has: that memory goes when its launches are over, and not before.
TEST_P(ProgramInputsTest, AReplacedTableStaysForWhatWasLaunched) {
  const auto path = folder_.path() / "t";
  replace(path, random_table(100, 1));
  Tables tables(bench_->device(), GetParam(), "inputs",
                {{.name = "t", .type = NumberType::u8, .count = {}, .path = path.string()}});
  gpumap_frame before{};
  tables.lend(before);
  EXPECT_EQ(before.tables[0].count, 400U);
  const auto timeline = std::make_shared<HandRaised>();
  const long users = timeline.use_count();
  replace(path, random_table(50, 2));
  gpumap_frame after = before;
  for (const Deadline end = Clock::now() + 60s; after.tables[0].count == 400 && Clock::now() < end;) {
    EXPECT_EQ(tables.refresh(Fence(timeline, 1)), "");
    tables.lend(after);
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_EQ(after.tables[0].count, 200U);
  EXPECT_NE(after.tables[0].address, before.tables[0].address);
  EXPECT_EQ(timeline.use_count(), users + 1) << "kept with the fence of what was launched";
  EXPECT_EQ(tables.refresh(Fence()), "");
  EXPECT_EQ(timeline.use_count(), users + 1);
  timeline->value = 1;
  EXPECT_EQ(tables.refresh(Fence()), "");
  EXPECT_EQ(timeline.use_count(), users);
}

TEST_P(ProgramInputsTest, TheLastFramesInOrder) {
  FrameHistory history(bench_->device(), GetParam(), 3);
  const auto reader = program("",
                              "k == 0 ? frame.past_count : k > frame.past_count ? 7 : "
                              "*(unsigned*)frame.past[k - 1].plane[0] + (frame.past[k - 1].bytes << 32)",
                              "k == 0u ? uint64_t(frame.past_count) : k > frame.past_count ? 7ul : "
                              "uint64_t(load_u32(frame.past[k - 1u].plane[0])) + (frame.past[k - 1u].bytes << 32)",
                              4);
  const auto queue = bench_->device()->create_queue(GetParam());
  const auto input =
      bench_->device()->allocate({.placement = Placement::host, .bytes = std::size_t{1} << 20U}, GetParam());
  std::vector<std::uint64_t> seen;
  for (std::uint32_t i = 0; i < 30; ++i) {
    if (i == 13) {
      history.forget();
      seen.clear();
    }
    const std::size_t offset = std::size_t{16} * i;  // planes need not begin where the memory does
    const auto bytes = reference::random_bytes(4 + (i * 7919) % 50000, i);
    std::memcpy(input->host() + offset, bytes.data(), bytes.size());
    input->flush(offset, bytes.size());
    bench_->prepare({}, 64);
    gpumap_frame given = frame(64);
    given.in.plane[0] = input->address(GetParam()) + offset;
    given.in.bytes = bytes.size();
    history.lend(given);
    reader->run(*queue, given);
    queue->copy(*input, offset, *history.room(bytes.size()), 0, bytes.size());
    history.add(given.in, given.in.plane[0]);
    ASSERT_EQ(queue->submit().wait_for(60s), WaitResult::ready);
    ASSERT_EQ(word(0), std::min<std::size_t>(seen.size(), 3)) << i;
    for (std::size_t k = 1; k < 4; ++k) {
      ASSERT_EQ(word(k), k <= seen.size() ? seen[seen.size() - k] : 7) << i << ": " << k;
    }
    std::uint32_t first = 0;
    std::memcpy(&first, bytes.data(), sizeof first);
    seen.push_back(first + (std::uint64_t{bytes.size()} << 32U));
  }
}

GPUMAP_ON_BACKENDS(ProgramInputsTest);

// The kernels that the pages print, with the frames that are worst for them: what a reader copies stays within what it
// may write to.

/// Where the pages are: a machine with a GPU may have the programs alone, and names the folder.
std::filesystem::path pages() {
  const char* const named = std::getenv("GPUMAP_PAGES");
  return named != nullptr ? std::filesystem::path(named) : std::filesystem::path(GPUMAP_EXAMPLES).parent_path();
}

/// Each block of a page that is a whole kernel, in GLSL or in CUDA C++.
std::vector<std::string> kernels_of(const std::filesystem::path& page, Backend backend) {
  std::ifstream file(page);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::string opening = backend == Backend::cuda ? "```c++\n" : "```glsl\n";
  std::vector<std::string> made;
  for (std::size_t at = text.find(opening); at != text.npos; at = text.find(opening, at)) {
    at += opening.size();
    const std::size_t end = text.find("```", at);
    std::string code = text.substr(at, end - at);
    if (backend != Backend::cuda || code.find("__global__") != code.npos) made.push_back(std::move(code));
    at = end;
  }
  return made;
}

FrameLayout picture(std::uint32_t format, std::uint32_t width, std::uint32_t height, std::uint32_t pixel_bytes) {
  FrameLayout made;
  made.bytes_per_sample = 0;
  made.view.format = format;
  made.view.width = width;
  made.view.height = height;
  made.view.stride[0] = (width * pixel_bytes + 3) / 4 * 4;
  made.view.bytes = std::uint64_t{made.view.stride[0]} * height;
  return made;
}

/// For a picture of GRAY8, as far as the pages' kernels go.
FrameLayout output_of(const std::string& declared, const FrameLayout& in) {
  const std::uint32_t width = in.view.width, height = in.view.height;
  if (declared.empty()) return in;
  if (declared == "video/x-raw,format=GRAY8,width={width/2},height={height/2}") {
    return picture(GPUMAP_FORMAT_GRAY8, width / 2, height / 2, 1);
  }
  if (declared == "video/x-raw,format=RGBA") return picture(GPUMAP_FORMAT_RGBA, width, height, 4);
  EXPECT_EQ(declared, "application/octet-stream") << "say here what pictures this gives";
  FrameLayout bytes;
  bytes.view.format = GPUMAP_FORMAT_BYTES;
  return bytes;
}

class PageKernels : public BackendTest {};
GPUMAP_ON_BACKENDS(PageKernels);

TEST_P(PageKernels, StayWithinTheirBounds) {
  const TemporaryFolder folder;
  const std::filesystem::path root = pages();
  if (!std::filesystem::exists(root / "lib/kernel")) GTEST_SKIP() << "no pages here: GPUMAP_PAGES names none";
  std::ofstream(folder.path() / "curve.u8") << std::string(256, 'c');
  std::size_t kernels = 0;
  std::vector<std::filesystem::path> files{root / "README.md"};
  for (const auto& entry : std::filesystem::directory_iterator(root / "lib/kernel")) {
    if (entry.path().extension() == ".md") files.push_back(entry.path());
  }
  for (const std::filesystem::path& page : files) {
    for (const std::string& code : kernels_of(page, GetParam())) {
      SCOPED_TRACE(code);
      ++kernels;
      KernelSettings settings;
      settings.location = folder.path() / (GetParam() == Backend::cuda ? "page.cu" : "page.comp");
      settings.backend = GetParam();
      settings.check_bounds = true;
      std::ofstream(settings.location) << code;
      const Declaration declaration = parse_declaration(code);
      if (!declaration.tables.empty()) settings.declare = "table curve=" + (folder.path() / "curve.u8").string();
      KernelLauncher launcher(settings, bench_->device());
      for (const auto& [width, height] : {std::pair{2U, 2U}, {7U, 4099U}, {639U, 481U}}) {
        const FrameLayout layout = picture(GPUMAP_FORMAT_GRAY8, width, height, 1);
        launcher.set_stream(layout, output_of(declaration.output, layout));
        for (const int content : {255, 0, -1}) {
          const std::size_t bytes = layout.view.bytes;
          const auto memory = bench_->device()->allocate({.placement = Placement::host, .bytes = bytes}, GetParam());
          const auto random = reference::random_bytes(bytes, width);
          for (std::size_t i = 0; i < bytes; ++i) {
            memory->host()[i] = content < 0 ? random[i] : static_cast<std::byte>(content);
          }
          memory->flush(0, bytes);
          FrameInput in;
          in.mapping = memory.get();
          in.address = memory->address(GetParam());
          in.view = layout.view;
          in.view.plane[0] = in.address;
          in.bytes = in.picture_bytes = bytes;
          EXPECT_NO_THROW({
            const FrameOutput out = launcher.launch(in, {});
            EXPECT_NE(out.outcome, FrameOutput::Outcome::cancelled);
          }) << width
             << " x " << height << " of " << content;
          launcher.drain();
        }
      }
    }
  }
  EXPECT_GE(kernels, GetParam() == Backend::cuda ? 1U : 7U);
}

// What built-ins say of themselves, in the lines that users write too.

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
