// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include "gst/ptr.hpp"

namespace gpumap::gst {

// What GStreamer itself has no bytes or text for, as a structure: to write it, see structure_bytes.hpp, and to make it
// anew of what was read. What misses or has another type than GStreamer's functions take is left out there; null: of
// the rest nothing can be made.

[[nodiscard]] Ptr<GstStructure> as_structure(GstToc* toc);
[[nodiscard]] Ptr<GstToc> toc_of(const GstStructure* structure);

[[nodiscard]] Ptr<GstStructure> as_structure(GstStream* stream);
[[nodiscard]] Ptr<GstStream> stream_of(const GstStructure* structure);

[[nodiscard]] Ptr<GstStructure> as_structure(GstStreamCollection* collection);
[[nodiscard]] Ptr<GstStreamCollection> collection_of(const GstStructure* structure);

/// Of an application's message or an element's, whose content is their own; null for others.
[[nodiscard]] Ptr<GstStructure> as_structure(GstMessage* message);
/// Without a source.
[[nodiscard]] Ptr<GstMessage> message_of(const GstStructure* structure);

}  // namespace gpumap::gst
