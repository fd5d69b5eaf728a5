// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <string>

namespace gpumap::gst {

/// The caps of an upstream that names none.
inline constexpr const char* bytes_name = "application/octet-stream";

/// The elements at the two ends of a ring, in messages.
struct ElementNames {
  const char* takes = "gpumapsink";  ///< frames from upstream
  const char* gives = "gpumapsrc";   ///< them to downstream
};

/// Why what follows `pad` does not take these caps, in memory:GPUMap or in system memory, and what to do about it.
[[nodiscard]] std::string refusal_text(GstPad* pad, const GstCaps* caps, const ElementNames& names);

}  // namespace gpumap::gst
