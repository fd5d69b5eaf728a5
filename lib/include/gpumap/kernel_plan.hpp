// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpumap/declaration.hpp"
#include "gpumap/device.hpp"
#include "gpumap/export.hpp"
#include "gpumap/kernel.hpp"
#include "gpumap/tables.hpp"

namespace gpumap {

/// How frames come to a kernel.
enum class KernelMode {
  launch,     ///< each is a launch
  resident,   ///< it stays on the GPU and waits for them; CUDA C++ only
  automatic,  ///< resident where that can be
};

/// What a user asks for: which kernel, and how it is to run. In messages a member has the name of gpumapkernel's
/// property: `check_bounds` is "check-bounds".
struct KernelSettings {
  std::string kernel = "identity";  ///< a built-in, unless `location` is set
  std::string location;
  std::string function;  ///< or several, run in sequence: "one,other". Before what is declared
  std::string params;
  std::string declare;  ///< lines before those of the file: see parse_declaration()
  std::string device = "auto";
  std::optional<Backend> backend;  ///< empty: the device's own
  std::string include_path;        ///< folders, separated by ':'
  std::string defines;             ///< "NAME,OTHER=2"
  bool reload = false;
  bool check_bounds = false;
  bool late_results = false;
  std::uint32_t timeout_ms = 10000;  ///< 0: none
  std::uint32_t priority = 0;        ///< as CudaQueueOptions, and the next
  double sm_share = 0;
  KernelMode mode = KernelMode::launch;
  std::uint32_t resident_blocks = 0;  ///< that stay on the GPU, at most; 0: one for almost every second multiprocessor
  std::uint32_t resident_idle_ms = 100;  ///< after this time without a frame, it leaves until the next
};

/// The built-in that is meant; null where it is a file. Throws Error(invalid) for an unknown name, and for properties
/// that contradict each other: which one is the mistake, only the user knows.
[[nodiscard]] GPUMAP_API const Builtin* builtin_of(const KernelSettings& settings);

/// The kernel's parameters, with initial values. Empty optional: a file that declares none takes any. Throws
/// Error(invalid | io) for a file that cannot be read.
[[nodiscard]] GPUMAP_API std::optional<std::vector<DeclaredParameter>> parameters_of(const KernelSettings& settings);

/// What the kernel declares, with what the settings say in its place; of an unknown built-in nothing. Throws
/// Error(invalid | io).
[[nodiscard]] GPUMAP_API Declaration declaration_of(const KernelSettings& settings);

/// What is to be run: a built-in or a file, with what it and the properties declare.
struct KernelPlan {
  const Builtin* builtin = nullptr;
  KernelSource source;
  Declaration declaration;
  bool resident = false;     ///< it is to stay on the GPU
  bool guarded = false;      ///< its state has room for a guard: see BoundsCheck
  std::string why_launched;  ///< where its mode leaves that open and it does not stay: why
};
/// For a backend that `device` has. Throws Error(invalid | io | not_supported).
[[nodiscard]] GPUMAP_API KernelPlan plan_of(const KernelSettings& settings, const Device& device);

/// The tables that the kernel declares; null where there are none. Throws as Tables.
[[nodiscard]] GPUMAP_API std::unique_ptr<Tables> tables_of(const KernelPlan& plan,
                                                           const std::shared_ptr<Device>& device);

}  // namespace gpumap
