// SPDX-License-Identifier: MIT
// A kernel that faults takes the GPU's context of this process with it, so this program does nothing else: each call of
// gpumap.h then gives an error, none hangs, and all that is held can be given back.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "../unit/c_helpers.hpp"
#include "../unit/faulty_kernel.hpp"
#include "../unit/temporary_folder.hpp"

namespace gpumap::test {
namespace {

TEST(CLostGpu, EveryCallSaysSo) {
  gpumap_device device = nullptr;
  if (gpumap_device_open("auto", GPUMAP_DEVICE_REQUIRE_CUDA, &device) != GPUMAP_OK) GTEST_SKIP() << gpumap_last_error();
  alarm(100);
  const TemporaryFolder folder;
  const std::string file = folder.path() / "fault.ptx";
  std::ofstream(file) << faulty_kernel();
  gpumap_memory memory = nullptr;
  ASSERT_OK(gpumap_memory_alloc(device, 4096, nullptr, &memory));
  auto of_ring = GPUMAP_INIT(gpumap_ring_options);
  of_ring.slot_bytes = 4096;
  of_ring.slots = 2;
  gpumap_ring ring = nullptr;
  ASSERT_OK(gpumap_ring_create(device, &of_ring, &ring));
  gpumap_slot slot = nullptr;
  ASSERT_OK(gpumap_ring_acquire(ring, GPUMAP_WHEN_FULL_WAIT, 0, &slot));
  auto of_kernel = GPUMAP_INIT(gpumap_kernel_options);
  of_kernel.file = file.c_str();
  gpumap_kernel kernel = nullptr;
  ASSERT_OK(gpumap_kernel_open(device, &of_kernel, &kernel));
  EXPECT_OK(gpumap_device_check(device));

  auto run = GPUMAP_INIT(gpumap_run_options);
  run.memory = memory;
  run.to_host = 1;
  gpumap_memory output = nullptr;
  EXPECT_STREQ(gpumap_status_name(gpumap_kernel_run(kernel, &run, &output)), "GPUMAP_ERROR_DEVICE_LOST");
  EXPECT_NE(std::string(gpumap_last_error()).find("fault"), std::string::npos) << gpumap_last_error();
  std::vector<unsigned char> bytes(4096);
  EXPECT_EQ(gpumap_device_check(device), GPUMAP_ERROR_DEVICE_LOST);
  EXPECT_EQ(gpumap_memory_read(memory, 0, bytes.data(), bytes.size()), GPUMAP_ERROR_DEVICE_LOST);
  EXPECT_EQ(gpumap_kernel_run(kernel, &run, &output), GPUMAP_ERROR_DEVICE_LOST);
  gpumap_memory more = nullptr;
  EXPECT_EQ(gpumap_memory_alloc(device, 4096, nullptr, &more), GPUMAP_ERROR_DEVICE_LOST);
  gpumap_device again = nullptr;
  EXPECT_EQ(gpumap_device_open("auto", GPUMAP_DEVICE_REQUIRE_CUDA, &again), GPUMAP_ERROR_DEVICE_LOST);
  const gpumap_fence stream = gpumap_cuda_fence(nullptr);
  EXPECT_EQ(gpumap_memory_used_by(memory, &stream), GPUMAP_ERROR_DEVICE_LOST);
  EXPECT_OK(gpumap_slot_release(slot, nullptr));
  EXPECT_OK(gpumap_ring_close(ring));
  EXPECT_OK(gpumap_memory_free(memory));
  EXPECT_OK(gpumap_kernel_close(kernel));
  EXPECT_OK(gpumap_device_close(device));
}

}  // namespace
}  // namespace gpumap::test
