// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>

#include "kernel/radio/fft/fft.hpp"

namespace gpumap {

/// VkFFT's transform, on the device's Vulkan side. Null where gpumap was built without VkFFT.
/// Plans are made as numbers of transforms come, some tenths of a second each. Source: VkFFT's API guide.
[[nodiscard]] std::unique_ptr<Fft> make_vulkan_fft(const std::shared_ptr<Device>& device, const Builtin& builtin,
                                                   std::uint32_t size);

}  // namespace gpumap
