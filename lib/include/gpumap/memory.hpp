// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "gpumap/export.hpp"
#include "gpumap/fence.hpp"

namespace gpumap {

/// For people: "79.6 GiB", "248 MiB", "4 KiB", "100 bytes".
[[nodiscard]] GPUMAP_API std::string format_bytes(std::uint64_t bytes);

/// Who executes GPU work.
enum class Backend { cuda, vulkan };
[[nodiscard]] constexpr const char* to_string(Backend backend) noexcept {  ///< "CUDA", "Vulkan"
  return backend == Backend::cuda ? "CUDA" : "Vulkan";
}

/// Where memory lies.
enum class Placement {
  bar,                ///< device memory that the CPU writes through the PCIe BAR (never read it with the CPU)
  device,             ///< device memory that only the GPU reaches
  host,               ///< page-locked, CPU-cached host memory that the GPU reaches: results and downloads
  mirrored,           ///< page-locked host memory, and device memory that upload() brings it to by DMA
  mirrored_pageable,  ///< ordinary host memory, and device memory that upload() brings it to by a blocking copy
};

/// How the bytes that a CPU writes reach the GPU.
enum class Transport {
  bar,        ///< CPU stores into device memory
  pinned,     ///< page-locked host memory, moved by DMA at publish
  zero_copy,  ///< page-locked host memory that the kernel reads over PCIe
  pageable,   ///< ordinary memory and a blocking copy at publish
};
inline constexpr std::array all_transports{Transport::bar, Transport::pinned, Transport::zero_copy,
                                           Transport::pageable};

[[nodiscard]] GPUMAP_API std::string_view to_string(
    Transport transport) noexcept;  ///< "bar", "pinned", "zero-copy", "pageable"
[[nodiscard]] GPUMAP_API Placement placement_of(Transport transport) noexcept;

struct MappingOptions {
  Placement placement = Placement::bar;
  std::size_t bytes = 0;
  bool require_coherent = false;       ///< fail rather than take memory that needs flush()
  bool treat_as_non_coherent = false;  ///< for tests: flush and invalidate even where not needed
};

/// A piece of memory with a host pointer, a device address, or both.
/// Ownership: owns the memory, keeps its device open. Thread safety: const members from any thread.
class GPUMAP_API Mapping {
 public:
  Mapping() = default;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  virtual ~Mapping() = default;

  [[nodiscard]] virtual Placement placement() const noexcept = 0;
  [[nodiscard]] virtual std::size_t bytes() const noexcept = 0;
  /// CPU address, at least 4096-aligned; null for Placement::device.
  [[nodiscard]] virtual std::byte* host() const noexcept = 0;
  /// Address for a kernel on `backend`: a CUdeviceptr or a Vulkan buffer device address. 0 where it has none. For a
  /// mirrored placement that of the mirror.
  [[nodiscard]] virtual std::uint64_t address(Backend backend) const noexcept = 0;
  /// The CPU reads host() at the speed of ordinary memory: all placements but bar and device.
  [[nodiscard]] virtual bool cpu_readable() const noexcept = 0;
  /// False when CPU stores need flush() before the GPU sees them.
  [[nodiscard]] virtual bool coherent() const noexcept = 0;

  /// Make CPU stores in the range available to the device. A no-op on coherent memory. Range checked: Error(invalid).
  virtual void flush(std::size_t offset, std::size_t bytes) const = 0;
  /// Make device writes in the range visible to the CPU (Placement::host). A no-op on coherent memory.
  virtual void invalidate(std::size_t offset, std::size_t bytes) const = 0;

  /// Bring CPU stores in the range to where address() points: flush() and a signalled fence where the CPU wrote there
  /// already; DMA for Placement::mirrored, asynchronous: kernels wait for the fence, and the range must not be stored
  /// to before it has signalled; done on return for Placement::mirrored_pageable. The caller has fenced its stores.
  /// Range checked: Error(invalid). Throws Error(device_lost).
  [[nodiscard]] virtual Fence upload(std::size_t offset, std::size_t bytes) const = 0;
  /// The same for bytes that may be `given_up` meanwhile, as download_unless() has it.
  [[nodiscard]] virtual Fence upload_unless(const std::function<bool()>& /*given_up*/, std::size_t offset,
                                            std::size_t bytes) const {
    return upload(offset, bytes);
  }

  /// Copy [offset, offset + to.size()) of what a kernel sees to ordinary host memory by DMA; up to 2 KiB of a BAR by
  /// the CPU's streaming loads, never by ordinary ones. Blocks until done. The caller has waited for the fences of GPU
  /// work that writes the range.
  virtual void download(std::size_t offset, std::span<std::byte> to) const = 0;
  /// The same for bytes that may be `given_up` meanwhile (null: never): where it waits behind other work of the GPU, it
  /// then waits for 1 s at most, and throws Error(io).
  virtual void download_unless(const std::function<bool()>& /*given_up*/, std::size_t offset,
                               std::span<std::byte> to) const {
    download(offset, to);
  }
};

// What other Vulkan code needs to share memory with gpumap's, which lies on a VkDevice of its own.

/// A dedicated VkDeviceMemory with one buffer on it, as another VkDevice of the same GPU and driver imports it.
struct VulkanExport {
  int fd = -1;  ///< VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT; the receiver's to close, or an import's
  std::uint64_t allocation_bytes = 0;  ///< of the memory
  std::uint64_t buffer_bytes = 0;      ///< of the buffer, which is bound at 0
  std::uint64_t base = 0;              ///< where in the buffer the mapping starts
  std::uint32_t memory_type = 0;       ///< its index
};

/// A new descriptor of the mapping's memory, for Placement::bar and ::device. What the GPU does to the memory on one
/// side is to have ended before the other side touches it. Thread-safe. Throws Error(not_supported) for other
/// placements and where the driver cannot, Error(device_lost).
[[nodiscard]] GPUMAP_API VulkanExport export_to_vulkan(const Mapping& mapping);

}  // namespace gpumap
