// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

namespace gpumap::gst {

enum class PeerAnswer {
  yes,
  no,
  loop,  ///< this thread is asking that peer already: what follows a gpumapsrc feeds the gpumapsink of its channel
};

/// As gst_pad_peer_query(), for questions that go on at the other side of a channel: one that would come back to the
/// pad that asks, without end, is not asked. From any thread.
[[nodiscard]] PeerAnswer peer_query(GstPad* pad, GstQuery* query);

}  // namespace gpumap::gst
