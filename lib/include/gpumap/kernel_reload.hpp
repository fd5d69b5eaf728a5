// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "gpumap/file_stamp.hpp"
#include "gpumap/program.hpp"
#include "gpumap/tables.hpp"
#include "gst/kernel/settings.hpp"

namespace gpumap::gst {

/// Watches the file of a kernel while it runs, and compiles it again, in a thread of its own, when it has changed. What
/// the file includes is not watched. Thread safety: one thread at a time.
class KernelReload {
 public:
  /// `settings` name a file.
  KernelReload(std::shared_ptr<Device> device, KernelSettings settings);

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
  std::optional<FileStamp> compiled_;  ///< the version that runs, or that did not compile
  std::optional<FileStamp> seen_;      ///< at the last look
  std::chrono::steady_clock::time_point next_look_{};
  std::future<News> compiling_;  ///< its destruction waits for the compiler
};

}  // namespace gpumap::gst
