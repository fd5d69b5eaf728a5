// SPDX-License-Identifier: MIT
// Memory that is not coherent, more strictly than any CPU that tests run on: what one side wrote, the other sees once
// it was flushed, or invalidated, and not a moment before. The library's own mapping lies above it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "device/cuda_driver.hpp"
#include "device/vulkan_device.hpp"
#include "fake_device.hpp"
#include "memory/gpu_mapping.hpp"
#include "open_device.hpp"

namespace gpumap::test {

class SimulatedMapping final : public GpuMapping {
 public:
  SimulatedMapping(std::shared_ptr<GpuDevice> device, const MappingOptions& options)
      : GpuMapping(std::move(device), options), cpus_(options.bytes + page), gpus_(options.bytes) {
    set_memory_coherent(false);
  }

  [[nodiscard]] std::byte* host() const noexcept override {
    const auto at = reinterpret_cast<std::uintptr_t>(cpus_.data());
    return cpus_.data() + (page - at % page) % page;
  }
  [[nodiscard]] std::uint64_t address(Backend) const noexcept override {
    return reinterpret_cast<std::uint64_t>(gpus_.data());
  }
  void download(std::size_t offset, std::span<std::byte> to) const override {
    check_range(offset, to.size(), "download");
    std::ranges::copy(seen_by_gpu(offset, to.size()), to.begin());
  }
  [[nodiscard]] std::span<std::byte> seen_by_gpu(std::size_t offset, std::size_t bytes) const {
    return std::span(gpus_).subspan(offset, bytes);
  }

 private:
  static constexpr std::size_t page = 4096;
  void flush_range(std::size_t offset, std::size_t bytes) const override {
    std::copy_n(host() + offset, bytes, gpus_.data() + offset);
  }
  void invalidate_range(std::size_t offset, std::size_t bytes) const override {
    std::copy_n(gpus_.data() + offset, bytes, host() + offset);
  }
  mutable std::vector<std::byte> cpus_;
  mutable std::vector<std::byte> gpus_;
};

/// Gives SimulatedMappings.
class SimulatedDevice : public FakeDevice {
 public:
  [[nodiscard]] std::shared_ptr<Mapping> allocate(const MappingOptions& options, std::optional<Backend>) override {
    return std::make_shared<SimulatedMapping>(behind_, options);
  }

 private:
  std::shared_ptr<GpuDevice> behind_ =
      std::make_shared<OpenDevice>(DeviceInfo(), std::make_shared<Health>(), nullptr, nullptr);
};

}  // namespace gpumap::test
