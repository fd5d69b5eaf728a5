// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/cuda_driver.hpp"
#include "device/gpu_device.hpp"
#include "gpumap/device.hpp"
#include "gpumap/kernel.hpp"

namespace gpumap {

/// lavapipe's, in all loops of a thread together: Mesa from 22.3 to 25.0, and others for all that is known.
inline constexpr std::uint64_t max_loop_turns = 65535;

/// The shape of every launch of a kernel.
struct GridShape {
  Work work = Work::item;
  std::array<std::uint32_t, 3> threads_1d{256, 1, 1};
  std::array<std::uint32_t, 3> threads_2d{32, 8, 1};
  std::array<std::uint32_t, 3> blocks{};                              ///< 0: as many as the frame takes
  std::array<std::uint32_t, 3> max_blocks{0x7FFFFFFF, 65535, 65535};  ///< CUDA's
};

/// Pixels, samples or bytes: what each has a thread where no other grid is asked for.
[[nodiscard]] std::uint64_t items_of(const gpumap_frame& frame);
/// Throws Error(invalid) where `source` asks for more blocks than launches of this shape take.
void check_grid(const KernelSource& source, const GridShape& shape);
/// See Kernel::grid_for.
[[nodiscard]] Grid make_grid(const GridShape& shape, const gpumap_frame& frame);
/// That `device` may end the loops of a kernel of the user's, which has some; empty: it has none, or they run to their
/// end.
[[nodiscard]] std::string loop_risk_of(const KernelSource& source, const DeviceInfo& device);

/// For a kernel that was given up and does end: others load code behind it.
inline constexpr std::chrono::seconds patience_to_load{60};

/// The two halves of Kernel::load. Throw as it does.
[[nodiscard]] std::shared_ptr<Kernel> load_cuda_kernel(std::shared_ptr<GpuDevice> device, const KernelSource& source);
[[nodiscard]] std::shared_ptr<Kernel> load_vulkan_kernel(std::shared_ptr<GpuDevice> device, const KernelSource& source);

/// `functions` of `source`, or the kernel that it means, as functions of one that stays on the GPU, for
/// create_resident_queue(); they share one owner(). For a device that has CUDA. Throws as Kernel::load, and
/// Error(not_supported) for what cannot stay.
[[nodiscard]] std::vector<std::shared_ptr<Kernel>> load_resident_kernels(const std::shared_ptr<GpuDevice>& device,
                                                                         const KernelSource& source,
                                                                         std::vector<std::string> functions);

/// Code on a GPU. Owns the module, keeps its device open. Thread safety: immutable.
class CudaModule {
 public:
  /// A cubin, or PTX. `name` is for messages. Throws Error(compile | device_lost).
  CudaModule(std::shared_ptr<GpuDevice> device, std::string name, const std::string& code);
  ~CudaModule();
  CudaModule(const CudaModule&) = delete;
  CudaModule& operator=(const CudaModule&) = delete;

  /// Throws Error(compile).
  [[nodiscard]] CUfunction find(const std::string& function) const;
  /// Where it has one kernel alone; else Error(compile) with their names.
  [[nodiscard]] std::string only_function() const;
  /// How `function` can be launched, with block, grid, work and shared memory as `source` asks. Gives it that shared
  /// memory. Throws Error(invalid) for blocks that are too large.
  [[nodiscard]] GridShape fit(CUfunction function, const KernelSource& source) const;
  /// Throws Error(compile) where `function`, called `name`, takes anything but one gpumap_frame, as far as the driver
  /// tells: a launch hands over no more, and the driver would read on behind it.
  void check_takes_frame(CUfunction function, const std::string& name) const;
  /// It was compiled for clusters of blocks, which start together or not at all.
  [[nodiscard]] bool has_clusters(CUfunction function) const;

 private:
  [[nodiscard]] CudaContext& context() const { return *device_->cuda(); }

  const std::shared_ptr<GpuDevice> device_;
  const std::string name_;
  CUmodule handle_ = nullptr;
};

/// As compile_cuda() takes it: "sm_90".
[[nodiscard]] std::string architecture_of(const GpuDevice& device);

}  // namespace gpumap
