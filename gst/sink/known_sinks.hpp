// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <string>

namespace gpumap::gst {

// The gpumapsinks of this process, in any state: links are made, and caps asked for, before a channel is opened.
// Thread safety: from any thread.

void know_sink(GstElement* sink);    ///< once, when it is made
void forget_sink(GstElement* sink);  ///< when it is finalized
/// The sink pad (transfer full) of the one gpumapsink that a gpumapsrc with these properties meets; null where there is
/// none or more than one. With a `socket_path` the channel does not count, on either side.
[[nodiscard]] GstPad* pad_of_sole_sink(const std::string& channel, const std::string& socket_path);

/// Whether the pipeline of `sink` has more of them.
[[nodiscard]] bool is_among_others(GstElement* sink);

}  // namespace gpumap::gst
