// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <optional>

#include "gst/kernel/converted_caps.hpp"

namespace gpumap::gst {

/// What becomes of a frame's metas in a kernel.
struct MetaRule {
  bool keeps_bytes = true;   ///< what comes out is laid out as what went in: what is said of that holds
  bool keeps_colors = true;  ///< the same format and colorimetry
  /// The part of the input's picture that is shown, and the size at which it is.
  struct Picture {
    gint x = 0, y = 0, shown_width = 0, shown_height = 0;
    gint width = 0, height = 0;
    [[nodiscard]] bool is_moved() const { return x != 0 || y != 0 || shown_width != width || shown_height != height; }
  };
  std::optional<Picture> picture;  ///< empty: what it is of the input's, no one knows
};

/// The rule for a kernel between these caps; `crop`: what one that converts shows of a picture.
[[nodiscard]] MetaRule meta_rule(const std::optional<Crop>& crop, bool keeps_bytes, const GstCaps* in,
                                 const GstCaps* out);

/// Give `out`, which has its memory already, the metas of `in`. Those that describe its memory stay behind; regions of
/// interest and other metas of a size are cropped and scaled with the picture, where they can be.
void copy_metas(GstBuffer* out, GstBuffer* in, const MetaRule& rule);

}  // namespace gpumap::gst
