// SPDX-License-Identifier: MIT
#include "kernel/radio/vulkan_fft.hpp"

#if GPUMAP_HAVE_VKFFT

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

#include "device/gpu_device.hpp"
#include "device/queues.hpp"
#include "device/vulkan_device.hpp"
#include "gpumap/error.hpp"
#include "kernel/radio/radio_memory.hpp"
#include "kernel/radio/vkfft/vkfft.hpp"
#include "memory/gpu_mapping.hpp"

namespace gpumap {
namespace {

thread_local VulkanContext* submitting = nullptr;

/// Tables go to the device while a plan is made: through the context, which keeps its VkQueue to one user at a time.
VkResult submit_tables(VkQueue /*queue*/, std::uint32_t count, const VkSubmitInfo* infos, VkFence fence) {
  try {
    for (std::uint32_t i = 0; i < count; ++i) submitting->submit(vk::SubmitInfo(infos[i]), vk::Fence(fence));
    return VK_SUCCESS;
  } catch (const vk::SystemError& error) {
    return static_cast<VkResult>(error.code().value());
  }
}

void load_calls() {
  // The loader's own functions serve every device of the one instance that the process has.
  static const bool loaded = [] {
    const VulkanInstance& instance = VulkanInstance::get();
#define GPUMAP_VKFFT_LOAD(name) vkfft::name = reinterpret_cast<PFN_##name>(instance.function(#name))
    GPUMAP_VKFFT_CALLS(GPUMAP_VKFFT_LOAD);
#undef GPUMAP_VKFFT_LOAD
    vkfft::vkQueueSubmit = &submit_tables;
    return true;
  }();
  static_cast<void>(loaded);
}

/// Transforms in place of one number of rows in one buffer. Kept by what is in flight.
class Plan {
 public:
  Plan(std::shared_ptr<GpuDevice> device, VkBuffer buffer, std::uint32_t size, std::uint64_t transforms)
      : device_(std::move(device)),
        context_(*device_->vulkan()),
        physical_(*context_.physical()),
        logical_(*context_.device()),
        pool_(context_.device(), {vk::CommandPoolCreateFlagBits::eTransient, context_.queue_family()}),
        fence_(context_.device(), vk::FenceCreateInfo()),
        raw_pool_(*pool_),
        raw_fence_(*fence_),
        buffer_(buffer),
        bytes_(transforms * size * 2 * sizeof(float)) {
    load_calls();
    vkfft::VkFFTConfiguration configuration{};
    configuration.FFTdim = 1;
    configuration.size[0] = size;
    configuration.numberBatches = transforms;
    configuration.physicalDevice = &physical_;
    configuration.device = &logical_;
    configuration.queue = &queue_;
    configuration.commandPool = &raw_pool_;
    configuration.fence = &raw_fence_;
    configuration.isCompilerInitialized = 1;
    configuration.buffer = &buffer_;
    configuration.bufferSize = &bytes_;
    configuration.makeForwardPlanOnly = 1;
    configuration.useLUT = 1;  // twiddle factors as exact as floats are: a GPU's own sines are not
    submitting = &context_;
    check(initializeVkFFT(&application_, configuration), "planning");  // which takes down what it failed at
  }
  ~Plan() { deleteVkFFT(&application_); }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  void append(VkCommandBuffer commands) {
    vkfft::VkFFTLaunchParams parameters{};
    parameters.commandBuffer = &commands;
    check(VkFFTAppend(&application_, -1, &parameters), "recording");
  }

 private:
  void check(vkfft::VkFFTResult result, const char* what) const {
    if (result == vkfft::VKFFT_SUCCESS) return;
    device_->check_alive();
    const bool memory =
        result == vkfft::VKFFT_ERROR_MALLOC_FAILED || result == vkfft::VKFFT_ERROR_FAILED_TO_ALLOCATE_MEMORY;
    throw Error(memory ? ErrorCode::no_memory : ErrorCode::not_supported,
                fmt::format("VkFFT: {} a transform of {} MiB on {}: error {}: set GPUMAP_OWN_FFT=1 to do without it",
                            what, bytes_ >> 20U, context_.name(), static_cast<int>(result)));
  }

  const std::shared_ptr<GpuDevice> device_;
  VulkanContext& context_;
  VkPhysicalDevice physical_;
  VkDevice logical_;
  VkQueue queue_ = VK_NULL_HANDLE;  // see submit_tables()
  vk::raii::CommandPool pool_;
  vk::raii::Fence fence_;
  VkCommandPool raw_pool_;
  VkFence raw_fence_;
  VkBuffer buffer_;
  std::uint64_t bytes_;
  vkfft::VkFFTApplication application_{};
};

class VulkanFft final : public Fft {
 public:
  VulkanFft(std::shared_ptr<GpuDevice> device, const Builtin& builtin, std::uint32_t size)
      : device_(std::move(device)),
        copy_(device_, Backend::vulkan, builtin, "radio_keep"),
        rows_(device_, Backend::vulkan),
        size_(size) {}

  std::uint64_t place(Queue& queue, std::uint64_t transforms) override {
    const std::uint64_t bytes = rounded(transforms) * size_ * 2 * sizeof(float);
    if (rows_.bytes() < bytes) {
      static_cast<void>(queue.submit().wait());  // plans in flight hold descriptors of the buffer
      plans_.clear();
    }
    return rows_.ready(queue, bytes);
  }

  void forward(Queue& queue, std::uint64_t from, std::uint64_t to, std::uint64_t transforms) override {
    const std::uint64_t rows = place(queue, transforms);
    copy(queue, from, rows, transforms);
    const std::shared_ptr<Plan>& plan = plan_for(transforms);
    record_commands(queue, plan, [&](VkCommandBuffer commands) { plan->append(commands); });
    copy(queue, rows, to, transforms);
  }

 private:
  /// A plan is for one number of transforms and takes some tenths of a second to make, frames bring any number: it is
  /// rounded up by a quarter at most, and a plan that was made for up to half as many again does. The rows behind are
  /// transformed for nothing.
  static std::uint64_t rounded(std::uint64_t transforms) {
    const std::uint64_t step = std::max<std::uint64_t>(std::bit_floor(transforms) / 4, 1);
    return (transforms + step - 1) / step * step;
  }

  const std::shared_ptr<Plan>& plan_for(std::uint64_t transforms) {
    const auto made = plans_.lower_bound(transforms);
    if (made != plans_.end() && made->first <= transforms + transforms / 2) return made->second;
    const std::uint64_t count = rounded(transforms);
    const GpuMapping& rows = own_mapping(*rows_.memory(), *device_);
    try {
      return plans_[count] = std::make_shared<Plan>(device_, rows.buffer(), size_, count);
    } catch (const vk::SystemError& error) {
      device_->vulkan()->fail(error, "planning a transform");
    }
  }

  void copy(Queue& queue, std::uint64_t from, std::uint64_t to, std::uint64_t transforms) const {
    if (from == to) return;
    gpumap_frame frame{};
    frame.in.format = GPUMAP_FORMAT_F32;
    frame.in.plane[0] = from;
    frame.in.bytes = transforms * size_ * 2 * sizeof(float);
    frame.out.plane[0] = to;
    radio_keep_job job{};
    job.count = transforms * size_;
    copy_.launch(queue, frame, job, job.count);
  }

  const std::shared_ptr<GpuDevice> device_;
  RadioKernel copy_;
  WorkMemory rows_;
  const std::uint32_t size_;
  std::map<std::uint64_t, std::shared_ptr<Plan>> plans_;  ///< by the number of transforms
};

}  // namespace

std::unique_ptr<Fft> make_vulkan_fft(const std::shared_ptr<Device>& device, const Builtin& builtin,
                                     std::uint32_t size) {
  auto gpu = std::dynamic_pointer_cast<GpuDevice>(device);
  if (!gpu || gpu->vulkan() == nullptr) return nullptr;
  return std::make_unique<VulkanFft>(std::move(gpu), builtin, size);
}

}  // namespace gpumap

#else

namespace gpumap {

std::unique_ptr<Fft> make_vulkan_fft(const std::shared_ptr<Device>&, const Builtin&, std::uint32_t) {
  return nullptr;
}

}  // namespace gpumap

#endif
