// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "gpumap/kernel.h"
#include "gpumap/sample_format.h"

namespace gpumap {

/// A format of interleaved samples. A value.
struct SampleFormat {
  std::uint32_t format = 0;  ///< enum gpumap_format, or of sample_format.h
  std::uint32_t bits = 0;    ///< of one sample of one channel
  std::string_view name;     ///< in caps: audio/x-raw, or of S12LE application/x-iq
};

inline constexpr std::array sample_formats{
    SampleFormat{GPUMAP_FORMAT_U8, 8, "U8"},
    SampleFormat{GPUMAP_FORMAT_S8, 8, "S8"},
    SampleFormat{GPUMAP_FORMAT_S16, 16, "S16LE"},
    SampleFormat{GPUMAP_FORMAT_F32, 32, "F32LE"},
    SampleFormat{GPUMAP_FORMAT_S16_BE, 16, "S16BE"},
    SampleFormat{GPUMAP_FORMAT_U16, 16, "U16LE"},
    SampleFormat{GPUMAP_FORMAT_U16_BE, 16, "U16BE"},
    SampleFormat{GPUMAP_FORMAT_S24, 24, "S24LE"},
    SampleFormat{GPUMAP_FORMAT_S24_BE, 24, "S24BE"},
    SampleFormat{GPUMAP_FORMAT_S24_32, 32, "S24_32LE"},
    SampleFormat{GPUMAP_FORMAT_S24_32_BE, 32, "S24_32BE"},
    SampleFormat{GPUMAP_FORMAT_S32, 32, "S32LE"},
    SampleFormat{GPUMAP_FORMAT_S32_BE, 32, "S32BE"},
    SampleFormat{GPUMAP_FORMAT_U32, 32, "U32LE"},
    SampleFormat{GPUMAP_FORMAT_U32_BE, 32, "U32BE"},
    SampleFormat{GPUMAP_FORMAT_F32_BE, 32, "F32BE"},
    SampleFormat{GPUMAP_FORMAT_F64, 64, "F64LE"},
    SampleFormat{GPUMAP_FORMAT_F64_BE, 64, "F64BE"},
    SampleFormat{GPUMAP_FORMAT_S12, 12, "S12LE"},
};

/// Null: gpumap knows no such format.
[[nodiscard]] constexpr const SampleFormat* find_sample_format(std::string_view name) noexcept {
  const auto* const found = std::find_if(sample_formats.begin(), sample_formats.end(),
                                         [&](const SampleFormat& one) { return one.name == name; });
  return found != sample_formats.end() ? found : nullptr;
}

/// Bits of one sample of one channel; 0: it is no format of samples.
[[nodiscard]] constexpr std::uint32_t sample_bits(std::uint32_t format) noexcept {
  const auto* const found = std::find_if(sample_formats.begin(), sample_formats.end(),
                                         [&](const SampleFormat& one) { return one.format == format; });
  return found != sample_formats.end() ? found->bits : 0;
}

}  // namespace gpumap
