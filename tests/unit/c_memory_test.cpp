// SPDX-License-Identifier: MIT
// Devices, memory and pools of gpumap.h, and what every handle withstands.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vulkan/vulkan_core.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "c_helpers.hpp"

namespace gpumap::test {
namespace {

using namespace std::chrono_literals;

using CMemory = CInterface;

TEST_F(CMemory, DevicesAreNamedInEachWay) {
  auto info = GPUMAP_INIT(gpumap_device_info);
  ASSERT_OK(gpumap_device_get_info(device_, &info));
  std::string uuid;
  for (const unsigned byte : info.uuid) {
    char hex[3];
    std::snprintf(hex, sizeof hex, "%02x", byte);
    uuid += hex;
    if (uuid.size() == 8 || uuid.size() == 13 || uuid.size() == 18 || uuid.size() == 23) uuid += '-';
  }
  for (const std::string& selector : {std::to_string(info.index), uuid, "GPU-" + uuid}) {
    gpumap_device again = nullptr;
    ASSERT_OK(gpumap_device_open(selector.c_str(), 0, &again)) << selector;
    auto same = GPUMAP_INIT(gpumap_device_info);
    EXPECT_OK(gpumap_device_get_info(again, &same));
    EXPECT_EQ(std::memcmp(same.uuid, info.uuid, sizeof info.uuid), 0);
    EXPECT_NE(again, device_) << "each open is closed once";
    EXPECT_OK(gpumap_device_check(again));
    EXPECT_OK(gpumap_device_close(again));
  }
  auto described = GPUMAP_INIT(gpumap_device_info);
  EXPECT_OK(gpumap_device_describe(static_cast<std::uint32_t>(info.index), &described));
  EXPECT_STREQ(described.name, info.name);
  EXPECT_EQ(described.cuda_context, nullptr);
  expect_error(gpumap_device_describe(1000, &described), GPUMAP_ERROR_NO_DEVICE, "no device 1000");
  gpumap_device none = nullptr;
  expect_error(gpumap_device_open("cuda:x", 0, &none), GPUMAP_ERROR_INVALID, "cuda:x");
  expect_error(gpumap_device_open("cuda:999", 0, &none), GPUMAP_ERROR_NO_DEVICE, "999");
  EXPECT_LT(gpumap_device_open("nothing like this", 0, &none), 0);
  EXPECT_LT(gpumap_device_open("current", 0, &none), 0) << "no CUDA context is current in this thread";
  expect_error(gpumap_device_open("auto", 1U << 31U, &none), GPUMAP_ERROR_INVALID, "flags");
  expect_error(gpumap_device_open("auto", 0, nullptr), GPUMAP_ERROR_INVALID, "null");
  EXPECT_EQ(none, nullptr);
}

TEST_F(CMemory, WhatADeviceIsAskedForHoldsForItsMemory) {
  for (const std::uint32_t flags : {GPUMAP_DEVICE_REQUIRE_COHERENT, GPUMAP_DEVICE_TREAT_NON_COHERENT}) {
    gpumap_device device = nullptr;
    ASSERT_OK(gpumap_device_open("auto", flags, &device));
    gpumap_memory memory = nullptr;
    ASSERT_OK(gpumap_memory_alloc(device, 1000, nullptr, &memory));
    auto info = GPUMAP_INIT(gpumap_memory_info);
    ASSERT_OK(gpumap_memory_get_info(memory, &info));
    EXPECT_EQ(info.coherent, flags == GPUMAP_DEVICE_REQUIRE_COHERENT ? 1U : 0U);
    EXPECT_OK(gpumap_memory_flush(memory, 3, 17));
    EXPECT_OK(gpumap_memory_invalidate(memory, 999, 1));
    // The device may go before its memory.
    EXPECT_OK(gpumap_device_close(device));
    const auto sent = random_frame(1000, flags);
    std::vector<unsigned char> got(1000);
    EXPECT_OK(gpumap_memory_write(memory, 0, sent.data(), sent.size()));
    EXPECT_OK(gpumap_memory_read(memory, 0, got.data(), got.size()));
    EXPECT_EQ(got, sent);
    EXPECT_OK(gpumap_memory_free(memory));
  }
}

TEST_F(CMemory, WritesAndReadsAnyRange) {
  constexpr std::size_t bytes = 3 * 1024 * 1024 + 77;
  gpumap_memory memory = this->memory(bytes);
  auto wanted = random_frame(bytes, 1);
  ASSERT_OK(gpumap_memory_write(memory, 0, wanted.data(), bytes));
  std::vector<unsigned char> got(bytes);
  ASSERT_OK(gpumap_memory_read(memory, 0, got.data(), bytes));
  ASSERT_EQ(got, wanted);
  std::mt19937 random(2);
  for (int turn = 0; turn < 30; ++turn) {
    const std::size_t at = random() % bytes;
    const std::size_t count = random() % std::min<std::size_t>(bytes - at, turn % 2 == 0 ? 500 : 400'000) + 1;
    const auto part = random_frame(count, static_cast<unsigned>(random()));
    ASSERT_OK(gpumap_memory_write(memory, at, part.data(), count));
    std::copy(part.begin(), part.end(), wanted.begin() + static_cast<std::ptrdiff_t>(at));
    std::vector<unsigned char> read(count);
    ASSERT_OK(gpumap_memory_read(memory, at, read.data(), count));
    ASSERT_EQ(read, part);
  }
  ASSERT_OK(gpumap_memory_read(memory, 0, got.data(), bytes));
  EXPECT_EQ(got, wanted) << "nothing was written beside";
  EXPECT_OK(gpumap_memory_write(memory, bytes, nullptr, 0));
  expect_error(gpumap_memory_write(memory, bytes, got.data(), 1), GPUMAP_ERROR_INVALID, "1 bytes at offset");
  expect_error(gpumap_memory_read(memory, 1, got.data(), bytes), GPUMAP_ERROR_INVALID, "ends behind");
  expect_error(gpumap_memory_flush(memory, ~std::uint64_t{0}, 2), GPUMAP_ERROR_INVALID, "ends behind");
  expect_error(gpumap_memory_write(memory, 0, nullptr, 1), GPUMAP_ERROR_INVALID, "null");
  EXPECT_OK(gpumap_memory_free(memory));
}

TEST_F(CMemory, EachPlacementSaysWhoReachesIt) {
  for (const std::uint32_t placement : {GPUMAP_PLACEMENT_BAR, GPUMAP_PLACEMENT_DEVICE, GPUMAP_PLACEMENT_HOST}) {
    auto options = GPUMAP_INIT(gpumap_memory_options);
    options.placement = placement;
    gpumap_memory memory = nullptr;
    ASSERT_OK(gpumap_memory_alloc(device_, 5000, &options, &memory));
    auto info = GPUMAP_INIT(gpumap_memory_info);
    ASSERT_OK(gpumap_memory_get_info(memory, &info));
    EXPECT_EQ(info.placement, placement);
    EXPECT_EQ(info.host == nullptr, placement == GPUMAP_PLACEMENT_DEVICE);
    EXPECT_NE(gpumap_memory_address(memory), 0U);
    const unsigned char byte = 7;
    if (placement == GPUMAP_PLACEMENT_DEVICE) {
      expect_error(gpumap_memory_write(memory, 0, &byte, 1), GPUMAP_ERROR_NOT_SUPPORTED, "GPUMAP_PLACEMENT_BAR");
    } else {
      EXPECT_OK(gpumap_memory_write(memory, 4999, &byte, 1));
    }
    EXPECT_OK(gpumap_memory_free(memory));
  }
  auto options = GPUMAP_INIT(gpumap_memory_options);
  options.placement = GPUMAP_PLACEMENT_MIRRORED;
  gpumap_memory memory = nullptr;
  expect_error(gpumap_memory_alloc(device_, 1, &options, &memory), GPUMAP_ERROR_INVALID, "placement 3");
}

TEST_F(CMemory, TooMuchIsAnErrorWithTheFigure) {
  gpumap_memory memory = nullptr;
  constexpr std::uint64_t petabyte = 1'000'000'000'000'000;
  for (const std::uint64_t bytes : {petabyte, ~std::uint64_t{0}, ~std::uint64_t{0} - 4096, std::uint64_t{1} << 63U}) {
    EXPECT_STREQ(gpumap_status_name(gpumap_memory_alloc(device_, bytes, nullptr, &memory)), "GPUMAP_ERROR_NO_MEMORY")
        << bytes << ": " << gpumap_last_error();
  }
  expect_error(gpumap_memory_alloc(device_, 0, nullptr, &memory), GPUMAP_ERROR_INVALID, "0 bytes");
  auto pool = GPUMAP_INIT(gpumap_pool_options);
  pool.block_bytes = petabyte;
  pool.blocks = 4'000'000'000;
  gpumap_pool none = nullptr;
  EXPECT_LT(gpumap_pool_create(device_, &pool, &none), 0);
  // Whose size runs over, and one that is larger than any memory.
  pool.block_bytes = std::uint64_t{1} << 40U;
  pool.blocks = 1U << 24U;
  expect_error(gpumap_pool_create(device_, &pool, &none), GPUMAP_ERROR_INVALID,
               "16777216 blocks of 1099511627776 bytes");
  pool.block_bytes = 1;
  pool.blocks = ~0U;
  ASSERT_OK(gpumap_pool_create(device_, &pool, &none));
  gpumap_memory block = nullptr;
  expect_error(gpumap_pool_take(none, &block), GPUMAP_ERROR_NO_MEMORY, "1024 GiB asked");
  EXPECT_OK(gpumap_pool_close(none));
  auto ring = GPUMAP_INIT(gpumap_ring_options);
  ring.slot_bytes = petabyte;
  gpumap_ring no_ring = nullptr;
  EXPECT_LT(gpumap_ring_create(device_, &ring, &no_ring), 0);
  EXPECT_EQ(memory, nullptr);
}

TEST_F(CMemory, StructuresOfOtherVersionsAreRead) {
  gpumap_memory memory = nullptr;
  gpumap_memory_options none{};
  expect_error(gpumap_memory_alloc(device_, 1, &none, &memory), GPUMAP_ERROR_INVALID, "GPUMAP_INIT");
  struct Newer {
    gpumap_memory_options known;
    std::uint64_t more;
  } newer{GPUMAP_INIT(gpumap_memory_options), 0};
  newer.known.struct_size = sizeof newer;
  ASSERT_OK(gpumap_memory_alloc(device_, 1, &newer.known, &memory));
  // What the library does not know is no part of what it tells.
  struct NewerInfo {
    gpumap_memory_info known;
    std::uint64_t more;
  } newer_info{GPUMAP_INIT(gpumap_memory_info), 5};
  newer_info.known.struct_size = sizeof newer_info;
  ASSERT_OK(gpumap_memory_get_info(memory, &newer_info.known));
  EXPECT_EQ(newer_info.known.bytes, 1U);
  EXPECT_EQ(newer_info.more, 0U);
  EXPECT_EQ(newer_info.known.struct_size, sizeof newer_info);
  // An older program has room for less.
  auto older = GPUMAP_INIT(gpumap_memory_info);
  older.struct_size = offsetof(gpumap_memory_info, placement);
  older.placement = 77;
  ASSERT_OK(gpumap_memory_get_info(memory, &older));
  EXPECT_EQ(older.bytes, 1U);
  EXPECT_EQ(older.placement, 77U);
  EXPECT_OK(gpumap_memory_free(memory));
  newer.more = 1;
  expect_error(gpumap_memory_alloc(device_, 1, &newer.known, &memory), GPUMAP_ERROR_NOT_SUPPORTED, "does not know");
}

TEST_F(CMemory, HandlesThatAreNoneAreErrors) {
  gpumap_memory memory = this->memory(100);
  EXPECT_OK(gpumap_memory_free(memory));
  auto info = GPUMAP_INIT(gpumap_memory_info);
  expect_error(gpumap_memory_free(memory), GPUMAP_ERROR_INVALID, "not open");
  expect_error(gpumap_memory_get_info(memory, &info), GPUMAP_ERROR_INVALID, "not open");
  EXPECT_EQ(gpumap_memory_host(memory), nullptr);
  EXPECT_EQ(gpumap_memory_address(memory), 0U);
  // Its place is taken by another one: the old handle still means nothing.
  gpumap_memory next = this->memory(100);
  expect_error(gpumap_memory_free(memory), GPUMAP_ERROR_INVALID, "not open");
  gpumap_slot as_slot = nullptr;
  std::memcpy(&as_slot, &next, sizeof next);
  expect_error(gpumap_slot_release(as_slot, nullptr), GPUMAP_ERROR_INVALID, "a handle of a memory");
  EXPECT_OK(gpumap_memory_get_info(next, &info)) << "a wrong call gave nothing back";
  EXPECT_OK(gpumap_memory_free(next));
  std::mt19937_64 random(3);
  for (int turn = 0; turn < 10'000; ++turn) {
    const std::uint64_t number = random() >> (turn % 64);
    std::memcpy(&memory, &number, sizeof memory);
    ASSERT_EQ(gpumap_memory_get_info(memory, &info), GPUMAP_ERROR_INVALID) << number;
  }
  EXPECT_OK(gpumap_memory_free(nullptr));
  EXPECT_OK(gpumap_pool_close(nullptr));
  EXPECT_OK(gpumap_ring_close(nullptr));
  EXPECT_OK(gpumap_slot_release(nullptr, nullptr));
  EXPECT_OK(gpumap_server_close(nullptr));
  EXPECT_OK(gpumap_kernel_close(nullptr));
  EXPECT_OK(gpumap_device_close(nullptr));
}

TEST_F(CMemory, OfThreadsThatFreeAtOnceOneSucceeds) {
  constexpr int threads = 4;
  for (int turn = 0; turn < 50; ++turn) {
    gpumap_memory memory = this->memory(100);
    std::atomic<int> freed{0};
    std::atomic<int> ready{0};
    std::vector<std::thread> all;
    for (int number = 0; number < threads; ++number) {
      all.emplace_back([&, offset = 50U + static_cast<unsigned>(number)] {
        for (++ready; ready < threads;) std::this_thread::yield();
        unsigned char byte = 1;
        static_cast<void>(gpumap_memory_write(memory, offset, &byte, 1));
        if (gpumap_memory_free(memory) == GPUMAP_OK) ++freed;
        EXPECT_EQ(gpumap_memory_read(memory, 50, &byte, 1), GPUMAP_ERROR_INVALID);
      });
    }
    for (std::thread& one : all) one.join();
    ASSERT_EQ(freed, 1);
  }
}

TEST_F(CMemory, IsFreedWhenItsUsersAreDone) {
  alignas(8) std::uint64_t reached = 6;
  gpumap_memory memory = this->memory(100);
  const gpumap_fence user = gpumap_counter_fence(&reached, 7);
  ASSERT_OK(gpumap_memory_used_by(memory, &user));
  std::atomic<bool> raised{false};
  std::thread later([&] {
    std::this_thread::sleep_for(100ms);
    raised = true;
    __atomic_store_n(&reached, 7, __ATOMIC_RELEASE);
  });
  EXPECT_OK(gpumap_memory_free(memory));
  EXPECT_TRUE(raised) << "freed while it was used";
  later.join();
}

// A counter that never comes: the call ends, and the memory is not used for anything else.
TEST_F(CMemory, IsKeptForGoodFromUsersThatNeverEnd) {
  alignas(8) static std::uint64_t never = 0;
  gpumap_memory memory = this->memory(100);
  auto* const host = static_cast<unsigned char*>(gpumap_memory_host(memory));
  const gpumap_fence user = gpumap_counter_fence(&never, 1);
  ASSERT_OK(gpumap_memory_used_by(memory, &user));
  EXPECT_OK(gpumap_memory_free(memory));
  host[99] = 1;  // still there
}

TEST_F(CMemory, FencesThatMeanNothingAreErrors) {
  gpumap_memory memory = this->memory(100);
  auto fence = GPUMAP_INIT(gpumap_fence);
  EXPECT_OK(gpumap_memory_used_by(memory, &fence)) << "the caller";
  fence.kind = 99;
  expect_error(gpumap_memory_used_by(memory, &fence), GPUMAP_ERROR_INVALID, "kind 99");
  fence.kind = GPUMAP_FENCE_COUNTER;
  expect_error(gpumap_memory_used_by(memory, &fence), GPUMAP_ERROR_INVALID, "null");
  fence.kind = GPUMAP_FENCE_VULKAN;
  expect_error(gpumap_memory_used_by(memory, &fence), GPUMAP_ERROR_INVALID, "gpumap_vulkan_fence");
  EXPECT_OK(gpumap_memory_wait(memory, nullptr, 0)) << "nothing of gpumap's fills it";
  EXPECT_OK(gpumap_memory_free(memory));
}

TEST_F(CMemory, PoolsLendBlocksSideBySide) {
  auto options = GPUMAP_INIT(gpumap_pool_options);
  options.block_bytes = 4096 - 13;
  options.blocks = 10;
  options.max_blocks = 25;
  gpumap_pool pool = nullptr;
  ASSERT_OK(gpumap_pool_create(device_, &options, &pool));
  std::vector<gpumap_memory> blocks(25);
  std::set<std::uint64_t> addresses;
  std::vector<std::vector<unsigned char>> sent;
  for (gpumap_memory& block : blocks) {
    ASSERT_OK(gpumap_pool_take(pool, &block));
    EXPECT_EQ(gpumap_memory_bytes(block), options.block_bytes);
    EXPECT_EQ(gpumap_memory_address(block) % 256, 0U);
    addresses.insert(gpumap_memory_address(block));
    sent.push_back(random_frame(options.block_bytes, static_cast<unsigned>(addresses.size())));
    ASSERT_OK(gpumap_memory_write(block, 0, sent.back().data(), options.block_bytes));
  }
  EXPECT_EQ(addresses.size(), 25U);
  gpumap_memory more = nullptr;
  EXPECT_EQ(gpumap_pool_take(pool, &more), GPUMAP_FULL);
  std::vector<unsigned char> got(options.block_bytes);
  for (std::size_t number = 0; number < blocks.size(); ++number) {
    ASSERT_OK(gpumap_memory_read(blocks[number], 0, got.data(), got.size()));
    EXPECT_EQ(got, sent[number]);
  }
  // One that is given back is lent again, when its users are done.
  alignas(8) std::uint64_t reached = 0;
  const gpumap_fence user = gpumap_counter_fence(&reached, 1);
  const std::uint64_t address = gpumap_memory_address(blocks[7]);
  ASSERT_OK(gpumap_memory_used_by(blocks[7], &user));
  ASSERT_OK(gpumap_memory_free(blocks[7]));
  EXPECT_EQ(gpumap_pool_take(pool, &more), GPUMAP_FULL);
  __atomic_store_n(&reached, 1, __ATOMIC_RELEASE);
  ASSERT_OK(gpumap_pool_take(pool, &blocks[7]));
  EXPECT_EQ(gpumap_memory_address(blocks[7]), address);
  EXPECT_OK(gpumap_pool_close(pool));
  ASSERT_OK(gpumap_memory_read(blocks[3], 0, got.data(), got.size()));
  EXPECT_EQ(got, sent[3]) << "blocks outlive their pool";
  for (gpumap_memory block : blocks) EXPECT_OK(gpumap_memory_free(block));
}

// All of them together are waited for as long as one.
TEST_F(CMemory, APoolWhoseBlocksAreUsedForEverEnds) {
  alignas(8) static std::uint64_t never = 0;
  auto options = GPUMAP_INIT(gpumap_pool_options);
  options.block_bytes = 64;
  options.max_blocks = 9;
  gpumap_pool pool = nullptr;
  ASSERT_OK(gpumap_pool_create(device_, &options, &pool));
  const gpumap_fence user = gpumap_counter_fence(&never, 1);
  for (std::uint32_t number = 0; number < options.max_blocks; ++number) {
    gpumap_memory block = nullptr;
    ASSERT_OK(gpumap_pool_take(pool, &block));
    ASSERT_OK(gpumap_memory_used_by(block, &user));
    ASSERT_OK(gpumap_memory_free(block));
  }
  const auto began = std::chrono::steady_clock::now();
  EXPECT_OK(gpumap_pool_close(pool));
  EXPECT_LT(std::chrono::steady_clock::now() - began, 40s) << "5 s for each";
}

TEST_F(CMemory, ManyThreadsShareAPool) {
  auto options = GPUMAP_INIT(gpumap_pool_options);
  options.block_bytes = 64;
  gpumap_pool pool = nullptr;
  ASSERT_OK(gpumap_pool_create(device_, &options, &pool));
  std::vector<std::thread> threads;
  for (unsigned char number = 1; number <= 4; ++number) {
    threads.emplace_back([&, number] {
      for (int turn = 0; turn < 5000; ++turn) {
        gpumap_memory block = nullptr;
        ASSERT_OK(gpumap_pool_take(pool, &block));
        auto* const host = static_cast<volatile unsigned char*>(gpumap_memory_host(block));
        host[63] = number;
        ASSERT_EQ(host[63], number) << "another thread has the same block";
        ASSERT_OK(gpumap_memory_free(block));
      }
    });
  }
  for (std::thread& one : threads) one.join();
  EXPECT_OK(gpumap_pool_close(pool));
}

/// The exit status of a child that runs `body`; it is killed when that takes two minutes: it hangs.
template <typename Body>
int in_child(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(120);
    body();
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST_F(CMemory, AChildOfForkGetsErrors) {
  gpumap_memory memory = this->memory(1000);
  gpumap_ring ring = this->ring(1000, 3);
  gpumap_slot slot = nullptr;
  ASSERT_OK(gpumap_ring_acquire(ring, GPUMAP_WHEN_FULL_WAIT, 0, &slot));
  EXPECT_EQ(in_child([&] {
              unsigned char byte = 0;
              gpumap_slot other = nullptr;
              gpumap_device again = nullptr;
              auto info = GPUMAP_INIT(gpumap_device_info);
              expect_error(gpumap_memory_write(memory, 0, &byte, 1), GPUMAP_ERROR_FORKED, "fork()");
              expect_error(gpumap_memory_free(memory), GPUMAP_ERROR_FORKED, "fork()");
              expect_error(gpumap_ring_take(ring, GPUMAP_FOREVER, &other), GPUMAP_ERROR_FORKED, "fork()");
              expect_error(gpumap_slot_publish(slot, nullptr, nullptr, 0), GPUMAP_ERROR_FORKED, "fork()");
              expect_error(gpumap_slot_release(slot, nullptr), GPUMAP_ERROR_FORKED, "fork()");
              expect_error(gpumap_ring_close(ring), GPUMAP_ERROR_FORKED, "fork()");
              expect_error(gpumap_device_open("auto", 0, &again), GPUMAP_ERROR_FORKED, "fork()");
              expect_error(gpumap_device_describe(0, &info), GPUMAP_ERROR_FORKED, "fork()");
              expect_error(gpumap_ring_connect("/tmp/none", nullptr, &ring), GPUMAP_ERROR_FORKED, "fork()");
            }),
            0);
  EXPECT_OK(gpumap_slot_publish(slot, nullptr, nullptr, 0)) << "the child gave nothing back";
  EXPECT_OK(gpumap_ring_close(ring));
  EXPECT_OK(gpumap_memory_free(memory));
}

// gpumap.h beside a VkDevice of the program's own: its timeline semaphores as fences, its import of memory and slots.

using namespace std::chrono_literals;

/// A VkDevice of the GPU that gpumap's device is.
class OwnVulkan {
 public:
  explicit OwnVulkan(const gpumap_device_info& gpu) {
    void* const library = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    get_ = reinterpret_cast<PFN_vkGetInstanceProcAddr>(dlsym(library, "vkGetInstanceProcAddr"));
    VkApplicationInfo application{VK_STRUCTURE_TYPE_APPLICATION_INFO};
    application.apiVersion = VK_API_VERSION_1_2;
    VkInstanceCreateInfo instance{VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
    instance.pApplicationInfo = &application;
    if (call<PFN_vkCreateInstance>("vkCreateInstance")(&instance, nullptr, &instance_) != VK_SUCCESS) return;
    std::uint32_t count = 16;
    std::vector<VkPhysicalDevice> all(count);
    call<PFN_vkEnumeratePhysicalDevices>("vkEnumeratePhysicalDevices")(instance_, &count, all.data());
    for (std::uint32_t number = 0; number < count; ++number) {
      VkPhysicalDeviceIDProperties id{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES};
      VkPhysicalDeviceProperties2 properties{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, &id};
      call<PFN_vkGetPhysicalDeviceProperties2>("vkGetPhysicalDeviceProperties2")(all[number], &properties);
      if (std::memcmp(id.deviceUUID, gpu.uuid, VK_UUID_SIZE) == 0) open(all[number]);
    }
  }
  ~OwnVulkan() {
    if (device != nullptr) call<PFN_vkDestroyDevice>("vkDestroyDevice")(device, nullptr);
    if (instance_ != nullptr) call<PFN_vkDestroyInstance>("vkDestroyInstance")(instance_, nullptr);
  }
  OwnVulkan(const OwnVulkan&) = delete;
  OwnVulkan& operator=(const OwnVulkan&) = delete;

  template <typename Function>
  [[nodiscard]] Function call(const char* name) const {
    return reinterpret_cast<Function>(get_(instance_, name));
  }
  [[nodiscard]] VkSemaphore timeline() const {
    VkSemaphoreTypeCreateInfo type{VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO};
    type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
    const VkSemaphoreCreateInfo info{VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, &type, 0};
    VkSemaphore made = VK_NULL_HANDLE;
    EXPECT_EQ(call<PFN_vkCreateSemaphore>("vkCreateSemaphore")(device, &info, nullptr, &made), VK_SUCCESS);
    return made;
  }
  void signal(VkSemaphore semaphore, std::uint64_t value) const {
    VkSemaphoreSignalInfo info{VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO};
    info.semaphore = semaphore;
    info.value = value;
    EXPECT_EQ(call<PFN_vkSignalSemaphore>("vkSignalSemaphore")(device, &info), VK_SUCCESS);
  }
  [[nodiscard]] gpumap_fence fence(VkSemaphore semaphore, std::uint64_t value) const {
    return gpumap_vulkan_fence(device, reinterpret_cast<std::uint64_t>(semaphore),
                               call<PFN_vkVoidFunction>("vkGetSemaphoreCounterValue"), value);
  }
  /// The bytes of exported memory, as this device sees them through a mapping of its own.
  [[nodiscard]] std::vector<unsigned char> seen(const gpumap_vulkan_export& from, std::size_t bytes) const {
    VkExternalMemoryBufferCreateInfo external{VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO};
    external.handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;
    VkBufferCreateInfo info{VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, &external};
    info.size = from.buffer_bytes;
    info.usage =
        VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;
    VkBuffer buffer = VK_NULL_HANDLE;
    EXPECT_EQ(call<PFN_vkCreateBuffer>("vkCreateBuffer")(device, &info, nullptr, &buffer), VK_SUCCESS);
    VkMemoryDedicatedAllocateInfo dedicated{VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO};
    dedicated.buffer = buffer;
    VkImportMemoryFdInfoKHR import{VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR, &dedicated};
    import.handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;
    import.fd = from.fd;
    VkMemoryAllocateInfo allocation{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, &import};
    allocation.allocationSize = from.allocation_bytes;
    allocation.memoryTypeIndex = from.memory_type;
    VkDeviceMemory memory = VK_NULL_HANDLE;
    EXPECT_EQ(call<PFN_vkAllocateMemory>("vkAllocateMemory")(device, &allocation, nullptr, &memory), VK_SUCCESS);
    std::vector<unsigned char> got(bytes);
    void* mapped = nullptr;
    EXPECT_EQ(call<PFN_vkMapMemory>("vkMapMemory")(device, memory, 0, VK_WHOLE_SIZE, 0, &mapped), VK_SUCCESS);
    if (mapped != nullptr) std::memcpy(got.data(), static_cast<unsigned char*>(mapped) + from.base, bytes);
    call<PFN_vkDestroyBuffer>("vkDestroyBuffer")(device, buffer, nullptr);
    call<PFN_vkFreeMemory>("vkFreeMemory")(device, memory, nullptr);
    return got;
  }

  VkDevice device = nullptr;

 private:
  void open(VkPhysicalDevice gpu) {
    const float priority = 1;
    VkDeviceQueueCreateInfo queue{VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO};
    queue.queueCount = 1;
    queue.pQueuePriorities = &priority;
    VkPhysicalDeviceTimelineSemaphoreFeatures features{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES};
    features.timelineSemaphore = VK_TRUE;
    const char* const extension = VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME;
    VkDeviceCreateInfo info{VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, &features};
    info.queueCreateInfoCount = 1;
    info.pQueueCreateInfos = &queue;
    info.enabledExtensionCount = 1;
    info.ppEnabledExtensionNames = &extension;
    call<PFN_vkCreateDevice>("vkCreateDevice")(gpu, &info, nullptr, &device);
  }

  PFN_vkGetInstanceProcAddr get_ = nullptr;
  VkInstance instance_ = nullptr;
};

class CVulkan : public CInterface {
 protected:
  void SetUp() override {
    CInterface::SetUp();
    auto info = GPUMAP_INIT(gpumap_device_info);
    ASSERT_OK(gpumap_device_get_info(device_, &info));
    own_ = std::make_unique<OwnVulkan>(info);
    ASSERT_NE(own_->device, nullptr) << "no VkDevice of the GPU of " << info.name;
  }
  void TearDown() override {
    own_.reset();
    CInterface::TearDown();
  }

  std::unique_ptr<OwnVulkan> own_;
};

TEST_F(CVulkan, ATimelineSemaphoreHoldsASlot) {
  gpumap_ring ring = this->ring(100, 2);
  const VkSemaphore semaphore = own_->timeline();
  gpumap_slot slot = nullptr;
  gpumap_slot other = nullptr;
  send(ring, random_frame(100, 1));
  ASSERT_OK(gpumap_ring_acquire(ring, GPUMAP_WHEN_FULL_WAIT, 0, &other));
  ASSERT_OK(gpumap_ring_take(ring, 0, &slot));
  const gpumap_fence reader = own_->fence(semaphore, 5);
  ASSERT_OK(gpumap_slot_wait(slot, &reader, 0));
  ASSERT_OK(gpumap_slot_release(slot, &reader));
  own_->signal(semaphore, 4);
  EXPECT_EQ(gpumap_ring_acquire(ring, GPUMAP_WHEN_FULL_WAIT, 5'000'000, &slot), GPUMAP_TIMEOUT);
  own_->signal(semaphore, 6);
  ASSERT_OK(gpumap_ring_acquire(ring, GPUMAP_WHEN_FULL_WAIT, long_ns, &slot));
  // And the other side: what a queue writes is published behind it.
  const gpumap_fence writer = own_->fence(semaphore, 7);
  EXPECT_EQ(gpumap_slot_publish(slot, nullptr, &writer, 1'000'000), GPUMAP_TIMEOUT);
  std::thread later([&] {
    std::this_thread::sleep_for(50ms);
    own_->signal(semaphore, 7);
  });
  EXPECT_OK(gpumap_slot_publish(slot, nullptr, &writer, long_ns));
  later.join();
  EXPECT_OK(gpumap_slot_release(other, nullptr));
  EXPECT_OK(gpumap_ring_close(ring));
  own_->call<PFN_vkDestroySemaphore>("vkDestroySemaphore")(own_->device, semaphore, nullptr);
}

TEST_F(CVulkan, MemoryAndSlotsAreImported) {
  constexpr std::size_t bytes = 50'001;
  gpumap_memory memory = this->memory(bytes);
  const auto sent = random_frame(bytes, 1);
  ASSERT_OK(gpumap_memory_write(memory, 0, sent.data(), bytes));
  auto exported = GPUMAP_INIT(gpumap_vulkan_export);
  ASSERT_OK(gpumap_memory_export_vulkan(memory, &exported));
  EXPECT_EQ(own_->seen(exported, bytes), sent);
  EXPECT_OK(gpumap_memory_free(memory));
  gpumap_ring ring = this->ring(bytes, 3);
  for (unsigned number = 0; number < 4; ++number) {
    const auto frame = random_frame(bytes, number);
    send(ring, frame);
    gpumap_slot slot = nullptr;
    ASSERT_OK(gpumap_ring_take(ring, 0, &slot));
    ASSERT_OK(gpumap_slot_export_vulkan(slot, &exported));
    EXPECT_EQ(own_->seen(exported, bytes), frame);
    EXPECT_OK(gpumap_slot_release(slot, nullptr));
  }
  EXPECT_OK(gpumap_ring_close(ring));
  auto options = GPUMAP_INIT(gpumap_memory_options);
  options.placement = GPUMAP_PLACEMENT_HOST;
  ASSERT_OK(gpumap_memory_alloc(device_, bytes, &options, &memory));
  EXPECT_EQ(gpumap_memory_export_vulkan(memory, &exported), GPUMAP_ERROR_NOT_SUPPORTED);
  gpumap_vulkan_export unset{};
  expect_error(gpumap_memory_export_vulkan(memory, &unset), GPUMAP_ERROR_INVALID, "GPUMAP_INIT");
  EXPECT_OK(gpumap_memory_free(memory));
}

}  // namespace
}  // namespace gpumap::test
