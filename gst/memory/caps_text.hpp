// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <string>

namespace gpumap::gst {

/// For messages, the kinds of stream that `caps` are, each by its name, memory other than gpumap's and the system's,
/// and the fields in which `other` differs: "video/x-raw, format=RGBA; or application/x-tensor". Empty: none.
[[nodiscard]] std::string kinds_text(const GstCaps* caps, const GstStructure* other);

}  // namespace gpumap::gst
