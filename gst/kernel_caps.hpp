// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <string>
#include <string_view>

#include "declared_caps.hpp"

namespace gpumap::gst {

/// The caps (transfer full) that `kernel` (a built-in's name, else empty), with its property `params`, gives for `caps`
/// on its other side, in order of preference; `declared`: what a kernel of the user's says it takes and
/// gives. Each comes as memory:GPUMap and as system memory.
[[nodiscard]] GstCaps* transform_kernel_caps(std::string_view kernel, const std::string& params,
                                             const DeclaredCaps& declared, GstPadDirection direction, GstCaps* caps);

/// Where `others` (transfer full, both), which downstream takes for pictures as `in`, leave the size open, the nearest
/// to that of what is shown, of its shape if there is one.
[[nodiscard]] GstCaps* fixate_size(std::string_view kernel, const std::string& params, const GstCaps* in,
                                   GstCaps* others);

}  // namespace gpumap::gst
