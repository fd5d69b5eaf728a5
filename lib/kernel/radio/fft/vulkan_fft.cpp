// SPDX-License-Identifier: MIT
#include "kernel/radio/fft/vulkan_fft.hpp"

#if GPUMAP_HAVE_VKFFT

#include <fmt/format.h>

#include <locale.h>

#include <algorithm>
#include <bit>
#include <exception>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "device/gpu_device.hpp"
#include "device/vulkan_device.hpp"
#include "gpumap/error.hpp"
#include "kernel/radio/fft/vkfft/vkfft.hpp"
#include "kernel/radio/radio_kernel.hpp"
#include "kernel/work_memory.hpp"
#include "memory/gpu_mapping.hpp"
#include "queue/queues.hpp"

namespace gpumap {
namespace {

thread_local VulkanContext* planning = nullptr;

/// VkFFT gets to know that `call` failed, and check() why.
template <typename Call>
VkResult guarded(Call&& call) {
  try {
    try {
      call();
      return VK_SUCCESS;
    } catch (const vk::SystemError& error) {
      planning->fail(error, "planning a transform");
    }
  } catch (...) {
    vkfft::failure = std::current_exception();
    return VK_ERROR_UNKNOWN;
  }
}

/// Tables go to the device while a plan is made: through the context, which keeps its VkQueue to one user at a time.
VkResult submit_tables(VkQueue /*queue*/, std::uint32_t count, const VkSubmitInfo* infos, VkFence fence) {
  return guarded([&] {
    for (std::uint32_t i = 0; i < count; ++i) planning->submit(vk::SubmitInfo(infos[i]), vk::Fence(fence));
  });
}
VkResult wait_for_tables(VkDevice /*device*/, std::uint32_t count, const VkFence* fences, VkBool32 all,
                         std::uint64_t ns) {
  return guarded([&] {
    const std::vector<vk::Fence> waited(fences, fences + count);
    if (planning->device().waitForFences(waited, all, ns) != vk::Result::eSuccess) {
      throw Error(ErrorCode::device_lost,
                  fmt::format("{} has not taken the tables of a transform for {} s: see what else runs on it",
                              planning->name(), ns / 1'000'000'000));
    }
  });
}

/// Numbers in what VkFFT writes have points, whatever the user's language.
class PlainNumbers {
 public:
  PlainNumbers() : plain_(newlocale(LC_ALL_MASK, "C", nullptr)), before_(uselocale(plain_)) {}
  ~PlainNumbers() {
    uselocale(before_);
    if (plain_ != nullptr) freelocale(plain_);
  }
  PlainNumbers(const PlainNumbers&) = delete;
  PlainNumbers& operator=(const PlainNumbers&) = delete;

 private:
  locale_t plain_, before_;
};

void load_calls() {
  // The loader's own functions serve every device of the one instance that the process has.
  static const bool loaded = [] {
    const VulkanInstance& instance = VulkanInstance::get();
#define GPUMAP_VKFFT_LOAD(name) vkfft::name = reinterpret_cast<PFN_##name>(instance.function(#name))
    GPUMAP_VKFFT_CALLS(GPUMAP_VKFFT_LOAD);
#undef GPUMAP_VKFFT_LOAD
    vkfft::vkQueueSubmit = &submit_tables;
    vkfft::vkWaitForFences = &wait_for_tables;
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
        bytes_(transforms * size * 2 * sizeof(float)),
        what_(fmt::format("{} x {} points", transforms, size)) {
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
    planning = &context_;
    vkfft::failure = nullptr;
    const PlainNumbers plain_numbers;
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
    std::string why = fmt::format("error {}", static_cast<int>(result));
    if (vkfft::failure) {
      try {
        std::rethrow_exception(std::exchange(vkfft::failure, nullptr));
      } catch (const Error& error) {
        if (error.code() != ErrorCode::compile) throw;
        why = error.what();
      }
    }
    device_->check_alive();
    const bool memory =
        result == vkfft::VKFFT_ERROR_MALLOC_FAILED || result == vkfft::VKFFT_ERROR_FAILED_TO_ALLOCATE_MEMORY;
    throw Error(memory ? ErrorCode::no_memory : ErrorCode::not_supported,
                fmt::format("VkFFT: {} {} on {}: {}: set GPUMAP_OWN_FFT=1 to do without it", what, what_,
                            context_.name(), why));
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
  const std::string what_;
  vkfft::VkFFTApplication application_{};
};

class VulkanFft final : public Fft {
 public:
  VulkanFft(std::shared_ptr<GpuDevice> device, const Builtin& builtin, std::uint32_t size)
      : device_(std::move(device)),
        copy_(device_, Backend::vulkan, builtin, "radio_keep"),
        rows_(device_, Backend::vulkan),
        size_(size),
        // VkFFT binds all rows as one buffer.
        max_rows_(device_->vulkan()->physical().getProperties().limits.maxStorageBufferRange / row_bytes()) {}

  std::uint64_t place(Queue& queue, std::uint64_t transforms) override {
    const std::uint64_t count = rounded(transforms);
    if (count > max_rows_) return 0;
    if (rows_.bytes() < count * row_bytes())
      plans_.clear();  // they are for that buffer; the queue keeps those it needs
    return rows_.ready(queue, count * row_bytes());
  }

  void forward(Queue& queue, std::uint64_t from, std::uint64_t to, std::uint64_t transforms) override {
    while (transforms != 0) {
      const std::uint64_t count = rounded(transforms) <= max_rows_ ? transforms : std::bit_floor(max_rows_);
      const std::uint64_t rows = place(queue, count);
      copy(queue, from, rows, count);
      const std::shared_ptr<Plan>& plan = plan_for(queue, count);
      record_commands(queue, plan, [&](VkCommandBuffer commands) { plan->append(commands); });
      copy(queue, rows, to, count);
      from += count * row_bytes(), to += count * row_bytes(), transforms -= count;
    }
  }

 private:
  [[nodiscard]] std::uint64_t row_bytes() const { return std::uint64_t{size_} * 2 * sizeof(float); }

  /// A plan is for one number of transforms and takes some tenths of a second to make, frames bring any number: it is
  /// rounded up by a quarter at most, and a plan that was made for up to half as many again does. The rows behind are
  /// transformed for nothing.
  static std::uint64_t rounded(std::uint64_t transforms) {
    const std::uint64_t step = std::max<std::uint64_t>(std::bit_floor(transforms) / 4, 1);
    return (transforms + step - 1) / step * step;
  }

  const std::shared_ptr<Plan>& plan_for(Queue& queue, std::uint64_t transforms) {
    const auto made = plans_.lower_bound(transforms);
    if (made != plans_.end() && made->first <= transforms + transforms / 2) return made->second;
    // The plan's tables go to the GPU behind all that it has to do, and VkFFT's wait for them cannot be cancelled.
    queue.finish();
    const std::uint64_t count = rounded(transforms);
    // Device memory has a buffer of its own, from the beginning on.
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
    frame.in.bytes = transforms * row_bytes();
    frame.out.plane[0] = to;
    radio_keep_job job{};
    job.count = transforms * size_;
    copy_.launch(queue, frame, job, job.count);
  }

  const std::shared_ptr<GpuDevice> device_;
  RadioKernel copy_;
  WorkMemory rows_;
  const std::uint32_t size_;
  const std::uint64_t max_rows_;                          ///< rows
  std::map<std::uint64_t, std::shared_ptr<Plan>> plans_;  ///< by the number of transforms
};

/// For these VkFFT has butterflies; for others it makes tables and passes of a kind that no one has tested here.
bool made_of_small_primes(std::uint32_t size) {
  for (const std::uint32_t prime : {2U, 3U, 5U, 7U, 11U, 13U}) {
    while (size % prime == 0) size /= prime;
  }
  return size == 1;
}

}  // namespace

std::unique_ptr<Fft> make_vulkan_fft(const std::shared_ptr<Device>& device, const Builtin& builtin,
                                     std::uint32_t size) {
  auto gpu = std::dynamic_pointer_cast<GpuDevice>(device);
  if (!gpu || gpu->vulkan() == nullptr || !made_of_small_primes(size)) return nullptr;
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
