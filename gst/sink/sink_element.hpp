// SPDX-License-Identifier: MIT
#pragma once

#include <gst/base/gstbasesink.h>
#include <gst/gst.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gst/channel/alarm.hpp"
#include "gst/channel/outlet.hpp"
#include "gst/property_table.hpp"
#include "gst/sink/core.hpp"
#include "gst/sink/gather.hpp"
#include "gst/sink/sink_frames.hpp"

// What the files of the element gpumapsink share, and what gpumapsrc and gpumapupload have in common with it.

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
  std::atomic<bool> summary_told{false};  ///< since the start, as:
  std::atomic<bool> refusal_told{false};  ///< of a stop in a thread of the link
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

/// Of the property leaky, whose numbers are those of WhenFull, and of LinkLeak.
[[nodiscard]] GType leaky_type();
/// Those that gpumapsink and gpumapupload have in common. `threads` and `which_threads`: see add_thread_properties().
[[nodiscard]] std::vector<Property> slot_properties(const PropertiesOf<SinkSettings>& of,
                                                    PropertiesOf<ThreadSettings>::Find threads,
                                                    const std::string& which_threads);
/// Of a gpumapsink.
[[nodiscard]] std::vector<Property> sink_properties();

// What a gpumapsink answers: which caps and which memory it takes, and where it is.

/// Answer an ALLOCATION query: a pool of slots for raw video; for anything else parts of slots where `gather` puts
/// buffers together, else `allocator`.
void propose_slots(GstPad* pad, SinkCore& core, const Gather& gather, GstAllocator* allocator, GstQuery* query);
/// An allocator (transfer full) of slots.
[[nodiscard]] GstAllocator* slot_allocator_new(const std::shared_ptr<SinkCore>& core);

/// Answer a query for caps or for their acceptance; false for any other. What follows `srcpad` (null: nothing) decides,
/// where it takes something of what upstream offers. Where it takes nothing, everything is welcome: the element of
/// `srcpad` then says why it stops, and an upstream of another pipeline is not stopped by a consumer that does not fit.
[[nodiscard]] bool answer_caps_query(GstPad* srcpad, GstQuery* query);

/// Answer what upstream asks of downstream as what follows the gpumapsrc answers (a muxer wants to know whether it may
/// go back to its header). False: nobody answered, or the question is for the sink itself.
[[nodiscard]] bool answer_across(const SinkCore& core, GstQuery* query);

/// Whether a bin's question is for the sinks behind a gpumapsrc in the same pipeline. They know position, duration and
/// what else lies between changes; this sink runs ahead of them by what is queued, and a bin believes the sink that is
/// furthest, or the first one, of those that answer.
[[nodiscard]] bool leaves_to_sinks_behind(const SinkCore& core, GstQuery* query);

[[nodiscard]] Channel::Latency latency_of_upstream(GstBaseSink* sink);
/// The LATENCY event (taken) as it counts for this sink, transfer full: with sync=true a frame is published once it is
/// due and upstream could have given it. The rest of the pipeline's latency is for what follows the gpumapsrc to use.
[[nodiscard]] GstEvent* own_latency(GstEvent* event, const Channel::Latency& upstream);

}  // namespace gpumap::gst
