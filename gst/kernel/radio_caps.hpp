// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <string>
#include <string_view>

namespace gpumap::gst {

inline constexpr const char* spectrum_name = "application/x-spectrum";
inline constexpr const char* channels_name = "application/x-iq-channels";

/// Whether transform_radio_caps() knows this built-in.
[[nodiscard]] bool is_radio_kernel(std::string_view kernel) noexcept;

/// What a radio built-in with these parameters gives for an input as `from`, or takes for such an output. Transfer
/// full; null where it has nothing to do with `from`. `from` null: whatever there may be on the other side.
[[nodiscard]] GstStructure* transform_radio_caps(std::string_view kernel, const std::string& params,
                                                 GstPadDirection direction, const GstStructure* from);

/// Where `others` leave the rate open, the input's or the nearest to it.
void fixate_rate(GstCaps* others, const GstCaps* in);

}  // namespace gpumap::gst
