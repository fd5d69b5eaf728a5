// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <string>

namespace gpumap::gst {

// Caps as a kernel of the user's declares them: "video/x-raw,format=GRAY8,width={width/2},height={height/2}", where the
// braces hold expressions of the input's width, height, rate and channels.

/// Throws Error(invalid) where `declared` can never be caps.
void check_declared_caps(const std::string& declared);

/// What `declared` (checked) says for an input as `in`: a field whose expression needs what `in` does not fix is left
/// open, and one that is not mentioned is as in the input, where both are of the same media type; of another type only
/// the frame rate is. Transfer full; null where an expression has no value for this input.
[[nodiscard]] GstStructure* declared_structure(const std::string& declared, const GstStructure* in);

}  // namespace gpumap::gst
