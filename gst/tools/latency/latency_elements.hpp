// SPDX-License-Identifier: MIT
// gpumap-latency: what elements have to say, and whether they are there.
#pragma once

#include <gst/gst.h>

#include <cstdint>
#include <string>

#include "gst/ptr.hpp"
#include "gst/tools/latency/latency_watch.hpp"
#include "gst/tools/latency/options.hpp"

namespace latency {

using gpumap::gst::Ptr;

/// Who and what, of an error message.
[[nodiscard]] std::string error_of(GstMessage* message);

/// A pipeline that is watched.
struct Line {
  Ptr<GstElement> pipeline;
  Ptr<GstBus> bus;  ///< errors and EOS stay until the caller pops them; the rest is noted
};
/// Of a line for gst-launch, on the system's monotonic clock: with no other is known when a frame was due. `watch`
/// has to live until the bus has no sync handler. Throws std::runtime_error.
[[nodiscard]] Line make_line(const std::string& text, Watch& watch);

struct SinkStats {
  std::uint64_t zero_copy_frames = 0, copied_frames = 0, waits = 0, drops = 0;
  std::string transport;
};
[[nodiscard]] SinkStats stats_of(GstElement* sink);

/// Why this program cannot measure with what is installed; empty where it can.
[[nodiscard]] std::string missing_elements();
/// Why that case cannot run here; empty where it can.
[[nodiscard]] std::string why_not_here(const Case& which, const Options& options);

}  // namespace latency
