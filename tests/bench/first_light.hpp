// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <cstdint>
#include <gpumap/kernel.hpp>
#include <gpumap/latency.hpp>
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
  unsigned rate_frames = 0;          ///< 0: by device
  std::string rival = "cudaupload";  ///< what stands in the place of gpumapsink and gpumapsrc
  std::vector<std::string> paths;    ///< that are measured; empty: all
  std::vector<std::string> kernels;  ///< the same

  [[nodiscard]] std::size_t frame_bytes() const { return std::size_t{width} * height * 3 / 2; }
};

/// A built-in, or a file; the same one for every path.
struct NamedKernel {
  std::string name;
  std::string file;  ///< empty: a built-in
  [[nodiscard]] gpumap::KernelSource source(gpumap::Backend backend) const;
  /// As gpumapkernel's property.
  [[nodiscard]] std::string property() const;
};

using bench::now_ns;
using bench::spin_until;
using bench::summarise;
using bench::Summary;
using gpumap::Histogram;

/// One path of one kernel: from the producer's last store until the CPU sees the kernel done, and the parts of that.
struct Result {
  std::string kernel;
  std::string path;
  Histogram total;
  std::vector<std::pair<std::string, Summary>> stages;
  std::uint64_t zero_copy_frames = 0;  ///< pipeline only
  double period_us = 0;                ///< from one frame's last store to the next one's, median
};

enum class Threads { one, two };

/// No GStreamer: a mapping, a queue and a kernel of libgpumap. Throws gpumap::Error.
[[nodiscard]] Result run_bare(const Options& options, const NamedKernel& kernel, Threads threads);
struct Elements {
  std::string path;
  bool stamps = false;    ///< gpumapsink's property
  bool resident = false;  ///< gpumapkernel mode=resident
  unsigned kernels = 1;   ///< in a row
  bool rival = false;     ///< Options::rival instead of gpumapsink and gpumapsrc
};

/// videotestsrc ! gpumapsink, gpumapsrc ! gpumapkernel ! fakesink. Throws std::runtime_error.
[[nodiscard]] Result run_pipeline(const Options& options, const NamedKernel& kernel, const Elements& how);

/// Frames a second through the three elements, as fast as they go.
struct Rate {
  unsigned bytes = 64;
  bool resident = false;
  bool overlaps = false;  ///< frames go on in GPU memory before their kernels are done; else each one is waited for
  std::uint64_t frames = 0;
  double a_second = 0;
};
/// fakesrc ! gpumapsink, gpumapsrc ! gpumapkernel kernel=identity ! fakesink. Throws std::runtime_error.
void run_rate(const Options& options, Rate& rate);

/// Runs to EOS; returns the text of an error, or an empty one.
[[nodiscard]] std::string play(GstElement* pipeline);
/// Throws std::runtime_error.
[[nodiscard]] GstElement* parse(const std::string& description);

}  // namespace first_light
