// SPDX-License-Identifier: MIT
#include "kernel_settings.hpp"

#include <fmt/format.h>

#include "gpumap/error.hpp"

namespace gpumap::gst {

const char* to_string(Backend backend) noexcept {
  return backend == Backend::cuda ? "CUDA" : "Vulkan";
}

const Builtin* builtin_of(const KernelSettings& settings) {
  if (!settings.location.empty()) {
    if (settings.kernel == KernelSettings().kernel) return nullptr;
    throw Error(ErrorCode::invalid, fmt::format("kernel={} and location={} are both set: leave one of them out",
                                                settings.kernel, settings.location));
  }
  if (!settings.function.empty()) {
    throw Error(ErrorCode::invalid,
                fmt::format("function={} names an entry point of a file, and kernel={} is built in: "
                            "set location, or leave function out",
                            settings.function, settings.kernel));
  }
  const Builtin* builtin = find_builtin(settings.kernel);
  if (builtin != nullptr) return builtin;
  std::string names;
  for (const Builtin& known : builtins()) names += fmt::format("{}{}", names.empty() ? "" : ", ", known.name);
  throw Error(ErrorCode::invalid, fmt::format("no built-in kernel \"{}\": choose one of {}, or set location to a file",
                                              settings.kernel, names));
}

KernelSource source_of(const KernelSettings& settings, const Device& device) {
  const Builtin* builtin = builtin_of(settings);
  KernelSource source = builtin != nullptr
                            ? gpumap::source_of(*builtin, settings.backend.value_or(device.default_backend()))
                            : load_kernel_file(settings.location, settings.function);
  const Backend backend = backend_of(source.language);
  const bool cuda = backend == Backend::cuda;
  if (settings.backend.value_or(backend) != backend) {
    throw Error(
        ErrorCode::invalid,
        fmt::format("location={} is for {}, and backend is {}: leave backend out, or give a {} file", settings.location,
                    to_string(backend), to_string(*settings.backend), cuda ? ".comp or .spv" : ".cu, .ptx or .cubin"));
  }
  if (!device.has(backend)) {
    throw Error(
        ErrorCode::not_supported,
        fmt::format("{} needs {}, which {} does not have here: {}", source.name, to_string(backend), device.info().name,
                    cuda ? "give a compute shader (.comp or .spv), or install the NVIDIA driver and build "
                           "gpumap with the CUDA Toolkit"
                         : "install a Vulkan driver for it"));
  }
  return source;
}

}  // namespace gpumap::gst
