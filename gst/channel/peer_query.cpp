// SPDX-License-Identifier: MIT
#include "gst/channel/peer_query.hpp"

namespace gpumap::gst {

namespace {

/// The pads whose peers this thread is asking, innermost first.
struct Asking {
  const Asking* before;
  const GstPad* pad;
};
thread_local const Asking* innermost = nullptr;

}  // namespace

PeerAnswer peer_query(GstPad* pad, GstQuery* query) {
  for (const Asking* at = innermost; at != nullptr; at = at->before) {
    if (at->pad == pad) return PeerAnswer::loop;
  }
  const Asking asking{innermost, pad};
  innermost = &asking;
  const bool answered = gst_pad_peer_query(pad, query) != 0;
  innermost = asking.before;
  return answered ? PeerAnswer::yes : PeerAnswer::no;
}

}  // namespace gpumap::gst
