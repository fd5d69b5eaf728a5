// SPDX-License-Identifier: MIT
// The caps of a kernel that declares `output converted`, as the built-in convert does: any picture that
// gpumap_load_pixels() and gpumap_load_bayer() take, to any that gpumap_store_pixels() makes, of any size. No caps with
// expressions could say that: sizes go on pixel for pixel where downstream does not ask for others, as with
// videoscale, fields of interlaced pictures do not go together with other sizes, and a parameter `crop` counts.
#pragma once

#include <gst/gst.h>

#include <algorithm>
#include <optional>
#include <string>

#include "gst/kernel/kernel_caps.hpp"

namespace gpumap::gst {

/// Of the built-in: "takes NV12, ... and Bayer, gives RGBA, ... and tensors".
[[nodiscard]] std::string formats_of_convert();

/// What is shown of one axis: `length` pixels from `start` on, where 0 goes to the edge.
struct CropAxis {
  gint start = 0, length = 0;
  [[nodiscard]] bool is_all() const { return start == 0 && length == 0; }
  [[nodiscard]] gint shown_of(gint size) const { return length != 0 ? length : std::max(size - start, 1); }
};
struct Crop {
  CropAxis width, height;
};
/// What a kernel that converts shows of a picture, by its parameter crop=[x,y,width,height]: all where it has none, and
/// where the kernel refuses it when it starts. Empty for a kernel that does not convert: no one knows.
[[nodiscard]] std::optional<Crop> crop_of(const DeclaredCaps& declared, const std::string& params);

/// The caps (transfer full) on the other side of a kernel that converts from `caps`, in order of preference. Each as
/// memory:GPUMap and as system memory.
[[nodiscard]] GstCaps* transform_converted_caps(const DeclaredCaps& declared, const std::string& params,
                                                GstPadDirection direction, const GstCaps* caps);

/// What of `others` has the format that the kernel makes first where downstream leaves a choice (transfer full): with
/// colours and alpha rather than without, and RGB rather than YUV. Of another kernel's, or of tensors, all.
[[nodiscard]] GstCaps* prefer_format(const DeclaredCaps& declared, GstCaps* others);

/// Throws Error(invalid) where `out`, of a kernel that converts, says that chroma lies where it is not made.
void check_chroma_site(const DeclaredCaps& declared, const GstCaps* in, const GstCaps* out);

/// Say of the output `out` of a kernel that converts, which downstream left open, what primaries and transfer function
/// it has: those of the input, where that says so. RGB and GRAY8 have full range; YUV keeps the input's matrix and
/// range where that is YUV, too. Where primaries and transfer function are the input's, hand its
/// mastering-display-info and content-light-level on. Say where chroma lies that pixels share. Of another kernel's
/// output say nothing.
void add_colorimetry(const DeclaredCaps& declared, const GstCaps* in, GstCaps* out);

}  // namespace gpumap::gst
