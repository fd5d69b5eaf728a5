// SPDX-License-Identifier: MIT
#pragma once

#include <sys/stat.h>

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "gpumap/program.hpp"
#include "kernel_settings.hpp"

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
    std::string problem;
  };
  /// Cheap enough for every frame: looks at the file ten times a second.
  [[nodiscard]] std::optional<News> poll();

 private:
  /// Tells one version of a file from another.
  struct Stamp {
    ino_t inode = 0;
    off_t bytes = 0;
    timespec changed{};
    [[nodiscard]] bool operator==(const Stamp& other) const noexcept;
  };
  [[nodiscard]] std::optional<Stamp> stamp() const;
  [[nodiscard]] News compile() const;

  std::shared_ptr<Device> device_;
  KernelSettings settings_;
  std::optional<Stamp> compiled_;  ///< the version that runs, or that did not compile
  std::optional<Stamp> seen_;      ///< at the last look
  std::chrono::steady_clock::time_point next_look_{};
  std::future<News> compiling_;  ///< its destruction waits for the compiler
};

}  // namespace gpumap::gst
