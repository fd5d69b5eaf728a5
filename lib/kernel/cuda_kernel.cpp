// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "device/cuda_driver.hpp"
#include "gpumap/error.hpp"
#include "kernel/compile/cubin.hpp"
#include "kernel/compile/cuda_compiler.hpp"
#include "kernel/compile/ptx.hpp"
#include "kernel/grid.hpp"
#include "kernel/loaded.hpp"
#include "queue/executable.hpp"

namespace gpumap {

namespace {

constexpr std::uint32_t warp = 32;

/// Owner of a loaded module.
struct Module {
  explicit Module(std::shared_ptr<GpuDevice> owner) : device(std::move(owner)) {}
  ~Module() {
    if (const CudaContext::CleanupScope scope(*device->cuda()); scope && handle != nullptr) {
      device->cuda()->driver().cuModuleUnload(handle);
    }
  }
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  std::shared_ptr<GpuDevice> device;
  CUmodule handle = nullptr;
};

class LoadedCudaKernel final : public CudaKernel {
 public:
  LoadedCudaKernel(std::shared_ptr<GpuDevice> device, const KernelSource& source)
      : name_(source.name), module_(std::make_shared<Module>(std::move(device))) {
    shape_.work = source.work;
    switch (source.language) {
      case Language::cuda: {
        const CudaBinary binary = build_cuda(source, architecture());
        load(binary.code);
        find(binary.function);
        break;
      }
      case Language::ptx:
        load(source.code);
        find(choose_entry(source, source.code));
        break;
      default:
        check_cubin(source);
        load(source.code);
        find(source.function.empty() ? only_function() : source.function);
    }
    fit_blocks(source);
  }

  [[nodiscard]] const std::string& name() const noexcept override { return name_; }
  [[nodiscard]] Grid grid_for(const gpumap_frame& frame) const override { return make_grid(shape_, frame); }
  [[nodiscard]] CUfunction function() const noexcept override { return function_; }
  [[nodiscard]] std::shared_ptr<const void> owner() const noexcept override { return module_; }
  [[nodiscard]] std::uint32_t shared_bytes() const noexcept override { return shared_bytes_; }

 private:
  [[nodiscard]] CudaContext& context() const { return *module_->device->cuda(); }

  [[nodiscard]] std::string architecture() const {
    return fmt::format("sm_{}{}", context().attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                       context().attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  }

  void load(const std::string& code) {
    const CudaContext::Scope scope(context());
    std::array<char, 4096> log{};
    std::array options{CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    // The driver's convention: a value travels in the pointer itself.
    std::array<void*, 2> values{log.data(), reinterpret_cast<void*>(log.size())};
    const auto& driver = context().driver();
    const CUresult result = driver.cuModuleLoadDataEx(
        &module_->handle, code.c_str(), static_cast<unsigned>(options.size()), options.data(), values.data());
    if (result == CUDA_SUCCESS) return;
    module_->handle = nullptr;
    module_->device->check_alive();
    throw Error(
        ErrorCode::compile,
        fmt::format("kernel {} does not load: {} on {} ({}, driver for CUDA {}): {}", name_, driver.name(result),
                    module_->device->info().name, architecture(), driver.version_text(),
                    log[0] != '\0' ? log.data() : "build it for this GPU, with a toolkit no newer than the driver"));
  }

  void find(const std::string& function) {
    const CudaContext::Scope scope(context());
    const CUresult result = context().driver().cuModuleGetFunction(&function_, module_->handle, function.c_str());
    if (result == CUDA_ERROR_NOT_FOUND) {
      throw Error(ErrorCode::compile, fmt::format("kernel {}: no kernel '{}' in it; a kernel keeps its name when it is "
                                                  "extern \"C\"",
                                                  name_, function));
    }
    context().check(result, fmt::format("finding {} in kernel {}", function, name_));
  }

  [[nodiscard]] std::string only_function() const {
    const auto& driver = context().driver();
    if (!driver.has_enumerate) {
      throw Error(ErrorCode::compile, fmt::format("kernel {}: the driver (CUDA {}) cannot list the kernels of a cubin: "
                                                  "give the function's name, or use a .cu or .ptx file",
                                                  name_, driver.version_text()));
    }
    const CudaContext::Scope scope(context());
    const std::string what = fmt::format("listing the kernels of {}", name_);
    unsigned count = 0;
    context().check(driver.cuModuleGetFunctionCount(&count, module_->handle), what);
    std::vector<CUfunction> functions(count);
    context().check(driver.cuModuleEnumerateFunctions(functions.data(), count, module_->handle), what);
    std::vector<std::string> names;
    for (CUfunction function : functions) {
      const char* name = nullptr;
      context().check(driver.cuFuncGetName(&name, function), what);
      names.emplace_back(name);
    }
    if (names.size() == 1) return names.front();
    throw Error(ErrorCode::compile, fmt::format("kernel {}: {} kernels in it: choose a function from {}", name_,
                                                names.size(), fmt::join(names, ", ")));
  }

  /// A kernel that uses many registers, or says __launch_bounds__, allows fewer threads a block than usual.
  void fit_blocks(const KernelSource& source) {
    const CudaContext::Scope scope(context());
    int most = 0;
    context().check(context().driver().cuFuncGetAttribute(&most, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function_),
                    fmt::format("asking for the limits of kernel {}", name_));
    const auto limit = static_cast<std::uint32_t>(std::max(most, 1));
    shape_.threads_1d[0] = std::min(shape_.threads_1d[0], limit);
    shape_.threads_2d[0] = std::min(warp, limit);
    shape_.threads_2d[1] = std::clamp(limit / warp, 1U, shape_.threads_2d[1]);
    if (source.block[0] != 0) {
      const std::uint64_t threads = std::uint64_t{source.block[0]} * source.block[1] * source.block[2];
      if (std::max({source.block[0], source.block[1], source.block[2]}) > limit || threads > limit) {
        throw Error(ErrorCode::invalid,
                    fmt::format("kernel {}: a block of {}x{}x{} threads; it can run with {} at most: ask for fewer",
                                name_, source.block[0], source.block[1], source.block[2], limit));
      }
      shape_.threads_1d = shape_.threads_2d = source.block;
    }
    shape_.blocks = source.grid;
    shared_bytes_ = source.shared_bytes;
    // Beyond 48 KiB a kernel has to ask.
    if (shared_bytes_ == 0) return;
    context().check(context().driver().cuFuncSetAttribute(function_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                                          static_cast<int>(shared_bytes_)),
                    fmt::format("giving kernel {} {} bytes of shared memory", name_, shared_bytes_));
  }

  std::string name_;
  std::shared_ptr<Module> module_;
  GridShape shape_;
  CUfunction function_ = nullptr;
  std::uint32_t shared_bytes_ = 0;
};

}  // namespace

std::shared_ptr<Kernel> load_cuda_kernel(std::shared_ptr<GpuDevice> device, const KernelSource& source) {
  return std::make_shared<LoadedCudaKernel>(std::move(device), source);
}

}  // namespace gpumap
