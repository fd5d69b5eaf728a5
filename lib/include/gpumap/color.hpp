// SPDX-License-Identifier: MIT
#pragma once

#include "gpumap/export.hpp"
#include "gpumap/kernel.h"

namespace gpumap {

/// How video components relate to red, green and blue.
enum class ColorMatrix { bt601, bt709, bt2020, smpte240m, fcc, rgb };

/// What 8-bit values mean black and white: 16 to 235 (chroma 16 to 240), or 0 to 255. In 10 bits limited values are
/// four times as large, full ones go to 1023, and so on.
enum class ColorRange { limited, full };

/// The conversion from components of `bits` (8 to 16) to red, green and blue of 0 to 255 that `convert` applies: see
/// gpumap_color.
[[nodiscard]] GPUMAP_API gpumap_color color_matrix(ColorMatrix matrix, ColorRange range, unsigned bits = 8) noexcept;

/// The other way around: red, green and blue of 0 to 255 to components of `bits`, as gpumap_frame::out_color.
[[nodiscard]] GPUMAP_API gpumap_color color_from_rgb(ColorMatrix matrix, ColorRange range, unsigned bits = 8) noexcept;

}  // namespace gpumap
