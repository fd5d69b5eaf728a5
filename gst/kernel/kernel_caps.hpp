// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <string>

#include "gst/kernel/declared_caps.hpp"

namespace gpumap::gst {

/// The caps (transfer full) that a kernel which declares this, with the element's property `params`, gives for `caps`
/// on its other side, in order of preference. Each comes as memory:GPUMap and as system memory.
[[nodiscard]] GstCaps* transform_kernel_caps(const DeclaredCaps& declared, const std::string& params,
                                             GstPadDirection direction, GstCaps* caps);

/// Where `others` (transfer full, both), which downstream takes for pictures as `in`, leave the size open, the nearest
/// to that of what is shown, of its shape if there is one.
[[nodiscard]] GstCaps* fixate_size(const DeclaredCaps& declared, const std::string& params, const GstCaps* in,
                                   GstCaps* others);

/// Where `others` leave the rate open, the input's or the nearest to it.
void fixate_rate(GstCaps* others, const GstCaps* in);

// The field `tensors` of caps, which says what tensors go with each buffer. GStreamer has it from 1.28 on; in 1.26 the
// metas alone tell, and caps stay as they are.

/// What comes out (transfer full, both), with the tensors that the kernel gives beside those that are there. Sizes that
/// `in`, the caps of the input, leaves open are open in it.
[[nodiscard]] GstCaps* with_tensors(const DeclaredCaps& declared, const GstCaps* in, GstCaps* made);
/// What of `caps` (transfer full, both), which are asked of the output, is to be asked of the input: tensors that the
/// kernel gives are not, and caps that ask for others of the same name are no caps of its.
[[nodiscard]] GstCaps* without_tensors(const DeclaredCaps& declared, GstCaps* caps);

}  // namespace gpumap::gst
