// SPDX-License-Identifier: MIT
// Launches on a GPU with CUDA: by graphs and without them, of several kernels and from several threads, and on a part
// of its multiprocessors. Skipped where there is none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <gpumap/cuda.hpp>
#include <gpumap/device.hpp>
#include <gpumap/error.hpp>
#include <gpumap/kernel.hpp>
#include <gpumap/kernel_launcher.hpp>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>
#include "temporary_folder.hpp"
#include "test_helpers.hpp"

namespace gpumap {
namespace {

using ::testing::HasSubstr;
using Words = std::vector<std::uint64_t>;

class LaunchGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto inventory = take_inventory();
    for (const auto& info : inventory.devices) {
      if (info.access == DeviceAccess::bar && info.cuda_index >= 0) device_ = Device::open(to_string(info.uuid));
      if (device_) return;
    }
    GTEST_SKIP() << "no GPU here has CUDA and a BAR window: Vulkan: " << inventory.vulkan
                 << ". CUDA: " << inventory.cuda;
  }
  [[nodiscard]] std::shared_ptr<Kernel> kernel(const std::string& name, const std::string& body) const {
    KernelSource source;
    source.name = name + ".cu";
    source.code = "#include <gpumap/kernel.h>\nextern \"C\" __global__ void " + name + "(gpumap_frame frame) {\n" +
                  "  gpumap_u64* const out = reinterpret_cast<gpumap_u64*>(frame.out.plane[0]);\n" + body + "}\n";
    return Kernel::load(device_, source);
  }
  /// out[smid] counts blocks, each of which stays long enough for others to go elsewhere.
  [[nodiscard]] std::shared_ptr<Kernel> where() const {
    return kernel("where",
                  "  unsigned smid;\n"
                  "  asm volatile(\"mov.u32 %0, %%smid;\" : \"=r\"(smid));\n"
                  "  if (threadIdx.x == 0) atomicAdd(reinterpret_cast<unsigned long long*>(out + smid), 1ull);\n"
                  "  const long long began = clock64();\n"
                  "  while (clock64() - began < 20000) {\n  }\n");
  }
  [[nodiscard]] std::shared_ptr<Mapping> words(std::size_t count) const {
    auto made = device_->allocate({Placement::device, count * sizeof(std::uint64_t)}, Backend::cuda);
    const auto queue = device_->create_queue(Backend::cuda);
    queue->clear(*made, 0, made->bytes());
    EXPECT_EQ(queue->submit().wait_for(std::chrono::minutes(1)), WaitResult::ready);
    return made;
  }
  static Words read(const Mapping& mapping) {
    Words made(mapping.bytes() / sizeof(std::uint64_t));
    mapping.download(0, std::as_writable_bytes(std::span(made)));
    return made;
  }
  static gpumap_frame frame_of(const Mapping& out, std::uint64_t sequence = 0) {
    gpumap_frame frame{};
    frame.out.plane[0] = out.address(Backend::cuda);
    frame.out.bytes = out.bytes();
    frame.sequence = sequence;
    return frame;
  }
  /// The multiprocessors that many blocks of a queue ran on.
  std::set<std::size_t> used_by(Queue& queue, const Kernel& where) const {
    constexpr unsigned blocks = 4000;
    const auto counts = words(1024);
    queue.launch(where, {.blocks = {blocks, 1, 1}, .threads = {64, 1, 1}}, frame_of(*counts));
    EXPECT_EQ(queue.submit().wait_for(std::chrono::minutes(1)), WaitResult::ready);
    std::set<std::size_t> used;
    std::uint64_t ran = 0;
    const Words counted = read(*counts);
    for (std::size_t i = 0; i < counted.size(); ++i) {
      if (counted[i] != 0) used.insert(i);
      ran += counted[i];
    }
    EXPECT_EQ(ran, blocks);
    return used;
  }

  std::shared_ptr<Device> device_;
};

// The same queue, kernels by turns, many in flight: each has its own frame, in order, whether it takes all of it or
// what GPUMAP_SHORT_FRAME has. Ends are told in order as well.
TEST_F(LaunchGpuTest, EachLaunchHasItsOwnFrameAndKernel) {
  const auto add = kernel("add", "  out[0] = out[0] * 3 + frame.sequence;\n");
  const auto take = kernel("take", "  out[0] = (out[0] ^ frame.sequence) - blockIdx.x;\n");
  const auto far = kernel("far", "  out[0] = out[0] * 5 + frame.sequence + frame.numbers[15] * frame.result_words;\n");
  std::mt19937_64 random(11);
  const auto state = words(1);
  const auto queue = device_->create_queue(Backend::cuda);
  std::uint64_t expected = 0;
  std::vector<Fence> fences;
  for (int i = 0; i < 3000; ++i) {
    const std::uint64_t number = random();
    gpumap_frame frame = frame_of(*state, number);
    frame.numbers[15] = random();
    frame.result_words = 7;
    switch (number % 3) {
      case 0:
        queue->launch(*add, {}, frame);
        expected = expected * 3 + number;
        break;
      case 1:
        queue->launch(*take, {}, frame);
        expected ^= number;
        break;
      default:
        queue->launch(*far, {}, frame);
        expected = expected * 5 + number + frame.numbers[15] * 7;
    }
    if (number % 5 != 0) fences.push_back(queue->submit());
  }
  ASSERT_EQ(queue->submit().wait_for(std::chrono::minutes(1)), WaitResult::ready);
  EXPECT_EQ(read(*state)[0], expected);
  for (const Fence& fence : fences) EXPECT_TRUE(fence.signalled());
}

// Results lie in host memory: who sees the fence sees them, however soon he looks.
TEST_F(LaunchGpuTest, WhoSeesTheEndSeesTheResults) {
  const auto all = kernel("all", "  out[blockIdx.x * blockDim.x + threadIdx.x] = frame.sequence + threadIdx.x;\n");
  const auto turns = [&](unsigned seed) {
    const auto queue = device_->create_queue(Backend::cuda);
    std::mt19937 random(seed);
    for (const unsigned blocks : {1U, 37U}) {
      const std::size_t count = std::size_t{blocks} * 96;
      const auto result = device_->allocate({Placement::host, count * sizeof(std::uint64_t)}, Backend::cuda);
      const auto* const seen = reinterpret_cast<const volatile std::uint64_t*>(result->host());
      for (int i = 0; i < 2000; ++i) {
        const std::uint64_t number = random();
        queue->launch(*all, {.blocks = {blocks, 1, 1}, .threads = {96, 1, 1}}, frame_of(*result, number));
        const Fence done = queue->submit();
        while (!done.signalled()) {
        }
        std::size_t wrong = 0;
        for (std::size_t at = 0; at < count; ++at) wrong += seen[at] != number + at % 96 ? 1 : 0;
        ASSERT_EQ(wrong, 0U) << "launch " << i << " of " << blocks << " blocks";
      }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 3; ++i) threads.emplace_back(turns, i);
  for (std::thread& thread : threads) thread.join();
}

TEST_F(LaunchGpuTest, FaultyGridIsAnErrorAndTheNextRuns) {
  const auto one = kernel("one", "  out[0] += 1;\n");
  const auto count = words(1);
  const auto queue = device_->create_queue(Backend::cuda);
  for (int i = 0; i < 3; ++i) {
    try {
      queue->launch(*one, {.blocks = {1, 1, 1}, .threads = {4096, 1, 1}}, frame_of(*count));
      ADD_FAILURE() << "4096 threads in a block";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid);
      EXPECT_THAT(error.what(), HasSubstr("4096x1x1 threads"));
    }
    queue->launch(*one, {}, frame_of(*count));
  }
  ASSERT_EQ(queue->submit().wait_for(std::chrono::minutes(1)), WaitResult::ready);
  EXPECT_EQ(read(*count)[0], 3U);
}

// A module is unloaded, another one may get its place: the graph must not launch what is gone.
TEST_F(LaunchGpuTest, KernelsComeAndGo) {
  const auto sum = words(1);
  const auto queue = device_->create_queue(Backend::cuda);
  std::uint64_t expected = 0;
  for (unsigned i = 1; i <= 30; ++i) {
    const auto next = kernel("next", "  out[0] += frame.sequence * " + std::to_string(i) + "ull;\n");
    for (unsigned turn = 0; turn < 5; ++turn) {
      queue->launch(*next, {}, frame_of(*sum, turn));
      expected += std::uint64_t{turn} * i;
    }
    ASSERT_EQ(queue->submit().wait_for(std::chrono::minutes(1)), WaitResult::ready);
  }
  EXPECT_EQ(read(*sum)[0], expected);
}

TEST_F(LaunchGpuTest, PrioritiesAreThoseOfTheDriver) {
  const auto one = kernel("one", "  out[0] += 1;\n");
  const auto count = words(1);
  for (const unsigned priority : {1U, 2U}) {
    const auto queue = create_cuda_queue(*device_, {.priority = priority});
    queue->launch(*one, {}, frame_of(*count));
    ASSERT_EQ(queue->submit().wait_for(std::chrono::minutes(1)), WaitResult::ready);
  }
  EXPECT_EQ(read(*count)[0], 2U);
  try {
    static_cast<void>(create_cuda_queue(*device_, {.priority = 1000}));
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid);
    EXPECT_THAT(error.what(), HasSubstr("priority=1000"));
  }
}

TEST_F(LaunchGpuTest, AShareIsKeptTo) {
  std::unique_ptr<Queue> tenth;
  try {
    tenth = create_cuda_queue(*device_, {.sm_share = 0.1});
  } catch (const Error& error) {
    if (error.code() != ErrorCode::not_supported) throw;
    GTEST_SKIP() << error.what();
  }
  const auto looking = where();
  const auto all = used_by(*device_->create_queue(Backend::cuda), *looking);
  ASSERT_GE(all.size(), 20U);
  const auto in_tenth = used_by(*tenth, *looking);
  EXPECT_LE(static_cast<double>(in_tenth.size()), 0.1 * static_cast<double>(all.size()));
  EXPECT_EQ(in_tenth.size(), tenth->multiprocessors());
  const auto half = create_cuda_queue(*device_, {.priority = 1, .sm_share = 0.5});
  const auto in_half = used_by(*half, *looking);
  EXPECT_EQ(in_half.size(), half->multiprocessors());
  EXPECT_LE(2 * in_half.size(), all.size());
  for (const std::size_t one : in_half) EXPECT_EQ(in_tenth.count(one), 0U) << "multiprocessor " << one << " is in both";

  EXPECT_THROW(static_cast<void>(create_cuda_queue(*device_, {.sm_share = 0.6})), Error);
  tenth.reset();
  const auto rest = create_cuda_queue(*device_, {.sm_share = 0.4});
  for (const std::size_t one : used_by(*rest, *looking)) EXPECT_EQ(in_half.count(one), 0U);
}

// Queues with a share and without: each waits for the other on the GPU, and spans and copies work as elsewhere.
TEST_F(LaunchGpuTest, AShareIsInOrderWithOthers) {
  std::unique_ptr<Queue> part;
  try {
    part = create_cuda_queue(*device_, {.sm_share = 0.5});
  } catch (const Error& error) {
    if (error.code() != ErrorCode::not_supported) throw;
    GTEST_SKIP() << error.what();
  }
  const auto whole = device_->create_queue(Backend::cuda);
  const auto step = kernel("step", "  out[0] = out[0] * 5 + frame.sequence;\n");
  const auto state = words(1);
  const auto copy = words(1);
  std::uint64_t expected = 0;
  Fence last;
  for (unsigned i = 0; i < 400; ++i) {
    Queue& queue = i % 2 == 0 ? *part : *whole;
    EXPECT_EQ(queue.wait(last, test::never), WaitResult::ready);
    const auto span = queue.begin_span();
    ASSERT_TRUE(span) << queue.no_span_reason();
    queue.launch(*step, {}, frame_of(*state, i));
    queue.end_span(*span);
    queue.copy(*state, 0, *copy, 0, sizeof(std::uint64_t));
    last = queue.submit();
    expected = expected * 5 + i;
    if (i % 50 != 49) continue;
    ASSERT_EQ(last.wait_for(std::chrono::minutes(1)), WaitResult::ready);
    last.timeline()->check();
    const auto times = span->times();
    if (times) {
      EXPECT_LE(times->began_ns, times->ended_ns);
    }
  }
  ASSERT_EQ(last.wait_for(std::chrono::minutes(1)), WaitResult::ready);
  EXPECT_EQ(read(*state)[0], expected);
  EXPECT_EQ(read(*copy)[0], expected);
  wait_for_cuda_stream(*part, cuda_stream(*whole));
  let_cuda_stream_wait(*part, cuda_stream(*whole));
}

// A whole program on a part: results, parameters, output on the host.
TEST_F(LaunchGpuTest, ALauncherRunsOnItsShare) {
  KernelSettings settings;
  settings.kernel = "checksum";
  settings.backend = Backend::cuda;
  std::map<double, Words> found;
  for (const double share : {0.0, 0.25}) {
    settings.sm_share = share;
    std::unique_ptr<KernelLauncher> launcher;
    try {
      launcher = std::make_unique<KernelLauncher>(settings, device_);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::not_supported) throw;
      GTEST_SKIP() << error.what();
    }
    EXPECT_EQ(launcher->multiprocessors() != 0, share != 0);
    const std::size_t bytes = 123'457;
    const auto memory = device_->allocate({Placement::bar, bytes}, Backend::cuda);
    std::mt19937 random(3);
    for (std::size_t i = 0; i < bytes; ++i) memory->host()[i] = static_cast<std::byte>(random());
    memory->flush(0, bytes);
    launcher->set_stream({}, {});
    FrameInput in;
    in.mapping = memory.get();
    in.address = in.view.plane[0] = memory->address(Backend::cuda);
    in.bytes = in.view.bytes = bytes;
    EXPECT_EQ(launcher->launch(in, {}).outcome, FrameOutput::Outcome::given);
    const auto words = launcher->next_result();
    ASSERT_TRUE(words);
    found[share] = *words;
  }
  EXPECT_EQ(found[0.0], found[0.25]);
}

// A kernel that stayed until frames came that CUDA's streams order has the share still, which is more than half.
TEST_F(LaunchGpuTest, ALauncherKeepsItsShareWhereItIsLaunchedInstead) {
  KernelSettings settings;
  settings.kernel = "checksum";
  settings.backend = Backend::cuda;
  settings.mode = KernelMode::automatic;
  settings.sm_share = 0.6;
  std::unique_ptr<KernelLauncher> launcher;
  try {
    launcher = std::make_unique<KernelLauncher>(settings, device_);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::not_supported) throw;
    GTEST_SKIP() << error.what();
  }
  launcher->set_stream({}, {});
  const std::size_t bytes = 45'679;
  const auto memory = device_->allocate({Placement::bar, bytes}, Backend::cuda);
  std::mt19937 random(5);
  for (std::size_t i = 0; i < bytes; ++i) memory->host()[i] = static_cast<std::byte>(random());
  memory->flush(0, bytes);
  FrameInput in;
  in.mapping = memory.get();
  in.address = in.view.plane[0] = memory->address(Backend::cuda);
  in.bytes = in.view.bytes = bytes;
  std::vector<FrameOutput> kept;
  std::vector<Words> found;
  const std::uint32_t multiprocessors = launcher->multiprocessors();
  EXPECT_NE(multiprocessors, 0U);
  for (const bool by_streams : {false, true}) {
    EXPECT_TRUE(!by_streams || launcher->use_streams());
    kept.push_back(launcher->launch(in, {}));
    EXPECT_EQ(kept.back().outcome, FrameOutput::Outcome::given);
    const auto words = launcher->next_result();
    ASSERT_TRUE(words);
    found.push_back(*words);
  }
  EXPECT_FALSE(launcher->how().resident);
  EXPECT_EQ(launcher->multiprocessors(), multiprocessors);
  EXPECT_EQ(found[0], found[1]);
}

// What is launched instead is what stayed, whatever the file is by then; that comes by a reload.
TEST_F(LaunchGpuTest, ALauncherLaunchesTheVersionThatStayed) {
  const TemporaryFolder folder;
  KernelSettings settings;
  settings.location = folder.path() / "changes.cu";
  settings.mode = KernelMode::automatic;
  settings.reload = true;
  const auto write = [&](const std::string& names, unsigned number) {
    std::ofstream(settings.location)
        << "// gpumap: results " << names
        << "\n#include <gpumap/kernel.h>\nextern \"C\" __global__ void counts(gpumap_frame frame) {\n"
           "  if ((threadIdx.x | threadIdx.y | blockIdx.x | blockIdx.y) != 0) {\n  } else {\n"
           "    gpumap_u64* const words = reinterpret_cast<gpumap_u64*>(frame.result);\n"
           "    for (gpumap_u32 i = 0; i < frame.result_words; ++i) words[i] = "
        << number << " + i;\n  }\n}\n";
  };
  write("one=u64,two=u64", 11);
  KernelLauncher launcher(settings, device_);
  if (!launcher.how().resident) GTEST_SKIP() << launcher.how().why;
  launcher.set_stream({}, {});
  write("one=u64", 31);
  EXPECT_TRUE(launcher.use_streams());
  EXPECT_FALSE(launcher.how().resident);
  EXPECT_EQ(launcher.declaration().results.size(), 2U);
  const std::size_t bytes = 997;
  const auto memory = device_->allocate({Placement::bar, bytes}, Backend::cuda);
  FrameInput in;
  in.mapping = memory.get();
  in.address = in.view.plane[0] = memory->address(Backend::cuda);
  in.bytes = in.view.bytes = bytes;
  const auto words_of_frame = [&] {
    FrameOutput out = launcher.launch(in, {});
    EXPECT_EQ(out.outcome, FrameOutput::Outcome::given);
    return launcher.next_result().value_or(Words());
  };
  EXPECT_THAT(words_of_frame(), ::testing::IsSupersetOf({11U, 12U}));
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  std::optional<std::string> outcome;
  while (!(outcome = launcher.reload()) && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ASSERT_EQ(outcome, "");
  EXPECT_THAT(words_of_frame(), ::testing::Contains(31U));
}

}  // namespace
}  // namespace gpumap
