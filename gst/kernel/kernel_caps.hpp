// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "gpumap/declaration.hpp"
#include "gpumap/program.hpp"

namespace gpumap::gst {

/// Caps as a kernel declares them, a built-in or one of the user's. Those of its output may have expressions of the
/// input's width, height, rate and channels and of its parameters in braces:
/// "video/x-raw,format=GRAY8,width={width/2}".
struct DeclaredCaps {
  std::string input;       ///< empty: any
  std::string output;      ///< empty: as the input
  bool converted = false;  ///< instead of `output`: see transform_converted_caps()
  bool builtin = false;    ///< not of the user's
  /// Of which `output` or a crop is made; empty where it is of none.
  std::vector<DeclaredParameter> params;
  std::optional<DeclaredTuning> tuning;  ///< where the band goes
  std::vector<DeclaredTensor> tensors;   ///< that go with each frame: see kernel_caps.hpp
  std::string tensor_group;
  [[nodiscard]] bool empty() const noexcept { return input.empty() && output.empty() && !converted; }
  /// The same caps come of both: initial values and limits of other parameters than those in question may differ.
  [[nodiscard]] bool operator==(const DeclaredCaps& other) const;
};
[[nodiscard]] DeclaredCaps caps_of(const Declaration& declaration, bool builtin = false);
/// What the kernel takes and gives. Reads its file; what is wrong with that is told when it is to run.
[[nodiscard]] DeclaredCaps declared_caps(const KernelSettings& settings);

/// Throws Error(invalid) where these can never be caps with the element's `params`.
void check_declared_caps(const DeclaredCaps& declared, const std::string& params);

/// The numbers of `declared.params`, in their order, as the element's `params` set them. Of a text that the kernel
/// refuses when it starts: the initial ones.
[[nodiscard]] std::vector<Number> numbers_of(const DeclaredCaps& declared, const std::string& params);

/// Where a kernel moves the band, in hertz. A value.
struct Tuning {
  double shift = 0.0;
  double sky = 0.0;  ///< 0: not said
  /// The centre frequency behind the kernel, of that before it; empty: not known.
  [[nodiscard]] std::optional<double> behind(std::optional<double> center) const {
    if (sky != 0.0) return sky;
    if (center) *center += shift;
    return center;
  }
};
/// As `params` set it.
[[nodiscard]] Tuning tuning_of(const DeclaredCaps& declared, const std::string& params);

/// The caps (transfer full) on the other side of the kernel from `caps`, which came in from `direction`; `params` are
/// the element's. A field whose expression needs what the input leaves open stays open, and one that the output does
/// not mention is as in the input, where both are of the same media type; of another type only the frame rate and the
/// centre frequency are. What is asked of such fields, and of one that is the input's as in rate={rate}, is asked of
/// the input. Each as memory:GPUMap and as system memory. `declared` has been checked, and does not convert.
[[nodiscard]] GstCaps* transform_declared_caps(const DeclaredCaps& declared, const std::string& params,
                                               GstPadDirection direction, const GstCaps* caps);

/// Why the line `output` has no value for an input as `in`, a number below zero for one; empty: it has one.
[[nodiscard]] std::string output_problem(const DeclaredCaps& declared, const std::string& params, const GstCaps* in);

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

// The caps of a kernel that declares `output converted`, as the built-in convert does: any picture that
// gpumap_load_pixels() and gpumap_load_bayer() take, to any that gpumap_store_pixels() makes, of any size. No caps with
// expressions could say that: sizes go on pixel for pixel where downstream does not ask for others, as with
// videoscale, fields of interlaced pictures do not go together with other sizes, and a parameter `crop` counts.

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
