// SPDX-License-Identifier: MIT
// The same through the three elements. One frame is in flight at a time: gpumapsink's chain function is held until the
// frame that it took is done, so that what is measured is the way and not a queue. Holding happens after the publish
// and adds nothing to the way.
#include <fmt/format.h>
#include <gst/gst.h>

#include <atomic>
#include <stdexcept>

#include "first_light.hpp"
#include "gst/memory/memory.hpp"

namespace first_light {
namespace {

/// When one frame passed each mark.
struct Stamps {
  std::int64_t stored = 0, pushed = 0, entered = 0, left = 0, received = 0, launched = 0, done = 0;
};

/// The producer's thread owns it, but for what the consumer's thread writes before it raises `completed`.
struct Run {
  std::vector<Stamps> frames;
  Stamps now;
  unsigned sent = 0;
  std::atomic<unsigned> completed{0};
  std::atomic<bool> failed{false};
  GstPadChainFunction chain = nullptr;
};
// mem_unmap_full and a pad's chain function carry no user data.
Run* running = nullptr;
void (*true_unmap)(GstMemory*, GstMapInfo*) = nullptr;

// The producer's last store is behind it when it first unmaps the slot (it has a map for each plane).
void unmap(GstMemory* memory, GstMapInfo* info) {
  if (running != nullptr && running->now.stored == 0 && (info->flags & GST_MAP_WRITE) != 0) {
    running->now.stored = now_ns();
  }
  true_unmap(memory, info);
}

GstPadProbeReturn on_pushed(GstPad* /*pad*/, GstPadProbeInfo* /*info*/, gpointer run) {
  static_cast<Run*>(run)->now.pushed = now_ns();
  return GST_PAD_PROBE_OK;
}

GstFlowReturn chain(GstPad* pad, GstObject* parent, GstBuffer* buffer) {
  Run& run = *running;
  run.now.entered = now_ns();
  const GstFlowReturn flow = run.chain(pad, parent, buffer);
  run.now.left = now_ns();
  if (flow != GST_FLOW_OK) return flow;
  ++run.sent;
  const bool done = spin_until([&] {
    return run.completed.load(std::memory_order_acquire) >= run.sent || run.failed.load(std::memory_order_relaxed);
  });
  if (!done || run.failed) return GST_FLOW_ERROR;
  run.frames.push_back(run.now);
  run.now = {};
  return GST_FLOW_OK;
}

GstPadProbeReturn on_received(GstPad* /*pad*/, GstPadProbeInfo* /*info*/, gpointer run) {
  static_cast<Run*>(run)->now.received = now_ns();
  return GST_PAD_PROBE_OK;
}

GstPadProbeReturn on_launched(GstPad* /*pad*/, GstPadProbeInfo* info, gpointer user) {
  Run& run = *static_cast<Run*>(user);
  run.now.launched = now_ns();
  gpumap::gst::FrameMemory* bytes =
      gpumap::gst::frame_memory(gst_buffer_peek_memory(GST_PAD_PROBE_INFO_BUFFER(info), 0));
  if (bytes == nullptr) {
    run.failed = true;
    return GST_PAD_PROBE_OK;
  }
  const gpumap::Fence fence = bytes->written();
  if (!spin_until([&] { return fence.signalled(); })) run.failed = true;
  run.now.done = now_ns();
  run.completed.fetch_add(1, std::memory_order_release);
  return GST_PAD_PROBE_OK;
}

void add_probe(GstElement* pipeline, const char* element, GstPadProbeCallback callback, Run& run) {
  GstElement* found = gst_bin_get_by_name(GST_BIN(pipeline), element);
  GstPad* pad = gst_element_get_static_pad(found, "src");
  gst_pad_add_probe(pad, GST_PAD_PROBE_TYPE_BUFFER, callback, &run, nullptr);
  gst_object_unref(pad);
  gst_object_unref(found);
}

std::string describe(const Options& options, const NamedKernel& kernel, Elements how) {
  const std::string which = kernel.file.empty() ? "kernel=" + kernel.name : fmt::format("location=\"{}\"", kernel.file);
  return fmt::format(
      "videotestsrc name=from pattern=black num-buffers={} ! "
      "video/x-raw,format=NV12,width={},height={},framerate=30/1 ! "
      "gpumapsink name=sink channel=first-light device={} slots=2 busy-poll={} sync=false "
      "gpumapsrc name=src channel=first-light busy-poll={} ! "
      "gpumapkernel name=kernel device={} backend={} {} mode={} ! video/x-raw(memory:GPUMap) ! "
      "fakesink sync=false enable-last-sample=false",
      options.warmup + options.frames, options.width, options.height, options.device, options.busy_poll_us,
      options.busy_poll_us, options.device, options.backend == gpumap::Backend::cuda ? "cuda" : "vulkan", which,
      how.resident ? "resident" : "launch");
}

/// Runs to EOS; returns the text of an error, or an empty one.
std::string play(GstElement* pipeline) {
  std::string failure;
  GstBus* bus = gst_element_get_bus(pipeline);
  gst_element_set_state(pipeline, GST_STATE_PLAYING);
  GstMessage* message = gst_bus_timed_pop_filtered(bus, GST_CLOCK_TIME_NONE,
                                                   static_cast<GstMessageType>(GST_MESSAGE_ERROR | GST_MESSAGE_EOS));
  if (GST_MESSAGE_TYPE(message) == GST_MESSAGE_ERROR) {
    GError* error = nullptr;
    gst_message_parse_error(message, &error, nullptr);
    failure = error->message;
    g_error_free(error);
  }
  gst_message_unref(message);
  gst_object_unref(bus);
  return failure;
}

std::uint64_t zero_copy_frames(GstElement* sink) {
  GstStructure* stats = nullptr;
  g_object_get(sink, "stats", &stats, nullptr);
  guint64 frames = 0;
  gst_structure_get_uint64(stats, "zero-copy-frames", &frames);
  gst_structure_free(stats);
  return frames;
}

Summary part(const Run& run, unsigned warmup, std::int64_t Stamps::*from, std::int64_t Stamps::*to) {
  std::vector<std::int64_t> times;
  for (std::size_t i = warmup; i < run.frames.size(); ++i) times.push_back(run.frames[i].*to - run.frames[i].*from);
  return summarise(times);
}

}  // namespace

Result run_pipeline(const Options& options, const NamedKernel& kernel, Elements how) {
  GError* error = nullptr;
  GstElement* pipeline = gst_parse_launch(describe(options, kernel, how).c_str(), &error);
  if (error != nullptr) {
    const std::string text = error->message;
    g_error_free(error);
    throw std::runtime_error(text);
  }
  Run run;
  run.frames.reserve(options.warmup + options.frames);
  running = &run;
  GstAllocator* allocator = gpumap::gst::wrapping_allocator();
  true_unmap = allocator->mem_unmap_full;
  allocator->mem_unmap_full = unmap;
  add_probe(pipeline, "from", on_pushed, run);
  add_probe(pipeline, "src", on_received, run);
  add_probe(pipeline, "kernel", on_launched, run);
  GstElement* sink = gst_bin_get_by_name(GST_BIN(pipeline), "sink");
  g_object_set(sink, "stamps", static_cast<gboolean>(how.stamps), nullptr);
  GstPad* pad = gst_element_get_static_pad(sink, "sink");
  run.chain = GST_PAD_CHAINFUNC(pad);
  gst_pad_set_chain_function(pad, chain);

  const std::string failure = play(pipeline);
  const std::uint64_t zero_copy = zero_copy_frames(sink);
  gst_element_set_state(pipeline, GST_STATE_NULL);
  allocator->mem_unmap_full = true_unmap;
  running = nullptr;
  gst_object_unref(pad);
  gst_object_unref(sink);
  gst_object_unref(pipeline);
  if (!failure.empty()) throw std::runtime_error(failure);
  if (run.frames.size() != options.warmup + options.frames) {
    throw std::runtime_error(
        fmt::format("{} of {} frames came through", run.frames.size(), options.warmup + options.frames));
  }

  Result result;
  result.kernel = kernel.name;
  result.path = how.stamps ? "pipeline, stamps" : how.resident ? "pipeline, resident" : "pipeline";
  result.zero_copy_frames = zero_copy;
  const unsigned warmup = options.warmup;
  result.total = part(run, warmup, &Stamps::stored, &Stamps::done);
  result.stages.emplace_back("last store to pushed by videotestsrc",
                             part(run, warmup, &Stamps::stored, &Stamps::pushed));
  result.stages.emplace_back("to entered gpumapsink", part(run, warmup, &Stamps::pushed, &Stamps::entered));
  result.stages.emplace_back("to received by gpumapsrc", part(run, warmup, &Stamps::entered, &Stamps::received));
  result.stages.emplace_back("to launched by gpumapkernel", part(run, warmup, &Stamps::received, &Stamps::launched));
  result.stages.emplace_back("to done", part(run, warmup, &Stamps::launched, &Stamps::done));
  result.stages.emplace_back("(beside it: entered to left gpumapsink)",
                             part(run, warmup, &Stamps::entered, &Stamps::left));
  std::vector<std::int64_t> periods;
  for (std::size_t i = warmup + 1; i < run.frames.size(); ++i) {
    periods.push_back(run.frames[i].stored - run.frames[i - 1].stored);
  }
  result.period_us = summarise(periods).median_us;
  return result;
}

}  // namespace first_light
