// SPDX-License-Identifier: MIT
#include "gst/tools/latency/latency_elements.hpp"

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

namespace latency {
namespace {

/// In the thread that posts, so that times are true. Nothing piles up on the bus: a kernel posts with each frame.
GstBusSyncReply on_message(GstBus* /*bus*/, GstMessage* message, gpointer user) {
  auto& watch = *static_cast<Watch*>(user);
  const char* source = GST_MESSAGE_SRC_NAME(message);
  switch (GST_MESSAGE_TYPE(message)) {
    case GST_MESSAGE_ERROR:
    case GST_MESSAGE_EOS:
      return GST_BUS_PASS;
    case GST_MESSAGE_STATE_CHANGED: {
      GstState from = GST_STATE_VOID_PENDING;
      GstState to = GST_STATE_VOID_PENDING;
      gst_message_parse_state_changed(message, &from, &to, nullptr);
      watch.note(Event::Kind::state, fmt::format("{} went from {} to {}", source, gst_element_state_get_name(from),
                                                 gst_element_state_get_name(to)));
      break;
    }
    case GST_MESSAGE_QOS:
      watch.note(Event::Kind::qos, fmt::format("{} told of a late frame", source));
      break;
    case GST_MESSAGE_LATENCY:
      watch.note(Event::Kind::latency, fmt::format("{} has another latency", source));
      break;
    case GST_MESSAGE_WARNING: {
      GError* error = nullptr;
      gst_message_parse_warning(message, &error, nullptr);
      const Ptr<GError> owned(error);
      watch.note(Event::Kind::warning, fmt::format("{}: {}", source, error->message));
      break;
    }
    default:
      break;
  }
  gst_message_unref(message);
  return GST_BUS_DROP;
}

}  // namespace

std::string error_of(GstMessage* message) {
  GError* error = nullptr;
  gst_message_parse_error(message, &error, nullptr);
  const Ptr<GError> owned(error);
  return fmt::format("{}: {}", GST_MESSAGE_SRC_NAME(message), error->message);
}

Line make_line(const std::string& text, Watch& watch) {
  GError* error = nullptr;
  Ptr<GstElement> made(gst_parse_launch(text.c_str(), &error));
  const Ptr<GError> owned(error);
  if (made) gst_object_ref_sink(made.get());
  if (error == nullptr && made && !GST_IS_PIPELINE(made.get())) {
    // A line of one element is that element.
    Ptr<GstElement> pipeline(GST_ELEMENT(gst_object_ref_sink(gst_pipeline_new(nullptr))));
    gst_bin_add(GST_BIN(pipeline.get()), made.get());
    made = std::move(pipeline);
  }
  if (error != nullptr || !made) {
    throw std::runtime_error(fmt::format("{}\n  in: {}", error != nullptr ? error->message : "no pipeline", text));
  }
  Line line{std::move(made), nullptr};
  line.bus.reset(gst_element_get_bus(line.pipeline.get()));
  gst_bus_set_sync_handler(line.bus.get(), on_message, &watch, nullptr);
  const Ptr<GstClock> clock(gst_system_clock_obtain());
  gst_pipeline_use_clock(GST_PIPELINE(line.pipeline.get()), clock.get());
  return line;
}

SinkStats stats_of(GstElement* sink) {
  GstStructure* raw = nullptr;
  g_object_get(sink, "stats", &raw, nullptr);
  const Ptr<GstStructure> stats(raw);
  if (!stats) return {};
  const auto number = [&](const char* field) {
    guint64 value = 0;
    gst_structure_get_uint64(stats.get(), field, &value);
    return value;
  };
  const char* transport = gst_structure_get_string(stats.get(), "transport");
  return {.zero_copy_frames = number("zero-copy-frames"),
          .copied_frames = number("copied-frames"),
          .waits = number("waits"),
          .drops = number("drops"),
          .transport = transport != nullptr ? transport : ""};
}

std::string missing_elements() {
  const Ptr<GstElement> sink(gst_element_factory_make("gpumapsink", nullptr));
  if (!sink) {
    return "no element gpumapsink: export GST_PLUGIN_PATH=<the folder with libgstgpumap.so>, which is build/gst in a "
           "checkout; gst-inspect-1.0 gpumapsink tells more";
  }
  if (g_object_class_find_property(G_OBJECT_GET_CLASS(sink.get()), "stamps") == nullptr) {
    return "the gpumapsink that GStreamer finds has no property stamps: it is of an older gpumap than this program";
  }
  return {};
}

std::string why_not_here(const Case& which, const Options& options) {
  if (!which.has_ring() && !options.pipeline.empty()) return "it stands beside pipelines of our own only";
  if (!which.is_rival()) {
    if (options.upstream == "videotestsrc" && options.pipeline.empty() && !which.frame.is_video()) {
      return "videotestsrc makes no blocks of bytes: use --upstream in-place or copy";
    }
    return {};
  }
  if (as_rgba(which.frame, 0).empty()) return "it takes video, and this size makes no RGBA picture";
  if (options.upstream == "videotestsrc" && !which.frame.is_video()) return "videotestsrc makes no blocks of bytes";
  const Ptr<GstElement> upload(gst_element_factory_make("cudaupload", nullptr));
  if (!upload) return "this GStreamer has no cudaupload, which comes with gst-plugins-bad and an NVIDIA driver";
  const bool opens = gst_element_set_state(upload.get(), GST_STATE_READY) != GST_STATE_CHANGE_FAILURE;
  gst_element_set_state(upload.get(), GST_STATE_NULL);
  return opens ? "" : "cudaupload is there and opens no CUDA device";
}

}  // namespace latency
