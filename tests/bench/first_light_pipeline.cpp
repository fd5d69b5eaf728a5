// SPDX-License-Identifier: MIT
// The same through the three elements. One frame is in flight at a time: gpumapsink's chain function is held until the
// frame that it took is done, so that what is measured is the way and not a queue. Holding happens after the publish
// and adds nothing to the way.
#include <fmt/format.h>
#include <gst/gst.h>

#include <atomic>
#include <stdexcept>

#include "first_light.hpp"
#include "gst/memory/gpumap_memory.hpp"

namespace first_light {
namespace {

/// When one frame passed each mark.
struct Stamps {
  std::int64_t stored = 0, pushed = 0, entered = 0, left = 0, received = 0, launched = 0, done = 0;
};

/// Of all frames behind the first ones.
struct Times {
  Histogram total, pushed, entered, received, launched, done, left, period;
};

/// The producer's thread owns it, but for what the consumer's thread writes before it raises `completed`.
struct Run {
  Times times;
  std::int64_t before = 0;  ///< when the frame before was stored
  unsigned warmup = 0;
  bool rival = false;
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
  Stamps& now = static_cast<Run*>(run)->now;
  now.pushed = now_ns();
  // Where no slot is unmapped, the last store was just now.
  if (now.stored == 0) now.stored = now.pushed;
  return GST_PAD_PROBE_OK;
}

void count(Run& run) {
  const Stamps& now = run.now;
  Times& times = run.times;
  if (run.sent > run.warmup) {
    times.total.add(now.done - now.stored);
    times.pushed.add(now.pushed - now.stored);
    times.entered.add(now.entered - now.pushed);
    if (!run.rival) times.received.add(now.received - now.entered);
    times.launched.add(now.launched - (run.rival ? now.entered : now.received));
    times.done.add(now.done - now.launched);
    if (!run.rival) times.left.add(now.left - now.entered);
    if (run.before != 0) times.period.add(now.stored - run.before);
  }
  run.before = now.stored;
  run.now = {};
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
  count(run);
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

std::string describe(const Options& options, const NamedKernel& kernel, const Elements& how) {
  std::string line = fmt::format(
      "videotestsrc name=from pattern=black num-buffers={} ! "
      "capsfilter name=shape caps=video/x-raw,format=NV12,width={},height={},framerate=30/1 ! ",
      options.warmup + options.frames, options.width, options.height);
  if (how.rival) {
    line += options.rival + " ! ";
  } else {
    line += fmt::format(
        "gpumapsink name=sink channel=first-light device={} slots=2 busy-poll={} sync=false stamps={} "
        "gpumapsrc name=src channel=first-light busy-poll={} ! ",
        options.device, options.busy_poll_us, how.stamps, options.busy_poll_us);
  }
  for (unsigned i = 0; i < how.kernels; ++i) {
    line += fmt::format("gpumapkernel name=kernel{} device={} backend={} {} mode={} ! ", i, options.device,
                        options.backend == gpumap::Backend::cuda ? "cuda" : "vulkan", kernel.property(),
                        how.resident ? "resident" : "launch");
  }
  return line + "video/x-raw(memory:GPUMap) ! fakesink sync=false enable-last-sample=false";
}

std::uint64_t zero_copy_frames(GstElement* pipeline) {
  GstElement* sink = gst_bin_get_by_name(GST_BIN(pipeline), "sink");
  GstStructure* stats = nullptr;
  g_object_get(sink, "stats", &stats, nullptr);
  guint64 frames = 0;
  gst_structure_get_uint64(stats, "zero-copy-frames", &frames);
  gst_structure_free(stats);
  gst_object_unref(sink);
  return frames;
}

}  // namespace

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

GstElement* parse(const std::string& description) {
  GError* error = nullptr;
  GstElement* pipeline = gst_parse_launch(description.c_str(), &error);
  if (error == nullptr) return pipeline;
  const std::string text = error->message;
  g_error_free(error);
  if (pipeline != nullptr) gst_object_unref(pipeline);
  throw std::runtime_error(text);
}

Result run_pipeline(const Options& options, const NamedKernel& kernel, const Elements& how) {
  GstElement* pipeline = parse(describe(options, kernel, how));
  Run run;
  run.warmup = options.warmup;
  run.rival = how.rival;
  running = &run;
  GstAllocator* allocator = gpumap::gst::wrapping_allocator();
  true_unmap = allocator->mem_unmap_full;
  // A rival's frames are stored when they are pushed.
  if (!how.rival) allocator->mem_unmap_full = unmap;
  add_probe(pipeline, "from", on_pushed, run);
  if (!how.rival) add_probe(pipeline, "src", on_received, run);
  add_probe(pipeline, fmt::format("kernel{}", how.kernels - 1).c_str(), on_launched, run);
  // Of gpumapsink, or of what stands in its place.
  GstElement* shape = gst_bin_get_by_name(GST_BIN(pipeline), "shape");
  GstPad* shaped = gst_element_get_static_pad(shape, "src");
  GstPad* pad = gst_pad_get_peer(shaped);
  gst_object_unref(shaped);
  gst_object_unref(shape);
  run.chain = GST_PAD_CHAINFUNC(pad);
  gst_pad_set_chain_function(pad, chain);

  const std::string failure = play(pipeline);
  const std::uint64_t zero_copy = how.rival ? 0 : zero_copy_frames(pipeline);
  gst_element_set_state(pipeline, GST_STATE_NULL);
  allocator->mem_unmap_full = true_unmap;
  running = nullptr;
  gst_object_unref(pad);
  gst_object_unref(pipeline);
  if (!failure.empty()) throw std::runtime_error(failure);
  if (run.sent != options.warmup + options.frames) {
    throw std::runtime_error(fmt::format("{} of {} frames came through", run.sent, options.warmup + options.frames));
  }

  const Times& times = run.times;
  Result result;
  result.kernel = kernel.name;
  result.path = how.path;
  result.zero_copy_frames = zero_copy;
  result.total = times.total;
  result.stages.emplace_back("last store to pushed by videotestsrc", summarise(times.pushed));
  if (how.rival) {
    result.stages.emplace_back("to entered the first element", summarise(times.entered));
  } else {
    result.stages.emplace_back("to entered gpumapsink", summarise(times.entered));
    result.stages.emplace_back("to received by gpumapsrc", summarise(times.received));
  }
  result.stages.emplace_back("to launched by gpumapkernel", summarise(times.launched));
  result.stages.emplace_back("to done", summarise(times.done));
  if (!how.rival) result.stages.emplace_back("(beside it: entered to left gpumapsink)", summarise(times.left));
  result.period_us = summarise(times.period).median_us;
  return result;
}

}  // namespace first_light
