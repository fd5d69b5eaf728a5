// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <string>

namespace gpumap::gst {

/// The caps of an upstream that names none.
inline constexpr const char* bytes_name = "application/octet-stream";

/// Why what follows `pad` does not take these caps, in memory:GPUMap or in system memory, and what to do about it.
[[nodiscard]] std::string refusal_text(GstPad* pad, const GstCaps* caps);

}  // namespace gpumap::gst
