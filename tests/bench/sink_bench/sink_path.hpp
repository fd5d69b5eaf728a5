// SPDX-License-Identifier: MIT
// What sink-bench times: an upstream that brings its own memory, and the element that takes it.
#pragma once

#include <gst/gst.h>
#include <gst/video/video.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace sink_bench {

struct Size {
  unsigned width = 1920, height = 1080;
  [[nodiscard]] std::size_t bytes() const { return std::size_t{width} * height * 3 / 2; }  ///< NV12
};

/// Frames of random bytes in ordinary memory, as many as fill a span: taken in turn, none is in the CPU's caches when
/// its turn comes, if the span is large enough.
class Frames {
 public:
  Frames(Size size, std::size_t span_bytes);
  [[nodiscard]] const std::byte* next();

 private:
  std::size_t stride_, count_, at_ = 0;
  std::vector<std::byte> bytes_;
};

/// What one frame took, from before the push.
struct Times {
  std::int64_t returned_ns = 0;  ///< until the element's chain function returned
  std::int64_t done_ns = 0;      ///< until the CPU saw the frame's GPU work done
  std::int64_t cpu_ns = 0;       ///< CPU time of the process while the chain function ran
};

/// A running pipeline that is fed by hand, one frame in flight. Its first element is named `first`; `last` gets what
/// became of each frame. Thread safety: one thread.
class Path {
 public:
  /// Throws std::runtime_error with GStreamer's message.
  Path(const std::string& description, Size size);
  ~Path();
  Path(const Path&) = delete;
  Path& operator=(const Path&) = delete;

  /// False when the first element has no such property. Before start().
  [[nodiscard]] bool set(const std::string& property, const std::string& value) const;
  /// Work to do, as part of the frame, once the chain function has returned.
  void set_after(std::function<void()> after) { after_ = std::move(after); }
  void start();
  /// With `check`, what `last` got is compared with the frame. Throws std::runtime_error when it differs, or when the
  /// pipeline fails.
  Times push(const std::byte* frame, bool check);
  /// What the first element reports in `stats`; empty where it has none.
  [[nodiscard]] std::map<std::string, std::string> stats() const;

 private:
  static GstPadProbeReturn on_arrived(GstPad* pad, GstPadProbeInfo* info, gpointer user);
  void arrived(GstBuffer* buffer);
  void fail(const std::string& what) const;

  Size size_;
  GstVideoInfo info_{};
  GstElement* pipeline_ = nullptr;
  GstElement* first_ = nullptr;
  GstPad* source_ = nullptr;
  std::function<void()> after_;
  std::uint64_t pushed_ = 0;
  const std::byte* to_check_ = nullptr;  // written before a push, read by the thread of `last` before `arrived_`
  std::int64_t done_ = 0;                // by the thread of `last`, before `arrived_`
  bool differs_ = false;                 // likewise
  std::atomic<std::uint64_t> arrived_{0};
};

}  // namespace sink_bench
