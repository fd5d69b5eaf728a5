// SPDX-License-Identifier: MIT
// Frames through a kernel by the library alone: views of memory in, a fence and a block of memory out.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "launcher_bench.hpp"
#include "test_helpers.hpp"

namespace gpumap {
namespace {

using namespace test;  // NOLINT: the tests' own words
using ::testing::AllOf;
using ::testing::ElementsAreArray;
using ::testing::EndsWith;
using ::testing::HasSubstr;

/// Never gets there.
class Stuck : public Timeline {
 public:
  std::uint64_t completed() override { return 0; }
  void check() override {}
};

/// Never gets there: what was to raise it is lost.
class Lost : public Timeline {
 public:
  std::uint64_t completed() override { return 0; }
  void check() override { throw Error(ErrorCode::device_lost, "a test took it"); }
};

TEST_P(KernelLauncherTest, BringsTheOutputToTheHost) {
  const auto kernel = adder("", 3);
  kernel->set_stream(any_bytes(), any_bytes());
  for (const std::size_t size : {std::size_t{1}, std::size_t{63}, std::size_t{997}}) {
    const auto sent = reference::random_bytes(size, size);
    const auto from = memory_with(sent);
    Holder holder;
    FrameInput in = input(*from, size);
    in.holder = &holder;
    const FrameOutput out = kernel->launch(in, {.place = Place::host});
    ASSERT_EQ(out.outcome, Outcome::given);
    EXPECT_EQ(out.bytes, size);
    EXPECT_TRUE(out.done.signalled());
    EXPECT_THAT(content(out.host, size), ElementsAreArray(plus(sent, 3)));
    ASSERT_EQ(holder.fences.size(), 1U) << "the holder of the input knows until when it is read";
    EXPECT_TRUE(holder.fences[0].signalled());
  }
  EXPECT_EQ(kernel->frames(), 3U);
}

// What lies around the kernel (frames kept for later, guards, the way to the host) goes with it.
TEST_P(KernelLauncherTest, AFrameIsOneSubmission) {
  if (tests_resident())
    GTEST_SKIP() << "a kernel that stays on the GPU is asked in turns, of which a frame takes several";
  KernelSettings settings;
  settings.check_bounds = true;
  const std::shared_ptr<KernelLauncher> kernels[] = {adder("", 1), adder("// gpumap: history 2\n", 1),
                                                     adder("", 1, settings)};
  const auto from = memory_with(reference::random_bytes(100, 6));
  for (const auto& kernel : kernels) {
    kernel->set_stream(any_bytes(), any_bytes());
    std::uint64_t before = 0;
    for (const Place place : {Place::device, Place::host, Place::device}) {
      const FrameOutput out = kernel->launch(input(*from, 100), {.place = place});
      ASSERT_EQ(out.outcome, Outcome::given);
      EXPECT_EQ(out.done.value(), before + 1);
      before = out.done.value();
    }
  }
}

TEST_P(KernelLauncherTest, LendsBlocksOfDeviceMemory) {
  const auto kernel = adder("", 1);
  kernel->set_stream(any_bytes(), any_bytes());
  const auto sent = reference::random_bytes(997, 5);
  const auto from = memory_with(sent);
  std::set<const Mapping*> blocks;
  for (int frame = 0; frame < 20; ++frame) {
    FrameOutput first = kernel->launch(input(*from, 997), {});
    const FrameOutput second = kernel->launch(input(*from, 997), {});
    ASSERT_EQ(second.outcome, Outcome::given);
    ASSERT_NE(&first.block.mapping(), &second.block.mapping()) << "both are out";
    blocks.insert({&first.block.mapping(), &second.block.mapping()});
    kernel->drain();
    std::vector<std::byte> got(997);
    second.block.mapping().download(0, got);
    ASSERT_THAT(got, ElementsAreArray(plus(sent, 1)));
  }
  EXPECT_EQ(blocks.size(), 2U) << "a block that was let go is used again";
}

// What was recorded before something went wrong runs all the same: its input is kept until then, and the next frame is
// what it should be.
TEST_P(KernelLauncherTest, BlocksOfANewStreamAreAsLargeAsItsFrames) {
  const auto kernel = adder("", 1);
  const std::size_t large = 1 << 20, small = 100;
  const auto from = memory_with(reference::random_bytes(large, 4));
  for (const Place place : {Place::device, Place::host}) {
    kernel->set_stream(any_bytes(), any_bytes());
    const FrameOutput kept = kernel->launch(input(*from, large), {.place = place});
    ASSERT_EQ(kept.outcome, Outcome::given);
    kernel->set_stream(any_bytes(), any_bytes());
    const FrameOutput out = kernel->launch(input(*from, small), {.place = place});
    ASSERT_EQ(out.outcome, Outcome::given);
    EXPECT_LT((place == Place::host ? out.host : out.block).mapping().bytes(), large);
  }
}

TEST_P(KernelLauncherTest, WhatFailsHalfWayLeavesNothingUnordered) {
  const auto kernel = adder("", 1);
  kernel->set_stream(any_bytes(), any_bytes());
  const auto sent = reference::random_bytes(997, 21);
  const auto from = memory_with(sent);
  const auto target = memory(997);
  for (int turn = 0; turn < 5; ++turn) {
    Holder holder;
    FrameInput in = input(*from, 997);
    in.holder = &holder;
    FrameTarget others{.place = Place::others, .view = in.view, .copy = {}};
    others.view.plane[0] = target->address(GetParam());
    EXPECT_THAT(error_of([&] { return kernel->launch(in, others).bytes; }), HasSubstr("FrameTarget::copy"));
    others.copy = [](Queue&, const gpumap_view&, const gpumap_view&) { throw Error(ErrorCode::invalid, "no copy"); };
    EXPECT_THAT(error_of([&] { return kernel->launch(in, others).bytes; }), HasSubstr("no copy"));
    ASSERT_EQ(holder.fences.size(), 1U);
    EXPECT_EQ(holder.fences[0].wait_for(std::chrono::seconds(60)), WaitResult::ready);
    const FrameOutput out = kernel->launch(in, {.place = Place::host});
    ASSERT_EQ(out.outcome, Outcome::given);
    ASSERT_THAT(content(out.host, 997), ElementsAreArray(plus(sent, 1)));
  }
}

// A block that is let go at once is not freed under the kernel that writes it, though the next one has to be larger.
TEST_P(KernelLauncherTest, ABlockMayBeLetGoBeforeItIsWritten) {
  const auto kernel = adder("", 1);
  kernel->set_stream(any_bytes(), any_bytes());
  const auto sent = reference::random_bytes(4000, 22);
  const auto from = memory_with(sent);
  for (const std::size_t size : {1000, 2000, 3000, 4000}) {
    FrameOutput out = kernel->launch(input(*from, size), {});
    ASSERT_EQ(out.outcome, Outcome::given);
    MemoryBlock block = out.block.release();
    ASSERT_EQ(block.readers.size(), 1U) << "who writes it uses it";
    out.block.pool()->give_back(std::move(block));
  }
  kernel->drain();
}

/// Of U8, as the built-ins for IQ make it.
std::vector<float> floats_of(const std::vector<std::byte>& samples, float zero) {
  std::vector<float> made;
  for (const std::byte sample : samples)
    made.push_back((static_cast<float>(std::to_integer<int>(sample)) - zero) / zero);
  return made;
}

// A frame may end in the middle of a sample, which the next one then ends: as from a pipe.
TEST_P(KernelLauncherTest, SamplesGoOnFromFrameToFrame) {
  for (const bool around128 : {false, true}) {
    KernelSettings settings;
    settings.kernel = "iq-to-f32";
    settings.params = around128 ? "around128=1" : "";
    settings.backend = GetParam();
    if (tests_resident()) settings.mode = KernelMode::automatic;
    KernelLauncher kernel(settings, bench_->device());
    constexpr std::uint32_t channels = 3;
    FrameLayout in_layout, out_layout;
    in_layout.view.format = GPUMAP_FORMAT_U8;
    out_layout.view.format = GPUMAP_FORMAT_F32;
    in_layout.view.channels = out_layout.view.channels = channels;
    in_layout.view.rate = out_layout.view.rate = 48000;
    in_layout.bytes_per_sample = channels;
    out_layout.bytes_per_sample = channels * sizeof(float);
    kernel.set_stream(in_layout, out_layout);
    // The first two bytes belong to a sample that never ends: bytes are missing behind them. A jump of times, and a
    // kernel that begins anew, as one that was loaded again, leave the bytes as they follow on each other.
    const std::vector<std::size_t> sizes{2, 1001, 1, 1, 1, 1, 2, 5, 100'000, 3, 300, 10'001, 4, 1};
    std::vector<std::byte> sent;
    std::vector<float> got;
    std::uint64_t number = 0;
    for (const std::size_t size : sizes) {
      const auto random = reference::random_bytes(size + 7, ++number);
      const auto from = memory_with(random);
      FrameInput in = input(*from, size);
      in.view = in_layout.view;
      in.offset = 7;
      in.view.plane[0] = in.address = from->address(GetParam()) + 7;
      in.view.bytes = size;
      in.gap = number == 5 || number == 10;
      if (number == 2) kernel.realign();
      if (number == 8 || number == 12) kernel.begin();
      if (number > 1) sent.insert(sent.end(), random.begin() + 7, random.end());
      const std::size_t whole = (sent.size() - got.size()) / channels * channels;
      EXPECT_EQ(kernel.gives(in), whole != 0);
      Holder holder;
      in.holder = &holder;
      const FrameOutput out = kernel.launch(in, {.place = Place::host});
      EXPECT_EQ(holder.fences.size(), 1U) << "the holder of the input knows until when it is read";
      if (whole == 0) {
        ASSERT_EQ(out.outcome, Outcome::remembered) << "frame " << number;
        kernel.drain();  // its input goes
        continue;
      }
      ASSERT_EQ(out.outcome, Outcome::given) << "frame " << number;
      ASSERT_EQ(out.bytes, whole * sizeof(float)) << "frame " << number;
      std::vector<float> floats(whole);
      std::memcpy(floats.data(), out.host.mapping().host(), out.bytes);
      got.insert(got.end(), floats.begin(), floats.end());
    }
    sent.resize(got.size());
    EXPECT_THAT(got, testing::Pointwise(testing::FloatNear(1e-6F), floats_of(sent, around128 ? 128.0F : 127.5F)));
  }
}

// A frame in which no sample ends does not reach the kernel: the next one that does comes behind the hole.
TEST_P(KernelLauncherTest, AHoleBeforePartOfASampleIsTold) {
  const auto kernel = launcher("// gpumap: history 2\n// gpumap: results flags=u64,past=u64\n",
                               "  gpumap_u64* result = (gpumap_u64*)frame.result;"
                               "  if (i == 0) { result[0] = frame.flags; result[1] = frame.past_count; }",
                               "  if (i == 0ul) { store_u64(frame.result, uint64_t(frame.flags));"
                               "  store_u64(frame.result + 8ul, uint64_t(frame.past_count)); }");
  FrameLayout layout;
  layout.view.format = GPUMAP_FORMAT_S16;
  layout.view.channels = 3;
  layout.view.rate = 48000;
  layout.bytes_per_sample = 6;
  kernel->set_stream(layout, layout);
  struct Frame {
    std::size_t bytes;
    bool gap;
    std::optional<std::pair<std::uint64_t, std::uint64_t>> told;  ///< flags, and frames before
  };
  const Frame frames[] = {{2, true, {}},  {10, false, {{GPUMAP_FRAME_GAP, 0}}}, {6, false, {{0, 1}}}, {3, true, {}},
                          {2, false, {}}, {7, false, {{GPUMAP_FRAME_GAP, 0}}},  {6, false, {{0, 1}}}};
  const auto from = memory_with(reference::random_bytes(12, 1));
  for (const Frame& frame : frames) {
    FrameInput in = input(*from, frame.bytes);
    in.view = layout.view;
    in.view.plane[0] = in.address;
    in.view.bytes = frame.bytes;
    in.gap = frame.gap;
    ASSERT_EQ(kernel->launch(in, {}).outcome, frame.told ? Outcome::given : Outcome::remembered);
    kernel->drain();
    const auto words = kernel->next_result();
    std::optional<std::pair<std::uint64_t, std::uint64_t>> told;
    if (words) told.emplace((*words)[0], (*words)[1]);
    EXPECT_EQ(told, frame.told);
  }
}

// The kernel sees whole samples, and what goes on is each frame as it came.
TEST_P(KernelLauncherTest, WhatIsUnchangedGoesOnWhole) {
  const auto kernel =
      launcher("// gpumap: output unchanged\n// gpumap: results size=u64,first=u64,last=u64\n",
               "  const unsigned char* in = (const unsigned char*)frame.in.plane[0];"
               "  gpumap_u64* result = (gpumap_u64*)frame.result;"
               "  if (i == 0 && frame.in.bytes != 0) { result[0] = frame.in.bytes; result[1] = in[0]; "
               "result[2] = in[frame.in.bytes - 1]; }",
               "  const uint64_t size = frame.in_view.bytes;"
               "  if (i == 0ul && size != 0ul) { store_u64(frame.result, size);"
               "  store_u64(frame.result + 8ul, uint64_t(load_u8(frame.in_view.plane[0])));"
               "  store_u64(frame.result + 16ul, uint64_t(load_u8(frame.in_view.plane[0] + size - 1ul))); }");
  constexpr std::size_t sample = 6;
  FrameLayout layout;
  layout.view.format = GPUMAP_FORMAT_S16;
  layout.view.channels = 3;
  layout.view.rate = 48000;
  layout.bytes_per_sample = sample;
  kernel->set_stream(layout, layout);
  std::vector<std::byte> sent;
  std::size_t seen = 0;
  std::uint64_t number = 0;
  for (const std::size_t size : {1001, 1, 1, 2, 1, 3001, 6, 5, 4999}) {
    const auto random = reference::random_bytes(size + 7, ++number);
    const auto from = memory_with(random);
    FrameInput in = input(*from, size);
    in.view = layout.view;
    in.offset = 7;
    in.address += 7;
    in.view.plane[0] = in.address;
    in.view.bytes = size;
    sent.insert(sent.end(), random.begin() + 7, random.end());
    EXPECT_TRUE(kernel->gives(in));
    const Place place = number % 2 == 1 ? Place::host : Place::device;
    const FrameOutput out = kernel->launch(in, {.place = place});
    ASSERT_EQ(out.outcome, Outcome::given) << "frame " << number;
    EXPECT_TRUE(out.in_place);
    ASSERT_EQ(out.bytes, size) << "frame " << number;
    if (place == Place::host) {
      EXPECT_THAT(content(out.host, size), ElementsAreArray(random.begin() + 7, random.end())) << "frame " << number;
    }
    kernel->drain();
    const auto words = kernel->next_result();
    ASSERT_TRUE(words.has_value()) << "frame " << number;
    const std::size_t whole = (sent.size() - seen) / sample * sample;
    EXPECT_EQ((*words)[0], whole) << "frame " << number;
    if (whole != 0) {
      EXPECT_EQ((*words)[1], std::to_integer<std::uint64_t>(sent[seen])) << "frame " << number;
      EXPECT_EQ((*words)[2], std::to_integer<std::uint64_t>(sent[seen + whole - 1])) << "frame " << number;
    }
    seen += whole;
  }
}

TEST_P(KernelLauncherTest, RefusesAFrameOutsideOfItsMapping) {
  const auto kernel = adder("", 1);
  kernel->set_stream(any_bytes(), any_bytes());
  const auto from = memory_with(reference::random_bytes(64, 1));
  FrameInput in = input(*from, from->bytes() + 1);
  EXPECT_THAT(error_of([&] { return kernel->launch(in, {}).bytes; }), HasSubstr("behind its mapping of 64"));
  in = input(*from, 1);
  in.offset = from->bytes();
  EXPECT_THAT(error_of([&] { return kernel->launch(in, {}).bytes; }), HasSubstr("behind its mapping of 64"));
}

TEST_P(KernelLauncherTest, RefusesAFrameBeforeItsLayout) {
  const auto kernel = adder("", 1);
  const auto from = memory_with(reference::random_bytes(64, 1));
  EXPECT_THAT(error_of([&] { return kernel->launch(input(*from, 64), {}).bytes; }), HasSubstr("layout"));
}

// The frame waits for GPU work that fills it; a call to stop ends the wait, and nothing was launched.
TEST_P(KernelLauncherTest, ACancelledWaitLaunchesNothing) {
  const auto kernel = adder("", 1);
  kernel->set_stream(any_bytes(), any_bytes());
  const auto from = memory_with(reference::random_bytes(64, 1));
  Holder holder;
  FrameInput in = input(*from, 64);
  in.holder = &holder;
  in.written = Fence(std::make_shared<Stuck>(), 1);
  kernel->cancel(true);
  EXPECT_EQ(kernel->launch(in, {}).outcome, Outcome::cancelled);
  EXPECT_TRUE(holder.fences.empty());
  EXPECT_EQ(kernel->frames(), 0U);
  kernel->cancel(false);
  in.written = {};
  EXPECT_EQ(kernel->launch(in, {}).outcome, Outcome::given);
  kernel->drain();  // its input goes
}

// A pipeline of many kernels on a GPU that does not answer stops soon. This kernel ends when the CPU says so.
TEST_P(KernelLauncherTest, WaitsOnceForWorkThatDoesNotEnd) {
  const auto kernel =
      launcher("// gpumap: block 256\n// gpumap: grid 4096\n",
               "  while (*(const volatile unsigned char*)frame.in.plane[0] == 0 && i + 1 != 0) {}",
               // lavapipe leaves a loop after 65535 turns: a million threads take long all the same.
               "  for (uint n = 0u; n < 65000u && atomic_add_u32(frame.in_view.plane[0], 0u) == 0u; ++n) {}");
  kernel->set_stream(any_bytes(), any_bytes());
  const auto from = memory_with(std::vector<std::byte>(64));
  ASSERT_EQ(kernel->launch(input(*from, 64), {}).outcome, Outcome::given);
  const Fence last = kernel->last_launched();
  last.give_up("kernel of another element");
  const auto began = Clock::now();
  EXPECT_FALSE(kernel->end());
  EXPECT_LT(Clock::now() - began, patience_at_end);
  from->host()[0] = std::byte{1};
  from->flush(0, 1);
  EXPECT_EQ(last.wait_for(std::chrono::seconds(60)), WaitResult::ready);
}

/// What `call` throws, a KernelFault.
template <typename Call>
std::string fault_of(Call call) {
  try {
    static_cast<void>(call());
  } catch (const KernelFault& fault) {
    EXPECT_EQ(fault.code(), ErrorCode::device_lost);
    return fault.what();
  }
  return "no fault";
}

// Its file changes while it compiles: that version runs before long.
TEST_P(KernelLauncherTest, SeesAChangeOfItsFileThatComesWhileItIsLoaded) {
  const auto one = adder("", 1), two = adder("", 2);
  KernelSettings settings = one->settings();
  settings.reload = true;
  bool changed = false;
  KernelLauncher kernel(settings, bench_->device(), [&](const KernelPlan&) {
    if (std::exchange(changed, true)) return;
    std::filesystem::copy_file(two->settings().location, settings.location,
                               std::filesystem::copy_options::overwrite_existing);
  });
  kernel.set_stream(any_bytes(), any_bytes());
  const auto end = Clock::now() + std::chrono::seconds(60);
  std::optional<std::string> outcome;
  while (!(outcome = kernel.reload()) && Clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ASSERT_EQ(outcome, "");
  const std::vector<std::byte> sent(77, std::byte{5});
  const auto in = memory_with(sent);
  const FrameOutput out = kernel.launch(input(*in, sent.size()), {.place = Place::host});
  EXPECT_EQ(content(out.host, sent.size()), std::vector<std::byte>(sent.size(), std::byte{7}));
}

// A compiler may take as long as it likes, for a file that came while the kernel ran.
TEST_P(KernelLauncherTest, DoesNotWaitForACompilerThatDoesNotEnd) {
  struct Compiler {
    std::atomic<int> compiled{0};
    std::atomic<bool> ends{false};
  };
  const auto compiler = std::make_shared<Compiler>();
  const auto one = adder("", 1), two = adder("", 2);
  KernelSettings settings = one->settings();
  settings.reload = true;
  auto kernel = std::make_unique<KernelLauncher>(settings, bench_->device(), [compiler](const KernelPlan&) {
    if (compiler->compiled++ == 0) return;
    while (!compiler->ends) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  });
  std::filesystem::copy_file(two->settings().location, settings.location,
                             std::filesystem::copy_options::overwrite_existing);
  const auto end = Clock::now() + std::chrono::seconds(60);
  while (compiler->compiled < 2 && Clock::now() < end) {
    EXPECT_EQ(kernel->reload(), std::nullopt);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ASSERT_EQ(compiler->compiled, 2);
  testing::internal::CaptureStderr();
  kernel.reset();
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("still compiles"));
  // What its thread uses goes with it.
  compiler->ends = true;
  while (compiler.use_count() > 1 && Clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(compiler.use_count(), 1);
}

// Where another takes the place of what watches the file, a change that nobody took over is seen still.
TEST_P(KernelLauncherTest, AnotherWatchGoesOnFromTheVersionThatRuns) {
  const auto one = adder("", 1), two = adder("", 2);
  const KernelSettings& settings = one->settings();
  const KernelReload before(bench_->device(), settings, {});
  std::filesystem::copy_file(two->settings().location, settings.location,
                             std::filesystem::copy_options::overwrite_existing);
  KernelReload after(bench_->device(), settings, {});
  after.follow(before);
  const auto news_of = [](KernelReload& reload) {
    const auto end = Clock::now() + std::chrono::seconds(60);
    std::optional<KernelReload::News> news;
    while (!(news = reload.poll()) && Clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return news;
  };
  const auto news = news_of(after);
  ASSERT_TRUE(news);
  EXPECT_NE(news->program, nullptr) << news->problem;
  // Not taken over, it comes again; taken over, the one before that does.
  KernelReload again(bench_->device(), settings, {});
  again.follow(after);
  ASSERT_TRUE(news_of(again));
  again.adopted();
  std::ofstream(settings.location, std::ios::app) << "\n// longer\n";
  KernelReload last(bench_->device(), settings, {});
  last.follow(again);
  EXPECT_TRUE(news_of(last));
}

// A file that became one whose tensors have no size with the frames that come, or do not come, or its output, or a grid
// that no device takes.
TEST_P(KernelLauncherTest, KeepsAKernelWhoseChangeDoesNotFitTheFrames) {
  const std::vector<std::byte> sent(77, std::byte{5});
  const auto in = memory_with(sent);
  const auto one = adder("", 1), two = adder("", 2);
  KernelSettings settings = one->settings();
  settings.reload = true;
  KernelLauncher kernel(settings, bench_->device());
  kernel.set_stream(any_bytes(), any_bytes());
  ASSERT_EQ(kernel.launch(input(*in, sent.size()), {}).outcome, Outcome::given);
  const std::string grid = "grid 16";
  const std::pair<std::string, std::string> cases[] = {
      {grid + "\n// gpumap: output-tensor widths float32 {width}", "tensor \"widths\": its dimension 0 is 0"},
      {grid + "\n// gpumap: input-tensor boxes float32 4", "takes another tensor \"boxes\" than before"},
      {grid + "\n// gpumap: bytes bytes/(bytes-77)", "its line bytes has no value for a frame of 77 bytes"},
      {grid + "\n// gpumap: bytes bytes-78", "the result is below zero"},
      {"grid 4294967295", "a grid of 4294967295x1x1 blocks"}};
  std::stringstream text;
  text << std::ifstream(two->settings().location).rdbuf();
  for (const auto& [line, why] : cases) {
    std::string changed = text.str();
    ASSERT_NE(changed.find(grid), std::string::npos);
    std::ofstream(settings.location) << changed.replace(changed.find(grid), grid.size(), line);
    const auto end = Clock::now() + std::chrono::seconds(60);
    std::optional<std::string> outcome;
    while (!(outcome = kernel.reload()) && Clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ASSERT_TRUE(outcome.has_value());
    EXPECT_THAT(*outcome, AllOf(HasSubstr(why), EndsWith("keeping the previous kernel")));
    const FrameOutput out = kernel.launch(input(*in, sent.size()), {.place = Place::host});
    EXPECT_EQ(content(out.host, sent.size()), std::vector<std::byte>(sent.size(), std::byte{6}));
  }
}

TEST_P(KernelLauncherTest, AFaultNamesItsKernelOnce) {
  const auto kernel = adder("", 1);
  kernel->set_stream(any_bytes(), any_bytes());
  const auto from = memory(99);
  FrameInput in = input(*from, 99);
  in.written = Fence(std::make_shared<Lost>(), 1);
  const auto launch = [&] { return kernel->launch(in, {}).outcome; };
  const auto wait = [&] { return kernel->wait(in.written); };
  const std::string named = fault_of(launch);
  EXPECT_EQ(named, "while running kernel " + kernel->name() + ": a test took it");
  EXPECT_EQ(fault_of([&] { return kernel->naming(launch); }), named);
  EXPECT_EQ(error_of(ErrorCode::device_lost, wait), "a test took it");
  EXPECT_EQ(fault_of([&] { return kernel->naming(wait); }), named);
  const auto refuse = []() -> int { throw Error(ErrorCode::invalid, "a test refused it"); };
  EXPECT_EQ(error_of([&] { return kernel->naming(refuse); }), "a test refused it");
}

// Frames that lie in memory of others, or are to go there, through a KernelLauncher.

// Pictures in memory of others, with rows that have padding: the kernel that sees bytes is shown none of the padding,
// and its output is brought to where others want it, whose padding stays as it was.
TEST_P(KernelLauncherTest, TakesAndGivesMemoryOfOthers) {
  const auto kernel = adder("// gpumap: view bytes\n", 9);
  const FrameLayout layout{.view = picture(0, width), .bytes_per_sample = 0};
  kernel->set_stream(layout, layout);
  const auto sent = reference::random_bytes(bytes, 11);
  const auto theirs = memory_with(sent);
  const auto target = memory_with(std::vector<std::byte>(bytes, std::byte{0x5A}));
  const FrameInput in = of_others(*theirs);
  const gpumap_view there = picture(target->address(GetParam()), stride);

  FrameOutput out = kernel->launch(in, {.place = Place::host});
  ASSERT_EQ(out.outcome, Outcome::given);
  EXPECT_TRUE(out.packed);
  ASSERT_EQ(out.bytes, packed_bytes);
  const auto packed = content(out.host, packed_bytes);
  out = kernel->launch(in, {.place = Place::others, .view = there, .copy = copier()});
  ASSERT_EQ(out.outcome, Outcome::given);
  EXPECT_FALSE(out.block);
  target->invalidate(0, bytes);
  for (std::size_t row = 0; row < height; ++row) {
    for (std::size_t x = 0; x < stride; ++x) {
      const auto was = static_cast<std::byte>(std::to_integer<unsigned>(sent[row * stride + x]) + 9U);
      if (x < width) {
        ASSERT_EQ(packed[row * width + x], was);
      }
      ASSERT_EQ(target->host()[row * stride + x], x < width ? was : std::byte{0x5A}) << "row " << row << ", " << x;
    }
  }
}

// A kernel that only looks: what is of others goes on as it is to others, and packed to gpumap's own memory.
TEST_P(KernelLauncherTest, HandsMemoryOfOthersOn) {
  const auto kernel = launcher("// gpumap: output unchanged\n", "", "");
  const FrameLayout layout{.view = picture(0, width), .bytes_per_sample = 0};
  kernel->set_stream(layout, layout);
  const auto sent = reference::random_bytes(bytes, 12);
  const auto theirs = memory_with(sent);
  FrameOutput out = kernel->launch(of_others(*theirs), {.place = Place::others});
  ASSERT_EQ(out.outcome, Outcome::given);
  EXPECT_TRUE(out.in_place);
  out = kernel->launch(of_others(*theirs), {});
  ASSERT_EQ(out.outcome, Outcome::given);
  EXPECT_FALSE(out.in_place);
  std::vector<std::byte> got(packed_bytes);
  ASSERT_TRUE(out.block);
  out.block.mapping().download(0, got);
  for (std::size_t at = 0; at < packed_bytes; ++at) ASSERT_EQ(got[at], sent[at / width * stride + at % width]) << at;
}

// A kernel whose output is not as its input writes to others' memory itself, rows where they want them.
TEST_P(KernelLauncherTest, WritesStraightIntoMemoryOfOthers) {
  const auto kernel = launcher("// gpumap: output video/x-raw,format=GRAY8\n// gpumap: block 64\n// gpumap: grid 1\n",
                               "  if (i < frame.out.width) for (unsigned y = 0; y < frame.out.height; ++y) "
                               "((unsigned char*)frame.out.plane[0])[y * frame.out.stride[0] + i] = "
                               "(unsigned char)(10 * y + i);",
                               "  if (i < frame.out_view.width) for (uint y = 0u; y < frame.out_view.height; ++y) "
                               "store_u8(frame.out_view.plane[0] + y * frame.out_view.stride[0] + i, "
                               "(10u * y + uint(i)) & 255u);");
  const FrameLayout layout{.view = picture(0, width), .bytes_per_sample = 0};
  kernel->set_stream(layout, layout);
  const auto from = memory_with(reference::random_bytes(packed_bytes, 2));
  const auto target = memory_with(std::vector<std::byte>(bytes, std::byte{0x5A}));
  FrameInput in = input(*from, packed_bytes);
  in.view = picture(in.address, width);
  const FrameTarget others{.place = Place::others,
                           .view = picture(target->address(GetParam()), stride),
                           .copy = [](Queue&, const gpumap_view&, const gpumap_view&) { FAIL() << "nothing to copy"; }};
  ASSERT_EQ(kernel->launch(in, others).outcome, Outcome::given);
  target->invalidate(0, bytes);
  for (std::size_t at = 0; at < bytes; ++at) {
    const std::size_t x = at % stride;
    ASSERT_EQ(target->host()[at], x < width ? static_cast<std::byte>(10 * (at / stride) + x) : std::byte{0x5A}) << at;
  }
}

TEST_P(KernelLauncherTest, RemembersFramesOfEitherKind) {
  const auto kernel = launcher("// gpumap: history 2\n// gpumap: block 64\n// gpumap: grid 1\n",
                               "  if (i < 61) ((unsigned char*)frame.out.plane[0])[i] = frame.past_count < 2 ? 0 : "
                               "((const unsigned char*)frame.past[1].plane[0])[2 * frame.past[1].stride[0] + i];",
                               "  if (i < 61ul) store_u8(frame.out_view.plane[0] + i, frame.past_count < 2u ? 0u : "
                               "load_u8(frame.past[1].plane[0] + 2ul * frame.past[1].stride[0] + i));");
  const FrameLayout layout{.view = picture(0, width), .bytes_per_sample = 0};
  kernel->set_stream(layout, layout);
  for (const bool others : {false, true}) {
    kernel->begin();
    std::vector<std::vector<std::byte>> sent;
    for (std::uint64_t frame = 0; frame < 5; ++frame) {
      sent.push_back(reference::random_bytes(bytes, frame));
      const auto from = memory_with(sent.back());
      FrameInput in = of_others(*from);
      if (!others) in.mapping = from.get();
      const FrameOutput out = kernel->launch(in, {.place = Place::host});
      ASSERT_EQ(out.outcome, Outcome::given);
      if (frame < 2) continue;
      const std::byte* row = sent[frame - 2].data() + 2 * stride;
      ASSERT_THAT(content(out.host, width), ElementsAreArray(row, width)) << frame << others;
    }
  }
}

/// As CUDA's copies of bytes, of which there are as many as in `to`.
CopyPicture byte_copier(const std::shared_ptr<Device>& device, Backend backend) {
  KernelSource source;
  source.name = "bytes";
  if (backend == Backend::cuda) {
    source.code =
        "#include <gpumap/kernel.h>\nextern \"C\" __global__ void bytes(gpumap_frame frame) {\n"
        "  for (gpumap_u64 i = threadIdx.x; i < frame.out.bytes; i += blockDim.x)\n"
        "    ((unsigned char*)frame.out.plane[0])[i] = ((const unsigned char*)frame.in.plane[0])[i];\n}\n";
  } else {
    source.language = Language::glsl;
    source.code =
        "#version 460\n#include <gpumap.glsl>\nvoid main() {\n"
        "  for (uint64_t i = gl_LocalInvocationID.x; i < frame.out_view.bytes; i += 256ul)\n"
        "    store_u8(frame.out_view.plane[0] + i, load_u8(frame.in_view.plane[0] + i));\n}\n";
  }
  return [kernel = Kernel::load(device, source)](Queue& queue, const gpumap_view& from, const gpumap_view& to) {
    gpumap_frame frame{};
    frame.in = from;
    frame.out = to;
    queue.launch(*kernel, {.blocks = {1, 1, 1}, .threads = {256, 1, 1}}, frame);
  };
}

// Bytes whose number no layout tells, a tensor's: all of them come to a kernel that is shown a copy, to one that only
// looks, and to one that looks back.
TEST_P(KernelLauncherTest, TakesAsManyBytesOfOthersAsCome) {
  const auto shown = adder("// gpumap: view bytes\n", 9);
  const auto looks = launcher("// gpumap: output unchanged\n", "", "");
  const auto looks_back =
      launcher("// gpumap: history 1\n// gpumap: block 64\n// gpumap: grid 16\n",
               "  if (i < frame.out.bytes) ((unsigned char*)frame.out.plane[0])[i] = frame.past_count == 0 ? 7 : "
               "i < frame.past[0].bytes ? ((const unsigned char*)frame.past[0].plane[0])[i] : 3;",
               "  if (i < frame.out_view.bytes) store_u8(frame.out_view.plane[0] + i, frame.past_count == 0u ? 7u : "
               "i < frame.past[0].bytes ? load_u8(frame.past[0].plane[0] + i) : 3u);");
  for (const auto& kernel : {shown.get(), looks.get(), looks_back.get()}) kernel->set_stream(any_bytes(), any_bytes());
  const CopyPicture copy = byte_copier(bench_->device(), GetParam());
  std::vector<std::byte> previous;
  for (const std::size_t size : {std::size_t{333}, std::size_t{1}, std::size_t{1000}, std::size_t{998}}) {
    SCOPED_TRACE(size);
    const auto sent = reference::random_bytes(size, size);
    const auto theirs = memory_with(sent);
    FrameInput in = input(*theirs, size);
    in.mapping = nullptr;
    in.copy = copy;
    FrameOutput out = shown->launch(in, {.place = Place::host});
    ASSERT_EQ(out.outcome, Outcome::given);
    ASSERT_EQ(out.bytes, size);
    auto expected = sent;
    for (std::byte& byte : expected) byte = static_cast<std::byte>(std::to_integer<unsigned>(byte) + 9U);
    EXPECT_EQ(content(out.host, size), expected);

    out = looks->launch(in, {});
    ASSERT_EQ(out.outcome, Outcome::given);
    ASSERT_TRUE(out.block);
    ASSERT_EQ(out.bytes, size);
    std::vector<std::byte> got(size);
    out.block.mapping().download(0, got);
    EXPECT_EQ(got, sent);

    out = looks_back->launch(in, {.place = Place::host});
    ASSERT_EQ(out.outcome, Outcome::given);
    const bool first = previous.empty();
    previous.resize(size, std::byte{3});
    if (first) std::fill(previous.begin(), previous.end(), std::byte{7});
    EXPECT_EQ(content(out.host, size), previous);
    previous = sent;
  }
}

GPUMAP_ON_BACKENDS(KernelLauncherTest);

}  // namespace
}  // namespace gpumap
