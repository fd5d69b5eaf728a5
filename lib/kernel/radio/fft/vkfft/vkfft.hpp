// SPDX-License-Identifier: MIT
// VkFFT with Vulkan's functions as gpumap has them: VkFFT calls them by their names, which only a program that links
// the loader can resolve, and gpumap opens the loader at run time. Inside this namespace the names are pointers, found
// before Vulkan's prototypes. Heavy: include it from one .cpp file only.
#pragma once

// All that vkFFT.h includes, so that only its own text is inside the namespace.
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <memory.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// In Meson's check a function that is not in the list below is an error.
#ifndef VK_NO_PROTOTYPES
#define VK_NO_PROTOTYPES
#endif
#include <vulkan/vulkan.h>

#include "glslang_c_interface.h"

#define GPUMAP_VKFFT_CALLS(call)             \
  call(vkAllocateCommandBuffers);            \
  call(vkAllocateDescriptorSets);            \
  call(vkAllocateMemory);                    \
  call(vkBeginCommandBuffer);                \
  call(vkBindBufferMemory);                  \
  call(vkCmdBindDescriptorSets);             \
  call(vkCmdBindPipeline);                   \
  call(vkCmdCopyBuffer);                     \
  call(vkCmdDispatch);                       \
  call(vkCmdPipelineBarrier);                \
  call(vkCmdPushConstants);                  \
  call(vkCreateBuffer);                      \
  call(vkCreateComputePipelines);            \
  call(vkCreateDescriptorPool);              \
  call(vkCreateDescriptorSetLayout);         \
  call(vkCreatePipelineLayout);              \
  call(vkCreateShaderModule);                \
  call(vkDestroyBuffer);                     \
  call(vkDestroyDescriptorPool);             \
  call(vkDestroyDescriptorSetLayout);        \
  call(vkDestroyPipeline);                   \
  call(vkDestroyPipelineLayout);             \
  call(vkDestroyShaderModule);               \
  call(vkEndCommandBuffer);                  \
  call(vkFreeCommandBuffers);                \
  call(vkFreeMemory);                        \
  call(vkGetBufferMemoryRequirements);       \
  call(vkGetPhysicalDeviceMemoryProperties); \
  call(vkGetPhysicalDeviceProperties);       \
  call(vkMapMemory);                         \
  call(vkResetFences);                       \
  call(vkUnmapMemory);                       \
  call(vkUpdateDescriptorSets)

namespace gpumap::vkfft {
namespace {

#define GPUMAP_VKFFT_DECLARE(name) PFN_##name name = nullptr
GPUMAP_VKFFT_CALLS(GPUMAP_VKFFT_DECLARE);
GPUMAP_VKFFT_DECLARE(vkQueueSubmit);    // the caller's own: a VkQueue has one user at a time,
GPUMAP_VKFFT_DECLARE(vkWaitForFences);  // and a lost device is to be noticed
#undef GPUMAP_VKFFT_DECLARE

// It changes the locale of the whole process, so that numbers in shaders have points, and back to a string that is no
// more. The caller has set its thread's.
[[maybe_unused]] char* setlocale(int /*category*/, const char* /*locale*/) {
  return nullptr;
}
// It prints whole shaders to where a pipeline may write its frames.
template <typename... Args>
int printf(const char* /*format*/, const Args&... /*args*/) {
  return 0;
}

#define VKFFT_BACKEND 0
#ifndef __clang__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // of GCC 14, in VkFFT 1.3
#endif
#include <vkFFT.h>
#ifndef __clang__
#pragma GCC diagnostic pop
#endif

}  // namespace
}  // namespace gpumap::vkfft
