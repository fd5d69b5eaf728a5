// SPDX-License-Identifier: MIT
// What a kernel is handed beside its frame: exact numbers, tables from files, and the frames before. In GLSL on
// whatever Vulkan driver there is; on a GPU in CUDA C++ too.
#include <gmock/gmock.h>

#include <bit>
#include <cstring>
#include <fstream>
#include <thread>

#include "backend_bench.hpp"
#include "gpumap/error.hpp"
#include "gpumap/frame_history.hpp"
#include "gpumap/tables.hpp"
#include "temporary_folder.hpp"

namespace gpumap {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

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

#ifdef GPUMAP_TEST_GPU
const bool needs_gpu = (BackendTest::accept_software = false, true);
INSTANTIATE_TEST_SUITE_P(Gpu, ProgramInputsTest, ::testing::Values(Backend::cuda, Backend::vulkan));
#else
INSTANTIATE_TEST_SUITE_P(Vulkan, ProgramInputsTest, ::testing::Values(Backend::vulkan));
#endif

}  // namespace
}  // namespace gpumap
