// SPDX-License-Identifier: MIT
// What the files of the element gpumapsink share, and no other includes.
#pragma once

#include <gst/base/gstbasesink.h>

#include <atomic>
#include <memory>

#include "gst/channel/alarm.hpp"
#include "gst/link/outlet.hpp"
#include "gst/sink/core.hpp"
#include "gst/sink/gather.hpp"
#include "gst/sink/sink_frames.hpp"

namespace gpumap::gst {

struct SinkState {
  /// `base_chain` is GstBaseSink's chain function.
  SinkState(GstBaseSink* sink, GstPadChainFunction base_chain)
      : frames(sink, *core),
        gather(GST_ELEMENT_CAST(sink), GST_BASE_SINK_PAD(sink), *core, [this, sink, base_chain](GstBuffer* frame) {
          return frames.chain(GST_BASE_SINK_PAD(sink), frame, base_chain);
        }) {}
  SinkSettings settings;  ///< under the object's lock; count from the next start on
  std::shared_ptr<SinkCore> core = std::make_shared<SinkCore>();
  GstAllocator* allocator = nullptr;  ///< offered for what is not raw video
  SinkFrames frames;
  Gather gather;
  std::atomic<GThread*> reviver{nullptr};  ///< who is within a flush of this element's own
  std::atomic<int> flushes{0};             ///< that begin: threads within a FLUSH_START
  std::atomic<guint> clients{0};
  std::atomic<bool> summary_told{false};  ///< since the start
  Alarm no_src;                           ///< no gpumapsrc has come
  Alarm no_frame;                         ///< it was added to a pipeline that plays, and has had no frame for long
  std::unique_ptr<Outlet> outlet;         ///< with socket-path, from PAUSED on
};

struct GstGpumapSink {
  GstBaseSink base;
  SinkState* state;
};

[[nodiscard]] inline SinkState& sink_state(gpointer sink) {
  return *reinterpret_cast<GstGpumapSink*>(sink)->state;
}
/// A copy of the settings, as they are to be used.
[[nodiscard]] SinkSettings sink_settings(GstElement* sink);

}  // namespace gpumap::gst
