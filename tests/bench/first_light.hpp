// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <gpumap/kernel.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace first_light {

struct Options {
  std::string device = "auto";
  gpumap::Backend backend = gpumap::Backend::vulkan;
  unsigned frames = 2000;
  unsigned warmup = 200;
  unsigned width = 1920;
  unsigned height = 1080;
  unsigned busy_poll_us = 1000;

  [[nodiscard]] std::size_t frame_bytes() const { return std::size_t{width} * height * 3 / 2; }
};

/// A built-in, or a file; the same one for every path.
struct NamedKernel {
  std::string name;
  std::string file;  ///< empty: a built-in
  [[nodiscard]] gpumap::KernelSource source(gpumap::Backend backend) const;
};

struct Summary {
  double median_us = 0, p90_us = 0, p99_us = 0, min_us = 0;
};
/// Sorts what it is given.
[[nodiscard]] Summary summarise(std::vector<std::int64_t>& ns);

/// One path of one kernel: from the producer's last store until the CPU sees the kernel done, and the parts of that.
struct Result {
  std::string kernel;
  std::string path;
  Summary total;
  std::vector<std::pair<std::string, Summary>> stages;
  std::uint64_t zero_copy_frames = 0;  ///< pipeline only
  double period_us = 0;                ///< from one frame's last store to the next one's, median
};

enum class Threads { one, two };

/// No GStreamer: a mapping, a queue and a kernel of libgpumap. Throws gpumap::Error.
[[nodiscard]] Result run_bare(const Options& options, const NamedKernel& kernel, Threads threads);
/// videotestsrc ! gpumapsink, gpumapsrc ! gpumapkernel ! fakesink. Throws std::runtime_error.
[[nodiscard]] Result run_pipeline(const Options& options, const NamedKernel& kernel);

inline std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Spin until `done()`; after a millisecond let other threads run between looks, for machines with few cores.
/// False after ten seconds.
template <typename Done>
bool spin_until(Done done) {
  const std::int64_t began = now_ns();
  for (unsigned look = 1;; ++look) {
    if (done()) return true;
    __builtin_ia32_pause();
    if (look % 64 != 0) continue;
    const std::int64_t spent = now_ns() - began;
    if (spent > 10'000'000'000) return false;
    if (spent > 1'000'000) std::this_thread::yield();
  }
}

}  // namespace first_light
