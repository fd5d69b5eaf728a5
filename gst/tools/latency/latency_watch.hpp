// SPDX-License-Identifier: MIT
// gpumap-latency: pipelines that are watched, what happens beside their frames, and whether they can run here.
#pragma once

#include <gst/gst.h>

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "gst/ptr.hpp"
#include "gst/tools/latency/collector.hpp"
#include "gst/tools/latency/options.hpp"

namespace latency {

/// Events of a round, the last `max_events` of them: what the bus tells, and each time that one of the process's
/// threads was taken off its CPU.
/// Thread safety: note() from any thread, the rest from one.
class Watch {
 public:
  Watch() = default;
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  void note(Event::Kind kind, std::string text);
  /// Look at the threads; what those that are there had before the first look does not count. Cheap enough for every
  /// 5 ms: one read a thread from files that stay open.
  void look_at_threads();
  /// Since the last call.
  [[nodiscard]] std::vector<Event> take();
  [[nodiscard]] std::uint64_t switches() const noexcept { return switches_; }  ///< against a thread's will

 private:
  struct Thread {
    int status = -1;  ///< descriptor of /proc/self/task/<id>/status
    std::uint64_t switches = 0;
    bool seen = false;
    /// When its switches were last looked at, or a thread that began meanwhile was not there yet; 0: it was there
    /// before the first look, and what it had by then is no news.
    std::int64_t looked_ns = 0;
  };
  void find_threads();
  void add(Event event);

  static constexpr std::size_t max_events = 4096;
  std::mutex mutex_;
  std::vector<Event> events_;  ///< a ring from next_ on, once full
  std::size_t next_ = 0;
  std::map<int, Thread> threads_;
  unsigned looks_ = 0;
  std::int64_t last_search_ns_ = 0;
  std::uint64_t switches_ = 0;
};

/// Processes that keep a CPU busy each while this lives. Made before the program has threads.
class Load {
 public:
  explicit Load(unsigned processes);
  ~Load();
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

 private:
  std::vector<int> children_;
};

/// CPU time of the process without the thread that made this, which only measures.
/// Thread safety: every member from any thread while that thread lives.
class CpuTime {
 public:
  CpuTime();
  [[nodiscard]] std::int64_t of_others_ns() const noexcept;

 private:
  clockid_t own_ = 0;
};

using gpumap::gst::Ptr;

/// Who and what, of an error message.
[[nodiscard]] std::string error_of(GstMessage* message);

struct SinkStats {
  std::uint64_t zero_copy_frames = 0, copied_frames = 0, waits = 0, drops = 0;
  std::string transport;
};

/// A pipeline that is watched, on the system's monotonic clock: with no other is known when a frame was due. What can
/// go wrong throws std::runtime_error with what the pipeline says.
class Line {
 public:
  /// Of a line for gst-launch. `watch` outlives it.
  Line(const std::string& text, Watch& watch);
  ~Line() { stop(); }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  [[nodiscard]] GstElement* pipeline() const noexcept { return pipeline_.get(); }
  [[nodiscard]] GstBus* bus() const noexcept { return bus_.get(); }  ///< has errors and EOS; the rest is noted
  [[nodiscard]] Ptr<GstElement> element(const char* name) const {
    return Ptr<GstElement>(gst_bin_get_by_name(GST_BIN(pipeline()), name));
  }
  /// That callback sees each buffer on an element's pad.
  static void probe(GstElement* element, const char* pad, GstPadProbeCallback callback, gpointer user);
  /// Whether its frames are due at certain times: only a live source has no frame to show before it plays.
  [[nodiscard]] bool pause() const;
  void play() const;
  void stop();
  /// What gpumapsink says; nothing where there is none.
  [[nodiscard]] SinkStats sink_stats() const;

 private:
  [[nodiscard]] GstStateChangeReturn change(GstState state) const;
  Ptr<GstElement> pipeline_;
  Ptr<GstBus> bus_;
};

/// Why this program cannot measure with what is installed; empty where it can.
[[nodiscard]] std::string missing_elements();
/// Why that case cannot run here; empty where it can.
[[nodiscard]] std::string why_not_here(const Case& which, const Options& options);

}  // namespace latency
