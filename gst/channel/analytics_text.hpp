// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <cstddef>

#include "gpumap/message_bytes.hpp"
#include "gst/analytics/analytics_api.hpp"
#include "gst/channel/event_text.hpp"

namespace gpumap::gst {

class NewNames;

// The metas of libgstanalytics in the text of a frame's metas (meta_text.hpp): the content of a record. What a peer
// wrote is checked before the library sees it: it asserts, or trusts what it reads.

/// Null: it is no such meta, or the library at hand does not have it.
[[nodiscard]] GstTensorMeta* tensors_in(GstMeta* meta);
[[nodiscard]] GstAnalyticsRelationMeta* relations_in(GstMeta* meta);

/// Appends the tensors with their bytes. False: not all of them can be written, or take more than `most` bytes.
[[nodiscard]] bool put_tensors(LinkText& text, const GstTensorMeta& meta, std::size_t most);
/// False, and nothing is added: it is invalid. Without the library nothing is added, as of a meta that is not known
/// here.
[[nodiscard]] bool take_tensors(GstBuffer* carrier, ByteReader& text, NewNames& names);

/// Appends detections, classifications, tracking, and the relations between them. Returns how many of another kind were
/// left out: the library does not tell a segmentation's type. Ends early when `text` has more than `most`
/// bytes.
[[nodiscard]] unsigned put_relations(LinkText& text, GstAnalyticsRelationMeta* meta, std::size_t most);
/// As take_tensors(). A buffer has one such meta.
[[nodiscard]] bool take_relations(GstBuffer* carrier, ByteReader& text, NewNames& names);

}  // namespace gpumap::gst
