// SPDX-License-Identifier: MIT
#include "gst/latency/latency_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <new>
#include <string_view>
#include <utility>

#include "gpumap/printable.hpp"
#include "gpumap/thread_schedule.hpp"

namespace gpumap::gst {
namespace {

void set_percentiles(GstStructure* structure, std::string_view name, const Percentiles& figures) {
  if (figures.count == 0 && figures.negative == 0) return;
  const auto u64 = [](std::int64_t value) { return static_cast<guint64>(value); };
  const std::string field(name);
  GstStructure* made = gst_structure_new(
      field.c_str(), "frames", G_TYPE_UINT64, static_cast<guint64>(figures.count), "min", G_TYPE_UINT64,
      u64(figures.min), "p50", G_TYPE_UINT64, u64(figures.p50), "p90", G_TYPE_UINT64, u64(figures.p90), "p99",
      G_TYPE_UINT64, u64(figures.p99), "p999", G_TYPE_UINT64, u64(figures.p999), "max", G_TYPE_UINT64, u64(figures.max),
      "mean", G_TYPE_DOUBLE, figures.mean, "negative", G_TYPE_UINT64, static_cast<guint64>(figures.negative), nullptr);
  gst_structure_set(structure, field.c_str(), GST_TYPE_STRUCTURE, made, nullptr);
  gst_structure_free(made);
}

std::string line(std::string_view name, const Percentiles& figures) {
  if (figures.count == 0 && figures.negative == 0) return {};
  constexpr double us = 1e3;
  const auto in_us = [](std::int64_t time_ns) { return static_cast<double>(time_ns) / us; };
  return fmt::format("  {:<10}{:>10}{:>12.2f}{:>12.2f}{:>12.2f}{:>12.2f}{:>12.2f}{:>12.2f}{}\n", name, figures.count,
                     in_us(figures.min), in_us(figures.p50), in_us(figures.p90), in_us(figures.p99),
                     in_us(figures.p999), in_us(figures.max),
                     figures.negative == 0 ? "" : fmt::format("  and {} below 0, in none of these", figures.negative));
}

}  // namespace

GstStructure* latency_structure(const LatencySummary& summary) {
  GstStructure* made = gst_structure_new("gpumap-latency", "channel", G_TYPE_STRING, printable(summary.channel).c_str(),
                                         "frames", G_TYPE_UINT64, static_cast<guint64>(summary.frames), "dropped",
                                         G_TYPE_UINT64, static_cast<guint64>(summary.dropped), "without-gpu-times",
                                         G_TYPE_UINT64, static_cast<guint64>(summary.without_gpu_times), "gpu-error",
                                         G_TYPE_UINT64, static_cast<guint64>(summary.gpu_error_ns), nullptr);
  for (std::size_t i = 0; i < stage_count; ++i) {
    set_percentiles(made, to_string(static_cast<Stage>(i)), summary.stages[i]);
  }
  for (std::size_t i = 0; i < total_count; ++i) {
    set_percentiles(made, to_string(static_cast<Total>(i)), summary.totals[i]);
  }
  return made;
}

void add_latency(GstStructure* stats, LatencyLog* log) {
  if (log == nullptr) return;
  GstStructure* latency = latency_structure(log->summary());
  gst_structure_set(stats, "latency", GST_TYPE_STRUCTURE, latency, nullptr);
  gst_structure_free(latency);
}

std::string latency_table(const LatencySummary& summary) {
  std::string text = fmt::format("gpumap latency, channel \"{}\": {} frames, {} dropped", printable(summary.channel),
                                 summary.frames, summary.dropped);
  if (summary.without_gpu_times != 0) text += fmt::format(", {} without GPU times", summary.without_gpu_times);
  if (summary.gpu_error_ns != 0) {
    constexpr double us = 1e3;
    text += fmt::format(", GPU times within {:.2f} us", static_cast<double>(summary.gpu_error_ns) / us);
  }
  text += fmt::format("\n  {:<10}{:>10}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}\n", "us", "frames", "min", "p50", "p90",
                      "p99", "p99.9", "max");
  for (std::size_t i = 0; i < stage_count; ++i) text += line(to_string(static_cast<Stage>(i)), summary.stages[i]);
  for (std::size_t i = 0; i < total_count; ++i) text += line(to_string(static_cast<Total>(i)), summary.totals[i]);
  return text;
}

Ticker::Ticker(std::chrono::milliseconds interval, std::function<void(bool last)> call) : call_(std::move(call)) {
  if (interval.count() == 0) return;
  thread_ = start_thread("gpumap-report", "reports of latency", [this, interval] {
    std::unique_lock lock(mutex_);
    auto next = std::chrono::steady_clock::now() + interval;
    while (!changed_.wait_until(lock, next, [this] { return ends_; })) {
      lock.unlock();
      call_(false);
      lock.lock();
      next += interval;
    }
  });
}

Ticker::~Ticker() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  // Ends: the thread looks at ends_ after each report.
  if (thread_.joinable()) thread_.join();
  call_(true);
}

std::unique_ptr<Ticker> report_latency(GstElement* element, std::shared_ptr<LatencyLog> log, guint interval_ms) {
  return std::make_unique<Ticker>(std::chrono::milliseconds(interval_ms), [element, log = std::move(log)](bool) {
    gst_element_post_message(element, gst_message_new_element(GST_OBJECT(element), latency_structure(log->summary())));
  });
}

namespace {

static_assert(GPUMAP_LATENCY_N_STAMPS == stamp_count);
static_assert(GPUMAP_LATENCY_RELEASED == static_cast<int>(Stamp::released));
static_assert(GPUMAP_LATENCY_LAUNCHED == static_cast<int>(Stamp::launched));

GType api_type() {
  static const GType type = [] {
    // Nothing of the frame's content: a copy that is smaller, or in another format, is still of the same frame.
    static const gchar* tags[] = {nullptr};
    return gst_meta_api_type_register(GPUMAP_LATENCY_META_API, tags);
  }();
  return type;
}

GpumapLatencyMeta* cast(GstMeta* meta) {
  return reinterpret_cast<GpumapLatencyMeta*>(meta);
}

using Trace = std::shared_ptr<FrameTrace>;
static_assert(sizeof(Trace) <= sizeof(GpumapLatencyMeta::trace) && alignof(Trace) <= alignof(gpointer));

/// It lives in the meta, so that a frame costs one allocation less.
Trace& trace_in(GpumapLatencyMeta* meta) {
  return *std::launder(reinterpret_cast<Trace*>(meta->trace));
}

gboolean init(GstMeta* base, gpointer /*params*/, GstBuffer* /*buffer*/) {
  GpumapLatencyMeta* meta = cast(base);
  meta->sequence = 0;
  std::ranges::fill(meta->at_ns, 0);
  meta->due_ns = meta->captured_ns = 0;
  new (meta->trace) Trace;
  return TRUE;
}

void free_meta(GstMeta* base, GstBuffer* /*buffer*/) {
  std::destroy_at(&trace_in(cast(base)));
}

gboolean transform(GstBuffer* to, GstMeta* base, GstBuffer* /*from*/, GQuark type, gpointer /*data*/) {
  static const GQuark copy = g_quark_from_static_string("gst-copy");
  // Elements that make one frame of another ask by names of their own; the tags allow all of them.
  if (type == copy || gst_buffer_get_meta(to, api_type()) == nullptr) add_latency_meta(to, trace_in(cast(base)));
  return TRUE;
}

const GstMetaInfo* info() {
  static const GstMetaInfo* const made =
      gst_meta_register(api_type(), "GpumapLatencyMeta", sizeof(GpumapLatencyMeta), init, free_meta, transform);
  return made;
}

GpumapLatencyMeta* meta_of(GstBuffer* buffer) {
  return cast(gst_buffer_get_meta(buffer, api_type()));
}

void show(GpumapLatencyMeta* meta) {
  const FrameRecord record = trace_in(meta)->record();
  meta->sequence = record.sequence;
  std::ranges::copy(record.at_ns, meta->at_ns);
  meta->due_ns = record.due_ns;
  meta->captured_ns = record.captured_ns;
}

}  // namespace

void register_latency_meta() {
  static_cast<void>(info());
}

void add_latency_meta(GstBuffer* buffer, std::shared_ptr<FrameTrace> trace) {
  if (!trace) return;
  GpumapLatencyMeta* meta = cast(gst_buffer_add_meta(buffer, info(), nullptr));
  trace_in(meta) = std::move(trace);
  show(meta);
}

std::shared_ptr<FrameTrace> trace_of(GstBuffer* buffer) {
  GpumapLatencyMeta* meta = meta_of(buffer);
  return meta != nullptr ? trace_in(meta) : nullptr;
}

void refresh_latency_meta(GstBuffer* buffer) {
  GpumapLatencyMeta* meta = meta_of(buffer);
  if (meta != nullptr && trace_in(meta)) show(meta);
}

}  // namespace gpumap::gst
