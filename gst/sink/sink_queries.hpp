// SPDX-License-Identifier: MIT
// What a gpumapsink answers: which caps and which memory it takes, and where it is.
#pragma once

#include <gst/base/gstbasesink.h>
#include <gst/gst.h>

#include <memory>
#include <optional>

#include "gst/sink/core.hpp"
#include "gst/sink/gather.hpp"

namespace gpumap::gst {

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

/// The LATENCY event (taken) as it counts for this sink, transfer full: with sync=true a frame is published once it is
/// due and upstream could have given it. The rest of the pipeline's latency is for what follows the gpumapsrc to use.
[[nodiscard]] GstEvent* own_latency(GstBaseSink* sink, GstEvent* event);

}  // namespace gpumap::gst
