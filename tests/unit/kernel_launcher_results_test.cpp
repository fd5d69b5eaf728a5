// SPDX-License-Identifier: MIT
// What a kernel tells by frames through a KernelLauncher, beside the frame: results, whether and how much of it comes
// out, tensors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <thread>
#include <vector>

#include "fake_device.hpp"
#include "gpumap/block_pool.hpp"
#include "launcher_bench.hpp"
#include "test_helpers.hpp"

namespace gpumap {
namespace {

using namespace test;  // NOLINT: the tests' own words
using ::testing::HasSubstr;

TEST_P(KernelLauncherTest, TellsResultsInTheOrderOfFrames) {
  for (const bool late : {false, true}) {
    const auto kernel = launcher("// gpumap: output unchanged\n// gpumap: results size=u64,number=u64\n",
                                 "  if (i == 0) { ((gpumap_u64*)frame.result)[0] = frame.in.bytes; "
                                 "((gpumap_u64*)frame.result)[1] = frame.sequence; }",
                                 "  if (i == 0ul) { store_u64(frame.result, frame.in_view.bytes); "
                                 "store_u64(frame.result + 8ul, frame.sequence); }",
                                 {.late_results = late});
    kernel->set_stream(any_bytes(), any_bytes());
    ASSERT_TRUE(kernel->has_result());
    const auto from = memory_with(reference::random_bytes(4000, 1));
    for (std::uint64_t number = 0; number < 100; ++number) {  // more than may be under way
      FrameInput in = input(*from, 1000 + number);
      in.sequence = number;
      const FrameOutput out = kernel->launch(in, {});
      ASSERT_EQ(out.outcome, Outcome::given);
      EXPECT_TRUE(out.in_place) << "no output: the input goes on";
      EXPECT_FALSE(out.block);
    }
    kernel->drain();
    for (std::uint64_t number = 0; number < 100; ++number) {
      const auto words = kernel->next_result();
      ASSERT_TRUE(words.has_value()) << number;
      EXPECT_EQ((*words)[0], 1000 + number);
      EXPECT_EQ((*words)[1], number);
    }
    EXPECT_FALSE(kernel->next_result().has_value());
  }
}

TEST_P(KernelLauncherTest, DropsAndShortensAsTheKernelSays) {
  const auto kernel = launcher("// gpumap: output-may drop,shorten\n// gpumap: block 64\n// gpumap: grid 16\n",
                               "  if (i == 0) *(gpumap_u64*)frame.given = ((const unsigned char*)frame.in.plane[0])[0];"
                               "  if (i < frame.out.bytes) ((unsigned char*)frame.out.plane[0])[i] = 7;",
                               "  if (i == 0ul) store_u64(frame.given, uint64_t(load_u8(frame.in_view.plane[0])));"
                               "  if (i < frame.out_view.bytes) store_u8(frame.out_view.plane[0] + i, 7u);");
  kernel->set_stream(any_bytes(), any_bytes());
  auto sent = reference::random_bytes(200, 3);
  for (const int wanted : {0, 1, 199, 200}) {
    sent[0] = static_cast<std::byte>(wanted);
    const auto from = memory_with(sent);
    const FrameOutput out = kernel->launch(input(*from, 200), {.place = Place::host});
    if (wanted == 0) {
      EXPECT_EQ(out.outcome, Outcome::dropped);
      EXPECT_FALSE(out.host);
      continue;
    }
    ASSERT_EQ(out.outcome, Outcome::given);
    EXPECT_EQ(out.bytes, static_cast<std::size_t>(wanted));
    EXPECT_EQ(out.shortened, wanted != 200);
    EXPECT_THAT(content(out.host, out.bytes), testing::Each(std::byte{7}));
  }
  sent[0] = std::byte{201};
  const auto from = memory_with(sent);
  EXPECT_THAT(error_of([&] { return kernel->launch(input(*from, 200), {}).bytes; }), HasSubstr("201"));
}

// Behind all that a kernel may write to lie bytes that it may not change.
TEST_P(KernelLauncherTest, GuardsResultsTensorsAndState) {
  struct Guarded {
    const char *lines, *cuda, *glsl, *told;
  };
  // In `at`, which a byte of the frame moves: the last place that is the kernel's own, or one behind.
  for (const Guarded& place : {
           Guarded{"// gpumap: result-words 100\n", "frame.result + 4 * (199 + at)",
                   "frame.result + 4ul * (199ul + at)", "behind its result block of 800 bytes"},
           Guarded{"// gpumap: output-tensor one u32 5\n// gpumap: output-tensor two u32 7\n",
                   "frame.out_tensors[0].address + 4 * (4 + at)", "frame.out_tensors[0].address + 4ul * (4ul + at)",
                   "behind its tensor \"one\" of 20 bytes"},
           Guarded{"// gpumap: output-tensor one u32 5\n// gpumap: output-tensor two u32 7\n",
                   "frame.out_tensors[1].address + 4 * (6 + at)", "frame.out_tensors[1].address + 4ul * (6ul + at)",
                   "behind its tensor \"two\" of 28 bytes"},
           Guarded{"// gpumap: state 48\n", "frame.state + 4 * (11 + at)", "frame.state + 4ul * (11ul + at)",
                   "behind its state of 48 bytes"},
           Guarded{"// gpumap: state 4\n", "frame.state + 4 * at", "frame.state + 4ul * at",
                   "behind its state of 4 bytes"},
       }) {
    for (const bool unchanged : {false, true}) {
      KernelSettings settings;
      settings.check_bounds = true;
      const auto kernel =
          launcher(std::string(unchanged ? "// gpumap: output unchanged\n" : "") + place.lines,
                   "  const gpumap_u64 at = *(const unsigned char*)frame.in.plane[0];\n  if (i == 0) *(unsigned*)(" +
                       std::string(place.cuda) + ") = 0x12345678u;",
                   "  const uint64_t at = uint64_t(load_u8(frame.in_view.plane[0]));\n  if (i == 0ul) store_u32(" +
                       std::string(place.glsl) + ", 0x12345678u);",
                   settings);
      kernel->set_stream(any_bytes(), any_bytes());
      auto sent = reference::random_bytes(997, 4);
      for (const unsigned at : {0U, 0U, 1U, 200U, 0U}) {
        sent[0] = static_cast<std::byte>(at);
        const auto from = memory_with(sent);
        const auto launch = [&] { return kernel->launch(input(*from, 997), {}).outcome; };
        if (at == 0) {
          EXPECT_EQ(launch(), Outcome::given) << place.told;
          continue;
        }
        const std::string told = error_of([&] { return launch(); });
        EXPECT_THAT(told, HasSubstr("writes out of bounds: 4 of the")) << place.told;
        EXPECT_THAT(told, HasSubstr(place.told));
        EXPECT_THAT(told, HasSubstr("the first one " + std::to_string(4 * (at - 1)) + " behind the end"));
      }
    }
  }
}

// As what comes out is, so is what one function hands to the next.
TEST_P(KernelLauncherTest, BoundsAreCheckedBetweenFunctions) {
  const bool is_cuda = GetParam() == Backend::cuda;
  for (const char* careless : {"one", "two", "three"}) {
    KernelSettings settings;
    settings.location = folder_.path() / (is_cuda ? "three.cu" : "three.comp");
    settings.backend = GetParam();
    settings.check_bounds = true;
    std::ofstream file(settings.location);
    file << (is_cuda ? "#include <gpumap/kernel.h>\n" : "#version 460\n#include <gpumap.glsl>\n")
         << "// gpumap: functions one,two,three\n// gpumap: block 64\n// gpumap: grid 16\n";
    for (const char* function : {"one", "two", "three"}) {
      // The last byte tells how far behind the end the careless one writes.
      const bool fault = careless == std::string(function);
      if (is_cuda) {
        file << "extern \"C\" __global__ void " << function << "(gpumap_frame frame) {\n"
             << "  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;\n"
             << "  const unsigned char* in = (const unsigned char*)frame.in.plane[0];\n"
             << "  unsigned char* out = (unsigned char*)frame.out.plane[0];\n"
             << "  if (i < frame.out.bytes) out[i] = in[i];\n"
             << (fault ? "  const unsigned at = in[frame.out.bytes - 1];\n"
                         "  if (i == 0 && at != 0) out[frame.out.bytes - 1 + at] = 171;\n"
                       : "")
             << "}\n";
      } else {
        file << "void " << function << "() {\n  const uint i = gl_GlobalInvocationID.x;\n"
             << "  if (gl_GlobalInvocationID.y != 0u) return;\n"
             << "  const uint64_t in_at = frame.in_view.plane[0], out_at = frame.out_view.plane[0];\n"
             << "  const uint64_t size = frame.out_view.bytes;\n"
             << "  if (uint64_t(i) < size) store_u8(out_at + i, load_u8(in_at + i));\n"
             << (fault ? "  const uint at = load_u8(in_at + size - 1ul);\n"
                         "  if (i == 0u && at != 0u) store_u8(out_at + size - 1ul + at, 171u);\n"
                       : "")
             << "}\n";
      }
    }
    file.close();
    if (tests_resident()) settings.mode = KernelMode::automatic;
    KernelLauncher kernel(settings, bench_->device());
    kernel.set_stream(any_bytes(), any_bytes());
    auto sent = reference::random_bytes(997, 4);
    for (const unsigned at : {0U, 0U, 1U, 200U, 0U}) {
      sent.back() = static_cast<std::byte>(at);
      const auto from = memory_with(sent);
      const auto launch = [&] { return kernel.launch(input(*from, sent.size()), {.place = Place::host}); };
      if (at == 0) {
        const FrameOutput out = launch();
        ASSERT_EQ(out.outcome, Outcome::given) << careless;
        EXPECT_EQ(content(out.host, out.bytes), sent);
        continue;
      }
      const std::string told = error_of([&] { return launch(); });
      EXPECT_THAT(told, HasSubstr("writes out of bounds: 1 of the")) << careless;
      EXPECT_THAT(told,
                  HasSubstr(careless == std::string("one")   ? "behind what function 1 hands to the next of 997 bytes"
                            : careless == std::string("two") ? "behind what function 2 hands to the next of 997 bytes"
                                                             : "behind its output of 997 bytes"));
      EXPECT_THAT(told, HasSubstr("the first one " + std::to_string(at - 1) + " behind the end"));
    }
  }
}

// A downstream that still holds what large frames gave gets no more than small ones take.
TEST_P(KernelLauncherTest, OfSmallFramesNothingIsAsLargeAsOfThoseBefore) {
  const auto kernel = launcher("// gpumap: output-tensor rows f32 {width}x1000\n", "", "");
  const auto launch = [&](gpumap_u32 across) {
    FrameLayout layout;
    layout.bytes_per_sample = 0;
    layout.view.format = GPUMAP_FORMAT_GRAY8;
    layout.view.width = layout.view.stride[0] = across;
    layout.view.height = 4;
    layout.view.bytes = std::uint64_t{4} * across;
    kernel->set_stream(layout, layout);
    const auto from = memory(layout.view.bytes);
    FrameInput in = input(*from, layout.view.bytes);
    in.view = layout.view;
    in.view.plane[0] = in.address;
    in.picture_bytes = in.bytes;
    FrameOutput out = kernel->launch(in, {});
    kernel->drain();
    return out;
  };
  const FrameOutput large = launch(1000), small = launch(8);
  ASSERT_TRUE(large.tensors && small.tensors);
  EXPECT_GE(large.tensors.mapping().bytes(), 4'000'000U);
  EXPECT_LT(small.tensors.mapping().bytes(), 100'000U);
  EXPECT_LT(small.block.mapping().bytes(), 1000U);
}

// In memory that the GPU reaches, gpumap's own or that of others, and in ordinary memory; each output anew from zeros.
TEST_P(KernelLauncherTest, TensorsComeAndGoWithTheFrame) {
  const auto kernel = launcher(
      "// gpumap: output unchanged\n// gpumap: block 64\n// gpumap: grid 16\n// gpumap: input-tensor one u16 ?x3\n"
      "// gpumap: input-tensor two u16 2x3\n// gpumap: output-tensor sum u32 5x3\n// gpumap: output-tensor size u32 "
      "2\n",
      "  unsigned short* one = (unsigned short*)frame.in_tensors[0].address;"
      "  unsigned short* two = (unsigned short*)frame.in_tensors[1].address;"
      "  if (i < frame.in_tensors[0].count) atomicAdd((unsigned*)frame.out_tensors[0].address + i, one[i] + two[i % "
      "6]);"
      "  if (i == 0) { unsigned* size = (unsigned*)frame.out_tensors[1].address; size[0] = frame.in_tensors[0].dims[0];"
      "  size[1] = frame.out_tensors[0].rank; }",
      "  uint64_t one = frame.in_tensors[0].address, two = frame.in_tensors[1].address;"
      "  if (i < frame.in_tensors[0].count) atomic_add_u32(frame.out_tensors[0].address + 4ul * i, load_u16(one + 2ul "
      "* i)"
      " + load_u16(two + 2ul * (i % 6ul)));"
      "  if (i == 0ul) { store_u32(frame.out_tensors[1].address, frame.in_tensors[0].dims[0]);"
      "  store_u32(frame.out_tensors[1].address + 4ul, frame.out_tensors[0].rank); }");
  kernel->set_stream(any_bytes(), any_bytes());
  ASSERT_EQ(kernel->tensors().size(), 2U);
  EXPECT_EQ(kernel->tensors()[0].bytes, 60U);
  EXPECT_EQ(kernel->tensors()[1].offset % 256, 0U);
  const auto from = memory_with(reference::random_bytes(1000, 1));
  for (std::uint64_t rows = 5; rows > 2; --rows) {
    const auto one = reference::random_bytes(10 + rows * 6, rows);
    const auto two = reference::random_bytes(12, 9 + rows);
    const auto memory = memory_with(one);
    Holder holder;
    FrameInput in = input(*from, 1000);
    const bool of_others = rows == 4;
    in.tensors.push_back({.type = NumberType::u16,
                          .dims = {rows, 3},
                          .mapping = of_others ? nullptr : memory.get(),
                          .offset = of_others ? 0U : 10U,
                          .address = of_others ? memory->address(GetParam()) + 10 : 0,
                          .bytes = one.size() - 10,
                          .holder = &holder});
    in.tensors.push_back({.type = NumberType::u16, .dims = {2, 3}, .host = two});
    const FrameOutput out = kernel->launch(in, {});
    ASSERT_EQ(out.outcome, Outcome::given);
    EXPECT_TRUE(out.in_place);
    ASSERT_TRUE(out.tensors);
    EXPECT_EQ(holder.fences.size(), 1U) << "the holder of a tensor knows until when it is read";
    kernel->drain();
    const auto word = [](const std::vector<std::byte>& words, std::size_t at) {
      return std::to_integer<std::uint32_t>(words[at]) + 256 * std::to_integer<std::uint32_t>(words[at + 1]);
    };
    std::vector<std::uint32_t> expected(15);
    for (std::size_t i = 0; i < rows * 3; ++i) expected[i] = word(one, 10 + 2 * i) + word(two, 2 * (i % 6));
    std::vector<std::byte> got(60), size(8);
    out.tensors.mapping().download(0, got);
    out.tensors.mapping().download(kernel->tensors()[1].offset, size);
    std::vector<std::uint32_t> sums(15);
    std::memcpy(sums.data(), got.data(), got.size());
    EXPECT_EQ(sums, expected);
    EXPECT_EQ(word(size, 0), rows);
    EXPECT_EQ(word(size, 4), 2U);
  }
  FrameInput in = input(*from, 1000);
  EXPECT_THAT(error_of([&] { return kernel->launch(in, {}).bytes; }),
              HasSubstr("0 tensors came with a frame, and it declares 2"));
  const auto few = reference::random_bytes(11, 1);
  in.tensors = {{.type = NumberType::u16, .dims = {2, 3}, .host = few},
                {.type = NumberType::u16, .dims = {2, 3}, .host = few}};
  EXPECT_THAT(error_of([&] { return kernel->launch(in, {}).bytes; }),
              HasSubstr("tensor \"one\" has 11 bytes, and u16 of 2x3 take 12"));
  in.tensors[0] = {.type = NumberType::u16, .dims = {2, 3}, .address = from->address(GetParam()), .bytes = 10};
  EXPECT_THAT(error_of([&] { return kernel->launch(in, {}).bytes; }),
              HasSubstr("tensor \"one\" has 10 bytes, and u16 of 2x3 take 12"));
  // Sizes whose product is 1 in 64 bits, and one that a kernel is not told.
  for (const std::uint64_t rows : {std::uint64_t{0xAAAAAAAAAAAAAAAB}, std::uint64_t{1} << 32U}) {
    in.tensors = {{.type = NumberType::u16, .dims = {rows, 3}, .host = few},
                  {.type = NumberType::u16, .dims = {2, 3}, .host = few}};
    EXPECT_THAT(error_of([&] { return kernel->launch(in, {}).bytes; }), HasSubstr("is larger than any memory"));
  }
  // A detector that found nothing has no memory for it.
  const auto two = reference::random_bytes(12, 9);
  in.tensors = {{.type = NumberType::u16, .dims = {0, 3}}, {.type = NumberType::u16, .dims = {2, 3}, .host = two}};
  const FrameOutput out = kernel->launch(in, {});
  ASSERT_EQ(out.outcome, Outcome::given);
  kernel->drain();
  std::vector<std::byte> sums(60);
  out.tensors.mapping().download(0, sums);
  EXPECT_THAT(sums, testing::Each(std::byte{0}));
}

GPUMAP_ON_BACKENDS(KernelLauncherTest);

}  // namespace
}  // namespace gpumap

// Blocks for results with readers that the test lets go of by hand.
namespace gpumap::test {
namespace {

using namespace std::chrono_literals;

class BlockPoolTest : public testing::Test {
 protected:
  /// Give a block back that is read until `timeline_` reaches `value`.
  void give_back_read(MemoryBlock block, std::uint64_t value) {
    block.add_reader(Fence(timeline_, value));
    pool_->give_back(std::move(block));
  }
  MemoryBlock take() {
    auto block = pool_->take(cancelled_);
    EXPECT_TRUE(block.has_value());
    return block ? std::move(*block) : MemoryBlock();
  }

  std::shared_ptr<FakeTimeline> timeline_ = std::make_shared<FakeTimeline>();
  std::shared_ptr<FakeDevice> device_ = std::make_shared<FakeDevice>();
  std::shared_ptr<BlockPool> pool_ =
      std::make_shared<BlockPool>(device_, Backend::vulkan, Placement::device, std::size_t{1000});
  std::atomic<bool> cancelled_{false};
};

TEST_F(BlockPoolTest, ASlowReaderIsWaitedFor) {
  std::vector<const Mapping*> blocks;
  for (std::uint64_t i = 0; i < BlockPool::max_read; ++i) {
    MemoryBlock block = take();
    blocks.push_back(block.mapping.get());
    give_back_read(std::move(block), i + 1);
  }
  cancelled_ = true;
  EXPECT_FALSE(pool_->take(cancelled_).has_value());
  cancelled_ = false;
  std::thread reader([&] {
    std::this_thread::sleep_for(20ms);
    timeline_->reached = 1;
  });
  const MemoryBlock next = take();
  reader.join();
  EXPECT_EQ(next.mapping.get(), blocks.front());
  EXPECT_TRUE(next.readers.empty());
  timeline_->reached = BlockPool::max_read;
}

// As a still picture that a kernel gave, and that is shown for hours.
TEST_F(BlockPoolTest, AFrameThatIsReadAgainAndAgainKeepsAReaderOfEachTimeline) {
  const auto other = std::make_shared<FakeTimeline>();
  MemoryBlock block = take();
  LentBlock lent(pool_, take());
  for (std::uint64_t i = 0; i < 1000; ++i) {
    for (const Fence& fence : {Fence(timeline_, i), Fence(other, 999 - i), Fence()}) {
      block.add_reader(fence);
      lent.add_read_fence(fence);
    }
  }
  for (const std::vector<Fence>& readers : {block.readers, lent.release().readers}) {
    ASSERT_EQ(readers.size(), 2U);
    EXPECT_EQ(readers[0].value(), 999U);
    EXPECT_EQ(readers[1].value(), 999U);
  }
}

// Whose readers are streams of others: of each only an event is known.
TEST_F(BlockPoolTest, AFrameThatIsReadAgainAndAgainForgetsReadersThatHaveEnded) {
  const auto goes_on = std::make_shared<FakeTimeline>();
  MemoryBlock block = take();
  block.add_reader(Fence(goes_on, 1));
  for (int i = 0; i < 1000; ++i) {
    const auto once = std::make_shared<FakeTimeline>();
    block.add_reader(Fence(once, 1));
    once->reached = 1;
    ASSERT_LE(block.readers.size(), 20U);
  }
  EXPECT_EQ(std::ranges::count(block.readers, goes_on, &Fence::timeline), 1);
}

// A downstream that holds many frames is not a reader to wait for: it may wait for us.
TEST_F(BlockPoolTest, BlocksThatAreOutDoNotCount) {
  std::vector<MemoryBlock> held;
  for (std::size_t i = 0; i < 10 * BlockPool::max_read; ++i) held.push_back(take());
  EXPECT_EQ(held.size(), 10 * BlockPool::max_read);
}

TEST_F(BlockPoolTest, MemoryThatIsReadOutlivesThePool) {
  MemoryBlock block = take();
  const std::weak_ptr<Mapping> mapping = block.mapping;
  give_back_read(std::move(block), 1);
  std::thread reader([&] {
    std::this_thread::sleep_for(20ms);
    EXPECT_FALSE(mapping.expired());
    timeline_->reached = 1;
  });
  pool_.reset();
  EXPECT_EQ(timeline_->reached, 1U);
  EXPECT_TRUE(mapping.expired());
  reader.join();
}

// Larger blocks take the place of those that are still read: nobody waits for these, and they go when they are not.
TEST_F(BlockPoolTest, GrowsWithoutWaiting) {
  std::vector<std::weak_ptr<Mapping>> outgrown;
  const auto lend = [&](std::size_t bytes) {
    return BlockPool::lend(pool_, device_, Backend::vulkan, Placement::device, bytes, cancelled_);
  };
  const auto began = Clock::now();
  for (std::uint64_t i = 0; i < BlockPool::max_read; ++i) {
    LentBlock block = lend(1000 + i);
    ASSERT_TRUE(block);
    EXPECT_GE(block.mapping().bytes(), 1000 + i);
    outgrown.push_back(block.shared_mapping());
    block.add_read_fence(Fence(timeline_, i + 1));
  }
  EXPECT_LT(Clock::now() - began, 4s);
  // As many as are read at a time: from here on it waits for the oldest, until it is told not to.
  cancelled_ = true;
  EXPECT_FALSE(lend(2000));
  cancelled_ = false;
  timeline_->reached = 1;
  const LentBlock larger = lend(2000);
  ASSERT_TRUE(larger);
  EXPECT_EQ(larger.mapping().bytes(), 2000U);
  EXPECT_TRUE(outgrown[0].expired());
  EXPECT_FALSE(outgrown[1].expired());
  timeline_->reached = BlockPool::max_read;
  EXPECT_TRUE(lend(1500)) << "smaller ones have room as well";
  for (const auto& one : outgrown) EXPECT_TRUE(one.expired());
}

/// Has reached nothing at the first look and everything at the next.
class EndsBetweenTwoLooks final : public Timeline {
 public:
  [[nodiscard]] std::uint64_t completed() override { return std::exchange(reached_, UINT64_MAX); }
  void check() override {}

 private:
  std::uint64_t reached_ = 0;
};

TEST_F(BlockPoolTest, ABlockWhoseReaderEndsMeanwhileIsNoLarger) {
  const auto lend = [&](std::size_t bytes) {
    return BlockPool::lend(pool_, device_, Backend::vulkan, Placement::device, bytes, cancelled_);
  };
  lend(1000).add_read_fence(Fence(std::make_shared<EndsBetweenTwoLooks>(), 1));
  EXPECT_EQ(lend(2000).mapping().bytes(), 2000U);
}

/// Has no memory. Neither what it says nor its remedy has just one colon.
class FullDevice : public FakeDevice {
 public:
  [[nodiscard]] std::shared_ptr<Mapping> allocate(const MappingOptions&, std::optional<Backend>) override {
    throw Error(ErrorCode::no_memory, "fake: 1000 bytes asked: 7 are free", "two ways: free some, or lower slots");
  }
};

TEST_F(BlockPoolTest, ItsOwnRemedyTakesTheDevicesPlace) {
  const auto full = std::make_shared<BlockPool>(std::make_shared<FullDevice>(), Backend::vulkan, Placement::device, 1);
  EXPECT_EQ(error_of(ErrorCode::no_memory, [&] { return full->take(cancelled_); }),
            "fake: 1000 bytes asked: 7 are free: let the kernel give smaller frames, or let what follows it keep fewer "
            "of them (queues)");
}

}  // namespace
}  // namespace gpumap::test
