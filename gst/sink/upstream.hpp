// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

namespace gpumap::gst {

/// How the element that fills our buffers treats them. map() flags tell, but not always the truth.
enum class Upstream {
  as_declared,  ///< believe the map flags
  writes_only,  ///< maps READWRITE, yet never reads
  reads,        ///< maps WRITE, yet reads
};

/// Look at the element that feeds `sinkpad` with `caps`, past those that only hand buffers on.
[[nodiscard]] Upstream find_upstream(GstPad* sinkpad, GstCaps* caps);

}  // namespace gpumap::gst
