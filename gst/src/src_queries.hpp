// SPDX-License-Identifier: MIT
// What the src pads of gpumapsrc and gpumapupload answer. Mostly upstream of the sink pad knows.
#pragma once

#include <gst/gst.h>

namespace gpumap::gst {

struct SrcSettings;
class SrcStream;

/// Answer a query on the src pad. `settings`: the properties, for what is asked before the start. From any thread.
[[nodiscard]] gboolean answer_src_query(SrcStream& stream, const SrcSettings& settings, GstPad* pad, GstQuery* query);
/// Answer a CAPS query on `pad`: what frames are of now, in either memory, and which media types upstream of `sinkpad`
/// can give. So an element with pads of several kinds (a muxer) is linked at the right one, as behind a queue, and a
/// branch may be added or replaced while frames flow. Formats that do not fit are refused once frames flow, with the
/// reason and the remedy, which a link has no words for. From any thread.
[[nodiscard]] gboolean answer_caps(GstPad* pad, GstPad* sinkpad, GstQuery* query);

}  // namespace gpumap::gst
