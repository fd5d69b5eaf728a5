// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "c/c_status.hpp"
#include "gpumap/block_pool.hpp"
#include "gpumap/device.hpp"
#include "gpumap/fence.hpp"
#include "gpumap/memory.hpp"

namespace gpumap::c {

/// One open of a device.
class DeviceObject final : public Object {
 public:
  static constexpr const char* name = "device";
  DeviceObject(std::shared_ptr<Device> opened, std::uint32_t its_flags) : device(std::move(opened)), flags(its_flags) {}
  [[nodiscard]] const char* what() const noexcept override { return name; }

  const std::shared_ptr<Device> device;
  const std::uint32_t flags;  ///< enum gpumap_device_flags
};

/// `options` with what the device's flags and those of the call (enum gpumap_memory_flags) ask for.
void require(MappingOptions& options, const DeviceObject& device, std::uint32_t memory_flags);

[[nodiscard]] inline std::uint32_t number_of(Backend backend) noexcept {
  return backend == Backend::cuda ? GPUMAP_BACKEND_CUDA : GPUMAP_BACKEND_VULKAN;
}

/// What a caller means by `given`: signals when it is done. Throws Error(invalid | not_supported).
[[nodiscard]] Fence fence_of(Device& device, const gpumap_fence* given);
/// `who` goes on after `work`: see gpumap_memory_wait().
[[nodiscard]] gpumap_status let_wait(Device& device, const Fence& work, const gpumap_fence* who,
                                     std::int64_t timeout_ns);

/// A part of a mapping, as memory and slots are one.
struct Place {
  Device& device;
  const Mapping& mapping;
  std::size_t offset = 0, bytes = 0;

  [[nodiscard]] std::byte* host() const noexcept {
    return mapping.host() == nullptr ? nullptr : mapping.host() + offset;
  }
  [[nodiscard]] std::uint64_t address(Backend backend) const noexcept {
    const std::uint64_t base = mapping.address(backend);
    return base == 0 ? 0 : base + offset;
  }
  [[nodiscard]] gpumap_memory_info info() const;
  /// Throws Error(invalid) unless the range lies inside.
  void check_range(std::uint64_t at, std::uint64_t count, const char* what) const;
  /// With streaming stores by as many threads as pay; they are fenced, but not flushed. Throws Error(not_supported).
  void copy_in(std::uint64_t at, const void* from, std::uint64_t count) const;
  void copy_out(std::uint64_t at, void* to, std::uint64_t count) const;
  [[nodiscard]] gpumap_vulkan_export exported() const;
};

/// Who keeps memory until its users are done.
class Keeper {
 public:
  Keeper() = default;
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;
  virtual ~Keeper() = default;
  [[nodiscard]] virtual const std::shared_ptr<Mapping>& mapping() const noexcept = 0;
  virtual void let_go(std::vector<Fence> users) noexcept = 0;
};

/// An allocation of its own, a block of a pool or what a kernel wrote. Thread safety: any thread.
class MemoryObject final : public Object {
 public:
  static constexpr const char* name = "memory";
  MemoryObject(std::shared_ptr<Device> device, std::unique_ptr<Keeper> keeper, std::size_t offset, std::size_t bytes,
               Fence written = {})
      : device_(std::move(device)),
        keeper_(std::move(keeper)),
        offset_(offset),
        bytes_(bytes),
        written_(std::move(written)) {}
  ~MemoryObject() override { keeper_->let_go(std::move(users_)); }
  [[nodiscard]] const char* what() const noexcept override { return name; }

  [[nodiscard]] const std::shared_ptr<Device>& device() const noexcept { return device_; }
  [[nodiscard]] Place place() const noexcept { return {*device_, *keeper_->mapping(), offset_, bytes_}; }
  /// What fills it.
  [[nodiscard]] const Fence& written() const noexcept { return written_; }
  void add_user(const Fence& fence);

 private:
  const std::shared_ptr<Device> device_;
  const std::unique_ptr<Keeper> keeper_;
  const std::size_t offset_, bytes_;
  const Fence written_;
  std::mutex mutex_;
  std::vector<Fence> users_;
};

/// Waits for `users` until `end`, 5 s where none is said, and then keeps `mapping` for good.
void outlast(std::shared_ptr<Mapping> mapping, const std::vector<Fence>& users, Deadline end = no_deadline) noexcept;

/// Memory that a kernel's pool lent.
[[nodiscard]] std::unique_ptr<Keeper> keep(LentBlock block);

[[nodiscard]] Placement placement_of(std::uint32_t placement);

}  // namespace gpumap::c
