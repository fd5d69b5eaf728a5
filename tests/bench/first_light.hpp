// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <gpumap/kernel.hpp>
#include <string>
#include <utility>
#include <vector>

#include "figures.hpp"

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

using bench::now_ns;
using bench::spin_until;
using bench::summarise;
using bench::Summary;

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
struct Elements {
  bool stamps = false;    ///< gpumapsink's property
  bool resident = false;  ///< gpumapkernel mode=resident
};

/// videotestsrc ! gpumapsink, gpumapsrc ! gpumapkernel ! fakesink. Throws std::runtime_error.
[[nodiscard]] Result run_pipeline(const Options& options, const NamedKernel& kernel, Elements how);

}  // namespace first_light
