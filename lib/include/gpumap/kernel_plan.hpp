// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpumap/declaration.hpp"
#include "gpumap/device.hpp"
#include "gpumap/kernel.hpp"
#include "gst/kernel/declared_caps.hpp"

namespace gpumap::gst {

/// The properties of gpumapkernel. What a file declares of itself holds where a property is left empty or 0.
struct KernelSettings {
  std::string kernel = "identity";  ///< a built-in, unless `location` is set
  std::string location;
  std::string function;  ///< or several, run in sequence: "one,other"
  std::string params;
  std::string tables;         ///< "weights=/path,other=/path"
  std::uint32_t history = 0;  ///< frames
  std::string device = "auto";
  std::optional<Backend> backend;  ///< empty: the device's own
  std::string block, grid;         ///< as in "32x8"
  std::uint32_t shared_bytes = 0;
  std::uint64_t state_bytes = 0;
  std::string input_caps;
  std::string output_caps;   ///< with {expressions}, or "unchanged"
  std::string output_bytes;  ///< an expression
  std::string output_may;    ///< "drop,shorten"
  std::uint32_t result_words = 0;
  std::string include_path;  ///< folders, separated by ':'
  std::string defines;       ///< "NAME,OTHER=2"
  bool reload = false;
  bool check_bounds = false;
  bool late_results = false;
  std::uint32_t timeout_ms = 10000;  ///< 0: none
};

[[nodiscard]] const char* to_string(Backend backend) noexcept;

/// The built-in that is meant; null where it is a file. Throws Error(invalid) for an unknown name, and for properties
/// that contradict each other: which one is the mistake, only the user knows.
[[nodiscard]] const Builtin* builtin_of(const KernelSettings& settings);

/// The kernel's parameters, with initial values. Empty optional: a file that declares none takes any. Throws
/// Error(invalid | io) for a file that cannot be read.
[[nodiscard]] std::optional<std::vector<DeclaredParameter>> parameters_of(const KernelSettings& settings);

/// What is to be run: a built-in or a file, with what it and the properties declare.
struct KernelPlan {
  const Builtin* builtin = nullptr;
  KernelSource source;
  Declaration declaration;
};
/// For a backend that `device` has. Throws Error(invalid | io | not_supported).
[[nodiscard]] KernelPlan plan_of(const KernelSettings& settings, const Device& device);

/// What the kernel takes and gives. Reads its file; what is wrong with that is told when it is to run.
[[nodiscard]] DeclaredCaps declared_caps(const KernelSettings& settings);

}  // namespace gpumap::gst
