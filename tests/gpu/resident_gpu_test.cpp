// SPDX-License-Identifier: MIT
// Kernels that stay on the GPU: what they give is what launches give, they leave when idle and at once when told, and
// nobody else waits for them for long.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpumap/copy.hpp"
#include "gpumap/error.hpp"
#include "gpumap/kernel_launcher.hpp"
#include "temporary_folder.hpp"

namespace gpumap {
namespace {

using namespace std::chrono_literals;
using Place = FrameTarget::Place;

class Resident : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      device_ = Device::open("auto");
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    if (!device_->has(Backend::cuda)) GTEST_SKIP() << "no CUDA here";
  }
  [[nodiscard]] std::unique_ptr<KernelLauncher> of(const std::string& code, KernelSettings settings = {}) {
    settings.location = folder_.path() / ("kernel" + std::to_string(files_++) + ".cu");
    std::ofstream(settings.location) << "#include <gpumap/kernel.h>\n" << code;
    return std::make_unique<KernelLauncher>(settings, device_);
  }
  [[nodiscard]] static KernelSettings resident() {
    KernelSettings settings;
    settings.mode = KernelMode::resident;
    return settings;
  }
  [[nodiscard]] std::shared_ptr<Mapping> bar_with(const std::vector<std::byte>& content) {
    auto made = device_->allocate({.placement = Placement::bar, .bytes = content.size()}, Backend::cuda);
    std::memcpy(made->host(), content.data(), content.size());
    return made;
  }
  static FrameInput input(const Mapping& mapping) {
    FrameInput made;
    made.view.format = GPUMAP_FORMAT_BYTES;
    made.view.plane[0] = made.address = mapping.address(Backend::cuda);
    made.view.bytes = made.bytes = mapping.bytes();
    made.mapping = &mapping;
    return made;
  }
  static void begin(KernelLauncher& launcher) {
    FrameLayout layout;
    layout.view.format = GPUMAP_FORMAT_BYTES;
    launcher.set_stream(layout, layout);
  }
  static std::vector<std::byte> random(std::size_t bytes, unsigned seed) {
    std::mt19937 numbers(seed);
    std::vector<std::byte> made(bytes);
    for (std::byte& one : made) one = static_cast<std::byte>(numbers());
    return made;
  }
  /// What comes of one frame, in host memory.
  static std::vector<std::byte> run(KernelLauncher& launcher, const Mapping& in) {
    FrameTarget target;
    target.place = Place::host;
    const FrameOutput out = launcher.launch(input(in), target);
    const auto* const bytes = out.host.mapping().host();
    return {bytes, bytes + out.bytes};
  }

  std::shared_ptr<Device> device_;
  TemporaryFolder folder_;
  int files_ = 0;
};

constexpr const char* add_seven = R"(
extern "C" __global__ void add(gpumap_frame frame) {
  const gpumap_u64 step = 1ull * gridDim.x * blockDim.x;
  for (gpumap_u64 i = 1ull * blockIdx.x * blockDim.x + threadIdx.x; i < frame.in.bytes; i += step) {
    ((unsigned char*)frame.out.plane[0])[i] = ((const unsigned char*)frame.in.plane[0])[i] + 7;
  }
}
)";

TEST_F(Resident, GivesWhatLaunchesGive) {
  const auto launched = of(add_seven), stays = of(add_seven, resident());
  begin(*launched);
  begin(*stays);
  for (const std::size_t bytes : {1UL, 63UL, 4096UL, 100003UL, 3110400UL}) {
    for (unsigned seed = 0; seed < 20; ++seed) {
      const auto in = bar_with(random(bytes, seed));
      ASSERT_EQ(run(*stays, *in), run(*launched, *in)) << bytes << " bytes, frame " << seed;
    }
  }
}

// The same slot with other bytes: no line of the frame before is left in a cache.
TEST_F(Resident, SeesEachFrameOfASlotThatIsUsedAgain) {
  const auto stays = of(add_seven, resident());
  begin(*stays);
  const auto slot = device_->allocate({.placement = Placement::bar, .bytes = 4096}, Backend::cuda);
  for (unsigned frame = 0; frame < 20000; ++frame) {
    const auto bytes = random(4096, frame);
    std::memcpy(slot->host(), bytes.data(), bytes.size());
    auto expected = bytes;
    for (std::byte& one : expected) one = static_cast<std::byte>(static_cast<unsigned char>(one) + 7);
    ASSERT_EQ(run(*stays, *slot), expected) << "frame " << frame;
  }
}

TEST_F(Resident, TakesWhatUsersWrite) {
  const auto stays = of(R"(
// gpumap: functions sum,scale
// gpumap: block 128
// gpumap: grid 7
// gpumap: shared 512
extern __shared__ unsigned char room[];
extern "C" __global__ void sum(gpumap_frame frame) {
  __shared__ unsigned total;
  if (threadIdx.x == 0) total = 0;
  room[threadIdx.x] = 1;
  __syncthreads();
  atomicAdd(&total, room[threadIdx.x]);
  __syncthreads();
  const gpumap_u64 i = 128ull * blockIdx.x + threadIdx.x;
  if (i < frame.in.bytes) {
    ((unsigned char*)frame.out.plane[0])[i] = ((const unsigned char*)frame.in.plane[0])[i] + total / 128;
  }
}
extern "C" __global__ void scale(gpumap_frame frame) {
  const gpumap_u64 i = 128ull * blockIdx.x + threadIdx.x;
  if (i < frame.in.bytes) {
    ((unsigned char*)frame.out.plane[0])[i] = ((const unsigned char*)frame.in.plane[0])[i] * 3;
  }
}
)",
                        resident());
  begin(*stays);
  for (unsigned seed = 0; seed < 500; ++seed) {
    const auto bytes = random(807, seed);
    const auto in = bar_with(bytes);
    const auto out = run(*stays, *in);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      ASSERT_EQ(static_cast<unsigned char>(out[i]),
                static_cast<unsigned char>((static_cast<unsigned char>(bytes[i]) + 1) * 3))
          << "frame " << seed << ", byte " << i;
    }
  }
}

// Names that stand for types where the compiler writes names down, and those of the loop.
TEST_F(Resident, TakesAnyName) {
  const std::string add = add_seven;
  const std::string name = " add(";
  for (const char* other :
       {"f", "i", "d", "x", "Pi", "v", "run", "_Z", "St", "frame", "function", "residence", "stay", "turn"}) {
    for (const bool mangled : {false, true}) {
      std::string code = add;
      code.replace(code.find(name), name.size(), std::string(" ") + other + "(");
      if (mangled) code.replace(code.find("extern \"C\" "), 11, "");
      KernelSettings settings = resident();
      settings.defines = "threads=1,self=2,row=3,block=4,number=5,all=6,parts=7,ONCE";
      const auto stays = of(code, settings);
      EXPECT_TRUE(stays->how().resident) << other << ": " << stays->how().why;
      begin(*stays);
      const auto bytes = random(1003, 5);
      auto expected = bytes;
      for (std::byte& one : expected) one = static_cast<std::byte>(static_cast<unsigned char>(one) + 7);
      EXPECT_EQ(run(*stays, *bar_with(bytes)), expected) << other;
    }
  }
}

// Kernels whose threads end before others wait for them: they are launched, and do what they say.
TEST_F(Resident, DoesNotStayWhereThreadsEndEarly) {
  const std::string body = R"(
  const gpumap_u64 i = 1ull * blockIdx.x * blockDim.x + threadIdx.x;
  if (i < frame.in.bytes) ((unsigned char*)frame.out.plane[0])[i] = ((const unsigned char*)frame.in.plane[0])[i] + 7;
)";
  const std::string begins = "extern \"C\" __global__ void kernel(gpumap_frame frame) {\n" + body;
  for (const std::string& code :
       {"__device__ void rest() { __syncthreads(); }\n" + begins + "  if (threadIdx.x > 3) return;\n  rest();\n}\n",
        "#define SKIP(x) if (x) return\n" + begins + "  SKIP(threadIdx.x > 3);\n  __syncthreads();\n}\n",
        begins + "  for (int turn = 0; turn < 2; ++turn) {\n    __syncthreads();\n    if (threadIdx.x > 3) return;\n  "
                 "}\n}\n",
        begins + "  if (threadIdx.x > 3) asm volatile(\"exit;\");\n  __syncthreads();\n}\n"}) {
    EXPECT_THROW(static_cast<void>(of(code, resident())), Error) << code;
    KernelSettings settings;
    settings.mode = KernelMode::automatic;
    const auto launched = of(code, settings);
    EXPECT_FALSE(launched->how().resident);
    EXPECT_THAT(launched->how().why,
                testing::AnyOf(testing::HasSubstr("end early"), testing::HasSubstr("ends by itself")));
    begin(*launched);
    const auto bytes = random(5003, 6);
    auto expected = bytes;
    for (std::byte& one : expected) one = static_cast<std::byte>(static_cast<unsigned char>(one) + 7);
    EXPECT_EQ(run(*launched, *bar_with(bytes)), expected) << code;
  }
}

// Of more functions than the GPU is asked for at a time, the first of which does not end: who watches sees it, and who
// gives the frame up is back.
TEST_F(Resident, AFrameThatDoesNotEndIsGivenUpInTheMiddle) {
  std::string names = "first", functions;
  for (int i = 1; i < 70; ++i) {
    const std::string name = "next" + std::to_string(i);
    names += "," + name;
    functions += "extern \"C\" __global__ void " + name + "(gpumap_frame frame) {}\n";
  }
  const auto stays = of("// gpumap: output unchanged\n// gpumap: functions " + names + R"(
extern "C" __global__ void first(gpumap_frame frame) {
  while (*(const volatile unsigned char*)frame.in.plane[0] == 0) {}
}
)" + functions,
                        resident());
  begin(*stays);
  const auto in = bar_with(std::vector<std::byte>(4096));
  auto given_up = std::async(std::launch::async, [&] { return stays->launch(input(*in), {}).outcome; });
  const Deadline end = Clock::now() + 60s;
  while (stays->last_launched().signalled() && Clock::now() < end) std::this_thread::sleep_for(1ms);
  EXPECT_FALSE(stays->last_launched().signalled()) << "the watchdog would see nothing";
  stays->cancel(true);
  EXPECT_EQ(given_up.wait_for(60s), std::future_status::ready);
  EXPECT_FALSE(stays->last_launched().signalled());
  std::memset(in->host(), 1, 1);
  store_fence();
  EXPECT_EQ(given_up.get(), FrameOutput::Outcome::cancelled);
  stays->cancel(false);
  EXPECT_TRUE(stays->wait(stays->last_launched()));
  EXPECT_EQ(stays->launch(input(*in), {}).outcome, FrameOutput::Outcome::given);
  stays->drain();
}

TEST_F(Resident, StopsWithinTenMilliseconds) {
  const auto in = bar_with(random(4096, 1));
  std::chrono::nanoseconds shortest = 1h;  // other processes may keep this one's threads waiting
  for (int round = 0; round < 10; ++round) {
    auto stays = of(add_seven, resident());
    begin(*stays);
    static_cast<void>(run(*stays, *in));
    const auto began = Clock::now();
    ASSERT_TRUE(stays->end());
    shortest = std::min<std::chrono::nanoseconds>(shortest, Clock::now() - began);
  }
  EXPECT_LT(shortest, 10ms);
}

// What frees and loads goes on while kernels stay: they leave for it.
TEST_F(Resident, NobodyWaitsForItForLong) {
  KernelSettings long_idle = resident();
  long_idle.resident_idle_ms = 3600000;
  const auto one = of(add_seven, long_idle), two = of(add_seven, long_idle), launched = of(add_seven);
  for (KernelLauncher* launcher : {one.get(), two.get(), launched.get()}) begin(*launcher);
  const auto in = bar_with(random(100003, 1));
  std::vector<Clock::duration> freed;
  for (int round = 0; round < 40; ++round) {
    const auto first = run(*one, *in);
    EXPECT_EQ(run(*two, *in), first);
    EXPECT_EQ(run(*launched, *in), first);
    const auto began = Clock::now();
    bar_with(random(4096, 2)).reset();
    freed.push_back(Clock::now() - began);
    if (round % 10 != 0) continue;
    const auto other = of(add_seven);  // loads a module
    begin(*other);
    EXPECT_EQ(run(*other, *in), first);
  }
  // Without that it would be 200 ms: their stay.
  std::nth_element(freed.begin(), freed.begin() + 20, freed.end());
  EXPECT_LT(freed[20], 100ms);
}

// Frame after frame through kernels that stay, each waiting for the one before on the GPU, and one that is launched.
TEST_F(Resident, HandsOverOnTheGpu) {
  const auto first = of(add_seven, resident()), second = of(add_seven, resident()), last = of(add_seven);
  for (KernelLauncher* launcher : {first.get(), second.get(), last.get()}) begin(*launcher);
  const auto slot = device_->allocate({.placement = Placement::bar, .bytes = 5003}, Backend::cuda);
  const auto after = [](const FrameOutput& before) {
    FrameInput made = input(before.block.mapping());
    made.bytes = made.view.bytes = before.bytes;
    made.written = before.done;
    return made;
  };
  for (unsigned frame = 0; frame < 5000; ++frame) {
    auto expected = random(5003, frame);
    std::memcpy(slot->host(), expected.data(), expected.size());
    const FrameOutput one = first->launch(input(*slot), {});
    const FrameOutput two = second->launch(after(one), {});
    const FrameOutput three = last->launch(after(two), {.place = Place::host});
    for (std::byte& byte : expected) byte = static_cast<std::byte>(static_cast<unsigned char>(byte) + 21);
    const auto* const bytes = three.host.mapping().host();
    ASSERT_EQ(std::vector<std::byte>(bytes, bytes + three.bytes), expected) << "frame " << frame;
  }
}

TEST_F(Resident, TakesNewParametersWithTheNextFrame) {
  const auto stays = of(R"(
// gpumap: params add=1
extern "C" __global__ void add(gpumap_frame frame) {
  const gpumap_u64 i = 1ull * blockIdx.x * blockDim.x + threadIdx.x;
  if (i < frame.in.bytes) {
    ((unsigned char*)frame.out.plane[0])[i] = ((const unsigned char*)frame.in.plane[0])[i] + (int)frame.params[0];
  }
}
)",
                        resident());
  begin(*stays);
  const auto bytes = random(1001, 1);
  const auto in = bar_with(bytes);
  for (unsigned frame = 0; frame < 1000; ++frame) {
    stays->set_params("add=" + std::to_string(frame % 200));
    auto expected = bytes;
    for (std::byte& one : expected) one = static_cast<std::byte>(static_cast<unsigned char>(one) + frame % 200);
    ASSERT_EQ(run(*stays, *in), expected) << "frame " << frame;
  }
}

// Together they take more than the GPU, beside launches that fill it: of both there must not be a part for ever.
TEST_F(Resident, TakesTurnsWithAnotherPriority) {
  const auto of_priority = [&](std::uint32_t priority) {
    KernelSettings settings = resident();
    settings.resident_blocks = 100'000;  // as many as it takes
    settings.priority = priority;
    return of(add_seven, settings);
  };
  struct Turn {
    std::unique_ptr<KernelLauncher> launcher;
    std::atomic<unsigned> frames{0};
    std::future<void> done;
  };
  std::array<Turn, 3> turns;
  turns[0].launcher = of_priority(0);
  turns[1].launcher = of_priority(1);
  turns[2].launcher = of(R"(
// gpumap: output unchanged
extern "C" __global__ void fill(gpumap_frame) {
  for (const long long end = clock64() + 200000; clock64() < end;) {}
}
)");
  const auto in = bar_with(random(1'000'000, 1));
  for (Turn& turn : turns) {
    begin(*turn.launcher);
    turn.done = std::async(std::launch::async, [&turn, &in] {
      for (auto& frames = turn.frames; frames < 500; ++frames) {
        if (turn.launcher->launch(input(*in), {}).outcome != FrameOutput::Outcome::given) break;
      }
      turn.launcher->drain();
    });
  }
  // Other programs may have the GPU for a while, but none of the three stands.
  for (Turn& turn : turns) {
    unsigned before = 0;
    do {
      before = turn.frames;
    } while (turn.done.wait_for(60s) != std::future_status::ready && turn.frames != before);
    EXPECT_EQ(turn.done.wait_for(0s), std::future_status::ready) << &turn - turns.data();
  }
  for (Turn& turn : turns) turn.launcher->cancel(true);
  for (Turn& turn : turns) {
    turn.done.get();
    EXPECT_EQ(turn.frames, 500U);
  }
}

// What cannot stay is refused, or launched where the mode leaves that open: with the reason.
TEST_F(Resident, SaysWhatCannotStay) {
  const std::string too_much = R"(
extern "C" __global__ void large(gpumap_frame frame) {
  __shared__ volatile unsigned char room[48 * 1024 - 16];
  room[(threadIdx.x * 4099u) % sizeof room] = threadIdx.x;
  __syncthreads();
  ((unsigned char*)frame.out.plane[0])[0] = room[(blockIdx.x * 4099u) % sizeof room] * 0 + 5;
}
)";
  const std::string whole_grid = "#define WAIT_FOR_ALL cg::this_grid().sync()\n" + std::string(add_seven);
  for (const auto& [code, why] : {std::pair(too_much, "shared"), std::pair(whole_grid, "this_grid")}) {
    try {
      static_cast<void>(of(code, resident()));
      ADD_FAILURE() << why << ": it was taken";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(why));
    }
    KernelSettings settings;
    settings.mode = KernelMode::automatic;
    const auto launched = of(code, settings);
    EXPECT_FALSE(launched->how().resident);
    EXPECT_THAT(launched->how().why, testing::HasSubstr(why));
    begin(*launched);
    EXPECT_EQ(run(*launched, *bar_with(random(10, 1))).size(), 10U);
  }
  const auto stays = of(add_seven, resident());
  EXPECT_TRUE(stays->how().resident);
  const char* doorbell = std::getenv("GPUMAP_CUDA_DOORBELL");
  EXPECT_THAT(stays->how().why, testing::HasSubstr(doorbell != nullptr && std::string(doorbell) == "host"
                                                       ? "doorbell is in host memory: GPUMAP_CUDA_DOORBELL=host"
                                                       : "doorbell"));
}

}  // namespace
}  // namespace gpumap
