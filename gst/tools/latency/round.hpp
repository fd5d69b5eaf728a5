// SPDX-License-Identifier: MIT
// gpumap-latency: cases, a round at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gst/tools/latency/collector.hpp"
#include "gst/tools/latency/latency_watch.hpp"
#include "gst/tools/latency/options.hpp"

namespace latency {

/// What came of a case, over all its rounds.
struct Outcome {
  Outcome(Case asked, bool paced) : which(std::move(asked)), collector(paced) {}

  Case which;
  Collector collector;
  std::string line;           ///< for gst-launch, placeholders filled in
  std::string not_here;       ///< why this machine cannot run it; empty where it can
  std::string error;          ///< what ended it; its rounds before that still count
  std::string transport;      ///< what gpumapsink says it used
  std::size_t warmup = 0;     ///< the first frames of each round, which do not count
  std::uint64_t sent = 0;     ///< frames that the producer began, those that do not count, too
  std::uint64_t dropped = 0;  ///< by a full ring, or cut off at the end
  std::uint64_t without_gpu_times = 0, not_looked_at = 0;
  std::int64_t gpu_error_ns = 0;
  std::uint64_t zero_copy_frames = 0, copied_frames = 0, waits = 0;  ///< as gpumapsink counts them
  std::uint64_t switches = 0;
  std::vector<int> producer_pids;  ///< the process that the producer had in each round
  std::int64_t cpu_ns = 0;         ///< of both processes, over `cpu_frames`
  std::uint64_t cpu_frames = 0;
  std::uint64_t unstamped = 0;  ///< frames that counted with --without-stamps
  double seconds = 0;           ///< over which those frames came
  unsigned rounds = 0;          ///< that ran to their end
  unsigned rounds_asked = 0;    ///< that were to
};

/// The signal that ended the run before its time, set by its handler; 0: none did.
extern std::atomic<int> interrupted;

/// With two processes the frame that waits for the connection counts in no case.
[[nodiscard]] std::size_t warmup_of(const Case& which, const Options& options);

/// Run one round: set up, frames, tear down. Adds to the outcome; what goes wrong becomes its `error`.
/// `frames` count, after the warm-up.
void run_round(Outcome& outcome, const Options& options, unsigned round, std::size_t frames);

}  // namespace latency
