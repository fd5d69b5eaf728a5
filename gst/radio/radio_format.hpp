// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

namespace gpumap::gst {

/// A format of SoapySDR's and what caps call it. A value.
struct RadioFormat {
  const char* soapy;      ///< CS16
  const char* caps_name;  ///< of `audio/x-raw`; S12LE of `application/x-iq`
  std::size_t bytes;      ///< of an element: I and Q together, or one real sample
  bool complex;
  bool packed;  ///< two samples share a byte
};

#if G_BYTE_ORDER == G_LITTLE_ENDIAN
#define GPUMAP_RADIO_NATIVE "LE"
#else
#define GPUMAP_RADIO_NATIVE "BE"
#endif
/// SoapySDR's samples are in the byte order of the host. It has no caps for CU12, CS4 and CU4.
inline constexpr std::array radio_formats{
    RadioFormat{"CS8", "S8", 2, true, false},
    RadioFormat{"CU8", "U8", 2, true, false},
    RadioFormat{"CS12", "S12LE", 3, true, true},
    RadioFormat{"CS16", "S16" GPUMAP_RADIO_NATIVE, 4, true, false},
    RadioFormat{"CU16", "U16" GPUMAP_RADIO_NATIVE, 4, true, false},
    RadioFormat{"CS32", "S32" GPUMAP_RADIO_NATIVE, 8, true, false},
    RadioFormat{"CU32", "U32" GPUMAP_RADIO_NATIVE, 8, true, false},
    RadioFormat{"CF32", "F32" GPUMAP_RADIO_NATIVE, 8, true, false},
    RadioFormat{"CF64", "F64" GPUMAP_RADIO_NATIVE, 16, true, false},
    RadioFormat{"S8", "S8", 1, false, false},
    RadioFormat{"U8", "U8", 1, false, false},
    RadioFormat{"S16", "S16" GPUMAP_RADIO_NATIVE, 2, false, false},
    RadioFormat{"U16", "U16" GPUMAP_RADIO_NATIVE, 2, false, false},
    RadioFormat{"S32", "S32" GPUMAP_RADIO_NATIVE, 4, false, false},
    RadioFormat{"U32", "U32" GPUMAP_RADIO_NATIVE, 4, false, false},
    RadioFormat{"F32", "F32" GPUMAP_RADIO_NATIVE, 4, false, false},
    RadioFormat{"F64", "F64" GPUMAP_RADIO_NATIVE, 8, false, false},
};
#undef GPUMAP_RADIO_NATIVE

/// Null: caps have no name for it.
[[nodiscard]] constexpr const RadioFormat* find_radio_format(std::string_view soapy) noexcept {
  const auto* const found = std::find_if(radio_formats.begin(), radio_formats.end(),
                                         [&](const RadioFormat& one) { return one.soapy == soapy; });
  return found != radio_formats.end() ? found : nullptr;
}

/// What soapysrc may give: of a radio that is not open yet (transfer full).
[[nodiscard]] inline GstCaps* radio_caps() {
  return gst_caps_from_string(
      "audio/x-raw,format=(string){S8,U8,S16LE,S16BE,U16LE,U16BE,S32LE,S32BE,U32LE,U32BE,F32LE,F32BE,F64LE,F64BE},"
      "layout=(string)interleaved,channels=(int)[1,64],rate=(int)[1,max];"
      "application/x-iq,format=(string)S12LE,layout=(string)interleaved,channels=(int)[2,64],rate=(int)[1,max]");
}

}  // namespace gpumap::gst
