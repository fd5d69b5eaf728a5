// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

namespace gpumap::gst {

enum class PeerAnswer {
  yes,
  no,
  loop,  ///< this thread is asking that peer already: the elements behind a gpumapsrc feed the gpumapsink of its
         ///< channel
};

/// As gst_pad_peer_query(), for queries that continue at the other side of a channel. A query that would come back to
/// the pad that asks, endlessly, is not sent. From any thread.
[[nodiscard]] PeerAnswer peer_query(GstPad* pad, GstQuery* query);

}  // namespace gpumap::gst
