// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "gpumap/device.hpp"
#include "gpumap/export.hpp"
#include "gpumap/file.hpp"
#include "gpumap/kernel_plan.hpp"
#include "gpumap/program.hpp"
#include "gpumap/tables.hpp"

namespace gpumap {

/// Throws Error for a plan that its runner cannot use.
using PlanCheck = std::function<void(const KernelPlan&)>;

/// Watches the file of a kernel while it runs, and compiles it again, in a thread of its own, when it has changed. What
/// the file includes is not watched. Ownership: keeps the device open. Thread safety: one thread at a time.
class GPUMAP_API KernelReload {
 public:
  /// `settings` name a file. `check` (may be empty) is called in the compiling thread, with what is to be compiled.
  KernelReload(std::shared_ptr<Device> device, KernelSettings settings, PlanCheck check);
  ~KernelReload();

  /// What became of a change: a program, or why there is none.
  struct News {
    std::unique_ptr<Program> program;
    KernelPlan plan;
    std::unique_ptr<Tables> tables;  ///< null: the kernel has none
    std::string problem;
  };
  /// Cheap enough for every frame: looks at the file ten times a second.
  [[nodiscard]] std::optional<News> poll();

 private:
  [[nodiscard]] News compile() const;

  std::shared_ptr<Device> device_;
  KernelSettings settings_;
  PlanCheck check_;
  std::optional<FileStamp> compiled_;  ///< the version that runs, or that did not compile
  std::optional<FileStamp> seen_;      ///< at the last look
  std::chrono::steady_clock::time_point next_look_{};
  std::future<News> compiling_;  ///< its destruction waits for the compiler
};

}  // namespace gpumap
