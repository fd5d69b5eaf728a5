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

}  // namespace gpumap::gst
