// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

namespace gpumap::gst {

/// What a peer wrote, or null. GStreamer's reader calls itself for each bracket, for some twice: what is nested more
/// than 8 deep, or hides brackets as numbers, which gst_structure_to_string() never does, it does not get to see. In a
/// GstSample, whose texts are in base 64, it is 2, and no other sample. Of brackets that begin a value it sees 256.
[[nodiscard]] GstStructure* structure_of(const char* written);
[[nodiscard]] GstCaps* caps_of(const char* written);  ///< the same

}  // namespace gpumap::gst
