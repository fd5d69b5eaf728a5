// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpumap/export.hpp"
#include "gpumap/memory.hpp"
#include "gpumap/queue.hpp"

namespace gpumap {

using Uuid = std::array<std::uint8_t, 16>;

/// How the CPU reaches the memory of a device: what a user of it gets.
enum class DeviceAccess {
  none,      ///< not at all: the device cannot be used
  bar,       ///< it writes device memory through the PCIe BAR
  software,  ///< the "device" is the CPU: slots are ordinary memory
};

[[nodiscard]] GPUMAP_API std::string_view to_string(DeviceAccess access) noexcept;  ///< "none", "bar", "software"

/// One GPU (or software Vulkan driver) of this machine.
struct DeviceInfo {
  std::string name;
  Uuid uuid{};
  std::string pci_address;              ///< "0000:3b:00.0"; empty for software
  int vulkan_index = -1;                ///< in vkEnumeratePhysicalDevices order; -1 when Vulkan does not see it
  int cuda_index = -1;                  ///< CUDA ordinal; -1 when CUDA does not see it
  bool software = false;                ///< a CPU pretending to be a GPU (lavapipe)
  std::uint64_t memory_bytes = 0;       ///< device memory
  std::uint64_t window_bytes = 0;       ///< the part that the CPU can map: the BAR window
  std::uint64_t window_free_bytes = 0;  ///< budget left in it
  std::string vulkan_driver;            ///< "NVIDIA 580.159.04, Vulkan 1.4.312"; empty when none
  std::string cuda_driver;              ///< "13.0"; empty when none
  std::string compute_capability;       ///< "9.0"; empty when no CUDA
  DeviceAccess access = DeviceAccess::none;
  std::string reason;  ///< why that access, in a sentence
};

/// What this machine has. Statuses are sentences for a person: "found …" or what is missing and how to get it.
struct Inventory {
  std::vector<DeviceInfo> devices;  ///< hardware first, in Vulkan order
  std::string vulkan;
  std::string cuda;
  std::string nvrtc;
};

/// Look at the machine. Never throws for what is missing. Thread-safe.
[[nodiscard]] GPUMAP_API Inventory take_inventory();

/// As messages have it: GPUs of one kind share a name, so with the address that tells them apart.
[[nodiscard]] GPUMAP_API std::string name_of(const DeviceInfo& device);
[[nodiscard]] GPUMAP_API std::string to_string(const Uuid& uuid);  ///< "f7a40ae3-…", lower case, dashed

/// Choose a device by "auto" (hardware that can map its memory before software), index, UUID (as `gpumap-info` and
/// nvidia-smi print it, with or without "GPU-") or PCI address. Throws Error(no_driver | no_device | invalid).
[[nodiscard]] GPUMAP_API const DeviceInfo& select_device(const Inventory& inventory, std::string_view selector);

/// An open GPU: one context in a process, shared by everyone who opens it.
/// Ownership: shared; the first open keeps it for the life of the process (a Vulkan instance takes 0.3 s to make).
/// Thread safety: every member from any thread.
class GPUMAP_API Device : public std::enable_shared_from_this<Device> {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  /// Throws Error(no_driver | no_device | not_supported | device_lost).
  [[nodiscard]] static std::shared_ptr<Device> open(std::string_view selector = "auto");

  [[nodiscard]] virtual const DeviceInfo& info() const noexcept = 0;
  /// What runs kernels by default: CUDA where the GPU has it, else Vulkan.
  [[nodiscard]] virtual Backend default_backend() const noexcept = 0;
  [[nodiscard]] virtual bool has(Backend backend) const noexcept = 0;
  /// Budget left for Placement::bar, asked afresh.
  [[nodiscard]] virtual std::uint64_t window_free_bytes() const = 0;

  /// Throws Error(no_memory) with window, use and request; Error(not_supported).
  /// Placement::host memory is reachable from `backend` only (the default backend when absent).
  [[nodiscard]] virtual std::shared_ptr<Mapping> allocate(const MappingOptions& options,
                                                          std::optional<Backend> backend = {}) = 0;
  /// Throws Error(not_supported | device_lost).
  [[nodiscard]] virtual std::unique_ptr<Queue> create_queue(std::optional<Backend> backend = {}) = 0;

  /// Empty while healthy, else what happened. Everything after that throws Error(device_lost) with it.
  [[nodiscard]] virtual std::string lost() const = 0;
};

/// Messages of the Vulkan validation layer since start (warnings and errors). The layer is on when the environment has
/// GPUMAP_VALIDATION=1; a test asserts 0.
[[nodiscard]] GPUMAP_API std::uint64_t validation_message_count() noexcept;

}  // namespace gpumap
