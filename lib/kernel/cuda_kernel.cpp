// SPDX-License-Identifier: MIT
#include "kernel/load_kernel.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "device/resident_registry.hpp"
#include "gpumap/error.hpp"
#include "kernel/compile/compilers.hpp"
#include "queue/queues.hpp"

namespace gpumap {
namespace {

constexpr std::uint32_t warp = 32;

}  // namespace

CudaModule::CudaModule(std::shared_ptr<GpuDevice> device, std::string name, const std::string& code)
    : device_(std::move(device)), name_(std::move(name)) {
  context().wait_while_stuck(patience_to_load);
  const CudaContext::Scope scope(context());
  std::array<char, 4096> log{};
  std::array options{CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  // The driver's convention: a value travels in the pointer itself.
  std::array<void*, 2> values{log.data(), reinterpret_cast<void*>(log.size())};
  const auto& driver = context().driver();
  const Residents::Absence absence(context().residents());
  // Ends: what was submitted before has ended.
  const CUresult result = driver.cuModuleLoadDataEx(&handle_, code.c_str(), static_cast<unsigned>(options.size()),
                                                    options.data(), values.data());
  if (result == CUDA_SUCCESS) return;
  handle_ = nullptr;
  device_->check_alive();
  throw Error(
      ErrorCode::compile,
      fmt::format("kernel {} does not load: {} on {} ({}, driver for CUDA {}): {}", name_, driver.name(result),
                  device_->info().name, architecture_of(*device_), driver.version_text(),
                  log[0] != '\0' ? log.data() : "build it for this GPU, with a toolkit no newer than the driver"));
}

CudaModule::~CudaModule() {
  if (handle_ == nullptr) return;
  // Ends: what was submitted before has ended, or is given up.
  if (const CudaFreeScope scope(context()); scope) context().driver().cuModuleUnload(handle_);
}

CUfunction CudaModule::find(const std::string& function) const {
  CUfunction found = nullptr;
  const CudaContext::Scope scope(context());
  const CUresult result = context().driver().cuModuleGetFunction(&found, handle_, function.c_str());
  if (result == CUDA_ERROR_NOT_FOUND) {
    throw Error(ErrorCode::compile, fmt::format("kernel {}: no kernel '{}' in it; a kernel keeps its name when it is "
                                                "extern \"C\"",
                                                name_, function));
  }
  context().check(result, fmt::format("finding {} in kernel {}", function, name_));
  return found;
}

std::string CudaModule::only_function() const {
  const auto& driver = context().driver();
  if (!driver.has_enumerate) {
    throw Error(ErrorCode::compile, fmt::format("kernel {}: the driver (CUDA {}) cannot list the kernels of a cubin: "
                                                "give the function's name, or use a .cu or .ptx file",
                                                name_, driver.version_text()));
  }
  const CudaContext::Scope scope(context());
  const std::string what = fmt::format("listing the kernels of {}", name_);
  unsigned count = 0;
  context().check(driver.cuModuleGetFunctionCount(&count, handle_), what);
  std::vector<CUfunction> functions(count);
  if (count != 0) context().check(driver.cuModuleEnumerateFunctions(functions.data(), count, handle_), what);
  std::vector<std::string> names;
  for (CUfunction function : functions) {
    const char* name = nullptr;
    context().check(driver.cuFuncGetName(&name, function), what);
    names.emplace_back(name);
  }
  if (names.size() == 1) return names.front();
  if (names.empty()) {
    throw Error(
        ErrorCode::compile,
        fmt::format("kernel {}: no kernel in it: write extern \"C\" __global__ void name(gpumap_frame frame)", name_));
  }
  throw Error(ErrorCode::compile, fmt::format("kernel {}: {} kernels in it: choose a function from {}", name_,
                                              names.size(), fmt::join(names, ", ")));
}

void CudaModule::check_takes_frame(CUfunction function, const std::string& name) const {
  const auto& driver = context().driver();
  if (!driver.has_parameters) return;
  const CudaContext::Scope scope(context());
  std::size_t from = 0, bytes = 0, more_bytes = 0;
  if (driver.cuFuncGetParamInfo(function, 0, &from, &bytes) != CUDA_SUCCESS) return;  // it takes none
  const bool takes_more = driver.cuFuncGetParamInfo(function, 1, &from, &more_bytes) == CUDA_SUCCESS;
  if (is_frame_size(bytes) && !takes_more) return;
  throw Error(ErrorCode::compile,
              fmt::format("kernel {}: '{}' takes {}, and not one gpumap_frame by value ({} bytes): write extern \"C\" "
                          "__global__ void {}(gpumap_frame frame)",
                          name_, name, takes_more ? "several parameters" : fmt::format("{} bytes", bytes),
                          sizeof(gpumap_frame), name));
}

/// A kernel that uses many registers, or says __launch_bounds__, allows fewer threads a block than usual.
GridShape CudaModule::fit(CUfunction function, const KernelSource& source) const {
  GridShape shape;
  shape.work = source.work;
  const CudaContext::Scope scope(context());
  int most = 0;
  context().check(context().driver().cuFuncGetAttribute(&most, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function),
                  fmt::format("asking for the limits of kernel {}", name_));
  const auto limit = static_cast<std::uint32_t>(std::max(most, 1));
  shape.threads_1d[0] = std::min(shape.threads_1d[0], limit);
  shape.threads_2d[0] = std::min(warp, limit);
  shape.threads_2d[1] = std::clamp(limit / warp, 1U, shape.threads_2d[1]);
  if (source.block[0] != 0) {
    const std::uint64_t threads = std::uint64_t{source.block[0]} * source.block[1] * source.block[2];
    if (std::max({source.block[0], source.block[1], source.block[2]}) > limit || threads > limit) {
      throw Error(ErrorCode::invalid,
                  fmt::format("kernel {}: a block of {}x{}x{} threads; it can run with {} at most: ask for fewer",
                              name_, source.block[0], source.block[1], source.block[2], limit));
    }
    shape.threads_1d = shape.threads_2d = source.block;
  }
  check_grid(source, shape);
  shape.blocks = source.grid;
  // Beyond 48 KiB a kernel has to ask.
  if (source.shared_bytes == 0) return shape;
  context().check(context().driver().cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                                        static_cast<int>(source.shared_bytes)),
                  fmt::format("giving kernel {} {} bytes of shared memory", name_, source.shared_bytes));
  return shape;
}

bool CudaModule::has_clusters(CUfunction function) const {
  const CudaContext::Scope scope(context());
  for (const auto side : {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT,
                          CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH}) {
    int blocks = 0;
    // A driver that does not know them has none.
    if (context().driver().cuFuncGetAttribute(&blocks, side, function) == CUDA_SUCCESS && blocks > 1) return true;
  }
  return false;
}

std::string architecture_of(const GpuDevice& device) {
  const CudaContext& context = *device.cuda();
  return fmt::format("sm_{}{}", context.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                     context.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
}

namespace {

/// What is to be loaded, and the name of the kernel in it; that is empty where only the module tells.
CudaBinary binary_of(const GpuDevice& device, const KernelSource& source) {
  switch (source.language) {
    case Language::cuda:
      return build_cuda(source, architecture_of(device));
    case Language::ptx:
      return {.code = source.code, .function = choose_entry(source, source.code)};
    default:
      check_cubin(source);
      return {.code = source.code, .function = source.function};
  }
}

class LoadedCudaKernel final : public CudaKernel {
 public:
  LoadedCudaKernel(const std::shared_ptr<GpuDevice>& device, const KernelSource& source)
      : LoadedCudaKernel(device, source, binary_of(*device, source)) {}

  [[nodiscard]] const std::string& name() const noexcept override { return name_; }
  [[nodiscard]] Grid grid_for(const gpumap_frame& frame) const override { return make_grid(shape_, frame); }
  [[nodiscard]] CUfunction function() const noexcept override { return function_; }
  [[nodiscard]] std::shared_ptr<const void> owner() const noexcept override { return module_; }
  [[nodiscard]] std::uint32_t shared_bytes() const noexcept override { return shared_bytes_; }

 private:
  LoadedCudaKernel(const std::shared_ptr<GpuDevice>& device, const KernelSource& source, const CudaBinary& binary)
      : name_(source.name),
        module_(std::make_shared<CudaModule>(device, source.name, binary.code)),
        entry_(binary.function.empty() ? module_->only_function() : binary.function),
        function_(module_->find(entry_)),
        shape_(module_->fit(function_, source)),
        shared_bytes_(source.shared_bytes) {
    if (source.language == Language::cubin) module_->check_takes_frame(function_, entry_);  // of PTX the text tells
    if (module_->has_clusters(function_)) demand_.emplace(device->cuda()->residents(), Residents::Needs::cluster);
  }

  const std::string name_;
  const std::shared_ptr<const CudaModule> module_;
  const std::string entry_;
  const CUfunction function_;
  const GridShape shape_;
  const std::uint32_t shared_bytes_;
  std::optional<Residents::Demand> demand_;  ///< for room for a cluster
};

}  // namespace

std::shared_ptr<Kernel> load_cuda_kernel(std::shared_ptr<GpuDevice> device, const KernelSource& source) {
  return std::make_shared<LoadedCudaKernel>(device, source);
}

}  // namespace gpumap
