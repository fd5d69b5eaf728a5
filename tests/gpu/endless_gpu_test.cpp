// SPDX-License-Identifier: MIT
// Kernels that do not end: what waits for them goes all the same, nothing is freed that they use, and the GPU serves
// others again once they have ended. They end when the test writes into the frame that they read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "device/cuda_driver.hpp"
#include "device/gpu_device.hpp"
#include "gpumap/copy.hpp"
#include "gpumap/error.hpp"
#include "gpumap/kernel_launcher.hpp"
#include "queue/queues.hpp"
#include "temporary_folder.hpp"

namespace gpumap {
namespace {

using namespace std::chrono_literals;

/// What may wait for a kernel waits for 5 s, one after the other.
constexpr auto bound = 20s;

class Endless : public ::testing::TestWithParam<KernelMode> {
 protected:
  void SetUp() override {
    try {
      device_ = Device::open("auto");
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    if (!device_->has(Backend::cuda)) GTEST_SKIP() << "no CUDA here";
    in_ = device_->allocate({.placement = Placement::bar, .bytes = 4096}, Backend::cuda);
    hold();
  }
  void TearDown() override {
    if (!in_) return;
    let_go();
    const Deadline end = Clock::now() + 60s;
    while (cuda().stuck() && Clock::now() < end) std::this_thread::sleep_for(1ms);
    EXPECT_FALSE(cuda().stuck());
    // The GPU serves others as before: what is loaded, launched and freed.
    const auto next = launcher("next", "", GetParam());
    EXPECT_EQ(next->launch(input(), {}).outcome, FrameOutput::Outcome::given);
    next->drain();
    EXPECT_TRUE(next->end());
  }
  [[nodiscard]] const CudaContext& cuda() const { return *dynamic_cast<GpuDevice&>(*device_).cuda(); }
  void hold() const {
    std::memset(in_->host(), 0, in_->bytes());
    store_fence();
  }
  void let_go() const {
    std::memset(in_->host(), 1, in_->bytes());
    store_fence();
  }
  [[nodiscard]] KernelSettings settings(const std::string& name, const std::string& body, KernelMode mode) {
    KernelSettings made;
    made.mode = mode;
    made.location = folder_.path() / (name + ".cu");
    std::ofstream(made.location) << "// gpumap: output unchanged\n#include <gpumap/kernel.h>\n"
                                    "extern \"C\" __global__ void kernel(gpumap_frame frame) {\n"
                                 << body << "}\n";
    return made;
  }
  [[nodiscard]] std::unique_ptr<KernelLauncher> launcher(const std::string& name, const std::string& body,
                                                         KernelMode mode) {
    auto made = std::make_unique<KernelLauncher>(settings(name, body, mode), device_);
    FrameLayout layout;
    layout.view.format = GPUMAP_FORMAT_BYTES;
    made->set_stream(layout, layout);
    return made;
  }
  [[nodiscard]] FrameInput input() const {
    FrameInput made;
    made.view.format = GPUMAP_FORMAT_BYTES;
    made.view.plane[0] = made.address = in_->address(Backend::cuda);
    made.view.bytes = made.bytes = in_->bytes();
    made.mapping = in_.get();
    return made;
  }

  static constexpr const char* endless = "  while (*(const volatile unsigned char*)frame.in.plane[0] == 0) {}\n";
  std::shared_ptr<Device> device_;
  std::shared_ptr<Mapping> in_;
  TemporaryFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(Modes, Endless, ::testing::Values(KernelMode::launch, KernelMode::resident),
                         [](const auto& one) { return one.param == KernelMode::launch ? "launch" : "resident"; });

TEST_P(Endless, ItsLauncherEnds) {
  auto stuck = launcher("endless", endless, GetParam());
  EXPECT_EQ(stuck->launch(input(), {}).outcome, FrameOutput::Outcome::given);
  const auto began = Clock::now();
  EXPECT_FALSE(stuck->end());
  EXPECT_TRUE(cuda().stuck());
  stuck.reset();
  EXPECT_LT(Clock::now() - began, bound);
}

// What CUDA leaves undefined, and a launch does: threads that have left the kernel are not waited for. In one that
// stays they come to its loop, and must not let the others go on there. In a process of its own, whose end ends the
// kernel.
TEST_P(Endless, AWaitThatOthersPassByEndsInALaunchAlone) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto ends = [this] {
    const auto one = launcher("passes", "  if (threadIdx.x < 32) __syncthreads();\n", GetParam());
    EXPECT_EQ(one->how().resident, GetParam() == KernelMode::resident);
    bool all = true;
    for (int i = 0; i < 3 && all; ++i) {
      EXPECT_EQ(one->launch(input(), {}).outcome, FrameOutput::Outcome::given);
      const Fence last = one->last_launched();
      for (const Deadline end = Clock::now() + 3s; !last.signalled() && Clock::now() < end;) std::this_thread::yield();
      all = last.signalled();
    }
    std::_Exit(all ? 3 : 4);
  };
  EXPECT_EXIT(ends(), testing::ExitedWithCode(GetParam() == KernelMode::launch ? 3 : 4), "");
}

// Who mends the file of a kernel that does not end, and has it loaded again, stops it as soon.
TEST_P(Endless, ItsReloadEnds) {
  KernelSettings made = settings("endless", endless, GetParam());
  made.reload = true;
  auto stuck = std::make_unique<KernelLauncher>(made, device_);
  FrameLayout layout;
  layout.view.format = GPUMAP_FORMAT_BYTES;
  stuck->set_stream(layout, layout);
  EXPECT_EQ(stuck->launch(input(), {}).outcome, FrameOutput::Outcome::given);
  static_cast<void>(settings("endless", "", GetParam()));
  for (const Deadline end = Clock::now() + 5s; Clock::now() < end; std::this_thread::sleep_for(50ms)) {
    EXPECT_FALSE(stuck->reload());
  }
  const auto began = Clock::now();
  stuck.reset();
  EXPECT_LT(Clock::now() - began, bound);
}

// Memory, code and queues of others, which the driver would free once the GPU runs nothing.
TEST_P(Endless, OthersFreeWhatTheyHave) {
  auto stuck = launcher("endless", endless, GetParam());
  auto healthy = launcher("healthy", "", GetParam());
  EXPECT_EQ(healthy->launch(input(), {}).outcome, FrameOutput::Outcome::given);
  healthy->drain();
  auto memory = device_->allocate({.placement = Placement::host, .bytes = 4096}, Backend::cuda);
  auto device_memory = device_->allocate({.placement = Placement::device, .bytes = 4096}, Backend::cuda);
  EXPECT_EQ(stuck->launch(input(), {}).outcome, FrameOutput::Outcome::given);
  const auto began = Clock::now();
  memory.reset();  // nobody gave the kernel up so far
  device_memory.reset();
  healthy.reset();
  EXPECT_LT(Clock::now() - began, bound);
  stuck.reset();
  EXPECT_LT(Clock::now() - began, bound);
}

// Without a launcher.
TEST_P(Endless, ItsQueueEnds) {
  if (GetParam() != KernelMode::launch) GTEST_SKIP() << "ItsLauncherEnds is of that";
  const KernelSettings made = settings("endless", endless, KernelMode::launch);
  auto kernel = Kernel::load(device_, load_kernel_file(made.location));
  auto queue = device_->create_queue(Backend::cuda);
  gpumap_frame frame{};
  frame.in = input().view;
  queue->launch(*kernel, {}, frame);
  const Fence end = queue->submit();
  const auto began = Clock::now();
  queue.reset();
  kernel.reset();
  EXPECT_LT(Clock::now() - began, bound);
  EXPECT_FALSE(end.signalled());
  EXPECT_TRUE(cuda().stuck());
}

}  // namespace
}  // namespace gpumap
