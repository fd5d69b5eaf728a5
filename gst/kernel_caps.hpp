// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <string_view>

namespace gpumap::gst {

/// The caps (transfer full) that `kernel` (a built-in's name, else empty) gives for `caps` on its other side, in order
/// of preference. Each comes as memory:GPUMap and as system memory.
[[nodiscard]] GstCaps* transform_kernel_caps(std::string_view kernel, GstPadDirection direction, GstCaps* caps);

}  // namespace gpumap::gst
