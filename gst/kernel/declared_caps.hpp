// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <string>

namespace gpumap::gst {

/// Caps as a kernel of the user's declares them. Those of its output may have expressions of the input's width, height,
/// rate and channels in braces: "video/x-raw,format=GRAY8,width={width/2}".
struct DeclaredCaps {
  std::string input;   ///< empty: any
  std::string output;  ///< empty: as the input
  [[nodiscard]] bool empty() const noexcept { return input.empty() && output.empty(); }
  [[nodiscard]] bool operator==(const DeclaredCaps&) const = default;
};

/// Throws Error(invalid) where these can never be caps.
void check_declared_caps(const DeclaredCaps& declared);

/// The caps (transfer full) on the other side of the kernel from `caps`, which came in from `direction`. A field whose
/// expression needs what the input leaves open stays open, and one that the output does not mention is as in the input,
/// where both are of the same media type; of another type only the frame rate is. Each as memory:GPUMap and as system
/// memory. `declared` has been checked.
[[nodiscard]] GstCaps* transform_declared_caps(const DeclaredCaps& declared, GstPadDirection direction,
                                               const GstCaps* caps);

}  // namespace gpumap::gst
