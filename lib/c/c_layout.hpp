// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "c/caps_text.hpp"
#include "gpumap/gpumap.h"

namespace gpumap::c {

/// The usual layout of frames with such caps; empty where gpumap does not know them.
[[nodiscard]] std::optional<gpumap_layout> layout_of(const Caps& caps);

/// GStreamer's number for a video format (GstVideoFormat), 0: none; and the other way round, GPUMAP_FORMAT_VIDEO_OTHER
/// where gpumap does not know it.
[[nodiscard]] std::uint32_t gst_number_of(std::uint32_t format) noexcept;
[[nodiscard]] std::uint32_t format_of_gst(std::uint32_t number) noexcept;

[[nodiscard]] bool is_picture(std::uint32_t format) noexcept;
/// Whether caps of several structures with lists and ranges, as a kernel's `input` line has them, agree with the
/// layout: with its media type, format, size, channels and rate. Of what else they say a layout knows nothing, nor of
/// other media types, which are taken.
[[nodiscard]] bool takes(std::string_view caps, const gpumap_layout& layout);
/// Throws Error(invalid) for a layout that leaves a frame of `bytes`, or has no planes.
void check_layout(const gpumap_layout& layout, std::uint64_t bytes);

}  // namespace gpumap::c
