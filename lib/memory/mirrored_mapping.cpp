// SPDX-License-Identifier: MIT
// Memory in two parts: the CPU writes the host part, kernels read the device part, upload() brings the one to the
// other.
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "device/budget.hpp"
#include "device/cuda_driver.hpp"
#include "device/vulkan_device.hpp"
#include "gpumap/error.hpp"
#include "memory/gpu_mapping.hpp"
#include "memory/vulkan_allocation.hpp"

namespace gpumap {
namespace {

/// The device part: what every backend, every copy and every other process sees.
class MirroredMapping : public GpuMapping {
 public:
  [[nodiscard]] bool cpu_readable() const noexcept final { return true; }
  [[nodiscard]] std::uint64_t address(Backend backend) const noexcept final { return mirror_->address(backend); }
  [[nodiscard]] VkBuffer buffer() const noexcept final { return mirror_->buffer(); }
  [[nodiscard]] std::uint64_t buffer_offset() const noexcept final { return mirror_->buffer_offset(); }
  [[nodiscard]] UniqueFd export_fd() const final { return mirror_->export_fd(); }
  void download(std::size_t offset, std::span<std::byte> to) const final { mirror_->download(offset, to); }
  void download_unless(const std::function<bool()>& given_up, std::size_t offset, std::span<std::byte> to) const final {
    mirror_->download_unless(given_up, offset, to);
  }

 protected:
  MirroredMapping(std::shared_ptr<GpuDevice> device, const MappingOptions& options)
      : GpuMapping(std::move(device), options),
        mirror_(allocate_vulkan(device_, {.placement = Placement::device, .bytes = options.bytes})) {}

  const std::shared_ptr<GpuMapping> mirror_;
};

/// Page-locked: the GPU fetches it by itself, on a queue of this mapping's own, while kernels run on others.
class PinnedMapping final : public MirroredMapping {
 public:
  PinnedMapping(std::shared_ptr<GpuDevice> device, const MappingOptions& options)
      : MirroredMapping(std::move(device), options),
        pinned_(device_->allocate({.placement = Placement::host,
                                   .bytes = options.bytes,
                                   .require_coherent = options.require_coherent,
                                   .treat_as_non_coherent = options.treat_as_non_coherent},
                                  {})),
        queue_(device_->create_queue({})) {
    set_memory_coherent(pinned_->coherent());
  }

  [[nodiscard]] std::byte* host() const noexcept override { return pinned_->host(); }

  [[nodiscard]] Fence upload(std::size_t offset, std::size_t bytes) const override {
    flush(offset, bytes);
    if (bytes == 0) return {};
    const std::lock_guard lock(mutex_);
    queue_->copy(*pinned_, offset, *mirror_, offset, bytes);
    return queue_->submit();
  }

 private:
  void flush_range(std::size_t offset, std::size_t bytes) const override { pinned_->flush(offset, bytes); }
  void invalidate_range(std::size_t offset, std::size_t bytes) const override { pinned_->invalidate(offset, bytes); }

  const std::shared_ptr<Mapping> pinned_;
  mutable std::mutex mutex_;            // a queue serves one thread at a time
  const std::unique_ptr<Queue> queue_;  // declared last: it waits for the DMA in flight before the memory goes
};

/// Ordinary memory: the driver copies it to page-locked memory of its own, and from there, before upload() returns.
class PageableMapping final : public MirroredMapping {
 public:
  PageableMapping(std::shared_ptr<GpuDevice> device, const MappingOptions& options)
      : MirroredMapping(std::move(device), options) {
    constexpr std::size_t page = 4096;
    host_.reset(static_cast<std::byte*>(std::aligned_alloc(page, (options.bytes + page - 1) / page * page)));
    if (!host_) {
      throw FiguredError(Error(ErrorCode::no_memory, "no " + format_bytes(options.bytes) + " of host memory are left",
                               "lower slots or slot-size"),
                         {{"asked-bytes", options.bytes}});
    }
    set_memory_coherent(true);
  }

  [[nodiscard]] std::byte* host() const noexcept override { return host_.get(); }

  [[nodiscard]] Fence upload(std::size_t offset, std::size_t bytes) const override {
    return upload_unless(nullptr, offset, bytes);
  }

  [[nodiscard]] Fence upload_unless(const std::function<bool()>& given_up, std::size_t offset,
                                    std::size_t bytes) const override {
    flush(offset, bytes);
    if (bytes == 0) return {};
    device_->check_alive();
    if (device_->cuda() != nullptr) {
      device_->cuda()->upload(host() + offset, address(Backend::cuda) + offset, bytes);
      return {};
    }
    device_->staging().upload({host() + offset, bytes}, buffer(), buffer_offset() + offset, given_up);
    return {};
  }

 private:
  // The CPU copies it from here: nothing to flush, whatever a test says of it.
  void flush_range(std::size_t, std::size_t) const override {}
  void invalidate_range(std::size_t, std::size_t) const override {}

  std::unique_ptr<std::byte, decltype(&std::free)> host_{nullptr, &std::free};
};

}  // namespace

std::shared_ptr<GpuMapping> allocate_mirrored(std::shared_ptr<GpuDevice> device, const MappingOptions& options) {
  if (options.placement == Placement::mirrored) return std::make_shared<PinnedMapping>(std::move(device), options);
  return std::make_shared<PageableMapping>(std::move(device), options);
}

}  // namespace gpumap
