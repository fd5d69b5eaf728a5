// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "device/vulkan_device.hpp"
#include "gpumap/error.hpp"
#include "kernel/compile/compilers.hpp"
#include "kernel/load_kernel.hpp"
#include "queue/queues.hpp"

namespace gpumap {
namespace {

// A pipeline has one workgroup size, and which frames will come is not known when it is made: one row of threads
// serves 1-D grids and images alike.
constexpr std::uint32_t row_threads = 256;
constexpr std::array<std::uint32_t, 3> quad_threads{32, 8, 1};

ShaderInfo choose_shader(const KernelSource& source, const SpirvModule& module) {
  // What GLSL calls a function is main once it is compiled.
  const std::string wanted = source.function.empty() || source.language == Language::glsl ? "main" : source.function;
  std::vector<std::string_view> names;
  for (const ShaderInfo& shader : module.shaders) {
    if (shader.function == wanted) return shader;
    names.push_back(shader.function);
  }
  throw Error(ErrorCode::compile, fmt::format("kernel {}: no compute entry point '{}' in it, {}", source.name, wanted,
                                              names.empty() ? std::string("and no other")
                                                            : fmt::format("only {}", fmt::join(names, ", "))));
}

/// What is wrong with a module is said of its file.
template <typename Call>
auto of_file(const KernelSource& source, Call&& call) {
  try {
    return call();
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("kernel {}: {}", source.name, error.what()));
  }
}

/// A launch binds no descriptors and pushes one address: a driver crashes on a module that wants more.
void check_interface(const KernelSource& source, const SpirvModule& module) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::compile,
                fmt::format("kernel {}: {}: include <gpumap.glsl> and reach everything through frame, with load_* and "
                            "store_*",
                            source.name, what));
  };
  if (module.uses_descriptors) {
    refuse("it declares buffers, images or uniforms (layout(binding = ...)), and a launch binds none");
  }
  if (module.push_constant_bytes > sizeof(std::uint64_t)) {
    refuse("its push constants take more than the 8 bytes that a launch gives, the address of the frame");
  }
}

/// What is likely to be missing, in words.
std::string name_of_capability(std::uint32_t capability) {
  constexpr std::array<std::pair<std::uint32_t, const char*>, 12> names{{
      {9, "16-bit floats (shaderFloat16)"},
      {10, "64-bit floats (shaderFloat64)"},
      {12, "64-bit atomics (shaderBufferInt64Atomics)"},
      {22, "16-bit integers (shaderInt16, storageBuffer16BitAccess)"},
      {4433, "16-bit integers (shaderInt16, storageBuffer16BitAccess)"},
      {4472, "ray queries"},
      {5055, "the shader's clock"},
      {5357, "cooperative matrices"},
      {5612, "least and most of 32-bit floats as atomics"},
      {6022, "cooperative matrices"},
      {6033, "sums of 32-bit floats as atomics (shaderBufferFloat32AtomicAdd)"},
      {6034, "sums of 64-bit floats as atomics (shaderBufferFloat64AtomicAdd)"},
  }};
  const auto found = std::ranges::find(names, capability, &std::pair<std::uint32_t, const char*>::first);
  return found != names.end() ? found->second : fmt::format("the SPIR-V capability {}", capability);
}

/// What a driver makes of a module that uses what was not enabled is undefined.
void check_capabilities(const KernelSource& source, const SpirvModule& module, const GpuDevice& device) {
  const std::vector<std::uint32_t>& allowed = device.vulkan()->capabilities();
  for (const std::uint32_t capability : module.capabilities) {
    if (std::ranges::find(allowed, capability) != allowed.end()) continue;
    throw Error(ErrorCode::not_supported, fmt::format("kernel {}: needs {}, which gpumap does not have on {}",
                                                      source.name, name_of_capability(capability), device.info().name));
  }
}

/// What a launch in flight keeps alive. The device outlives the pipeline made on it.
struct Pipeline {
  std::shared_ptr<GpuDevice> device;
  vk::raii::PipelineLayout layout{nullptr};
  vk::raii::Pipeline pipeline{nullptr};
};

class LoadedVulkanKernel final : public VulkanKernel {
 public:
  LoadedVulkanKernel(std::shared_ptr<GpuDevice> device, const KernelSource& source)
      : name_(source.name), pipeline_(std::make_shared<Pipeline>()) {
    pipeline_->device = std::move(device);
    const std::string code = source.language == Language::glsl ? compile_glsl(source) : source.code;
    // What was compiled here is valid.
    if (source.language != Language::glsl) of_file(source, [&] { check_valid_spirv(code); });
    const SpirvModule module = of_file(source, [&] { return read_spirv(code); });
    const ShaderInfo shader = choose_shader(source, module);
    check_interface(source, module);
    check_capabilities(source, module, *pipeline_->device);
    choose_shape(source, shader);
    try {
      create(code, shader);
    } catch (const vk::SystemError& error) {
      pipeline_->device->vulkan()->fail(error, fmt::format("loading kernel {}", name_));
    }
  }

  [[nodiscard]] const std::string& name() const noexcept override { return name_; }
  [[nodiscard]] Grid grid_for(const gpumap_frame& frame) const override { return make_grid(shape_, frame); }
  [[nodiscard]] VkPipeline pipeline() const noexcept override { return *pipeline_->pipeline; }
  [[nodiscard]] VkPipelineLayout layout() const noexcept override { return *pipeline_->layout; }
  [[nodiscard]] std::array<std::uint32_t, 3> workgroup() const noexcept override { return shape_.threads_2d; }
  [[nodiscard]] std::shared_ptr<const void> owner() const noexcept override { return pipeline_; }

 private:
  void choose_shape(const KernelSource& source, const ShaderInfo& shader) {
    const auto limits = pipeline_->device->vulkan()->physical().getProperties().limits;
    auto threads = shader.threads;
    shape_.work = source.work;
    if (shader.threads_from_constants) {
      const std::uint32_t row =
          std::min({row_threads, limits.maxComputeWorkGroupInvocations, limits.maxComputeWorkGroupSize[0]});
      threads = {row, 1, 1};
      if (shape_.work == Work::quad && row == row_threads && limits.maxComputeWorkGroupSize[1] >= quad_threads[1]) {
        threads = quad_threads;
      }
    }
    if (source.block[0] != 0 && source.block != threads) {
      if (!shader.threads_from_constants) {
        throw Error(
            ErrorCode::invalid,
            fmt::format("kernel {}: it sets its own workgroup of {}x{}x{}, and a block of {}x{}x{} is asked for: "
                        "leave the block out, or leave local_size to gpumap.glsl",
                        name_, threads[0], threads[1], threads[2], source.block[0], source.block[1], source.block[2]));
      }
      threads = source.block;
    }
    if (source.shared_bytes != 0) {
      throw Error(ErrorCode::not_supported, fmt::format("kernel {}: dynamic shared memory is CUDA's: declare a shared "
                                                        "array in the shader",
                                                        name_));
    }
    if (shader.shared_bytes > limits.maxComputeSharedMemorySize) {
      throw Error(ErrorCode::not_supported,
                  fmt::format("kernel {}: its shared variables take {} bytes, and this device has {} for them: make "
                              "them smaller",
                              name_, shader.shared_bytes, limits.maxComputeSharedMemorySize));
    }
    // In 64 bits: a foreign module may name any size.
    std::uint64_t invocations = 1;
    for (std::size_t axis = 0; axis < threads.size(); ++axis) {
      invocations = std::min(invocations, std::uint64_t{1} << 31) * threads[axis];
      if (threads[axis] > limits.maxComputeWorkGroupSize[axis]) invocations = ~std::uint64_t{0};
    }
    if (invocations == 0) {
      throw Error(ErrorCode::compile, fmt::format("kernel {}: its workgroup of {} x {} x {} has no threads: set "
                                                  "local_size, or leave it to gpumap.glsl",
                                                  name_, threads[0], threads[1], threads[2]));
    }
    if (invocations > limits.maxComputeWorkGroupInvocations) {
      throw Error(
          ErrorCode::not_supported,
          fmt::format("kernel {}: its workgroup of {} x {} x {} threads exceeds this device's {} ({} x {} x {}): "
                      "lower local_size, or leave it to gpumap.glsl",
                      name_, threads[0], threads[1], threads[2], limits.maxComputeWorkGroupInvocations,
                      limits.maxComputeWorkGroupSize[0], limits.maxComputeWorkGroupSize[1],
                      limits.maxComputeWorkGroupSize[2]));
    }
    shape_.threads_1d = shape_.threads_2d = threads;
    shape_.max_blocks = limits.maxComputeWorkGroupCount;
    check_grid(source, shape_);
    shape_.blocks = source.grid;
  }

  void create(const std::string& code, const ShaderInfo& shader) {
    const vk::raii::Device& device = pipeline_->device->vulkan()->device();
    const vk::PushConstantRange range{vk::ShaderStageFlagBits::eCompute, 0, sizeof(std::uint64_t)};
    pipeline_->layout = vk::raii::PipelineLayout(device, vk::PipelineLayoutCreateInfo{}.setPushConstantRanges(range));

    std::vector<std::uint32_t> words(code.size() / sizeof(std::uint32_t));
    std::memcpy(words.data(), code.data(), code.size());
    const vk::raii::ShaderModule module(device, vk::ShaderModuleCreateInfo{}.setCode(words));

    constexpr std::size_t size = sizeof(std::uint32_t);
    const std::array entries{vk::SpecializationMapEntry{0, 0, size}, vk::SpecializationMapEntry{1, size, size},
                             vk::SpecializationMapEntry{2, 2 * size, size}};
    const auto constants = vk::SpecializationInfo{}.setMapEntries(entries).setData<std::uint32_t>(shape_.threads_2d);
    const auto stage = vk::PipelineShaderStageCreateInfo{}
                           .setStage(vk::ShaderStageFlagBits::eCompute)
                           .setModule(*module)
                           .setPName(shader.function.c_str())
                           .setPSpecializationInfo(shader.threads_from_constants ? &constants : nullptr);
    pipeline_->pipeline = vk::raii::Pipeline(
        device, nullptr, vk::ComputePipelineCreateInfo{}.setStage(stage).setLayout(*pipeline_->layout));
  }

  std::string name_;
  GridShape shape_;
  std::shared_ptr<Pipeline> pipeline_;
};

}  // namespace

std::shared_ptr<Kernel> load_vulkan_kernel(std::shared_ptr<GpuDevice> device, const KernelSource& source) {
  return std::make_shared<LoadedVulkanKernel>(std::move(device), source);
}

}  // namespace gpumap
