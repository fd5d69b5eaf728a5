// SPDX-License-Identifier: MIT
// Copies and clears in order, fences between queues and back ends, ranges that are refused, a device that is lost.
#include <gtest/gtest.h>
#include <gpumap/device.hpp>
#include <gpumap/error.hpp>
#include <gpumap/fence.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "device/gpu_device.hpp"
#include "device/vulkan_device.hpp"
#include "fake_device.hpp"
#include "gpumap/kernel.hpp"
#include "gpumap/kernel_launcher.hpp"
#include "gpumap/program.hpp"
#include "kernel/kernel_memory.hpp"
#include "temporary_folder.hpp"
#include "test_helpers.hpp"

namespace gpumap {
namespace {

// Where the GPU cannot wait, the CPU does, and what it waits for may never come.
TEST(CrossBackendWait, EndsWhenCancelled) {
  const auto queue = Device::open()->create_queue();
  const auto timeline = std::make_shared<test::FakeTimeline>();
  std::atomic<bool> cancel{false};
  std::thread canceller([&] {
    while (timeline->asked < 3) std::this_thread::yield();
    cancel = true;
  });
  EXPECT_EQ(queue->wait(Fence(timeline, 1), cancel), WaitResult::cancelled);
  canceller.join();
  timeline->reached = 1;
  EXPECT_EQ(queue->wait(Fence(timeline, 1), cancel), WaitResult::ready);
}

/// What a queue is told to wait for comes when the test says so.
class Gate {
 public:
  explicit Gate(const std::shared_ptr<Device>& device)
      : timeline_(std::make_shared<VulkanTimeline>(std::dynamic_pointer_cast<GpuDevice>(device))) {}
  ~Gate() { open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  [[nodiscard]] Fence fence() const { return {timeline_, 1}; }
  void open() {
    if (std::exchange(open_, true)) return;
    timeline_->context().device().signalSemaphore({timeline_->semaphore(), 1});
  }

 private:
  const std::shared_ptr<VulkanTimeline> timeline_;
  bool open_ = false;
};

// Memory that grows is used by what was launched, which may never end: a thread that waits for it can be stopped.
TEST(Finish, EndsWhenCancelled) {
  const auto device = Device::open();
  const auto queue = device->create_queue(Backend::vulkan);
  WorkMemory memory(device, Backend::vulkan);
  const std::uint64_t address = memory.ready(*queue, 1000);
  queue->clear(*memory.memory(), 0, 1000);
  EXPECT_EQ(memory.ready(*queue, 999), address);
  EXPECT_NO_THROW(queue->finish());
  std::atomic<bool> waits{false}, cancel{false};
  queue->set_wait([&](const Fence& fence) {
    waits = true;
    return fence.wait(cancel) == WaitResult::ready;
  });
  Gate gate(device);
  EXPECT_EQ(queue->wait(gate.fence(), test::never), WaitResult::ready);
  queue->clear(*memory.memory(), 0, 1000);
  std::thread canceller([&] {
    while (!waits) std::this_thread::yield();
    cancel = true;
  });
  EXPECT_THROW(static_cast<void>(memory.ready(*queue, 1'000'000)), QueueCancelled);
  canceller.join();
  EXPECT_EQ(memory.bytes(), 1008U);
  EXPECT_EQ(memory.address(), address) << "what was launched may still use it";
  cancel = false;
  gate.open();
  EXPECT_NE(memory.ready(*queue, 1'000'000), 0U);
  EXPECT_GE(memory.bytes(), 1'000'000U);
  // Rising sizes seldom wait.
  waits = false;
  EXPECT_NE(memory.ready(*queue, 1'000'004), 0U);
  EXPECT_GE(memory.bytes(), 1'500'000U);
  EXPECT_EQ(validation_message_count(), 0U);
}

// A queue whose work does not end goes all the same, and until it has ended no memory is freed that it may use.
TEST(QueueEnd, ComesThoughItsWorkDoesNotEnd) {
  const auto device = Device::open();
  VulkanContext& context = *std::dynamic_pointer_cast<GpuDevice>(device)->vulkan();
  auto queue = device->create_queue(Backend::vulkan);
  auto memory = device->allocate({.placement = Placement::host, .bytes = 1000}, Backend::vulkan);
  std::fill_n(memory->host(), 1000, std::byte{7});
  std::byte* const host = memory->host();
  Gate gate(device);
  EXPECT_EQ(queue->wait(gate.fence(), test::never), WaitResult::ready);
  queue->clear(*memory, 0, 500);
  const Fence end = queue->submit();
  const std::size_t kept = kept_for_good();
  queue.reset();
  EXPECT_FALSE(end.signalled());
  EXPECT_TRUE(context.stuck_work().any());
  EXPECT_EQ(kept_for_good(), kept + 1) << "what it uses of its own";
  memory.reset();
  EXPECT_EQ(kept_for_good(), kept + 2) << "what was asked of it";
  gate.open();
  EXPECT_EQ(end.wait_for(std::chrono::minutes(1)), WaitResult::ready);
  EXPECT_EQ(host[499], std::byte{0});
  EXPECT_EQ(host[500], std::byte{7});
  EXPECT_FALSE(context.stuck_work().any());
  device->allocate({.placement = Placement::host, .bytes = 1000}, Backend::vulkan).reset();
  EXPECT_EQ(kept_for_good(), kept + 2) << "as before";
  EXPECT_EQ(validation_message_count(), 0U);
}

/// The class of the table has another name in newer headers of Vulkan. The table is the device's own, and not const.
auto& calls_of(const VulkanContext& context) {
  using Dispatcher = std::remove_cvref_t<decltype(*context.device().getDispatcher())>;
  return const_cast<Dispatcher&>(*context.device().getDispatcher());
}

// A copy between device and host memory, behind work that does not end: who asked for it is told, and the memory stays.
TEST(Staging, KeepsWhatACopyUsesThatDoesNotEnd) {
  const auto device = Device::open();
  VulkanContext& context = *std::dynamic_pointer_cast<GpuDevice>(device)->vulkan();
  auto memory = device->allocate({.placement = Placement::device, .bytes = 1000}, Backend::vulkan);
  std::vector<std::byte> data(1000);
  memory->download(0, data);
  Gate gate(device);
  auto queue = device->create_queue(Backend::vulkan);
  EXPECT_EQ(queue->wait(gate.fence(), test::never), WaitResult::ready);
  queue->clear(*memory, 0, 500);
  const Fence end = queue->submit();
  std::atomic<bool> given_up{false};
  std::thread gives_up([&given_up] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    given_up = true;
  });
  const auto began = Clock::now();
  EXPECT_THROW(memory->download_unless([&given_up] { return given_up.load(); }, 0, data), Error);
  EXPECT_LT(Clock::now() - began, std::chrono::seconds(10));
  gives_up.join();
  EXPECT_TRUE(context.stuck_work().any());
  const std::size_t kept = kept_for_good();
  memory.reset();
  EXPECT_EQ(kept_for_good(), kept + 1);
  gate.open();
  EXPECT_EQ(end.wait_for(std::chrono::minutes(1)), WaitResult::ready);
  for (const Deadline latest = Clock::now() + std::chrono::minutes(1); context.stuck_work().any();) {
    ASSERT_LT(Clock::now(), latest);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(validation_message_count(), 0U);
}

// Nor does it keep others from their copies, which have ends of their own.
TEST(Staging, CopiesWaitForNoOther) {
  static std::mutex mutex;
  static std::set<VkFence> waiting;
  static PFN_vkWaitForFences wait = nullptr;
  const auto count = [] {
    const std::lock_guard lock(mutex);
    return waiting.size();
  };
  const auto device = Device::open();
  auto& calls = calls_of(*std::dynamic_pointer_cast<GpuDevice>(device)->vulkan());
  const auto memory = device->allocate({.placement = Placement::device, .bytes = 1000}, Backend::vulkan);
  Gate gate(device);
  const auto queue = device->create_queue(Backend::vulkan);
  EXPECT_EQ(queue->wait(gate.fence(), test::never), WaitResult::ready);
  queue->clear(*memory, 0, 1000);
  const Fence end = queue->submit();
  wait = calls.vkWaitForFences;
  calls.vkWaitForFences = [](VkDevice on, std::uint32_t number, const VkFence* fences, VkBool32 all, std::uint64_t ns) {
    {
      const std::lock_guard lock(mutex);
      waiting.insert(*fences);
    }
    return wait(on, number, fences, all, ns);
  };
  std::vector<std::byte> of_one(1000, std::byte{7}), of_other = of_one;
  std::thread one([&] { memory->download(0, of_one); }), other([&] { memory->download(0, of_other); });
  for (const Deadline latest = Clock::now() + std::chrono::seconds(10); count() != 2 && Clock::now() < latest;)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(count(), 2U);
  gate.open();
  one.join();
  other.join();
  calls.vkWaitForFences = wait;
  EXPECT_EQ(of_one, std::vector<std::byte>(1000));
  EXPECT_EQ(of_other, of_one);
  EXPECT_EQ(end.wait_for(std::chrono::minutes(1)), WaitResult::ready);
  EXPECT_EQ(validation_message_count(), 0U);
}

/// Its counter is what the test says; who asks for it makes `meanwhile` happen, once.
class Asked final : public Timeline {
 public:
  [[nodiscard]] std::uint64_t completed() override {
    if (auto once = std::exchange(meanwhile, nullptr)) once();
    return value;
  }
  void check() override {}
  std::uint64_t value = 0;
  std::function<void()> meanwhile;
};

// While one thread finds that all has ended, another gives up more.
TEST(StuckWork, IsNotForgottenWhileOthersLook) {
  StuckWork stuck;
  const auto one = std::make_shared<Asked>(), other = std::make_shared<Asked>();
  stuck.note(Fence(one, 1), "kernel one");
  EXPECT_EQ(stuck.running(), "kernel one");
  one->value = 1;
  one->meanwhile = [&] { stuck.note(Fence(one, 2), "kernel one again"); };
  EXPECT_EQ(stuck.running(), "kernel one again");
  EXPECT_TRUE(stuck.any());
  one->value = 2;
  one->meanwhile = [&] { stuck.note(Fence(other, 1), "kernel two"); };
  EXPECT_EQ(stuck.running(), "kernel two");
  other->value = 1;
  EXPECT_EQ(stuck.running(), "");
  EXPECT_FALSE(stuck.any());
}

// A frame that was given up may have left a wait for what fills it, which may never come.
TEST(LauncherEnd, ComesBehindAllThatItsQueueHas) {
  const auto device = Device::open();
  for (const bool comes : {true, false}) {
    Gate gate(device);
    KernelSettings settings;
    settings.kernel = "identity";
    settings.backend = Backend::vulkan;
    KernelLauncher kernel(settings, device);
    FrameLayout layout;
    layout.view.format = GPUMAP_FORMAT_BYTES;
    kernel.set_stream(layout, layout);
    const auto memory = device->allocate({.placement = Placement::host, .bytes = 1000}, Backend::vulkan);
    FrameInput in;
    in.view = layout.view;
    in.view.plane[0] = in.address = memory->address(Backend::vulkan);
    in.view.bytes = in.bytes = 997;
    in.mapping = memory.get();
    in.written = gate.fence();
    const FrameTarget without_copy{.place = FrameTarget::Place::others, .view = in.view, .copy = {}};
    EXPECT_THROW(static_cast<void>(kernel.launch(in, without_copy)), Error);
    EXPECT_FALSE(kernel.last_launched().signalled());
    if (comes) {
      gate.open();
      EXPECT_EQ(kernel.last_launched().wait_for(std::chrono::minutes(1)), WaitResult::ready);
    }
    EXPECT_EQ(kernel.end(), comes);
  }
  EXPECT_EQ(validation_message_count(), 0U);
}

// Who mends the file of a kernel that does not end, and stops it, does not wait for the tables of the mended one, which
// stand behind it.
TEST(Reload, IsGivenUpWhileATableStandsBehindWhatDoesNotEnd) {
  static std::atomic<int> submissions;
  static PFN_vkQueueSubmit submit = nullptr;
  const auto device = Device::open();
  const TemporaryFolder folder;
  KernelSettings settings;
  settings.backend = Backend::vulkan;
  settings.location = folder.path() / "sum.comp";
  std::ofstream(folder.path() / "curve") << "0123456789abcdef";
  const std::string source = "#version 460\n// gpumap: table curve uint8 16=" + (folder.path() / "curve").string() +
                             "\n#include <gpumap.glsl>\nvoid main() {}\n";
  std::ofstream(settings.location) << source;
  auto reload = std::make_unique<KernelReload>(device, settings, [](const KernelPlan&) {});
  const auto memory = device->allocate({.placement = Placement::device, .bytes = 1000}, Backend::vulkan);
  Gate gate(device);
  const auto queue = device->create_queue(Backend::vulkan);
  EXPECT_EQ(queue->wait(gate.fence(), test::never), WaitResult::ready);
  queue->clear(*memory, 0, 1000);
  const Fence end = queue->submit();
  auto& calls = calls_of(*std::dynamic_pointer_cast<GpuDevice>(device)->vulkan());
  submit = calls.vkQueueSubmit;
  submissions = 0;
  calls.vkQueueSubmit = [](VkQueue to, std::uint32_t count, const VkSubmitInfo* infos, VkFence fence) {
    ++submissions;
    return submit(to, count, infos, fence);
  };
  std::ofstream(settings.location) << source << "// mended\n";
  for (const Deadline latest = Clock::now() + std::chrono::minutes(1); submissions == 0 && Clock::now() < latest;) {
    EXPECT_FALSE(reload->poll());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(submissions, 1) << "its table's copy";
  const auto began = Clock::now();
  reload.reset();
  EXPECT_LT(Clock::now() - began, std::chrono::seconds(30));
  calls.vkQueueSubmit = submit;
  gate.open();
  EXPECT_EQ(end.wait_for(std::chrono::minutes(1)), WaitResult::ready);
  EXPECT_EQ(validation_message_count(), 0U);
}

// What was asked of its queue cannot be submitted, and its last launch has not ended.
TEST(LauncherEnd, ComesWhereTheDriverRefuses) {
  const auto device = Device::open();
  VulkanContext& context = *std::dynamic_pointer_cast<GpuDevice>(device)->vulkan();
  KernelSettings settings;
  settings.kernel = "identity";
  settings.backend = Backend::vulkan;
  auto kernel = std::make_unique<KernelLauncher>(settings, device);
  FrameLayout layout;
  layout.view.format = GPUMAP_FORMAT_BYTES;
  kernel->set_stream(layout, layout);
  const auto memory = device->allocate({.placement = Placement::host, .bytes = 1000}, Backend::vulkan);
  Gate gate(device);
  FrameInput in;
  in.view = layout.view;
  in.view.plane[0] = in.address = memory->address(Backend::vulkan);
  in.view.bytes = in.bytes = 1000;
  in.mapping = memory.get();
  in.written = gate.fence();
  EXPECT_EQ(kernel->launch(in, {}).outcome, FrameOutput::Outcome::given);
  const Fence last = kernel->last_launched();
  EXPECT_FALSE(last.signalled());
  kernel->queue().clear(*memory, 0, 4);
  auto& calls = calls_of(context);
  const auto submit = calls.vkQueueSubmit;
  calls.vkQueueSubmit = [](VkQueue, std::uint32_t, const VkSubmitInfo*, VkFence) {
    return VK_ERROR_OUT_OF_HOST_MEMORY;
  };
  EXPECT_FALSE(kernel->end());
  calls.vkQueueSubmit = submit;
  EXPECT_TRUE(context.stuck_work().any());
  kernel.reset();
  EXPECT_FALSE(last.signalled());
  gate.open();
  EXPECT_EQ(last.wait_for(std::chrono::minutes(1)), WaitResult::ready);
  EXPECT_EQ(validation_message_count(), 0U);
}

// The built-ins whose memory grows with the frames, and whose tables are made anew with parameters.
TEST(Finish, EndsProgramsThatGrow) {
  const auto device = Device::open();
  struct Case {
    const char *name, *params;
  };
  for (const Case& one :
       {Case{"ddc", "rate=20000"}, Case{"spectrum", "size=64,overlap=0.5"}, Case{"channelizer", ""}}) {
    const auto program = Program::load(device, *find_builtin(one.name), Backend::vulkan);
    program->set_params(one.params);
    const auto queue = device->create_queue(Backend::vulkan);
    gpumap_view in{}, out{};
    in.format = GPUMAP_FORMAT_S16;
    in.channels = 2;
    in.rate = 48000;
    program->begin(in, out);
    constexpr std::size_t most = 400'000;
    const auto from = device->allocate({.placement = Placement::host, .bytes = most}, Backend::vulkan);
    const auto to = device->allocate({.placement = Placement::host, .bytes = 40 * most}, Backend::vulkan);
    const auto run = [&](std::size_t bytes) {
      gpumap_frame frame{};
      frame.in = in;
      frame.in.plane[0] = from->address(Backend::vulkan);
      frame.in.bytes = bytes;
      frame.out.plane[0] = to->address(Backend::vulkan);
      frame.out.bytes = program->output_bytes(bytes).value();
      program->run(*queue, frame);
    };
    for (int frame = 0; frame < 3; ++frame) run(2000);
    queue->finish();
    Gate gate(device);
    std::atomic<bool> waits{false}, cancel{false};
    queue->set_wait([&](const Fence& fence) {
      waits = true;
      return fence.wait(cancel) == WaitResult::ready;
    });
    EXPECT_EQ(queue->wait(gate.fence(), test::never), WaitResult::ready);
    std::thread canceller([&] {
      while (!waits) std::this_thread::yield();
      cancel = true;
    });
    EXPECT_THROW(run(most), QueueCancelled) << one.name;
    waits = true;  // where nothing had to grow
    canceller.join();
    gate.open();
    cancel = false;
    program->begin(in, out);
    run(most);
    queue->finish();
  }
  EXPECT_EQ(validation_message_count(), 0U);
}

class Copies : public ::testing::Test {
 protected:
  std::shared_ptr<Mapping> filled(std::size_t size, unsigned seed) {
    auto mapping = device_->allocate({Placement::bar, size});
    std::mt19937 generator(seed);
    data_.resize(size);
    std::generate(data_.begin(), data_.end(), [&] { return static_cast<std::byte>(generator()); });
    std::copy(data_.begin(), data_.end(), mapping->host());
    mapping->flush(0, size);
    return mapping;
  }
  [[nodiscard]] std::vector<std::byte> part(std::size_t offset, std::size_t bytes) const {
    const auto first = data_.begin() + static_cast<std::ptrdiff_t>(offset);
    return {first, first + static_cast<std::ptrdiff_t>(bytes)};
  }
  static std::vector<std::byte> downloaded(const Mapping& mapping, std::size_t offset, std::size_t bytes) {
    std::vector<std::byte> result(bytes);
    mapping.download(offset, result);
    return result;
  }
  void TearDown() override { EXPECT_EQ(validation_message_count(), 0U); }

  std::shared_ptr<Device> device_ = Device::open();
  std::vector<std::byte> data_;
};

TEST_F(Copies, OddOffsetsBetweenPlacements) {
  constexpr std::size_t size = 777777;
  const auto from = filled(size, 1);
  const auto queue = device_->create_queue();
  for (const auto placement : {Placement::bar, Placement::device, Placement::host}) {
    const auto to = device_->allocate({placement, size + 13});
    queue->copy(*from, 3, *to, 13, size - 3);
    EXPECT_EQ(queue->submit().wait_for(std::chrono::minutes(1)), WaitResult::ready);
    EXPECT_EQ(downloaded(*to, 13, size - 3), part(3, size - 3));
  }
}

TEST_F(Copies, HostMemoryIsReadableOnceTheFenceSignals) {
  const auto from = filled(65537, 2);
  const auto to = device_->allocate({Placement::host, 65537});
  const auto queue = device_->create_queue();
  queue->copy(*from, 0, *to, 0, 65537);
  EXPECT_EQ(queue->submit().wait_for(std::chrono::minutes(1)), WaitResult::ready);
  to->invalidate(0, 65537);
  EXPECT_TRUE(std::equal(data_.begin(), data_.end(), to->host()));
}

TEST_F(Copies, ClearZeroesItsRangeAlone) {
  constexpr std::size_t size = 65540;
  const auto queue = device_->create_queue();
  for (const auto placement : {Placement::device, Placement::host}) {
    const auto from = filled(size, 4);
    const auto to = device_->allocate({placement, size});
    queue->copy(*from, 0, *to, 0, size);
    queue->clear(*to, 1000, 33332);
    EXPECT_EQ(queue->submit().wait_for(std::chrono::minutes(1)), WaitResult::ready);
    auto expected = data_;
    std::fill_n(expected.begin() + 1000, 33332, std::byte{0});
    EXPECT_EQ(downloaded(*to, 0, size), expected);
    EXPECT_THROW(queue->clear(*to, 2, 4), Error);
    EXPECT_THROW(queue->clear(*to, 0, 3), Error);
    EXPECT_THROW(queue->clear(*to, size - 4, 8), Error);
  }
}

TEST_F(Copies, CommandsOfOneQueueRunInOrder) {
  constexpr std::size_t size = 1 << 20;
  const auto from = filled(size, 3);
  const auto a = device_->allocate({Placement::device, size});
  const auto b = device_->allocate({Placement::device, size});
  const auto queue = device_->create_queue();
  // A chain through a and b: any overlap of two links would show.
  for (int i = 0; i < 20; ++i) {
    queue->copy(*from, 0, *a, 0, size);
    queue->copy(*a, 0, *b, 1, size - 1);
    queue->copy(*b, 1, *a, 0, size - 1);
    if (i % 3 == 0) static_cast<void>(queue->submit());
  }
  const auto fence = queue->submit();
  EXPECT_EQ(fence.wait_for(std::chrono::minutes(1)), WaitResult::ready);
  EXPECT_EQ(downloaded(*a, 0, size), data_);
  EXPECT_EQ(downloaded(*b, 1, size - 1), part(0, size - 1));
}

TEST_F(Copies, AnotherQueueWaitsForAFence) {
  constexpr std::size_t size = 4 << 20;
  const auto from = filled(size, 4);
  const auto middle = device_->allocate({Placement::device, size});
  const auto to = device_->allocate({Placement::host, size});
  const auto first = device_->create_queue();
  const auto second = device_->create_queue();
  for (int i = 0; i < 8; ++i) {
    first->copy(*from, 0, *middle, 0, size);
    const auto written = first->submit();
    second->wait(written, test::never);
    second->copy(*middle, 0, *to, 0, size);
    const auto read = second->submit();
    first->wait(read, test::never);
  }
  EXPECT_EQ(second->submit().wait_for(std::chrono::minutes(1)), WaitResult::ready);
  EXPECT_EQ(downloaded(*to, 0, size), data_);
}

TEST_F(Copies, FencesGrowAndOutliveTheirQueue) {
  const auto from = filled(4096, 5);
  const auto to = device_->allocate({Placement::device, 4096});
  auto queue = device_->create_queue();
  EXPECT_TRUE(queue->submit().signalled()) << "nothing was asked for";
  Fence last;
  for (std::uint64_t i = 1; i <= 100; ++i) {
    queue->copy(*from, 0, *to, 0, 4096);
    last = queue->submit();
    EXPECT_EQ(last.value(), i);
  }
  EXPECT_EQ(queue->submit().value(), last.value()) << "nothing was asked for since";
  queue.reset();
  EXPECT_TRUE(last.signalled()) << "a queue waits for its work before it goes";
  EXPECT_EQ(last.timeline()->completed(), 100U);
  last.timeline()->check();
}

TEST_F(Copies, WaitingOnTheOtherBackendBlocksTheCpu) {
  const auto other = device_->default_backend() == Backend::cuda ? Backend::vulkan : Backend::cuda;
  if (!device_->has(other)) GTEST_SKIP() << "this device has one backend";
  const auto from = filled(1 << 20, 6);
  const auto middle = device_->allocate({Placement::device, 1 << 20});
  const auto to = device_->allocate({Placement::device, 1 << 20});
  const auto first = device_->create_queue();
  const auto second = device_->create_queue(other);
  first->copy(*from, 0, *middle, 0, 1 << 20);
  const auto fence = first->submit();
  second->wait(fence, test::never);
  EXPECT_TRUE(fence.signalled());
  second->copy(*middle, 0, *to, 0, 1 << 20);
  EXPECT_EQ(second->submit().wait_for(std::chrono::minutes(1)), WaitResult::ready);
  EXPECT_EQ(downloaded(*to, 0, 1 << 20), data_);
}

TEST_F(Copies, BadRangesAreRefusedAndTheQueueGoesOn) {
  const auto from = filled(1000, 7);
  const auto to = device_->allocate({Placement::device, 1000});
  const auto queue = device_->create_queue();
  EXPECT_THROW(queue->copy(*from, 1, *to, 0, 1000), Error);
  EXPECT_THROW(queue->copy(*from, 0, *to, 1, 1000), Error);
  EXPECT_THROW(queue->copy(*from, 0, *from, 10, 100), Error);
  queue->copy(*from, 0, *to, 0, 0);
  queue->copy(*from, 0, *to, 0, 1000);
  EXPECT_EQ(queue->submit().wait_for(std::chrono::minutes(1)), WaitResult::ready);
  EXPECT_EQ(downloaded(*to, 0, 1000), data_);
}

TEST_F(Copies, ThreadsWithQueuesOfTheirOwn) {
  constexpr std::size_t size = 200003;
  const auto from = filled(size, 8);
  std::vector<std::thread> threads;
  std::vector<int> right(4, 0);
  for (int& count : right) {
    threads.emplace_back([&, at = &count] {
      const auto queue = device_->create_queue();
      const auto to = device_->allocate({Placement::device, size});
      for (int round = 0; round < 20; ++round) {
        queue->copy(*from, 0, *to, 0, size);
        if (queue->submit().wait_for(std::chrono::minutes(1)) == WaitResult::ready && downloaded(*to, 0, size) == data_)
          ++*at;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(right, std::vector<int>(4, 20));
}

/// In a process of its own: a lost device stays lost.
bool every_call_says_lost() {
  const auto device = Device::open();
  const auto from = device->allocate({Placement::bar, 4096});
  const auto to = device->allocate({Placement::device, 4096});
  const auto queue = device->create_queue();
  queue->copy(*from, 0, *to, 0, 4096);
  const auto span = queue->begin_span();
  const auto open_span = queue->begin_span();
  queue->end_span(*span);
  const auto fence = queue->submit();
  static_cast<void>(
      fence.wait_for(std::chrono::minutes(1)));  // the device is well: what it still works on must not go away under it
  dynamic_cast<GpuDevice&>(*device).mark_lost("a test took it");
  dynamic_cast<GpuDevice&>(*device).mark_lost("an echo of it");

  std::vector<std::byte> out(16);
  const std::vector<std::function<void()>> calls = {
      [&] { static_cast<void>(Device::open()); },
      [&] { static_cast<void>(device->create_queue()); },
      [&] {
        static_cast<void>(device->allocate({Placement::bar, 4096}));
      },
      [&] {
        static_cast<void>(device->allocate({Placement::host, 4096}));
      },
      [&] { queue->copy(*from, 0, *to, 0, 16); },
      [&] { static_cast<void>(queue->wait(fence, test::never)); },
      [&] { static_cast<void>(queue->submit()); },
      [&] { static_cast<void>(queue->begin_span()); },
      [&] { queue->end_span(*open_span); },
      [&] { static_cast<void>(span->times()); },
      [&] { to->download(0, out); },
      [&] { fence.timeline()->check(); },
      [&] { static_cast<void>(Fence(fence.timeline(), 99).wait_for(std::chrono::minutes(1))); },
  };
  int refused = 0;
  for (const auto& call : calls) {
    try {
      call();
    } catch (const Error& error) {
      if (error.code() == ErrorCode::device_lost && std::string_view(error.what()) == "a test took it") ++refused;
    }
  }
  return refused == static_cast<int>(calls.size()) && device->lost() == "a test took it";
}

TEST(LostDevice, EveryCallSaysSoAndNothingHangs) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::exit(every_call_says_lost() ? 0 : 1), ::testing::ExitedWithCode(0), "");
}

// A fence waits, times out, is cancelled and signalled from other threads, and says when its device is lost.

using std::chrono::microseconds;
using std::chrono::milliseconds;

class FakeTimeline final : public Timeline {
 public:
  [[nodiscard]] std::uint64_t completed() override { return value.load(std::memory_order_acquire); }
  void check() override {
    ++checks;
    if (lost) throw Error(ErrorCode::device_lost, "lost");
  }
  std::atomic<std::uint64_t> value{0};
  std::atomic<bool> lost{false};
  std::atomic<int> checks{0};
};

TEST(Fence, WithoutATimelineHasAlwaysSignalled) {
  EXPECT_TRUE(Fence().signalled());
  EXPECT_EQ(Fence().wait_for({}), WaitResult::ready);
}

TEST(Fence, SignalledBeatsDeadlineAndCancel) {
  const auto timeline = std::make_shared<FakeTimeline>();
  timeline->value = 5;
  const std::atomic<bool> cancel{true};
  EXPECT_EQ(Fence(timeline, 5).wait(cancel, Deadline::min(), microseconds(0)), WaitResult::ready);
  EXPECT_FALSE(Fence(timeline, 6).signalled());
}

TEST(Fence, TimesOut) {
  const Fence fence(std::make_shared<FakeTimeline>(), 1);
  for (const auto spin : {std::chrono::nanoseconds(0), std::chrono::nanoseconds(milliseconds(50))}) {
    // The best of some: others use this machine, too. Never early is meant for all of them.
    auto shortest = Clock::duration::max();
    for (int turn = 0; turn < 20 && shortest >= milliseconds(1000); ++turn) {
      const auto start = Clock::now();
      EXPECT_EQ(fence.wait_for(milliseconds(20), spin), WaitResult::timeout);
      EXPECT_GE(Clock::now() - start, milliseconds(20));
      shortest = std::min(shortest, Clock::now() - start);
    }
    EXPECT_LT(shortest, milliseconds(1000));
  }
  EXPECT_EQ(fence.wait_for(std::chrono::nanoseconds::min()), WaitResult::timeout);
}

TEST(Fence, IsCancelledFromAnotherThread) {
  const Fence fence(std::make_shared<FakeTimeline>(), 1);
  for (const auto spin : {std::chrono::nanoseconds(0), std::chrono::nanoseconds::max()}) {
    std::atomic<bool> cancel{false};
    std::thread canceller([&] {
      std::this_thread::sleep_for(milliseconds(5));
      cancel = true;
    });
    EXPECT_EQ(fence.wait(cancel, no_deadline, spin), WaitResult::cancelled);
    canceller.join();
  }
}

TEST(Fence, IsSignalledFromAnotherThread) {
  const auto timeline = std::make_shared<FakeTimeline>();
  std::thread signaller([&] {
    for (int i = 0; i < 3; ++i) {
      std::this_thread::sleep_for(milliseconds(2));
      ++timeline->value;
    }
  });
  EXPECT_EQ(Fence(timeline, 3).wait_for(std::chrono::minutes(1)), WaitResult::ready);
  EXPECT_EQ(timeline->value, 3U);
  signaller.join();
}

TEST(Fence, ThrowsOnceTheDeviceIsLost) {
  const auto timeline = std::make_shared<FakeTimeline>();
  std::thread fault([&] {
    std::this_thread::sleep_for(milliseconds(10));
    timeline->lost = true;
  });
  const auto start = Clock::now();
  EXPECT_THROW(static_cast<void>(Fence(timeline, 1).wait_for(std::chrono::minutes(1))), Error);
  // However late the fault comes.
  const auto waited = std::chrono::duration_cast<milliseconds>(Clock::now() - start);
  fault.join();
  EXPECT_LE(timeline->checks, 2 * waited.count() + 2)
      << "the driver is asked about once a millisecond, not at every look";
}

}  // namespace
}  // namespace gpumap
