// SPDX-License-Identifier: MIT
// gpumap.h beside CUDA code of a program's own: its pointers, its streams, its context. And vkgdr's interface on top of
// it, by what vkgdr's own example does. Skipped where there is no CUDA.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "../unit/c_helpers.hpp"
#include "device/cuda_driver.hpp"
#include "gpumap/cuda.hpp"
#include "gpumap/kernel.hpp"
#include "vkgdr_example.hpp"

namespace gpumap::test {
namespace {

using namespace std::chrono_literals;

class CInterfaceGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (gpumap_device_open("auto", GPUMAP_DEVICE_REQUIRE_CUDA, &device_) != GPUMAP_OK) {
      GTEST_SKIP() << gpumap_last_error();
    }
    ASSERT_OK(gpumap_device_get_info(device_, &info_));
    ASSERT_NE(info_.cuda_context, nullptr);
    cuda_ = &cuda::Driver::get();
    ASSERT_EQ(cuda_->cuCtxPushCurrent(static_cast<CUcontext>(info_.cuda_context)), CUDA_SUCCESS);
    ASSERT_EQ(cuda_->cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    void* word = nullptr;
    ASSERT_EQ(cuda_->cuMemHostAlloc(&word, sizeof(std::uint64_t), CU_MEMHOSTALLOC_DEVICEMAP), CUDA_SUCCESS);
    gate_ = static_cast<std::uint64_t*>(word);
    *gate_ = 0;
    ASSERT_EQ(cuda_->cuMemHostGetDevicePointer(&gate_address_, word, 0), CUDA_SUCCESS);
  }
  void TearDown() override {
    if (device_ == nullptr) return;
    open_gate();
    EXPECT_EQ(cuda_->cuStreamSynchronize(stream_), CUDA_SUCCESS);
    EXPECT_EQ(cuda_->cuStreamDestroy(stream_), CUDA_SUCCESS);
    EXPECT_EQ(cuda_->cuMemFreeHost(gate_), CUDA_SUCCESS);
    CUcontext popped = nullptr;
    EXPECT_EQ(cuda_->cuCtxPopCurrent(&popped), CUDA_SUCCESS);
    EXPECT_OK(gpumap_device_close(device_));
  }

  /// The stream stands until open_gate().
  void close_gate() {
    ASSERT_EQ(cuda_->cuStreamWaitValue64(stream_, gate_address_, 1, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS);
  }
  void open_gate() const { __atomic_store_n(gate_, 1, __ATOMIC_RELEASE); }
  void synchronize() const { ASSERT_EQ(cuda_->cuStreamSynchronize(stream_), CUDA_SUCCESS); }
  /// What the GPU has at `address`, copied on the stream.
  [[nodiscard]] std::vector<unsigned char> copied(std::uint64_t address, std::size_t bytes) const {
    std::vector<unsigned char> got(bytes);
    EXPECT_EQ(cuda_->cuMemcpyDtoHAsync(got.data(), address, bytes, stream_), CUDA_SUCCESS);
    EXPECT_EQ(cuda_->cuStreamSynchronize(stream_), CUDA_SUCCESS);
    return got;
  }
  [[nodiscard]] gpumap_ring ring(std::uint64_t slot_bytes, std::uint32_t slots) const {
    auto options = GPUMAP_INIT(gpumap_ring_options);
    options.slot_bytes = slot_bytes;
    options.slots = slots;
    gpumap_ring made = nullptr;
    EXPECT_OK(gpumap_ring_create(device_, &options, &made));
    return made;
  }

  static constexpr std::int64_t long_ns = 60'000'000'000;
  gpumap_device device_ = nullptr;
  gpumap_device_info info_ = GPUMAP_INIT(gpumap_device_info);
  const cuda::Driver* cuda_ = nullptr;
  CUstream stream_ = nullptr;
  std::uint64_t* gate_ = nullptr;
  CUdeviceptr gate_address_ = 0;
};

TEST_F(CInterfaceGpu, IsOpenedByWhatCudaCallsIt) {
  const std::string ordinal = "cuda:" + std::to_string(info_.cuda_ordinal);
  for (const std::string& selector : {std::string("current"), ordinal, std::string(info_.pci_address)}) {
    gpumap_device same = nullptr;
    ASSERT_OK(gpumap_device_open(selector.c_str(), GPUMAP_DEVICE_REQUIRE_CUDA, &same)) << selector;
    auto info = GPUMAP_INIT(gpumap_device_info);
    EXPECT_OK(gpumap_device_get_info(same, &info));
    EXPECT_EQ(std::memcmp(info.uuid, info_.uuid, sizeof info.uuid), 0) << selector;
    EXPECT_EQ(info.cuda_context, info_.cuda_context);
    EXPECT_EQ(info.backend, static_cast<std::uint32_t>(GPUMAP_BACKEND_CUDA));
    EXPECT_OK(gpumap_device_close(same));
  }
  // A thread without one.
  std::thread([] {
    gpumap_device none = nullptr;
    expect_error(gpumap_device_open("current", 0, &none), GPUMAP_ERROR_INVALID, "no CUDA context is current");
  }).join();
}

TEST_F(CInterfaceGpu, PointersAreThoseOfCuda) {
  constexpr std::size_t bytes = 1'000'003;
  gpumap_memory memory = nullptr;
  ASSERT_OK(gpumap_memory_alloc(device_, bytes, nullptr, &memory));
  auto at = GPUMAP_INIT(gpumap_memory_info);
  ASSERT_OK(gpumap_memory_get_info(memory, &at));
  EXPECT_EQ(at.software, 0U);
  EXPECT_EQ(at.cpu_readable, 0U);
  EXPECT_EQ(at.cuda_address, gpumap_memory_address(memory));
  const auto sent = random_frame(bytes, 1);
  ASSERT_OK(gpumap_memory_write(memory, 0, sent.data(), bytes));
  EXPECT_EQ(copied(at.cuda_address, bytes), sent);
  // Stored through the pointer.
  std::memcpy(at.host, sent.data() + 3, 1000);
  ASSERT_OK(gpumap_memory_flush(memory, 0, 1000));
  EXPECT_EQ(copied(at.cuda_address, 1000), std::vector<unsigned char>(sent.begin() + 3, sent.begin() + 1003));
  // Written by the GPU, read by both ways of reading.
  for (const std::size_t count : {std::size_t{700}, bytes}) {
    const auto other = random_frame(count, 2);
    ASSERT_EQ(cuda_->cuMemcpyHtoDAsync(at.cuda_address, other.data(), count, stream_), CUDA_SUCCESS);
    synchronize();
    std::vector<unsigned char> got(count);
    ASSERT_OK(gpumap_memory_read(memory, 0, got.data(), count));
    EXPECT_EQ(got, other);
  }
  EXPECT_OK(gpumap_memory_free(memory));
}

TEST_F(CInterfaceGpu, BlocksOfAPoolArePointersOfCuda) {
  auto options = GPUMAP_INIT(gpumap_pool_options);
  options.block_bytes = 4096;
  gpumap_pool pool = nullptr;
  ASSERT_OK(gpumap_pool_create(device_, &options, &pool));
  std::vector<gpumap_memory> blocks(300);
  std::vector<std::vector<unsigned char>> sent;
  for (gpumap_memory& block : blocks) {
    ASSERT_OK(gpumap_pool_take(pool, &block));
    sent.push_back(random_frame(4096, static_cast<unsigned>(sent.size())));
    ASSERT_OK(gpumap_memory_write(block, 0, sent.back().data(), 4096));
  }
  for (std::size_t number = 0; number < blocks.size(); ++number) {
    ASSERT_EQ(copied(gpumap_memory_address(blocks[number]), 4096), sent[number]);
    EXPECT_OK(gpumap_memory_free(blocks[number]));
  }
  EXPECT_OK(gpumap_pool_close(pool));
}

TEST_F(CInterfaceGpu, ASlotIsFreeWhenTheStreamHasReadIt) {
  gpumap_ring ring = this->ring(50'000, 2);
  const gpumap_fence on_stream = gpumap_cuda_fence(stream_);
  const auto sent = random_frame(50'000, 3);
  gpumap_slot slot = nullptr;
  gpumap_slot other = nullptr;
  ASSERT_OK(gpumap_ring_acquire(ring, GPUMAP_WHEN_FULL_WAIT, 0, &slot));
  ASSERT_OK(gpumap_ring_acquire(ring, GPUMAP_WHEN_FULL_WAIT, 0, &other));
  ASSERT_OK(gpumap_slot_write(slot, 0, sent.data(), sent.size()));
  ASSERT_OK(gpumap_slot_publish(slot, nullptr, nullptr, 0));
  ASSERT_OK(gpumap_ring_take(ring, 0, &slot));
  auto at = GPUMAP_INIT(gpumap_memory_info);
  ASSERT_OK(gpumap_slot_get_memory(slot, &at));
  close_gate();
  ASSERT_OK(gpumap_slot_wait(slot, &on_stream, 0));
  // Page-locked: a copy into ordinary memory does not return before the stream has come to it.
  void* locked = nullptr;
  ASSERT_EQ(cuda_->cuMemHostAlloc(&locked, sent.size(), 0), CUDA_SUCCESS);
  ASSERT_EQ(cuda_->cuMemcpyDtoHAsync(locked, at.cuda_address, sent.size(), stream_), CUDA_SUCCESS);
  ASSERT_OK(gpumap_slot_release(slot, &on_stream));
  EXPECT_EQ(gpumap_ring_acquire(ring, GPUMAP_WHEN_FULL_WAIT, 20'000'000, &slot), GPUMAP_TIMEOUT);
  open_gate();
  ASSERT_OK(gpumap_ring_acquire(ring, GPUMAP_WHEN_FULL_WAIT, long_ns, &slot));
  EXPECT_EQ(std::memcmp(locked, sent.data(), sent.size()), 0);
  EXPECT_EQ(cuda_->cuMemFreeHost(locked), CUDA_SUCCESS);
  EXPECT_OK(gpumap_slot_release(slot, nullptr));
  EXPECT_OK(gpumap_slot_release(other, nullptr));
  EXPECT_OK(gpumap_ring_close(ring));
}

TEST_F(CInterfaceGpu, ASlotThatAStreamWritesIsPublishedThen) {
  gpumap_ring ring = this->ring(50'000, 3);
  const gpumap_fence on_stream = gpumap_cuda_fence(stream_);
  const auto sent = random_frame(50'000, 4);
  gpumap_slot slot = nullptr;
  ASSERT_OK(gpumap_ring_acquire(ring, GPUMAP_WHEN_FULL_WAIT, 0, &slot));
  auto at = GPUMAP_INIT(gpumap_memory_info);
  ASSERT_OK(gpumap_slot_get_memory(slot, &at));
  close_gate();
  ASSERT_EQ(cuda_->cuMemcpyHtoDAsync(at.cuda_address, sent.data(), sent.size(), stream_), CUDA_SUCCESS);
  EXPECT_EQ(gpumap_slot_publish(slot, nullptr, &on_stream, 20'000'000), GPUMAP_TIMEOUT);
  open_gate();
  ASSERT_OK(gpumap_slot_publish(slot, nullptr, &on_stream, long_ns));
  ASSERT_OK(gpumap_ring_take(ring, 0, &slot));
  std::vector<unsigned char> got(sent.size());
  ASSERT_OK(gpumap_slot_read(slot, 0, got.data(), got.size()));
  EXPECT_EQ(got, sent);
  EXPECT_OK(gpumap_slot_release(slot, nullptr));
  EXPECT_OK(gpumap_ring_close(ring));
}

TEST_F(CInterfaceGpu, MemoryIsFreedWhenTheStreamIsDone) {
  gpumap_memory memory = nullptr;
  ASSERT_OK(gpumap_memory_alloc(device_, 4096, nullptr, &memory));
  const gpumap_fence on_stream = gpumap_cuda_fence(stream_);
  close_gate();
  ASSERT_OK(gpumap_memory_used_by(memory, &on_stream));
  std::atomic<bool> opened{false};
  std::thread later([&] {
    std::this_thread::sleep_for(100ms);
    opened = true;
    open_gate();
  });
  EXPECT_OK(gpumap_memory_free(memory));
  EXPECT_TRUE(opened) << "freed under the stream";
  later.join();
}

TEST_F(CInterfaceGpu, EveryNameOfTheDefaultStreamIsTaken) {
  gpumap_memory memory = nullptr;
  ASSERT_OK(gpumap_memory_alloc(device_, 4096, nullptr, &memory));
  for (const std::uintptr_t number : {0U, 1U, 2U}) {  // null, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD
    const gpumap_fence fence = gpumap_cuda_fence(reinterpret_cast<void*>(number));
    EXPECT_OK(gpumap_memory_wait(memory, &fence, long_ns)) << number;
    EXPECT_OK(gpumap_memory_used_by(memory, &fence)) << number;
  }
  EXPECT_OK(gpumap_memory_free(memory));
}

// The stream waits for the kernel of gpumap's, and the calling thread for neither.
TEST_F(CInterfaceGpu, AStreamReadsWhatAKernelWrote) {
  auto options = GPUMAP_INIT(gpumap_kernel_options);
  options.builtin = "identity";
  gpumap_kernel kernel = nullptr;
  ASSERT_OK(gpumap_kernel_open(device_, &options, &kernel));
  gpumap_memory input = nullptr;
  ASSERT_OK(gpumap_memory_alloc(device_, 300'000, nullptr, &input));
  const gpumap_fence on_stream = gpumap_cuda_fence(stream_);
  for (unsigned turn = 0; turn < 50; ++turn) {
    const auto sent = random_frame(300'000, turn);
    ASSERT_OK(gpumap_memory_write(input, 0, sent.data(), sent.size()));
    auto run = GPUMAP_INIT(gpumap_run_options);
    run.memory = input;
    gpumap_memory output = nullptr;
    ASSERT_OK(gpumap_kernel_run(kernel, &run, &output));
    ASSERT_NE(output, nullptr);
    ASSERT_OK(gpumap_memory_wait(output, &on_stream, 0)) << "the CPU need not wait";
    ASSERT_EQ(copied(gpumap_memory_address(output), sent.size()), sent);
    EXPECT_OK(gpumap_memory_free(output));
  }
  EXPECT_OK(gpumap_memory_free(input));
  EXPECT_OK(gpumap_kernel_close(kernel));
}

// What vkgdr's example does, with its kernel.
TEST_F(CInterfaceGpu, RunsWhatVkgdrsExampleRuns) {
  const KernelSource source{.language = Language::cuda,
                            .name = "VecAdd",
                            .code =
                                "#include <gpumap/kernel.h>\n"
                                "extern \"C\" __global__ void VecAdd(gpumap_frame frame) {\n"
                                "  const auto at = [](gpumap_u64 plane) {\n"
                                "    return reinterpret_cast<float*>(plane) + threadIdx.x;\n  };\n"
                                "  *at(frame.out.plane[0]) = *at(frame.in.plane[0]) + *at(frame.in.plane[1]);\n}\n",
                            .function = "VecAdd",
                            .defines = {},
                            .include_folders = {}};
  const CUdevice device = cuda_handles(*Device::open(info_.pci_address)).device;
  int major = 0;
  int minor = 0;
  ASSERT_EQ(cuda_->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device), CUDA_SUCCESS);
  ASSERT_EQ(cuda_->cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device), CUDA_SUCCESS);
  const std::string code = compile_cuda(source, "sm_" + std::to_string(major * 10 + minor));
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  ASSERT_EQ(cuda_->cuModuleLoadDataEx(&module, code.c_str(), 0, nullptr, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuda_->cuModuleGetFunction(&function, module, "VecAdd"), CUDA_SUCCESS);
  EXPECT_EQ(run_vkgdr_example([&](std::uint64_t a, std::uint64_t b, std::uint64_t c, unsigned count) {
              gpumap_frame frame{};
              frame.in.plane[0] = a;
              frame.in.plane[1] = b;
              frame.out.plane[0] = c;
              void* arguments[] = {&frame};
              EXPECT_EQ(cuda_->cuLaunchKernel(function, 1, 1, 1, count, 1, 1, 0, stream_, arguments, nullptr),
                        CUDA_SUCCESS);
              synchronize();
            }),
            "");
  EXPECT_EQ(cuda_->cuModuleUnload(module), CUDA_SUCCESS);
}

}  // namespace
}  // namespace gpumap::test
