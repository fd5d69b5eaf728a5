// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "gst/kernel/declared_caps.hpp"

namespace gpumap::gst {

/// The caps (transfer full) that `kernel` (a built-in's name, else empty), with its property `params`, gives for `caps`
/// on its other side, in order of preference; `declared`: what a kernel of the user's says it takes and
/// gives. Each comes as memory:GPUMap and as system memory.
[[nodiscard]] GstCaps* transform_kernel_caps(std::string_view kernel, const std::string& params,
                                             const DeclaredCaps& declared, GstPadDirection direction, GstCaps* caps);

/// What convert shows of one axis: `length` pixels from `start` on, where 0 goes to the edge.
struct CropAxis {
  gint start = 0, length = 0;
  [[nodiscard]] bool is_all() const { return start == 0 && length == 0; }
  [[nodiscard]] gint shown_of(gint size) const { return length != 0 ? length : std::max(size - start, 1); }
};
struct Crop {
  CropAxis width, height;
};
/// Of params that convert refuses when it starts: all of the picture.
[[nodiscard]] Crop crop_of(const std::string& params);

/// Say of convert's output `out`, which downstream left open, what primaries and transfer function it has: those of the
/// input, where that says so, in full range.
void add_colorimetry(const GstCaps* in, GstCaps* out);

/// Where `others` (transfer full, both), which downstream takes for pictures as `in`, leave the size open, the nearest
/// to that of what is shown, of its shape if there is one.
[[nodiscard]] GstCaps* fixate_size(std::string_view kernel, const std::string& params, const GstCaps* in,
                                   GstCaps* others);

}  // namespace gpumap::gst
