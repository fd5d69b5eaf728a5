// SPDX-License-Identifier: MIT
// gpumap.h beside a VkDevice of the program's own: its timeline semaphores as fences, its import of memory and slots.
#include <dlfcn.h>
#include <unistd.h>
#include <vulkan/vulkan_core.h>

#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "c_helpers.hpp"

namespace gpumap::test {
namespace {

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
