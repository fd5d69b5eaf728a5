// SPDX-License-Identifier: MIT
// lavapipe's submit thread still writes to a timeline semaphore after it has signalled the fence of the same submission
// (Mesa 22.3 to 25.0: vk_queue_submit_final() of src/vulkan/runtime installs the time point once the driver's submit
// has returned). GStreamer's Vulkan elements wait for the fence and free the image with its semaphore: about one run in
// twenty of a busy machine crashed or hung, with vulkanupload ! vulkandownload alone, too. A program that links this
// file takes libgstvulkan's call: what waits until the device is idle waits for that thread.
#include <dlfcn.h>
#include <vulkan/vulkan.h>

namespace {

template <class Function>
Function vulkan(const char* name) {
  static void* const loader = dlopen("libvulkan.so.1", RTLD_NOW);
  return reinterpret_cast<Function>(dlsym(loader, name));
}

}  // namespace

extern "C" [[gnu::visibility("default")]] void vkDestroySemaphore(VkDevice device, VkSemaphore semaphore,
                                                                  const VkAllocationCallbacks* pAllocator) {
  static const auto wait_idle = vulkan<PFN_vkDeviceWaitIdle>("vkDeviceWaitIdle");
  static const auto destroy = vulkan<PFN_vkDestroySemaphore>("vkDestroySemaphore");
  wait_idle(device);
  destroy(device, semaphore, pAllocator);
}
