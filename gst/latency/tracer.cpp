// SPDX-License-Identifier: MIT
// GST_TRACERS="gpumaplatency(interval=1000,channel=default)": prints the percentiles of every stage, at intervals and
// at the end. Where GStreamer logs its tracers' records (GST_DEBUG=GST_TRACER:7), each frame goes there as well, in the
// words of GStreamer's own latency tracer, so that gst-stats-1.0 reads them.
#define GST_USE_UNSTABLE_API  // GstTracer

#include <fmt/format.h>
#include <gst/gst.h>
#include <gst/gsttracer.h>
#include <gst/gsttracerrecord.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <mutex>
#include <vector>

#include "gst/gst_error.hpp"
#include "gst/latency/latency_report.hpp"

namespace gpumap::gst {

namespace {

constexpr guint initial_interval_ms = 1000;
// The records of a tick, at most: a million frames a second.
constexpr std::size_t kept_frames = 131'072;
constexpr std::chrono::milliseconds record_interval{100};

/// GStreamer's own records "latency" and "element-latency".
struct Records {
  GstTracerRecord* latency;
  GstTracerRecord* element_latency;
};

GstStructure* scope(GstTracerValueScope to) {
  return gst_structure_new("scope", "type", G_TYPE_GTYPE, G_TYPE_STRING, "related-to", GST_TYPE_TRACER_VALUE_SCOPE, to,
                           nullptr);
}

GstStructure* nanoseconds(const char* description) {
  return gst_structure_new("value", "type", G_TYPE_GTYPE, G_TYPE_UINT64, "description", G_TYPE_STRING, description,
                           "min", G_TYPE_UINT64, G_GUINT64_CONSTANT(0), "max", G_TYPE_UINT64, G_MAXUINT64, nullptr);
}

const Records& records() {
  static const Records made = [] {
    GstStructure* element = scope(GST_TRACER_VALUE_SCOPE_ELEMENT);
    GstStructure* pad = scope(GST_TRACER_VALUE_SCOPE_PAD);
    GstStructure* time = nanoseconds("time that it took, ns");
    GstStructure* ts = nanoseconds("when it was logged");
    const Records all{gst_tracer_record_new("latency.class", "src-element-id", GST_TYPE_STRUCTURE, element,
                                            "src-element", GST_TYPE_STRUCTURE, element, "src", GST_TYPE_STRUCTURE, pad,
                                            "sink-element-id", GST_TYPE_STRUCTURE, element, "sink-element",
                                            GST_TYPE_STRUCTURE, element, "sink", GST_TYPE_STRUCTURE, pad, "time",
                                            GST_TYPE_STRUCTURE, time, "ts", GST_TYPE_STRUCTURE, ts, nullptr),
                      gst_tracer_record_new("element-latency.class", "element-id", GST_TYPE_STRUCTURE, element,
                                            "element", GST_TYPE_STRUCTURE, element, "src", GST_TYPE_STRUCTURE, pad,
                                            "time", GST_TYPE_STRUCTURE, time, "ts", GST_TYPE_STRUCTURE, ts, nullptr)};
    for (GstStructure* one : {element, pad, time, ts}) gst_structure_free(one);
    GST_OBJECT_FLAG_SET(all.latency, GST_OBJECT_FLAG_MAY_BE_LEAKED);
    GST_OBJECT_FLAG_SET(all.element_latency, GST_OBJECT_FLAG_MAY_BE_LEAKED);
    return all;
  }();
  return made;
}

bool records_are_logged() {
  return gst_debug_get_default_threshold() >= GST_LEVEL_TRACE || [] {
    GstDebugCategory* category = _gst_debug_get_category("GST_TRACER");
    return category != nullptr && gst_debug_category_get_threshold(category) >= GST_LEVEL_TRACE;
  }();
}

/// `ts`: since the tracer began, as in GStreamer's records, which have no room for a time below 0: the report tells
/// those.
void log_frame(const LatencyLog& log, const FrameRecord& frame, guint64 ts) {
  const std::string id = fmt::format("{}", static_cast<const void*>(&log));
  const std::string name = "gpumap:" + log.channel();
  if (const auto whole = total_time(frame, Total::whole); whole && *whole >= 0) {
    gst_tracer_record_log(records().latency, id.c_str(), name.c_str(), "acquired", id.c_str(), name.c_str(), "released",
                          static_cast<guint64>(*whole), ts);
  }
  const auto times = stage_times(frame);
  for (std::size_t i = 0; i < stage_count; ++i) {
    if (!times[i] || *times[i] < 0) continue;
    const std::string stage(to_string(static_cast<Stage>(i)));
    gst_tracer_record_log(records().element_latency, id.c_str(), name.c_str(), stage.c_str(),
                          static_cast<guint64>(*times[i]), ts);
  }
}

/// What one tracer follows.
class Followed {
 public:
  Followed(guint interval_ms, std::string channel)
      : channel_(std::move(channel)),
        logs_records_(records_are_logged()),
        print_(std::chrono::milliseconds(interval_ms), [this](bool last) { print(last); }),
        record_(logs_records_ ? record_interval : std::chrono::milliseconds(0), [this](bool) { log_frames(); }) {}

  [[nodiscard]] std::shared_ptr<LatencyLog> log_of(const std::string& channel) {
    if (!channel_.empty() && channel_ != channel) return nullptr;
    auto log = LatencyLog::of_channel(channel);
    const std::lock_guard lock(mutex_);
    if (std::ranges::find(logs_, log) == logs_.end()) {
      if (logs_records_) log->keep_frames(kept_frames);
      logs_.push_back(log);
    }
    return log;
  }

 private:
  std::vector<std::shared_ptr<LatencyLog>> logs() {
    const std::lock_guard lock(mutex_);
    return logs_;
  }
  void print(bool last) {
    for (const auto& log : logs()) {
      const LatencySummary summary = log->summary();
      if (summary.frames != 0 || last) g_printerr("%s", latency_table(summary).c_str());
    }
  }
  void log_frames() {
    if (!logs_records_) return;
    for (const auto& log : logs()) {
      for (const FrameRecord& frame : log->take_frames()) log_frame(*log, frame, gst_util_get_timestamp() - began_);
    }
  }

  const std::string channel_;
  const bool logs_records_;
  const GstClockTime began_ = gst_util_get_timestamp();
  std::mutex mutex_;
  std::vector<std::shared_ptr<LatencyLog>> logs_;
  Ticker print_;  // last: they end first, and say what there is
  Ticker record_;
};

struct Tracers {
  std::mutex mutex;
  std::vector<Followed*> all;
};
Tracers& tracers() {
  static auto* const the = new Tracers;
  return *the;
}

struct GstGpumapLatencyTracer {
  GstTracer base;
  Followed* followed;
};
struct GstGpumapLatencyTracerClass {
  GstTracerClass base;
};

G_DEFINE_TYPE(GstGpumapLatencyTracer, gst_gpumap_latency_tracer, GST_TYPE_TRACER)

/// What the parentheses in GST_TRACERS hold; what is wrong there is told and left out. Null, which is told: there is no
/// thread for it.
Followed* follow(const gchar* params) {
  guint interval_ms = initial_interval_ms;
  std::string channel;
  if (params != nullptr && *params != '\0') {
    const std::string text = std::string("gpumaplatency,") + params;
    GstStructure* given = gst_structure_from_string(text.c_str(), nullptr);
    if (given == nullptr) {
      g_printerr(
          "gpumaplatency: cannot read \"%s\": write GST_TRACERS=\"gpumaplatency(interval=1000,channel=default)\"\n",
          message_of(params).c_str());
    } else {
      gint interval = 0;
      if (gst_structure_get_int(given, "interval", &interval) && interval >= 0) {
        interval_ms = static_cast<guint>(interval);
      } else if (gst_structure_has_field(given, "interval")) {
        g_printerr("gpumaplatency: interval is a number of milliseconds, 0 for the end only: taking %u\n", interval_ms);
      }
      if (const gchar* name = gst_structure_get_string(given, "channel")) channel = name;
      for (gint i = 0; i < gst_structure_n_fields(given); ++i) {
        const std::string_view field = gst_structure_nth_field_name(given, static_cast<guint>(i));
        if (field == "interval" || field == "channel") continue;
        g_printerr("gpumaplatency: there is no parameter \"%s\", which has no effect: there are interval and channel\n",
                   message_of(field).c_str());
      }
      gst_structure_free(given);
    }
  }
  try {
    return new Followed(interval_ms, std::move(channel));
  } catch (const std::exception& error) {
    g_printerr("gpumaplatency: %s\n", error.what());
    return nullptr;
  }
}

void constructed(GObject* object) {
  G_OBJECT_CLASS(gst_gpumap_latency_tracer_parent_class)->constructed(object);
  gchar* params = nullptr;
  g_object_get(object, "params", &params, nullptr);
  auto* self = reinterpret_cast<GstGpumapLatencyTracer*>(object);
  self->followed = follow(params);
  g_free(params);
  // GStreamer keeps a tracer, until its own end, by its hooks alone. What this one tells comes from the elements.
  gst_tracing_register_hook(GST_TRACER(object), "element-new", G_CALLBACK(+[](GObject*, GstClockTime, GstElement*) {}));
  const std::lock_guard lock(tracers().mutex);
  if (self->followed != nullptr) tracers().all.push_back(self->followed);
}

void finalize(GObject* object) {
  auto* self = reinterpret_cast<GstGpumapLatencyTracer*>(object);
  {
    const std::lock_guard lock(tracers().mutex);
    std::erase(tracers().all, self->followed);
  }
  delete self->followed;
  G_OBJECT_CLASS(gst_gpumap_latency_tracer_parent_class)->finalize(object);
}

void gst_gpumap_latency_tracer_class_init(GstGpumapLatencyTracerClass* klass) {
  G_OBJECT_CLASS(klass)->constructed = constructed;
  G_OBJECT_CLASS(klass)->finalize = finalize;
}

void gst_gpumap_latency_tracer_init(GstGpumapLatencyTracer* /*self*/) {}

}  // namespace

std::shared_ptr<LatencyLog> traced_log(const std::string& channel) {
  const std::lock_guard lock(tracers().mutex);
  for (Followed* followed : tracers().all) {
    if (auto log = followed->log_of(channel)) return log;
  }
  return nullptr;
}

}  // namespace gpumap::gst

gboolean gpumap_register_latency_tracer(GstPlugin* plugin) {
  return gst_tracer_register(plugin, "gpumaplatency", gpumap::gst::gst_gpumap_latency_tracer_get_type());
}
