// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <memory>
#include <string>

namespace gpumap::gst {

class Channel;

// The gpumapsinks and gpumapsrcs of this process, in any state: links are made, and caps asked for, before a channel is
// opened. Thread safety: from any thread.

enum class End { sink, src };

void know_end(End end, GstElement* element);  ///< once, when it is made
void forget_end(GstElement* element);         ///< when it is finalized

/// The channel of this name for an element that is one end of it. The other end is looked for in the innermost bin
/// around the element that has one of this name, so that one description may be used in many pipelines; where no bin
/// has one, anywhere in the process.
[[nodiscard]] std::shared_ptr<Channel> channel_of(End end, GstElement* element, const std::string& name);

/// The sink pad (transfer full) of the one gpumapsink that `src`, a gpumapsrc with these properties, meets; null where
/// there is none or more than one. With a `socket_path` the channel does not count, on either side.
[[nodiscard]] GstPad* pad_of_sole_sink(GstElement* src, const std::string& channel, const std::string& socket_path);

/// Whether the pipeline of `sink`, a gpumapsink, has more of them.
[[nodiscard]] bool is_among_others(GstElement* sink);

}  // namespace gpumap::gst
