// SPDX-License-Identifier: MIT
//
// The loop through gpumapsink, gpumapsrc and gpumapkernel: pixels in, commands out, and back to the mirror.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "figures.hpp"
#include "matrices.hpp"
#include "reference.hpp"
#include "telescope.hpp"

namespace adaptive_optics {

struct LoopOptions {
  Size size = extreme_size;
  std::filesystem::path kernel;  ///< commands.cu or commands.comp
  std::filesystem::path folder;  ///< where the tables go that the kernel reads
  std::optional<std::uint64_t> frames;
  std::optional<double> seconds;
  unsigned busy_poll_us = 0;
  std::string mode = "launch";     ///< gpumapkernel's, and the next
  unsigned resident_blocks = 528;  ///< four on each of an H100's multiprocessors
};

struct LoopFigures {
  std::string device;        ///< as gpumapsink names it
  std::string transport;     ///< of the pixels
  std::uint64_t frames = 0;  ///< that came back
  double seconds = 0;        ///< of those whose times count
  Latencies latencies;  ///< from the last pixel's store to the commands in the CPU's memory, without the first frames
  Wavefronts wavefronts;
  bool checks_all = false;           ///< each command of each frame; else one of each
  std::uint64_t checked_frames = 0;  ///< by each command
  double worst_of_bound = 0;         ///< the largest error found over its bound, of commands
};

/// Frames at the beginning whose times do not count: memory is made and clocks rise then.
inline constexpr std::uint64_t warm_up = 100;

/// Runs until there are as many frames as asked for, the time is over, or `interrupted` is set. Returns the figures.
/// `progress` is told now and then how many frames came back, in this thread. Throws std::runtime_error for an error of
/// the pipeline, and where a frame's commands are not what they should be.
[[nodiscard]] LoopFigures run_loop(const LoopOptions& options, Telescope& telescope,
                                   const std::shared_ptr<const Tables>& tables, const std::atomic<bool>& interrupted,
                                   const std::function<void(std::uint64_t frames)>& progress);

}  // namespace adaptive_optics
