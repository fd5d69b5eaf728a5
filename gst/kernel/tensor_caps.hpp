// SPDX-License-Identifier: MIT
// The field `tensors` of caps, which says what tensors go with each buffer. GStreamer has it from 1.28 on; in 1.26 the
// metas alone tell, and caps stay as they are.
#pragma once

#include <gst/gst.h>

#include "gst/kernel/declared_caps.hpp"

namespace gpumap::gst {

/// What comes out (transfer full, both), with the tensors that the kernel gives beside those that are there. Sizes that
/// `in`, the caps of the input, leaves open are open in it.
[[nodiscard]] GstCaps* with_tensors(const DeclaredCaps& declared, const GstCaps* in, GstCaps* made);
/// What of `caps` (transfer full, both), which are asked of the output, is to be asked of the input: tensors that the
/// kernel gives are not, and caps that ask for others of the same name are no caps of its.
[[nodiscard]] GstCaps* without_tensors(const DeclaredCaps& declared, GstCaps* caps);

}  // namespace gpumap::gst
