// SPDX-License-Identifier: MIT
// Launches on a CUDA driver that is made up: which calls each takes, what it is launched on, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <fstream>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "device/resident_registry.hpp"
#include "device/vulkan_device.hpp"
#include "driver_calls.hpp"
#include "fake_cuda.hpp"
#include "gpumap/cuda.hpp"
#include "gpumap/error.hpp"
#include "gpumap/kernel.h"
#include "gpumap/kernel_launcher.hpp"
#include "kernel/load_kernel.hpp"
#include "open_device.hpp"
#include "queue/queues.hpp"
#include "temporary_folder.hpp"

// What launches take of the CUDA driver that is made up: kernels, graphs of one kernel, and multiprocessors in parts.
namespace gpumap::fake_cuda {

using Function = std::function<void(const gpumap_frame&)>;
struct Launch {
  const Function* function = nullptr;
  gpumap_frame frame{};
};
struct Partition {
  std::set<unsigned> groups;
};

inline std::atomic<CUresult> set_params{CUDA_SUCCESS}, graph_launch{CUDA_SUCCESS}, launch_kernel{CUDA_SUCCESS},
    green_create{CUDA_SUCCESS};
inline constexpr unsigned multiprocessors = 132, group_size = 8, group_count = 15;  ///< as an H100
inline Live<Launch> graphs, made_graphs;
inline Live<Partition> partitions;
inline std::multiset<unsigned> groups_in_use;

/// A kernel whose code is a function of the test's.
class Kernel final : public CudaKernel {
 public:
  explicit Kernel(Function function) : function_(std::make_shared<const Function>(std::move(function))) {}
  [[nodiscard]] const std::string& name() const noexcept override { return name_; }
  [[nodiscard]] Grid grid_for(const gpumap_frame&) const override { return {}; }
  [[nodiscard]] CUfunction function() const noexcept override {
    return reinterpret_cast<CUfunction>(const_cast<Function*>(function_.get()));
  }
  [[nodiscard]] std::shared_ptr<const void> owner() const noexcept override { return function_; }
  [[nodiscard]] std::uint32_t shared_bytes() const noexcept override { return 0; }

 private:
  std::string name_ = "made-up";
  std::shared_ptr<const Function> function_;
};

/// The arguments are read before the call returns, as CUDA says.
inline Launch launch_of(CUfunction function, void** arguments) {
  return {reinterpret_cast<const Function*>(function), *static_cast<const gpumap_frame*>(arguments[0])};
}
inline void put(CUstream stream, const Launch& launch) {
  of(stream).push([launch] { (*launch.function)(launch.frame); });
}

inline void fill_graphs(cuda::Driver& driver) {
  driver.cuLaunchKernel = [](CUfunction function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                             CUstream stream, void** arguments, void**) {
    if (launch_kernel == CUDA_SUCCESS) put(stream, launch_of(function, arguments));
    return launch_kernel.load();
  };
  driver.cuGraphCreate = [](CUgraph* graph, unsigned) {
    return *graph = reinterpret_cast<CUgraph>(graphs.add(new Launch)), CUDA_SUCCESS;
  };
  driver.cuGraphDestroy = [](CUgraph graph) {
    return delete graphs.remove(reinterpret_cast<Launch*>(graph)), CUDA_SUCCESS;
  };
  driver.cuGraphAddKernelNode = [](CUgraphNode* node, CUgraph graph, const CUgraphNode*, std::size_t,
                                   const CUDA_KERNEL_NODE_PARAMS* launch) {
    *reinterpret_cast<Launch*>(graph) = launch_of(launch->func, launch->kernelParams);
    return *node = reinterpret_cast<CUgraphNode>(graph), CUDA_SUCCESS;
  };
  driver.cuGraphInstantiate = [](CUgraphExec* made, CUgraph graph, unsigned long long) {
    *made = reinterpret_cast<CUgraphExec>(made_graphs.add(new Launch(*reinterpret_cast<Launch*>(graph))));
    return CUDA_SUCCESS;
  };
  driver.cuGraphExecDestroy = [](CUgraphExec graph) {
    return delete made_graphs.remove(reinterpret_cast<Launch*>(graph)), CUDA_SUCCESS;
  };
  driver.cuGraphExecKernelNodeSetParams = [](CUgraphExec graph, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS* launch) {
    if (set_params == CUDA_SUCCESS) {
      *reinterpret_cast<Launch*>(graph) = launch_of(launch->func, launch->kernelParams);
    }
    return set_params.load();
  };
  driver.cuGraphLaunch = [](CUgraphExec graph, CUstream stream) {
    if (graph_launch == CUDA_SUCCESS) put(stream, *reinterpret_cast<Launch*>(graph));
    return graph_launch.load();
  };
  driver.has_graphs = true;
}

inline void fill_partitions(cuda::Driver& driver) {
  driver.cuDeviceGetDevResource = [](CUdevice, CUdevResource* resource, CUdevResourceType type) {
    *resource = {};
    resource->type = type;
    resource->sm.smCount = multiprocessors;
    return CUDA_SUCCESS;
  };
  driver.cuDevSmResourceSplitByCount = [](CUdevResource* parts, unsigned* count, const CUdevResource* whole,
                                          CUdevResource* rest, unsigned, unsigned) {
    *count = parts == nullptr ? group_count : std::min(*count, group_count);
    for (unsigned i = 0; parts != nullptr && i < *count; ++i) {
      parts[i] = *whole;
      parts[i].sm.smCount = group_size;
      parts[i]._internal_padding[0] = static_cast<unsigned char>(i);
    }
    if (rest != nullptr) {
      *rest = *whole;
      rest->sm.smCount = multiprocessors - group_count * group_size;
      rest->_internal_padding[0] = group_count;
    }
    return CUDA_SUCCESS;
  };
  driver.cuDevResourceGenerateDesc = [](CUdevResourceDesc* description, CUdevResource* parts, unsigned count) {
    auto* made = partitions.add(new Partition);
    for (unsigned i = 0; i < count; ++i) made->groups.insert(parts[i]._internal_padding[0]);
    return *description = reinterpret_cast<CUdevResourceDesc>(made), CUDA_SUCCESS;
  };
  driver.cuGreenCtxCreate = [](CUgreenCtx* context, CUdevResourceDesc description, CUdevice, unsigned flags) {
    auto* made = reinterpret_cast<Partition*>(description);
    if (flags != CU_GREEN_CTX_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
    if (green_create != CUDA_SUCCESS) return delete partitions.remove(made), green_create.load();
    groups_in_use.insert(made->groups.begin(), made->groups.end());
    return *context = reinterpret_cast<CUgreenCtx>(made), CUDA_SUCCESS;
  };
  driver.cuGreenCtxDestroy = [](CUgreenCtx context) {
    auto* gone = partitions.remove(reinterpret_cast<Partition*>(context));
    for (const unsigned group : gone->groups) groups_in_use.erase(groups_in_use.find(group));
    return delete gone, CUDA_SUCCESS;
  };
  driver.cuGreenCtxStreamCreate = [](CUstream* stream, CUgreenCtx context, unsigned flags, int priority) {
    if (flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    if (streams_to_come-- <= 0) return CUDA_ERROR_OUT_OF_MEMORY;
    return *stream = reinterpret_cast<CUstream>(streams.add(new Stream(priority, context))), CUDA_SUCCESS;
  };
  driver.has_partitions = true;
}

}  // namespace gpumap::fake_cuda

namespace gpumap {
namespace {

using ::testing::HasSubstr;
using Calls = std::map<std::string, std::uint64_t>;

class CudaLaunchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cuda::Driver& table = fake_cuda::table();
    fake_cuda::fill_graphs(table);
    fake_cuda::fill_partitions(table);
    table.version = 12020;
    auto health = std::make_shared<Health>();
    auto cuda = std::make_unique<CudaContext>(table, 0, "made-up GPU", health);
    device_ = std::make_shared<OpenDevice>(DeviceInfo(), health, nullptr, std::move(cuda));
  }
  void TearDown() override {
    device_.reset();
    EXPECT_EQ(fake_cuda::streams.count(), 0U);
    EXPECT_EQ(fake_cuda::host_blocks.count(), 0U);
    EXPECT_EQ(fake_cuda::graphs.count(), 0U);
    EXPECT_EQ(fake_cuda::made_graphs.count(), 0U);
    EXPECT_EQ(fake_cuda::partitions.count(), 0U);
    fake_cuda::set_params = fake_cuda::graph_launch = CUDA_SUCCESS;
    fake_cuda::launch_kernel = fake_cuda::green_create = CUDA_SUCCESS;
    fake_cuda::reset();
  }

  static gpumap_frame numbered(std::uint64_t number) {
    gpumap_frame frame{};
    frame.sequence = number;
    return frame;
  }
  /// What a frame takes from the second on.
  static Calls calls_of(Queue& queue, const Kernel& kernel) {
    static_cast<void>((queue.launch(kernel, {}, numbered(0)), queue.submit()));
    const Queue::Current current(queue);
    driver_calls::count_all(fake_cuda::table(), true);
    driver_calls::forget();
    queue.launch(kernel, {}, numbered(1));
    const Fence fence = queue.submit();
    driver_calls::count_all(fake_cuda::table(), false);
    EXPECT_EQ(fence.wait_for(std::chrono::minutes(1)), WaitResult::ready);
    return driver_calls::since();
  }
  static std::string refusal(const std::shared_ptr<GpuDevice>& device, const CudaQueueOptions& options,
                             ErrorCode code = ErrorCode::invalid) {
    try {
      static_cast<void>(create_cuda_queue(device, options));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
      return error.what();
    }
    ADD_FAILURE() << "not refused";
    return {};
  }
  [[nodiscard]] std::unique_ptr<Queue> queue_of(const CudaQueueOptions& options = {}) const {
    return create_cuda_queue(device_, options);
  }

  std::shared_ptr<GpuDevice> device_;
};

TEST_F(CudaLaunchTest, AFrameTakesThreeCallsBesideAskingForTheContext) {
  const fake_cuda::Kernel kernel([](const gpumap_frame&) {});
  EXPECT_EQ(calls_of(*queue_of(), kernel), (Calls{{"cuCtxGetCurrent", 2},
                                                  {"cuGraphExecKernelNodeSetParams", 1},
                                                  {"cuGraphLaunch", 1},
                                                  {"cuStreamWriteValue64", 1}}));
  const Calls plain{{"cuCtxGetCurrent", 2}, {"cuLaunchKernel", 1}, {"cuStreamWriteValue64", 1}};
  EXPECT_EQ(calls_of(*queue_of({.sm_share = 0.5}), kernel), plain) << "a graph's kernels run on the whole GPU";
  fake_cuda::table().has_graphs = false;
  EXPECT_EQ(calls_of(*queue_of(), kernel), plain) << "an old driver";
}

// A launch hands over a pointer to one frame: of a kernel that takes more the driver would read on behind it. PTX tells
// what a kernel takes, a cubin does not.
TEST_F(CudaLaunchTest, ACubinsKernelTakesOneFrame) {
  static std::vector<std::size_t> parameters;
  cuda::Driver& table = fake_cuda::table();
  table.cuModuleLoadDataEx = [](CUmodule* module, const void* image, unsigned, CUjit_option*, void**) {
    *module = reinterpret_cast<CUmodule>(const_cast<void*>(image));
    return CUDA_SUCCESS;
  };
  table.cuModuleUnload = [](CUmodule) { return CUDA_SUCCESS; };
  table.cuModuleGetFunction = [](CUfunction* function, CUmodule module, const char*) {
    *function = reinterpret_cast<CUfunction>(module);
    return CUDA_SUCCESS;
  };
  table.cuFuncGetAttribute = [](int* value, CUfunction_attribute, CUfunction) {
    *value = 1;
    return CUDA_SUCCESS;
  };
  table.cuFuncGetParamInfo = [](CUfunction, std::size_t index, std::size_t*, std::size_t* bytes) {
    if (index >= parameters.size()) return CUDA_ERROR_INVALID_VALUE;
    *bytes = parameters[index];
    return CUDA_SUCCESS;
  };
  table.has_parameters = true;
  // A fatbin with nothing in it: a magic number, a version, the length of this header, and of what follows.
  const KernelSource source{.language = Language::cubin,
                            .name = "odd.cubin",
                            .code = std::string("\x50\xED\x55\xBA\x01\x00\x10\x00\0\0\0\0\0\0\0\0", 16),
                            .function = "odd",
                            .defines = {},
                            .include_folders = {}};
  const auto load = [&](const std::vector<std::size_t>& takes) -> std::string {
    parameters = takes;
    try {
      static_cast<void>(load_cuda_kernel(device_, source));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::compile);
      return error.what();
    }
    return {};
  };
  EXPECT_EQ(load({sizeof(gpumap_frame)}), "");
  EXPECT_EQ(load({offsetof(gpumap_frame, params) + sizeof gpumap_frame::params}), "") << "an older version's";
  EXPECT_EQ(load({}), "");
  EXPECT_THAT(load({sizeof(gpumap_frame), 4}), HasSubstr("'odd' takes several parameters"));
  EXPECT_THAT(load({8}), HasSubstr("'odd' takes 8 bytes"));
  EXPECT_THAT(load({sizeof(gpumap_frame) + 8}), HasSubstr(std::to_string(sizeof(gpumap_frame)) + " bytes"));
  table.has_parameters = false;
  EXPECT_EQ(load({8, 8}), "") << "an older driver tells nothing";
}

TEST_F(CudaLaunchTest, EachLaunchHasItsOwnFrameAndKernel) {
  std::mt19937 random(5);
  for (const bool graphs : {true, false}) {
    fake_cuda::table().has_graphs = graphs;
    std::vector<std::uint64_t> ran, asked;
    const fake_cuda::Kernel even([&](const gpumap_frame& frame) { ran.push_back(2 * frame.sequence); });
    const fake_cuda::Kernel odd([&](const gpumap_frame& frame) { ran.push_back(2 * frame.sequence + 1); });
    const auto queue = queue_of();
    fake_cuda::stalled = true;  // what is asked for waits, and keeps what it was asked with
    for (int i = 0; i < 200; ++i) {
      const std::uint64_t number = random();
      asked.push_back(number);
      // Now and then a kernel that no graph takes.
      fake_cuda::set_params = random() % 8 == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
      queue->launch(number % 2 == 0 ? even : odd, {}, numbered(number / 2));
    }
    const Fence fence = queue->submit();
    fake_cuda::stalled = false;
    ASSERT_EQ(fence.wait_for(std::chrono::minutes(1)), WaitResult::ready);
    EXPECT_EQ(ran, asked);
  }
}

// Once some 1000 commands are pending the driver itself waits: for ever, if the work before them does not end.
TEST_F(CudaLaunchTest, GivesUpBeforeTheDriverWaits) {
  const fake_cuda::Kernel kernel([](const gpumap_frame&) {});
  const auto queue = queue_of();
  std::atomic<bool> cancel{false};
  Fence waited;
  queue->set_wait([&](const Fence& fence) {
    waited = fence;
    return fence.wait(cancel) == WaitResult::ready;
  });
  unsigned launched = 0;
  Fence last;
  const auto launch = [&] {
    for (int frame = 0; frame < 1000; ++frame) {
      for (int part = 0; part < 3; ++part, ++launched) queue->launch(kernel, {}, numbered(0));
      last = queue->submit();
    }
  };
  fake_cuda::stalled = cancel = true;
  EXPECT_THROW(launch(), QueueCancelled);
  EXPECT_GT(launched, 128U);
  // A fence behind each three. Of 32 queues four share what the driver has room in (measured on an H200: 1021).
  EXPECT_LT(4 * (launched + launched / 3), 1000U);
  EXPECT_EQ(waited.value(), 1U) << "the oldest";
  fake_cuda::stalled = cancel = false;
  EXPECT_NO_THROW(launch());
  EXPECT_EQ(last.wait_for(std::chrono::minutes(1)), WaitResult::ready);
}

TEST_F(CudaLaunchTest, CodeStaysLoadedWhileAGraphKnowsIt) {
  auto queue = queue_of();
  std::vector<std::weak_ptr<const void>> owners;
  for (int i = 0; i < 4; ++i) {
    const fake_cuda::Kernel kernel([](const gpumap_frame&) {});
    owners.push_back(kernel.owner());
    queue->launch(kernel, {}, numbered(0));
    ASSERT_EQ(queue->submit().wait_for(std::chrono::minutes(1)), WaitResult::ready);
  }
  EXPECT_FALSE(owners[0].expired()) << "the graph was made of it";
  EXPECT_TRUE(owners[1].expired()) << "kept for ever";
  EXPECT_TRUE(owners[2].expired());
  EXPECT_FALSE(owners[3].expired()) << "the graph launches it next, if nothing else is set";
  queue.reset();
  EXPECT_TRUE(owners[0].expired() && owners[3].expired());
}

TEST_F(CudaLaunchTest, WhatNoGraphTakesIsLaunchedWithoutOne) {
  unsigned ran = 0;
  const fake_cuda::Kernel kernel([&](const gpumap_frame&) { ++ran; });
  const auto queue = queue_of();
  for (int i = 0; i < 10; ++i) {
    fake_cuda::graph_launch = i % 3 == 1 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
    queue->launch(kernel, {}, numbered(0));
    ASSERT_EQ(queue->submit().wait_for(std::chrono::minutes(1)), WaitResult::ready);
    EXPECT_EQ(fake_cuda::made_graphs.count(), i % 3 == 1 ? 0U : 1U);
  }
  EXPECT_EQ(ran, 10U) << "each once";
}

TEST_F(CudaLaunchTest, AFaultNamesTheKernelAndItsGrid) {
  const fake_cuda::Kernel kernel([](const gpumap_frame&) {});
  const auto queue = queue_of();
  fake_cuda::graph_launch = fake_cuda::launch_kernel = CUDA_ERROR_INVALID_VALUE;
  try {
    queue->launch(kernel, {.blocks = {3, 1, 1}, .threads = {4096, 1, 1}}, numbered(1));
    FAIL() << "no word of it";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid);
    EXPECT_THAT(error.what(), HasSubstr("launching kernel made-up with 3x1x1 blocks of 4096x1x1 threads"));
  }
}

// What is compiled while a kernel runs that does not end waits for that, and who stops the kernel does not.
TEST_F(CudaLaunchTest, AReloadIsGivenUpBehindAKernelThatDoesNotEnd) {
  std::atomic<bool> ends{false};
  const fake_cuda::Kernel endless([&](const gpumap_frame&) {
    while (!ends) std::this_thread::yield();
  });
  const auto stuck = queue_of();
  stuck->launch(endless, {}, numbered(0));
  const Fence end = stuck->submit();
  const TemporaryFolder folder;
  KernelSettings settings;
  settings.location = folder.path() / "endless.cubin";
  std::ofstream(settings.location) << "before";
  std::atomic<bool> compiles{false};
  std::optional<KernelReload> reload(std::in_place, device_, settings, [&](const KernelPlan&) { compiles = true; });
  std::ofstream(settings.location) << "without a loop";
  for (const Deadline latest = Clock::now() + std::chrono::minutes(1); !compiles && Clock::now() < latest;) {
    EXPECT_FALSE(reload->poll());
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  const auto began = Clock::now();
  reload.reset();
  EXPECT_LT(Clock::now() - began, std::chrono::seconds(5));
  EXPECT_FALSE(device_->cuda()->stuck()) << "which is not said of it for that";
  ends = true;
  EXPECT_EQ(end.wait_for(std::chrono::minutes(1)), WaitResult::ready);
}

// The driver frees no memory and loads no code while a kernel runs: where one was given up, nobody waits for it there.
TEST_F(CudaLaunchTest, AKernelThatDoesNotEndHoldsNobodyUp) {
  std::atomic<bool> ends{false};
  const fake_cuda::Kernel endless([&](const gpumap_frame&) {
    while (!ends) std::this_thread::yield();
  });
  const fake_cuda::Kernel healthy([](const gpumap_frame&) {});
  const auto driver_calls_of = [&](const std::function<void()>& call) {
    driver_calls::count_all(fake_cuda::table(), true);
    driver_calls::forget();
    call();
    driver_calls::count_all(fake_cuda::table(), false);
    return driver_calls::since();
  };
  const auto used = [&] {
    auto queue = queue_of();
    queue->launch(healthy, {}, numbered(1));
    EXPECT_EQ(queue->submit().wait_for(std::chrono::minutes(1)), WaitResult::ready);
    return queue;
  };
  auto stuck = queue_of();
  stuck->launch(endless, {}, numbered(0));
  Fence end = stuck->submit();
  auto one = used(), other = used();
  const auto frees = [&](auto& queue) {
    const auto calls = driver_calls_of([&] { queue.reset(); });
    return calls.count("cuMemFreeHost") + calls.count("cuStreamDestroy");
  };
  EXPECT_FALSE(device_->cuda()->stuck());
  EXPECT_EQ(frees(one), 0U) << "nobody gave the kernel up, and the driver would wait for it";
  EXPECT_TRUE(device_->cuda()->stuck());
  end.give_up("kernel endless.cu");  // by its name, which comes too late
  EXPECT_EQ(frees(other), 0U) << "it stays allocated";
  try {
    device_->cuda()->wait_while_stuck(std::chrono::milliseconds(20));
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("kernel endless.cu still runs on made-up GPU"));
  }
  auto third = used();  // which runs all the same
  ends = true;
  EXPECT_EQ(end.wait_for(std::chrono::minutes(1)), WaitResult::ready);
  EXPECT_FALSE(device_->cuda()->stuck());
  device_->cuda()->wait_while_stuck(std::chrono::minutes(1));
  EXPECT_EQ(driver_calls_of([&] { third.reset(); }).count("cuMemFreeHost"), 1U) << "as before";
  // What stayed goes, too.
  stuck.reset();
  end = {};
  device_.reset();
  fake_cuda::reset();
  for (auto* graphs : {&fake_cuda::graphs, &fake_cuda::made_graphs}) {
    graphs->end([](const fake_cuda::Launch* graph) { delete graph; });
  }
}

// A share needs room as long as something may be launched on it, and not as long as somebody has a fence of it.
TEST_F(CudaLaunchTest, TheDemandOfAShareEndsWithItsQueue) {
  class Guest final : public Residents::Guest {
    void ask_to_leave() noexcept override {}
    [[nodiscard]] Fence waits() const override { return {}; }
    [[nodiscard]] bool has_left() const noexcept override { return true; }
  } guest;
  Residents& residents = device_->cuda()->residents();
  const fake_cuda::Kernel kernel([](const gpumap_frame&) {});
  auto queue = queue_of({.sm_share = 0.25});
  queue->launch(kernel, {}, numbered(1));
  const Fence fence = queue->submit();
  EXPECT_EQ(residents.come(guest, 0, false), Residents::Room::demanded);
  residents.leave(guest);
  queue.reset();
  EXPECT_TRUE(fence.signalled());
  EXPECT_EQ(residents.come(guest, 0, false), Residents::Room::free);
  residents.leave(guest);
}

// A frame that an application holds has one: a stream that is started anew asks for the same share.
TEST_F(CudaLaunchTest, AShareIsFreeAgainWithItsQueue) {
  const fake_cuda::Kernel kernel([](const gpumap_frame&) {});
  const std::atomic<bool> never{false};
  std::vector<Fence> fences;
  for (unsigned i = 0; i < 3; ++i) {
    const bool resident = i == 1;
    auto queue = resident ? create_resident_queue(device_, {.cuda = {.sm_share = 0.75}}) : queue_of({.sm_share = 0.75});
    EXPECT_EQ(queue->multiprocessors(), 96U);
    if (!resident) queue->launch(kernel, {}, numbered(i));
    fences.push_back(queue->submit());
    queue.reset();
    EXPECT_TRUE(fake_cuda::groups_in_use.empty());
    EXPECT_TRUE(fences.back().signalled());
    fences.back().timeline()->check();
    EXPECT_EQ(queue_of()->wait(fences.back(), never), WaitResult::ready);
  }
}

TEST_F(CudaLaunchTest, PriorityIsTheStreams) {
  for (const unsigned priority : {0U, 1U, 5U}) {
    const auto queue = queue_of({.priority = priority});
    EXPECT_EQ(fake_cuda::of(stream_of(*queue)).priority, -static_cast<int>(priority));
    const auto parted = queue_of({.priority = priority, .sm_share = 0.1});
    EXPECT_EQ(fake_cuda::of(stream_of(*parted)).priority, -static_cast<int>(priority));
  }
  const std::string text = refusal(device_, {.priority = 6});
  EXPECT_THAT(text, HasSubstr("priority=6"));
  EXPECT_THAT(text, HasSubstr("0 to 5"));
}

// Fifteen parts of 8 multiprocessors and one of 12.
TEST_F(CudaLaunchTest, SharesAreNobodyElses) {
  EXPECT_EQ(queue_of()->multiprocessors(), 0U);
  std::vector<std::unique_ptr<Queue>> queues;
  std::set<const void*> contexts;
  for (const auto& [share, count] : std::vector<std::pair<double, unsigned>>{{0.1, 12}, {0.25, 32}, {0.5, 64}}) {
    queues.push_back(queue_of({.sm_share = share}));
    EXPECT_EQ(queues.back()->multiprocessors(), count) << share;
    contexts.insert(fake_cuda::of(stream_of(*queues.back())).partition);
  }
  EXPECT_EQ(contexts.size(), 3U);
  EXPECT_EQ(contexts.count(nullptr), 0U);
  const auto in_use = [] { return std::set(fake_cuda::groups_in_use.begin(), fake_cuda::groups_in_use.end()).size(); };
  EXPECT_EQ(in_use(), 13U) << "some of them twice";

  const std::string text = refusal(device_, {.sm_share = 0.5});
  for (const char* figure : {"sm-share=0.5", "66 of the 132", "leave 24"}) EXPECT_THAT(text, HasSubstr(figure));
  queues.erase(queues.begin() + 1);  // from the middle
  queues.push_back(queue_of({.sm_share = 56.0 / 132}));
  EXPECT_EQ(queues.back()->multiprocessors(), 56U);
  EXPECT_EQ(in_use(), 16U);
  queues.clear();
  EXPECT_EQ(in_use(), 0U);
  EXPECT_EQ(queue_of({.sm_share = 1})->multiprocessors(), 132U);
  const auto hurried = queue_of({.sm_share = 0.125});
  EXPECT_EQ(hurried->multiprocessors(), 16U);
  EXPECT_EQ(create_resident_queue(device_, {.cuda = {.sm_share = 0.25}})->multiprocessors(), 32U);
  EXPECT_EQ(queue_of({.sm_share = 0.875})->multiprocessors(), 108U) << "115 at most: 12 and twelve times 8";
}

TEST_F(CudaLaunchTest, SharesThatCannotBeAreRefused) {
  const std::string little = refusal(device_, {.sm_share = 0.05});
  for (const char* figure : {"sm-share=0.05", "132", "is 6", "part is 8", "0.061"}) {
    EXPECT_THAT(little, HasSubstr(figure));
  }
  fake_cuda::green_create = CUDA_ERROR_OUT_OF_MEMORY;
  static_cast<void>(refusal(device_, {.sm_share = 1}, ErrorCode::no_memory));
  fake_cuda::green_create = CUDA_SUCCESS;
  fake_cuda::streams_to_come = 0;
  static_cast<void>(refusal(device_, {.sm_share = 1}, ErrorCode::no_memory));
  fake_cuda::streams_to_come = 1 << 20;
  EXPECT_EQ(queue_of({.sm_share = 1})->multiprocessors(), 132U) << "what failed gives back";
}

TEST_F(CudaLaunchTest, AnOldDriverIsNamed) {
  fake_cuda::table().has_partitions = false;
  const std::string text = refusal(device_, {.sm_share = 0.5}, ErrorCode::not_supported);
  for (const char* figure : {"CUDA 12.2", "12.4", "made-up GPU", "leave sm-share out"}) {
    EXPECT_THAT(text, HasSubstr(figure));
  }
  EXPECT_EQ(fake_cuda::of(stream_of(*queue_of({.priority = 2}))).priority, -2) << "that one an old driver has";
}

// How many blocks and threads a launch gets from the block's size, the frame and what a thread takes.

using ::testing::ElementsAre;

TEST(Grid, OfAGivenNumberOfBlocksEachHasTheThreadsOfItsData) {
  GridShape shape;
  shape.blocks = {7, 1, 1};
  gpumap_frame frame{};
  frame.in.bytes = frame.out.bytes = 100000;
  EXPECT_THAT(make_grid(shape, frame).threads, ElementsAre(256, 1, 1));
  EXPECT_THAT(make_grid(shape, frame).blocks, ElementsAre(7, 1, 1));
  frame.out.width = frame.out.height = 40;
  EXPECT_THAT(make_grid(shape, frame).threads, ElementsAre(32, 8, 1)) << "samples in, a picture out";
  frame.in.width = frame.in.height = 40;
  frame.out.width = frame.out.height = 0;
  EXPECT_THAT(make_grid(shape, frame).threads, ElementsAre(32, 8, 1)) << "a picture in, a histogram out";
}

TEST(Grid, HasThreadsForWhatEachOfThemTakes) {
  gpumap_frame frame{};
  frame.in.bytes = frame.out.bytes = 100000;
  frame.in.width = frame.out.width = 401, frame.in.height = frame.out.height = 50;
  GridShape shape;
  EXPECT_THAT(make_grid(shape, frame).blocks, ElementsAre(13, 7, 1)) << "401 pixels by 32, 50 rows by 8";
  shape.work = Work::quad;
  EXPECT_THAT(make_grid(shape, frame).blocks, ElementsAre(4, 7, 1)) << "101 times four pixels";
  shape.work = Work::chunk;
  EXPECT_THAT(make_grid(shape, frame).blocks, ElementsAre(4, 1, 1)) << "782 times 128 bytes by 256";
}

TEST(Grid, ItemsArePixelsSamplesOrBytes) {
  gpumap_frame frame{};
  frame.in.bytes = frame.out.bytes = 100001;
  EXPECT_EQ(items_of(frame), 100001U);
  frame.out.format = GPUMAP_FORMAT_F32;
  EXPECT_EQ(items_of(frame), 25001U);
  frame.out.bytes = 0;
  EXPECT_EQ(items_of(frame), 100001U) << "those of the input, where nothing comes out";
  frame.in.width = 70000, frame.in.height = 70001;
  EXPECT_EQ(items_of(frame), 4900070000U);
  frame.out.width = 3, frame.out.height = 5;
  EXPECT_EQ(items_of(frame), 15U);
}

}  // namespace
}  // namespace gpumap
