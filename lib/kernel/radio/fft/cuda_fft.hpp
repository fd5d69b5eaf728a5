// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>

#include "kernel/radio/fft/fft.hpp"

namespace gpumap {

/// cuFFT, opened at run time: in the folder GPUMAP_CUFFT_PATH alone where that is set (so that one without it leaves it
/// out), else in the loader's path, $CUDA_HOME/lib64 and /usr/local/cuda/lib64. Null where there is none, or none that
/// can plan this on this device: it may be newer than the driver.
[[nodiscard]] std::unique_ptr<Fft> make_cuda_fft(const std::shared_ptr<Device>& device, std::uint32_t size);

}  // namespace gpumap
