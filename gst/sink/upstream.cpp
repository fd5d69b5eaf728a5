// SPDX-License-Identifier: MIT
#include "gst/sink/upstream.hpp"

#include <gst/base/gstbasetransform.h>
#include <gst/video/video.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "gst/ptr.hpp"

namespace gpumap::gst {

namespace {

struct Known {
  std::string_view factory;
  Upstream upstream;
};

// Seen in these elements' sources; whatever is not here is believed.
constexpr std::array known{
    // libjpeg writes whole lines straight into the frame.
    Known{"jpegdec", Upstream::writes_only},
    // libpng merges the passes of an interlaced picture into the rows that it wrote before.
    Known{"pngdec", Upstream::reads},
};

constexpr std::array<std::string_view, 6> hands_on{"queue", "queue2", "capsfilter", "identity", "capssetter", "valve"};

// GstVideoConverter works line by line in the format that it unpacks to. When that is the output's own format, its
// steps run in place in the output frame.
bool converts_in_place(std::string_view factory, GstCaps* caps) {
  GstVideoInfo info;
  return (factory == "videoconvert" || factory == "videoscale" || factory == "videoconvertscale") &&
         gst_structure_has_name(gst_caps_get_structure(caps, 0), "video/x-raw") &&
         gst_video_info_from_caps(&info, caps) && info.finfo->unpack_format == info.finfo->format;
}

std::string_view factory_name(GstElement* element) {
  GstElementFactory* factory = gst_element_get_factory(element);
  return factory != nullptr ? GST_OBJECT_NAME(factory) : "";
}

/// The pad of an element that stands behind `peer`: a bin's ghost pad stands for a pad inside it, and the other side of
/// one, where a way comes out of the bin, for the pad that the ghost pad is linked to. Null: it is linked to none.
Ptr<GstPad> past_bins(Ptr<GstPad> peer) {
  while (peer && GST_IS_PROXY_PAD(peer.get())) {
    if (GST_IS_GHOST_PAD(peer.get())) {
      peer.reset(gst_ghost_pad_get_target(GST_GHOST_PAD(peer.get())));
      continue;
    }
    GstProxyPad* internal = gst_proxy_pad_get_internal(GST_PROXY_PAD(peer.get()));
    const Ptr<GstPad> ghost(internal != nullptr ? GST_PAD(internal) : nullptr);
    peer.reset(ghost ? gst_pad_get_peer(ghost.get()) : nullptr);
  }
  return peer;
}

}  // namespace

Upstream find_upstream(GstPad* sinkpad, GstCaps* caps) {
  Upstream found = Upstream::as_declared;
  Ptr<GstPad> pad(GST_PAD(gst_object_ref(sinkpad)));
  while (pad) {
    Ptr<GstPad> peer(gst_pad_get_peer(pad.get()));
    pad.reset();
    peer = past_bins(std::move(peer));
    if (!peer) break;
    const Ptr<GstElement> owner(gst_pad_get_parent_element(peer.get()));
    GstElement* element = owner.get();
    peer.reset();
    if (element == nullptr) break;
    const std::string_view name = factory_name(element);
    const bool passes =
        GST_IS_BASE_TRANSFORM(element) && gst_base_transform_is_passthrough(GST_BASE_TRANSFORM(element));
    const auto* const entry =
        std::find_if(known.begin(), known.end(), [&](const Known& candidate) { return candidate.factory == name; });
    if (entry != known.end()) found = entry->upstream;
    if (!passes && converts_in_place(name, caps)) found = Upstream::reads;
    if (passes || std::find(hands_on.begin(), hands_on.end(), name) != hands_on.end()) {
      pad.reset(gst_element_get_static_pad(element, "sink"));
    }
  }
  return found;
}

}  // namespace gpumap::gst
