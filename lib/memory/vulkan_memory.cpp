// SPDX-License-Identifier: MIT
#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "device/cuda_driver.hpp"
#include "device/resident_registry.hpp"
#include "device/unique_fd.hpp"
#include "device/vulkan_device.hpp"
#include "gpumap/error.hpp"
#include "memory/gpu_mapping.hpp"
#include "memory/vulkan_allocation.hpp"

namespace gpumap {

/// Vulkan memory as CUDA sees it. Owns CUDA's reference to the memory; the Vulkan allocation may go before or after.
class CudaImport {
 public:
  /// `allocation_bytes` is the size of the dedicated VkDeviceMemory behind `fd`.
  CudaImport(const CudaContext& context, UniqueFd fd, std::uint64_t allocation_bytes);
  ~CudaImport();
  CudaImport(const CudaImport&) = delete;
  CudaImport& operator=(const CudaImport&) = delete;

  [[nodiscard]] CUdeviceptr address() const noexcept { return address_; }

 private:
  void release() noexcept;

  const CudaContext& context_;
  CUexternalMemory memory_ = nullptr;
  CUdeviceptr address_ = 0;
};

namespace {

/// One import or its end at a time, which the driver does not need but compute-sanitizer does: it hears of an end after
/// the driver has given the address to another thread's import, and then takes the new memory for freed. An end may
/// wait for a kernel, so nobody waits long for another's.
using OneAtATime = std::unique_lock<std::timed_mutex>;
OneAtATime one_at_a_time() {
  static auto* const mutex = new std::timed_mutex;
  return OneAtATime(*mutex, std::chrono::system_clock::now() + std::chrono::milliseconds(100));
}

}  // namespace

CudaImport::CudaImport(const CudaContext& context, UniqueFd fd, std::uint64_t allocation_bytes) : context_(context) {
  const auto& driver = context_.driver();
  const CudaContext::Scope scope(context_);
  const OneAtATime lock = one_at_a_time();
  const Residents::NewMemory arrives(context_.residents());
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC handle{};
  handle.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
  handle.handle.fd = fd.get();
  handle.size = allocation_bytes;
  handle.flags = CUDA_EXTERNAL_MEMORY_DEDICATED;
  context_.check(driver.cuImportExternalMemory(&memory_, &handle), "importing Vulkan memory");
  static_cast<void>(fd.release());  // CUDA owns the descriptor now

  CUDA_EXTERNAL_MEMORY_BUFFER_DESC range{};
  range.size = allocation_bytes;
  try {
    context_.check(driver.cuExternalMemoryGetMappedBuffer(&address_, memory_, &range), "mapping Vulkan memory");
  } catch (...) {
    release();
    throw;
  }
}

CudaImport::~CudaImport() {
  const OneAtATime lock = one_at_a_time();
  release();
}

void CudaImport::release() noexcept {
  const CudaFreeScope scope(context_);
  if (!scope) return;
  const auto& driver = context_.driver();
  // Ends: what was submitted before has ended.
  if (address_ != 0) driver.cuMemFree(address_);
  // Ends: likewise.
  driver.cuDestroyExternalMemory(memory_);
}

namespace {

/// Up to here reading through the BAR takes less time than DMA and its set-up: on an H100's host 64 bytes 1.2 us by
/// streaming loads and 8.7 by DMA, 4 KiB 8.3 and 8.7. Ordinary loads of write-combined memory fetch each word on its
/// own.
constexpr std::size_t max_bar_read = 2048;

#if defined(__x86_64__)

/// Whether this CPU has streaming loads (SSE4.1).
bool can_read_bar() noexcept {
  static const bool can = __builtin_cpu_supports("sse4.1") != 0;
  return can;
}

/// Copy `bytes` at `from` by streaming loads, which fetch a line at once; what ends within a block of 16 bytes by
/// ordinary ones. May read from the beginning of the block that `from` lies in, and reads nothing behind the range.
/// Only where can_read_bar().
__attribute__((target("sse4.1"))) void read_bar(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  constexpr std::size_t block = sizeof(__m128i);
  _mm_mfence();  // a line that was fetched before may be older than what the GPU wrote
  std::size_t skip = reinterpret_cast<std::uintptr_t>(from) % block;
  const std::byte* at = from - skip;
  for (; skip + bytes >= block; at += block, skip = 0) {
    // GCC 12 takes the pointer without const.
    const __m128i loaded = _mm_stream_load_si128(reinterpret_cast<__m128i*>(const_cast<std::byte*>(at)));
    std::byte part[block];
    std::memcpy(part, &loaded, block);
    const std::size_t count = block - skip;
    std::memcpy(to, part + skip, count);
    to += count;
    bytes -= count;
  }
  std::memcpy(to, at + skip, bytes);
}

#else

bool can_read_bar() noexcept {
  return false;
}

void read_bar(std::byte* /*to*/, const std::byte* /*from*/, std::size_t /*bytes*/) noexcept {}

#endif

constexpr std::uint64_t host_alignment = 4096;

/// Drivers map device memory by whole pages. Software drivers hand out pieces of their heap: for them take a page more
/// and start the mapping at the first page border inside.
VulkanAllocation allocate_aligned(VulkanContext& context, const MappingOptions& options) {
  {
    VulkanAllocation exact(context, options.placement, options.bytes, options.require_coherent);
    if (reinterpret_cast<std::uintptr_t>(exact.host) % host_alignment == 0) return exact;
  }
  return {context, options.placement, options.bytes + host_alignment, options.require_coherent};
}

class VulkanMapping final : public GpuMapping {
 public:
  VulkanMapping(std::shared_ptr<GpuDevice> device, const MappingOptions& options)
      : VulkanMapping(std::move(device), options,
                      [&options](VulkanContext& context) { return allocate_aligned(context, options); }) {
    if (device_->cuda() != nullptr && options.placement != Placement::host) import_to_cuda(export_fd());
  }

  VulkanMapping(std::shared_ptr<GpuDevice> device, const MappingOptions& options, MemoryExport& from)
      : VulkanMapping(std::move(device), options,
                      [&from](VulkanContext& context) { return VulkanAllocation(context, from); }) {
    if (from.base != base_ || options.bytes > from.buffer_bytes - base_) {
      throw Error(ErrorCode::invalid,
                  "the driver maps memory of another process elsewhere than there: use the same driver on both sides");
    }
  }

  template <typename Allocate>
  VulkanMapping(std::shared_ptr<GpuDevice> device, const MappingOptions& options, Allocate&& allocate)
      : GpuMapping(std::move(device), options), context_(*device_->vulkan()), allocation_(allocate(context_)) {
    const auto misalignment = reinterpret_cast<std::uintptr_t>(allocation_.host) % host_alignment;
    base_ = misalignment == 0 ? 0 : host_alignment - misalignment;
    set_memory_coherent(allocation_.coherent);
  }

  void import_to_cuda(UniqueFd fd) {
    import_ = std::make_unique<CudaImport>(*device_->cuda(), std::move(fd), allocation_.memory_bytes);
  }

  [[nodiscard]] std::byte* host() const noexcept override {
    return allocation_.host == nullptr ? nullptr : allocation_.host + base_;
  }

  [[nodiscard]] std::uint64_t address(Backend backend) const noexcept override {
    if (backend == Backend::vulkan) return allocation_.address + base_;
    if (import_) return import_->address() + base_;
    return 0;
  }

  [[nodiscard]] VkBuffer buffer() const noexcept override { return *allocation_.buffer; }
  [[nodiscard]] std::uint64_t buffer_offset() const noexcept override { return base_; }

  [[nodiscard]] UniqueFd export_fd() const override {
    if (!allocation_.exportable) {
      throw Error(ErrorCode::not_supported,
                  "the Vulkan driver of " + context_.name() +
                      " cannot export this memory (VK_KHR_external_memory_fd): update the driver");
    }
    try {
      return UniqueFd(
          context_.device().getMemoryFdKHR({*allocation_.memory, vk::ExternalMemoryHandleTypeFlagBits::eOpaqueFd}));
    } catch (const vk::SystemError& error) {
      context_.fail(error, "exporting memory");
    }
  }

  [[nodiscard]] MemoryExport export_memory() const override {
    if (placement() == Placement::host) return GpuMapping::export_memory();
    return {export_fd(), allocation_.memory_bytes, allocation_.buffer_bytes, base_, allocation_.memory_type};
  }

  void download(std::size_t offset, std::span<std::byte> to) const override { download_unless(nullptr, offset, to); }

  void download_unless(const std::function<bool()>& given_up, std::size_t offset,
                       std::span<std::byte> to) const override {
    check_range(offset, to.size(), "download");
    if (to.empty()) return;
    device_->check_alive();
    if (placement() == Placement::host) {
      invalidate(offset, to.size());
      std::memcpy(to.data(), host() + offset, to.size());
      return;
    }
    if (placement() == Placement::bar && to.size() <= max_bar_read && can_read_bar()) {
      read_bar(to.data(), host() + offset, to.size());
      // All ones is what a bus says whose device is gone, too: then let DMA find out.
      if (std::any_of(to.begin(), to.end(), [](std::byte byte) { return byte != std::byte{0xFF}; })) return;
    }
    if (import_) {
      device_->cuda()->download(address(Backend::cuda) + offset, to.data(), to.size());
      return;
    }
    device_->staging().download(buffer(), base_ + offset, to, given_up);
  }

 private:
  void flush_range(std::size_t offset, std::size_t bytes) const override {
    allocation_.flush(context_, base_ + offset, bytes);
  }
  void invalidate_range(std::size_t offset, std::size_t bytes) const override {
    allocation_.invalidate(context_, base_ + offset, bytes);
  }

  VulkanContext& context_;
  VulkanAllocation allocation_;
  std::uint64_t base_ = 0;              // where the mapping starts in the allocation
  std::unique_ptr<CudaImport> import_;  // declared last: CUDA lets go first
};

}  // namespace

std::shared_ptr<GpuMapping> allocate_vulkan(std::shared_ptr<GpuDevice> device, const MappingOptions& options) {
  return std::make_shared<VulkanMapping>(std::move(device), options);
}

std::shared_ptr<GpuMapping> import_vulkan(std::shared_ptr<GpuDevice> device, std::size_t bytes, MemoryExport memory) {
  MappingOptions options;
  options.placement = Placement::bar;
  options.bytes = bytes;
  // Vulkan takes the descriptor.
  UniqueFd for_cuda;
  if (device->cuda() != nullptr) {
    for_cuda = UniqueFd(fcntl(memory.fd.get(), F_DUPFD_CLOEXEC, 0));
    if (!for_cuda)
      throw Error(ErrorCode::no_resources, "no file descriptor is left to import memory", "raise ulimit -n");
  }
  auto mapping = std::make_shared<VulkanMapping>(std::move(device), options, memory);
  if (for_cuda) mapping->import_to_cuda(std::move(for_cuda));
  return mapping;
}

}  // namespace gpumap
