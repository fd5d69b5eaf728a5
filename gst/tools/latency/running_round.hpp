// SPDX-License-Identifier: MIT
// gpumap-latency: one round of one case while it runs.
#pragma once

#include <gst/gst.h>

#include <atomic>
#include <cstdint>
#include <gpumap/latency.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gst/ptr.hpp"
#include "gst/tools/latency/far_producer.hpp"
#include "gst/tools/latency/latency_producer.hpp"
#include "gst/tools/latency/latency_watch.hpp"
#include "gst/tools/latency/round.hpp"

namespace latency {

using gpumap::gst::Ptr;

/// Set up, frames, tear down.
class Round {
 public:
  Round(Outcome& outcome, const Options& options, unsigned number, std::size_t frames);
  ~Round() { tear_down(); }
  Round(const Round&) = delete;
  Round& operator=(const Round&) = delete;

  void run();

 private:
  void follow(const std::string& channel);  ///< its frames are those that count
  void build();
  void build_line();
  void link_producer(GstElement* sink);
  void watch_upstream(GstElement* sink);
  void watch_end();
  [[nodiscard]] ProducerPlan plan() const;
  void start_far_producer(const std::string& line);
  void wait_for_far_producer();
  void probe(GstElement* element, const char* pad, GstPadProbeCallback callback);
  void play();
  /// False: the user ended it before it was whole.
  [[nodiscard]] bool watch_over();
  void drain();
  void start_counting(std::size_t number);  ///< before each frame
  void tear_down();
  void read_stats();
  void take_far_report();
  void finish();
  [[nodiscard]] Ptr<GstElement> element(const char* name) const {
    return Ptr<GstElement>(gst_bin_get_by_name(GST_BIN(pipeline_.get()), name));
  }
  [[nodiscard]] bool has_own_producer() const {
    return options_.pipeline.empty() && options_.upstream != "videotestsrc";
  }
  /// Where the upstream of this process waits; null: it never does.
  [[nodiscard]] Gate* gate() { return producer_ ? &producer_->gate() : held_ ? &held_->gate() : nullptr; }
  /// Frames that have come to their end, as far as that is known.
  [[nodiscard]] std::uint64_t progress() {
    return outcome_.collector.frames_of_round() + (far_ ? far_->count() : gate() != nullptr ? gate()->count() : 0);
  }
  /// Frames that the producer began.
  [[nodiscard]] std::uint64_t entered() const { return far_ ? far_->entered() : entered_.load(); }

  Outcome& outcome_;
  const Options& options_;
  const unsigned number_;
  const std::size_t warmup_, frames_;  ///< of all frames, the first ones that do not count
  Watch watch_;
  const CpuTime cpu_;
  std::shared_ptr<gpumap::LatencyLog> log_;
  Ptr<GstElement> pipeline_;
  Ptr<GstBus> bus_;
  std::optional<Producer> producer_;
  std::optional<HeldUpstream> held_;     ///< instead of it, where the line makes its frames itself
  std::unique_ptr<FarProducer> far_;     ///< instead of it, and of all before gpumapsrc, with two processes
  gpumap::FrameRecord rival_;            ///< the frame that is in the rival's elements; the producer's thread has it
  std::atomic<std::size_t> entered_{0};  ///< with two processes: that came to this one
  std::atomic<std::int64_t> cpu_began_ns_{0}, began_ns_{0};
  bool src_is_late_ = false;
  std::uint64_t arrived_ = 0;      ///< at the end of a line of our own
  std::uint64_t given_up_ = 0;     ///< frames, by leaky=newest
  std::vector<Event> far_events_;  ///< of the producer's process
};

}  // namespace latency
