// SPDX-License-Identifier: MIT
// What a gpumapsrc answers. Mostly the sink's upstream knows.
#pragma once

#include <gst/gst.h>

namespace gpumap::gst {

class SrcStream;

/// Answer a query on the src pad. `channel`: the property, for what is asked before the start. From any thread.
[[nodiscard]] gboolean answer_src_query(SrcStream& stream, const char* channel, GstPad* pad, GstQuery* query);

}  // namespace gpumap::gst
