// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <string>
#include <string_view>

namespace gpumap::gst {

/// The caps (transfer full) that `kernel` (a built-in's name, else empty), with its property `params`, gives for `caps`
/// on its other side, in order of preference; `declared`: those that a kernel of the user's says it gives
/// (declared_caps.hpp), empty for those of its input. Each comes as memory:GPUMap and as system memory.
[[nodiscard]] GstCaps* transform_kernel_caps(std::string_view kernel, const std::string& params,
                                             const std::string& declared, GstPadDirection direction, GstCaps* caps);

}  // namespace gpumap::gst
