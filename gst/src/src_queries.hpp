// SPDX-License-Identifier: MIT
// What a gpumapsrc answers. Mostly the sink's upstream knows.
#pragma once

#include <gst/gst.h>

namespace gpumap::gst {

struct SrcSettings;
class SrcStream;

/// Answer a query on the src pad. `settings`: the properties, for what is asked before the start. From any thread.
[[nodiscard]] gboolean answer_src_query(SrcStream& stream, const SrcSettings& settings, GstPad* pad, GstQuery* query);

}  // namespace gpumap::gst
