// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "gpumap/latency.hpp"
#include "gst/latency/latency_meta.h"

namespace gpumap::gst {

/// "gpumap-latency" (transfer full): channel, frames, dropped, without-gpu-times, gpu-error, and for each stage and
/// total that has figures a structure of its name with frames, min, p50, p90, p99, p999, max and mean, in ns.
[[nodiscard]] GstStructure* latency_structure(const LatencySummary& summary);

/// Field "latency" of an element's statistics. Nothing for a null log.
void add_latency(GstStructure* stats, LatencyLog* log);

/// The same as lines of text, in us.
[[nodiscard]] std::string latency_table(const LatencySummary& summary);

/// Calls at intervals, in a thread of its own: what it does delays no frame. The last time in its destructor.
class Ticker {
 public:
  Ticker(std::chrono::milliseconds interval, std::function<void(bool last)> call);
  ~Ticker();
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;

 private:
  std::function<void(bool last)> call_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;
  std::thread thread_;
};

/// Post latency_structure() as a message of `element` (which must outlive the ticker), and once more at the end.
[[nodiscard]] std::unique_ptr<Ticker> report_latency(GstElement* element, std::shared_ptr<LatencyLog> log,
                                                     guint interval_ms);

/// So that applications can name the type before there is a frame.
void register_latency_meta();
/// The buffer shares `trace`, and shows what it knows by now. Nothing for a null one.
void add_latency_meta(GstBuffer* buffer, std::shared_ptr<FrameTrace> trace);
/// The trace that a buffer shares; null where its frame is not stamped.
[[nodiscard]] std::shared_ptr<FrameTrace> trace_of(GstBuffer* buffer);
/// Show what the trace knows by now.
void refresh_latency_meta(GstBuffer* buffer);

/// The log of a channel that a tracer (GST_TRACERS="gpumaplatency") follows, so that its frames are stamped; null where
/// none does. From any thread.
[[nodiscard]] std::shared_ptr<LatencyLog> traced_log(const std::string& channel);

}  // namespace gpumap::gst

/// The tracer "gpumaplatency", with parameters interval (ms; 0: at the end only) and channel (only this one).
gboolean gpumap_register_latency_tracer(GstPlugin* plugin);
