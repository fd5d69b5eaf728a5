// SPDX-License-Identifier: MIT
// How many small frames a second pass the three elements: into ordinary memory, where each frame's kernel and copy are
// waited for before the next one is launched, and in GPU memory, where launches overlap.
#include <fmt/format.h>

#include <atomic>
#include <stdexcept>

#include "first_light.hpp"
#include "gst/memory/gpumap_memory.hpp"

namespace first_light {
namespace {

/// The sink's thread alone.
struct Arrivals {
  std::uint64_t wanted = 0, warmup = 0, seen = 0;
  std::int64_t began = 0, ended = 0;
  bool failed = false;
};

GstPadProbeReturn on_arrival(GstPad* /*pad*/, GstPadProbeInfo* info, gpointer user) {
  Arrivals& arrivals = *static_cast<Arrivals*>(user);
  ++arrivals.seen;
  if (arrivals.seen == arrivals.warmup) arrivals.began = now_ns();
  if (arrivals.seen != arrivals.wanted) return GST_PAD_PROBE_OK;
  // The last frame is there when its kernel is.
  gpumap::gst::FrameMemory* bytes =
      gpumap::gst::frame_memory(gst_buffer_peek_memory(GST_PAD_PROBE_INFO_BUFFER(info), 0));
  if (bytes != nullptr) {
    const gpumap::Fence fence = bytes->written();
    arrivals.failed = !spin_until([&] { return fence.signalled(); });
  }
  arrivals.ended = now_ns();
  return GST_PAD_PROBE_OK;
}

}  // namespace

void run_rate(const Options& options, Rate& rate) {
  Arrivals arrivals;
  arrivals.warmup = rate.frames / 10 + 1;
  arrivals.wanted = rate.frames + arrivals.warmup;
  GstElement* pipeline =
      parse(fmt::format("fakesrc num-buffers={} sizetype=fixed sizemax={} ! application/octet-stream ! "
                        "gpumapsink channel=first-light-rate device={} busy-poll={} sync=false "
                        "gpumapsrc channel=first-light-rate busy-poll={} ! "
                        "gpumapkernel device={} backend={} kernel=identity mode={} ! application/octet-stream{} ! "
                        "fakesink name=end sync=false enable-last-sample=false",
                        arrivals.wanted, rate.bytes, options.device, options.busy_poll_us, options.busy_poll_us,
                        options.device, options.backend == gpumap::Backend::cuda ? "cuda" : "vulkan",
                        rate.resident ? "resident" : "launch", rate.overlaps ? "(memory:GPUMap)" : ""));
  GstElement* end = gst_bin_get_by_name(GST_BIN(pipeline), "end");
  GstPad* pad = gst_element_get_static_pad(end, "sink");
  gst_pad_add_probe(pad, GST_PAD_PROBE_TYPE_BUFFER, on_arrival, &arrivals, nullptr);
  gst_object_unref(pad);
  gst_object_unref(end);
  const std::string failure = play(pipeline);
  gst_element_set_state(pipeline, GST_STATE_NULL);
  gst_object_unref(pipeline);
  if (!failure.empty()) throw std::runtime_error(failure);
  if (arrivals.failed || arrivals.seen != arrivals.wanted) {
    throw std::runtime_error(fmt::format("{} of {} frames came through", arrivals.seen, arrivals.wanted));
  }
  rate.a_second = static_cast<double>(rate.frames) * 1e9 / static_cast<double>(arrivals.ended - arrivals.began);
}

}  // namespace first_light
