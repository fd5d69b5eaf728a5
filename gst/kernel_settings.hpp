// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>

#include "gpumap/device.hpp"
#include "gpumap/kernel.hpp"

namespace gpumap::gst {

/// The properties of gpumapkernel.
struct KernelSettings {
  std::string kernel = "identity";  ///< a built-in, unless `location` is set
  std::string location;
  std::string function;
  std::string params;
  std::string device = "auto";
  std::optional<Backend> backend;  ///< empty: the device's own
};

[[nodiscard]] const char* to_string(Backend backend) noexcept;

/// The built-in that is meant; null where it is a file. Throws Error(invalid) for an unknown name, and for properties
/// that contradict each other: which one is the mistake, only the user knows.
[[nodiscard]] const Builtin* builtin_of(const KernelSettings& settings);
/// Its source, for a backend that `device` has. Throws Error(invalid | io | not_supported).
[[nodiscard]] KernelSource source_of(const KernelSettings& settings, const Device& device);

}  // namespace gpumap::gst
